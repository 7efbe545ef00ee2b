// oneDNN's recurrent layers as a peer, as its users would run them: weights in the format that it
// prefers, packed once, and as many threads as all others.
//
// Its forward pass leaves a workspace for its backward pass, in a format of its own, and its
// backward pass computes all gradients at once. So activations are [its workspace][hn][cn], dgates
// are the gradients of the weights in its formats, and backward_filter only brings them into ours.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels_cpu/algos.h"
#include "kernels_cpu/onednn/primitive.h"
#include "kernels_cpu/recurrent/strategies.h"

namespace convlab::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using namespace onednn;

constexpr auto f32 = memory::data_type::f32;

// The gates in oneDNN's order, by their places in ours. Its GRU with the reset after the product
// has z r n, and a fourth bias: that of U_n h.
std::vector<std::int64_t> gate_order(RecurrentCell cell) {
  if (cell == RecurrentCell::gru) return {1, 0, 2};
  if (cell == RecurrentCell::lstm) return {0, 1, 2, 3};
  return {0};
}

// Memory descriptors of a problem, of which weights are plain or in the format it prefers.
struct Descs {
  memory::desc x, y, state, w_ih, w_hh, bias;
  memory::desc no_state;  // of c, unless an lstm

  Descs(const RecurrentProblem& p, bool plain) {
    const memory::dim l = p.layers, d = p.directions(), g = p.gates();
    x = {{p.t, p.n, p.i}, f32, Tag::tnc};
    y = {{p.t, p.n, d * p.h}, f32, Tag::tnc};
    state = {{l, d, p.n, p.h}, f32, Tag::ldnc};
    w_ih = {{l, d, p.input_of(0), g, p.h}, f32, plain ? Tag::ldgoi : Tag::any};
    w_hh = {{l, d, p.h, g, p.h}, f32, plain ? Tag::ldgoi : Tag::any};
    bias = {{l, d, p.cell == RecurrentCell::gru ? 4 : g, p.h}, f32, Tag::ldgo};
  }
};

// A primitive, and the formats of weights that it prefers.
struct Rnn {
  dnnl::primitive_desc_base pd;
  memory::desc w_ih, w_hh, dw_ih, dw_hh;
};

template <class Operation, class... Args>
typename Operation::primitive_desc forward_desc(Args... args) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Operation::primitive_desc(engine(), args..., user_scratchpad());
#else
  return typename Operation::primitive_desc(typename Operation::desc(args...), user_scratchpad(),
                                            engine());
#endif
}

template <class Operation, class Hint, class... Args>
typename Operation::primitive_desc backward_desc(const Hint& hint, Args... args) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Operation::primitive_desc(engine(), args..., hint, user_scratchpad());
#else
  return typename Operation::primitive_desc(typename Operation::desc(args...), user_scratchpad(),
                                            engine(), hint);
#endif
}

template <class Pd>
Rnn forward_rnn(const Pd& pd) {
  return {pd, pd.weights_layer_desc(), pd.weights_iter_desc(), {}, {}};
}
template <class Pd>
Rnn backward_rnn(const Pd& pd) {
  return {pd, pd.weights_layer_desc(), pd.weights_iter_desc(), pd.diff_weights_layer_desc(),
          pd.diff_weights_iter_desc()};
}

// The primitive of the problem's pass; backward_filter's is that of backward_data. Throws
// dnnl::error when there is none.
Rnn describe(const RecurrentProblem& p) {
  using dnnl::prop_kind;
  const Descs d(p, false);
  const auto direction = p.bidirectional ? dnnl::rnn_direction::bidirectional_concat
                                         : dnnl::rnn_direction::unidirectional_left2right;
  const bool forward = p.pass == Pass::forward;
  const auto kind =
      forward && !p.training ? prop_kind::forward_inference : prop_kind::forward_training;
  const auto backward = prop_kind::backward;
  switch (p.cell) {
    case RecurrentCell::rnn_tanh:
    case RecurrentCell::rnn_relu: {
      const auto activation = p.cell == RecurrentCell::rnn_relu ? dnnl::algorithm::eltwise_relu
                                                                : dnnl::algorithm::eltwise_tanh;
      const auto pd = forward_desc<dnnl::vanilla_rnn_forward>(
          kind, activation, direction, d.x, d.state, d.w_ih, d.w_hh, d.bias, d.y, d.state);
      if (forward) return forward_rnn(pd);
      return backward_rnn(backward_desc<dnnl::vanilla_rnn_backward>(
          pd, backward, activation, direction, d.x, d.state, d.w_ih, d.w_hh, d.bias, d.y, d.state,
          d.x, d.state, d.w_ih, d.w_hh, d.bias, d.y, d.state));
    }
    case RecurrentCell::gru: {
      const auto pd = forward_desc<dnnl::lbr_gru_forward>(kind, direction, d.x, d.state, d.w_ih,
                                                          d.w_hh, d.bias, d.y, d.state);
      if (forward) return forward_rnn(pd);
      return backward_rnn(backward_desc<dnnl::lbr_gru_backward>(
          pd, backward, direction, d.x, d.state, d.w_ih, d.w_hh, d.bias, d.y, d.state, d.x, d.state,
          d.w_ih, d.w_hh, d.bias, d.y, d.state));
    }
    case RecurrentCell::lstm: {
      const auto pd = forward_desc<dnnl::lstm_forward>(
          kind, direction, d.x, d.state, d.state, d.w_ih, d.w_hh, d.bias, d.y, d.state, d.state);
      if (forward) return forward_rnn(pd);
      return backward_rnn(backward_desc<dnnl::lstm_backward>(
          pd, backward, direction, d.x, d.state, d.state, d.w_ih, d.w_hh, d.bias, d.y, d.state,
          d.state, d.x, d.state, d.state, d.w_ih, d.w_hh, d.bias, d.y, d.state, d.state));
    }
  }
  throw Error("no such cell");
}

// Weights in the plain formats of Descs, gates in oneDNN's order, from ours or back. They are one
// buffer of so many floats.
struct PlainWeights {
  float *w_ih, *w_hh, *bias;

  static std::size_t floats(const RecurrentProblem& p) {
    return count(p, (p.i + p.h) * p.gates() + (p.cell == RecurrentCell::gru ? 4 : p.gates()));
  }
  PlainWeights(const RecurrentProblem& p, float* buffer)
      : w_ih(buffer),
        w_hh(w_ih + count(p, p.i * p.gates())),
        bias(w_hh + count(p, p.h * p.gates())) {}

  void take(const RecurrentProblem& p, const float* weights) {
    for_each_gate(
        p, [&](std::int64_t layer, std::int64_t direction, std::int64_t to, std::int64_t from) {
          const std::int64_t ld = layer * p.directions() + direction, g = p.gates(), h = p.h;
          std::copy_n(weights + p.weights_offset(layer, direction) + from * h * p.i, h * p.i,
                      w_ih + (ld * g + to) * h * p.i);
          std::copy_n(weights + p.w_hh_offset(layer, direction) + from * h * h, h * h,
                      w_hh + (ld * g + to) * h * h);
          const float *const b_ih = weights + p.b_ih_offset(layer, direction) + from * h,
                             *const b_hh = weights + p.b_hh_offset(layer, direction) + from * h;
          float* const b = bias_of(p, ld, to);
          for (std::int64_t j = 0; j < h; ++j) {
            b[j] = is_split(p, to) ? b_ih[j] : b_ih[j] + b_hh[j];
            if (is_split(p, to)) b[h + j] = b_hh[j];
          }
        });
  }
  void give(const RecurrentProblem& p, float* weights) {
    for_each_gate(
        p, [&](std::int64_t layer, std::int64_t direction, std::int64_t from, std::int64_t to) {
          const std::int64_t ld = layer * p.directions() + direction, g = p.gates(), h = p.h;
          std::copy_n(w_ih + (ld * g + from) * h * p.i, h * p.i,
                      weights + p.weights_offset(layer, direction) + to * h * p.i);
          std::copy_n(w_hh + (ld * g + from) * h * h, h * h,
                      weights + p.w_hh_offset(layer, direction) + to * h * h);
          const float* const b = bias_of(p, ld, from);
          std::copy_n(b, h, weights + p.b_ih_offset(layer, direction) + to * h);
          std::copy_n(b + (is_split(p, from) ? h : 0), h,
                      weights + p.b_hh_offset(layer, direction) + to * h);
        });
  }

 private:
  static std::size_t count(const RecurrentProblem& p, std::int64_t of_unit) {
    return std::size_t(p.layers * p.directions() * p.h * of_unit);
  }
  // A GRU's n has two biases, which lie one after the other.
  static bool is_split(const RecurrentProblem& p, std::int64_t gate) {
    return p.cell == RecurrentCell::gru && gate == 2;
  }
  float* bias_of(const RecurrentProblem& p, std::int64_t ld, std::int64_t gate) {
    return bias + (ld * (p.cell == RecurrentCell::gru ? 4 : p.gates()) + gate) * p.h;
  }
  // f(layer, direction, gate in oneDNN's order, gate in ours).
  template <class F>
  static void for_each_gate(const RecurrentProblem& p, F f) {
    const std::vector<std::int64_t> order = gate_order(p.cell);
    for (std::int64_t layer = 0; layer < p.layers; ++layer)
      for (std::int64_t direction = 0; direction < p.directions(); ++direction)
        for (std::size_t gate = 0; gate < order.size(); ++gate)
          f(layer, direction, std::int64_t(gate), order[gate]);
  }
};

std::int64_t line(std::size_t bytes) { return round_up(std::int64_t(bytes), 64); }

// Where the parts of activations, packed weights and dgates lie.
struct Format {
  std::int64_t hn = 0, cn = 0, activations = 0;
  std::int64_t w_hh = 0, bias = 0, packed = 0;
  std::int64_t dw_hh = 0, dbias = 0, dgates = 0;

  Format(const RecurrentProblem& p, const Rnn& rnn) {
    hn = line(rnn.pd.query_md(dnnl::query::workspace_md).get_size());
    cn = hn + line(std::size_t(p.state_bytes()));
    activations = cn + line(std::size_t(p.state_bytes()));
    const std::int64_t biases = line(Descs(p, true).bias.get_size());
    w_hh = line(rnn.w_ih.get_size());
    bias = w_hh + line(rnn.w_hh.get_size());
    packed = bias + biases;
    if (p.pass == Pass::forward) return;
    dw_hh = line(rnn.dw_ih.get_size());
    dbias = dw_hh + line(rnn.dw_hh.get_size());
    dgates = dbias + biases;
  }
};

class RnnPlan : public RecurrentPlan {
 public:
  RnnPlan(const RecurrentProblem& p, int threads)
      : p_(p),
        threads_(threads),
        plain_(p, true),
        rnn_(describe(p)),
        format_(p, rnn_),
        primitive_(rnn_.pd, dnnl::primitive(rnn_.pd.get())) {
    scratchpad_bytes_ = line(primitive_.scratchpad_bytes());
    if (p.pass != Pass::backward_filter) return;
    dw_ih_ = reorder(rnn_.dw_ih, plain_.w_ih);
    dw_hh_ = reorder(rnn_.dw_hh, plain_.w_hh);
    scratchpad_bytes_ = line(std::max(dw_ih_->scratchpad_bytes(), dw_hh_->scratchpad_bytes()));
  }

  // States that are absent, in and out, or gradients in plain formats; then the scratchpad; then
  // dx, which oneDNN always computes.
  std::size_t workspace_bytes() const noexcept override {
    if (p_.pass == Pass::backward_filter) return std::size_t(plain_bytes() + scratchpad_bytes_);
    return std::size_t(dx_at() + (p_.pass == Pass::backward_data ? p_.x_bytes() : 0));
  }
  std::size_t packed_weights_bytes() const noexcept override {
    return p_.pass == Pass::backward_filter ? 0 : std::size_t(format_.packed);
  }

  void pack_weights(ConstSpan weights, Span packed, Stream&) const override {
    const ThreadCount count = require_threads(threads_);
    std::vector<float> buffer(PlainWeights::floats(p_));
    PlainWeights from(p_, buffer.data());
    from.take(p_, reinterpret_cast<const float*>(weights.data()));
    const auto pack = [&](const memory::desc& plain, const void* data, const memory::desc& to,
                          std::byte* out) {
      const Primitive primitive = reorder(plain, to);
      std::vector<std::byte> scratchpad(primitive.scratchpad_bytes());
      primitive.execute({{DNNL_ARG_FROM, view(plain, data)}, {DNNL_ARG_TO, view(to, out)}},
                        scratchpad.data());
    };
    pack(plain_.w_ih, from.w_ih, rnn_.w_ih, packed.data());
    pack(plain_.w_hh, from.w_hh, rnn_.w_hh, packed.data() + format_.w_hh);
    std::memcpy(packed.data() + format_.bias, from.bias, plain_.bias.get_size());
  }

  void run(const RecurrentArgs& args, Workspace workspace, Stream&) const override {
    const ThreadCount count = require_threads(threads_);
    const PhaseScope phase(args.phases, 0);
    if (p_.pass == Pass::backward_filter) return give_dweights(args, workspace.data());
    Primitive::Args operands = common(args, workspace.data());
    std::byte* const spare = workspace.data() + 2 * state_bytes();
    if (p_.pass == Pass::forward) {
      auto* const activations =
          static_cast<std::byte*>(p_.training ? args.out_activations : nullptr);
      operands.insert({DNNL_ARG_DST_LAYER, view(plain_.y, args.out)});
      // The backward pass reads the states again, which are then in activations.
      std::byte* const hn = activations ? activations + format_.hn : spare;
      std::byte* const cn = activations ? activations + format_.cn : spare + state_bytes();
      operands.insert({DNNL_ARG_DST_ITER, view(plain_.state, hn)});
      if (p_.has_cell_state()) operands.insert({DNNL_ARG_DST_ITER_C, view(plain_.state, cn)});
      if (activations) operands.insert({DNNL_ARG_WORKSPACE, workspace_view(activations)});
      primitive_.execute(std::move(operands), workspace.data() + 4 * state_bytes());
      if (args.out_h) std::memcpy(args.out_h, hn, std::size_t(p_.state_bytes()));
      if (args.out_c && p_.has_cell_state())
        std::memcpy(args.out_c, cn, std::size_t(p_.state_bytes()));
    } else {
      backward(args, workspace.data(), spare, std::move(operands));
    }
  }

 private:
  std::int64_t state_bytes() const { return line(std::size_t(p_.state_bytes())); }
  std::int64_t dx_at() const { return 4 * state_bytes() + scratchpad_bytes_; }

  // The operands of both passes. Absent states are zeros at the workspace's beginning.
  Primitive::Args common(const RecurrentArgs& args, std::byte* workspace) const {
    std::memset(workspace, 0, std::size_t(2 * state_bytes()));
    const auto* const packed = static_cast<const std::byte*>(args.weights);
    Primitive::Args operands{{DNNL_ARG_SRC_LAYER, view(plain_.x, args.x)},
                             {DNNL_ARG_SRC_ITER, view(plain_.state, args.h0 ? args.h0 : workspace)},
                             {DNNL_ARG_WEIGHTS_LAYER, view(rnn_.w_ih, packed)},
                             {DNNL_ARG_WEIGHTS_ITER, view(rnn_.w_hh, packed + format_.w_hh)},
                             {DNNL_ARG_BIAS, view(plain_.bias, packed + format_.bias)}};
    if (p_.has_cell_state())
      operands.insert({DNNL_ARG_SRC_ITER_C, view(plain_.state, args.c0 ? args.c0 : workspace)});
    return operands;
  }
  memory workspace_view(const std::byte* activations) const {
    return view(rnn_.pd.query_md(dnnl::query::workspace_md), activations);
  }

  void backward(const RecurrentArgs& args, std::byte* workspace, std::byte* spare,
                Primitive::Args operands) const {
    const auto* const activations = static_cast<const std::byte*>(args.activations);
    auto* const dgates = static_cast<std::byte*>(args.out_dgates);
    std::memset(dgates, 0, std::size_t(format_.dgates));  // oneDNN adds to them
    const auto state = [&](int arg, const void* data) {
      operands.insert({arg, view(plain_.state, data)});
    };
    operands.insert({DNNL_ARG_WORKSPACE, workspace_view(activations)});
    operands.insert({DNNL_ARG_DST_LAYER, view(plain_.y, args.y)});
    operands.insert({DNNL_ARG_DIFF_DST_LAYER, view(plain_.y, args.dy)});
    operands.insert(
        {DNNL_ARG_DIFF_SRC_LAYER, view(plain_.x, args.out ? args.out : workspace + dx_at())});
    state(DNNL_ARG_DST_ITER, activations + format_.hn);
    state(DNNL_ARG_DIFF_DST_ITER, args.dhn ? args.dhn : workspace);
    state(DNNL_ARG_DIFF_SRC_ITER, args.out_h ? args.out_h : spare);
    if (p_.has_cell_state()) {
      state(DNNL_ARG_DST_ITER_C, activations + format_.cn);
      state(DNNL_ARG_DIFF_DST_ITER_C, args.dcn ? args.dcn : workspace);
      state(DNNL_ARG_DIFF_SRC_ITER_C, args.out_c ? args.out_c : spare + state_bytes());
    }
    operands.insert({DNNL_ARG_DIFF_WEIGHTS_LAYER, view(rnn_.dw_ih, dgates)});
    operands.insert({DNNL_ARG_DIFF_WEIGHTS_ITER, view(rnn_.dw_hh, dgates + format_.dw_hh)});
    operands.insert({DNNL_ARG_DIFF_BIAS, view(plain_.bias, dgates + format_.dbias)});
    primitive_.execute(std::move(operands), workspace + 4 * state_bytes());
  }

  void give_dweights(const RecurrentArgs& args, std::byte* workspace) const {
    const auto* const dgates = static_cast<const std::byte*>(args.dgates);
    std::byte* const scratchpad = workspace + plain_bytes();
    PlainWeights to(p_, reinterpret_cast<float*>(workspace));
    dw_ih_->execute(
        {{DNNL_ARG_FROM, view(rnn_.dw_ih, dgates)}, {DNNL_ARG_TO, view(plain_.w_ih, to.w_ih)}},
        scratchpad);
    dw_hh_->execute({{DNNL_ARG_FROM, view(rnn_.dw_hh, dgates + format_.dw_hh)},
                     {DNNL_ARG_TO, view(plain_.w_hh, to.w_hh)}},
                    scratchpad);
    std::memcpy(to.bias, dgates + format_.dbias, plain_.bias.get_size());
    to.give(p_, static_cast<float*>(args.out));
  }
  std::int64_t plain_bytes() const { return line(PlainWeights::floats(p_) * sizeof(float)); }

  RecurrentProblem p_;
  int threads_;
  Descs plain_;
  Rnn rnn_;
  Format format_;
  Primitive primitive_;
  std::optional<Primitive> dw_ih_, dw_hh_;  // backward_filter's reorders
  std::int64_t scratchpad_bytes_ = 0;
};

class OneDnnRnn : public RecurrentAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{
        "onednn.rnn",
        1,
        DeviceKind::cpu,
        Origin::vendor,
        "oneDNN's recurrent layer; its bwd_d computes dweights too, and bwd_w copies them",
        {"onednn"},
        "onednn"};
    return info;
  }

  std::optional<Refusal> refuse(const RecurrentProblem& p, Device& device) const override {
    if (p.dtype != DType::f32) return Refusal{Field::dtype, "f32", std::string(to_string(p.dtype))};
    if (p.recompute)
      return Refusal{Field::library, {}, "oneDNN saves what its backward pass needs"};
    if (p.layers > 1 && p.i != p.directions() * p.h)
      return Refusal{Field::channels,
                     fmt::format("{} inputs with several layers", p.directions() * p.h),
                     std::to_string(p.i)};
    if (p.layers > 1 && p.bidirectional)
      return Refusal{Field::library, "one layer or one direction",
                     fmt::format("{} layers in both", p.layers)};
    const DeviceInfo& d = device.info();
    if (auto refusal = refuse_other_isa(d)) return refusal;
    try {
      const ThreadCount count(d.threads);
      (void)describe(p);
    } catch (const dnnl::error& e) {
      return Refusal{Field::library, {}, fmt::format("oneDNN {}: {}", onednn_version(), e.what())};
    }
    return {};
  }

  std::vector<Config> configs(const RecurrentProblem&, Device&) const override {
    return {Config{}};
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }

  WorkEstimate work(const RecurrentProblem& asked, const Config&, Device& device) const override {
    RecurrentProblem p = asked;
    p.input_gradient = true;  // oneDNN always computes dx
    const ThreadCount count(device.info().threads);
    const double weights = double(p.weights_bytes()), data = double(p.x_bytes() + p.y_bytes());
    if (p.pass == Pass::backward_filter) return {{{"copy", 0, weights, weights, 0.5}}};
    // A product a step and parallel loops around it, as its reference implementation has them on
    // every ISA. Reading a recurrent weight costs as much as two rows' multiply-adds.
    const double rows = double(p.n), u = double(p.recurrent_bytes());
    PhaseWork work{describe(p).pd.impl_info_str(), p.flops(),
                   weights - u + bytes_over_steps(u, p, device.info()) + data, data,
                   0.85 * rows / (rows + 2)};
    work.waits_s = 2.5e-6 * double(p.t * p.layers * p.directions());
    if (p.pass == Pass::backward_data) {  // dweights too
      work.flops *= 2;
      work.waits_s *= 2;
    }
    return {{work}, {"pack_weights", 0, weights, weights, 0.2}};
  }

  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device& device) const override {
    config.require_only({});
    const ThreadCount count(device.info().threads);
    return std::make_unique<RnnPlan>(p, count.threads());
  }

  std::optional<SavedBytes> own_format(const RecurrentProblem& p, Device& device) const override {
    const ThreadCount count(device.info().threads);
    RecurrentProblem backward = p;
    backward.pass = Pass::backward_data;
    backward.training = false;
    const Format format(backward, describe(backward));
    return SavedBytes{std::size_t(format.activations), std::size_t(format.dgates)};
  }
};

}  // namespace

void append_onednn(RecurrentRegistry& registry) { registry.append(std::make_unique<OneDnnRnn>()); }

}  // namespace convlab::cpu
