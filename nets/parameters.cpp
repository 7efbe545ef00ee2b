#include "nets/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "conv/error.h"

namespace convlab::nets {
namespace {

// splitmix64 of a counter.
std::uint64_t hash(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// N(0, 1) by Box & Muller 1958.
double normal(std::uint64_t bits) {
  const double u = (double(bits >> 32) + 1) / 4294967297.0;
  const double angle = 2 * std::numbers::pi * double(bits & 0xFFFFFFFFu) / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * std::cos(angle);
}

// In (-1, 1).
double symmetric(std::uint64_t bits) {
  return (double(bits >> 11) + 0.5) / double(std::uint64_t(1) << 52) - 1;
}

double initial_value(const Initial& initial, std::uint64_t bits) {
  switch (initial.kind) {
    case Initial::Kind::zero:
      return 0;
    case Initial::Kind::one:
      return 1;
    case Initial::Kind::constant:
      return initial.value;
    case Initial::Kind::he:
      return normal(bits) * std::sqrt(2.0 / double(initial.fan_in));
    case Initial::Kind::recurrent:
      return symmetric(bits) / std::sqrt(double(initial.fan_in));
    case Initial::Kind::glorot:
      break;
  }
  return symmetric(bits) * std::sqrt(6.0 / double(initial.fan_in + initial.fan_out));
}

// Halves the variance of what it reads, like ReLU.
bool is_rectifier(ActivationKind kind) {
  return kind == ActivationKind::relu || kind == ActivationKind::relu6 ||
         kind == ActivationKind::hardswish || kind == ActivationKind::silu ||
         kind == ActivationKind::gelu;
}

bool is_rectifier(const LayerActivation& activation) {
  using Kind = LayerActivation::Kind;
  return activation.kind == Kind::leaky_relu || activation.kind == Kind::elu ||
         activation.kind == Kind::mish;
}

// Looks past layers that keep the sign, or at least the scale, of their input.
bool rectifier_follows(const Graph& graph, NodeId id) {
  const std::vector<Node>& nodes = graph.nodes();
  for (NodeId user = id + 1; user < nodes.size(); ++user) {
    const Node& node = nodes[user];
    if (std::find(node.inputs.begin(), node.inputs.end(), id) == node.inputs.end()) continue;
    if (const auto* activation = std::get_if<Activation>(&node.layer)) {
      if (is_rectifier(activation->kind)) return true;
    } else if (const auto* other = std::get_if<LayerActivation>(&node.layer)) {
      if (is_rectifier(*other)) return true;
    } else if (std::holds_alternative<PRelu>(node.layer)) {
      return true;
    } else if (std::holds_alternative<BatchNorm>(node.layer) ||
               std::holds_alternative<LayerNorm>(node.layer) ||
               std::holds_alternative<GroupNorm>(node.layer) ||
               std::holds_alternative<Add>(node.layer) ||
               std::holds_alternative<Pool>(node.layer) ||
               std::holds_alternative<Concat>(node.layer)) {
      if (rectifier_follows(graph, user)) return true;
    }
  }
  return false;
}

}  // namespace

Initial initial_weights(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes()[id];
  Initial initial;
  initial.kind = rectifier_follows(graph, id) ? Initial::Kind::he : Initial::Kind::glorot;
  if (const auto* conv = std::get_if<Conv>(&node.layer)) {
    const ConvProblem p = graph.conv_problem(node);
    initial.fan_in = p.c / conv->groups * p.t * p.r * p.s;
    initial.fan_out = p.k / conv->groups * p.t * p.r * p.s;
  } else if (is_transposed(node.layer)) {
    // An output sums over the taps of one phase of the stride.
    const ConvProblem p = graph.conv_problem(node);
    initial.fan_in = std::max<std::int64_t>(
        1, p.k / p.groups * p.t * p.r * p.s / (p.stride_d * p.stride_h * p.stride_w));
    initial.fan_out = p.c / p.groups * p.t * p.r * p.s;
  } else {
    const Shape& x = graph.nodes()[node.inputs[0]].shape;
    initial.fan_in = x.c * x.pixels();
    initial.fan_out = node.shape.c;
  }
  return initial;
}

std::size_t Parameters::add(std::string name, std::vector<std::int64_t> shape, Initial initial,
                            bool trained) {
  return append(std::move(name), std::move(shape), initial, trained, false);
}

std::size_t Parameters::add_joined(std::string name, std::vector<std::int64_t> shape,
                                   Initial initial) {
  return append(std::move(name), std::move(shape), initial, trained_.back(), true);
}

std::size_t Parameters::append(std::string name, std::vector<std::int64_t> shape, Initial initial,
                               bool trained, bool joined) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  list_.push_back({std::move(name), std::move(shape), count});
  initial_.push_back(initial);
  trained_.push_back(trained);
  joined_.push_back(joined);
  std::size_t first = list_.size() - 1;  // of its block
  while (joined_[first]) --first;
  std::size_t before = 0;  // bytes of the block so far
  for (std::size_t i = first; i + 1 < list_.size(); ++i)
    before += std::size_t(list_[i].count * size_of(dtype_));
  const std::size_t bytes = padded(before + std::size_t(count * size_of(dtype_))) - padded(before);
  bytes_of_.push_back(bytes);
  trained_offsets_.push_back(joined ? trained_offsets_[first] + before : trained_bytes_);
  bytes_ += bytes;
  if (trained) trained_bytes_ += bytes;
  return list_.size() - 1;
}

std::int64_t Parameters::block_count(std::size_t first) const {
  std::int64_t count = list_[first].count;
  for (std::size_t i = first + 1; i < list_.size() && joined_[i]; ++i) count += list_[i].count;
  return count;
}

void Parameters::allocate(bool with_gradients, Device& device, Stream& stream) {
  if (with_gradients) {
    own_gradients_ = device.allocate(trained_bytes_);
    gradients_ = own_gradients_.span();
    device.ops().zero(gradients_, stream);
  }
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (joined_[i]) {
      values_.emplace_back();
      list_[i].value = list_[i - 1].value + list_[i - 1].count * size_of(dtype_);
    } else {
      values_.push_back(device.allocate(padded(std::size_t(block_count(i) * size_of(dtype_)))));
      device.ops().zero(values_[i].span(), stream);
      list_[i].value = values_[i].data();
    }
    if (with_gradients && trained_[i]) list_[i].gradient = gradients_.data() + trained_offsets_[i];
  }
}

void Parameters::release(std::size_t i) {
  values_[i] = {};
  list_[i].value = nullptr;
  bytes_ -= value_bytes(i);
}

void Parameters::place(std::size_t i, std::byte* value, Device& device) {
  if (joined_[i] || (i + 1 < list_.size() && joined_[i + 1]))
    throw InputError(
        fmt::format("{}: is one block with its layer's other parameters, and cannot lie elsewhere",
                    list_[i].name));
  values_[i] = value != nullptr ? Buffer() : device.allocate(bytes_of_[i]);
  list_[i].value = value != nullptr ? value : values_[i].data();
}

void Parameters::place_gradients(Span gradients) {
  for (Parameter& p : list_)
    if (p.gradient != nullptr) p.gradient = gradients.data() + (p.gradient - gradients_.data());
  gradients_ = gradients;
  own_gradients_ = Buffer();
}

void Parameters::initialise(std::uint64_t seed, Device& device, Stream& stream) {
  // In pieces: a fully connected layer's weights may be half of the net.
  constexpr std::int64_t piece = 1 << 18;
  const std::int64_t size = size_of(dtype_);
  std::vector<std::byte> host(std::size_t(piece * size));
  for (std::size_t i = 0; i < list_.size(); ++i) {
    const std::uint64_t key = hash(hash(seed) + i);
    for (std::int64_t begin = 0; begin < list_[i].count; begin += piece) {
      const std::int64_t count = std::min(piece, list_[i].count - begin);
      for (std::int64_t j = 0; j < count; ++j) {
        const double value = initial_value(initial_[i], hash(key + std::uint64_t(begin + j)));
        if (dtype_ == DType::f64)
          reinterpret_cast<double*>(host.data())[j] = value;
        else
          reinterpret_cast<float*>(host.data())[j] = float(value);
      }
      device.copy_to_device(list_[i].value + begin * size,
                            ConstSpan(host).first(std::size_t(count * size)), stream);
      stream.synchronize();
    }
  }
}

namespace {

// How many of Parameter::state a rule uses.
std::size_t states_of(const UpdateRule& rule) {
  const auto* sgd = std::get_if<SgdDesc>(&rule);
  return !sgd ? 2 : sgd->momentum != 0 ? 1 : 0;
}

}  // namespace

std::size_t Parameters::state_bytes(const UpdateRule& rule) const {
  return states_of(rule) * trained_bytes_;
}

void Parameters::start_optimizer(const UpdateRule& rule, Device& device, Stream& stream) {
  for (std::size_t s = 0; s < states_of(rule); ++s) {
    if (state_[s].data() != nullptr) continue;
    state_[s] = device.allocate(trained_bytes_);
    device.ops().zero(state_[s].span(), stream);
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (trained_[i]) list_[i].state[s] = state_[s].data() + trained_offsets_[i];
  }
}

void Parameters::begin_update(const UpdateRule& rule, Device& device, Stream& stream) {
  if (const auto* sgd = std::get_if<SgdDesc>(&rule))
    validate(*sgd, this);  // the velocity is allocated next
  else
    validate(std::get<AdamDesc>(rule));
  start_optimizer(rule, device, stream);
  ++updates_;
}

void Parameters::update(const UpdateRule& rule, std::size_t i, Device& device,
                        Stream& stream) const {
  const Parameter& p = list_[i];
  if (p.gradient == nullptr || joined_[i]) return;
  const std::int64_t count = block_count(i);
  if (const auto* sgd = std::get_if<SgdDesc>(&rule)) {
    device.ops().sgd_update(dtype_, *sgd, count, p.gradient, p.value, p.state[0], stream);
  } else {
    AdamDesc adam = std::get<AdamDesc>(rule);
    adam.step = updates_;
    device.ops().adam_update(dtype_, adam, count, p.gradient, p.value, p.state[0], p.state[1],
                             stream);
  }
}

}  // namespace convlab::nets
