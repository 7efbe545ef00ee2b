#include "nets/onnx/written_out.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "nets/onnx/attributes.h"
#include "nets/onnx/model.h"

namespace convlab::nets::onnx_reader {
namespace {

bool is(const Node* node, const char* op) {
  return node && node->op_type() == op && is_standard(*node) && node->output_size() == 1;
}

class Finder {
 public:
  Finder(const onnx::GraphProto& graph, const Values& values, const Readers& readers)
      : graph_(graph), values_(values), readers_(readers) {
    for (const Node& node : graph.node())
      for (const std::string& name : node.output()) producers_.emplace(name, &node);
  }

  WrittenOutActivations find() {
    for (const Node& node : graph_.node()) {
      if (is(&node, "Sigmoid") && node.input_size() == 1)
        times_its_input(&node, Activation{ActivationKind::silu}, node.input(0), {&node});
      if (is(&node, "Softplus") && node.input_size() == 1 && is(next(&node), "Tanh"))
        times_its_input(next(&node), LayerActivation{LayerActivation::Kind::mish}, node.input(0),
                        {&node, next(&node)});
      if (is(&node, "HardSigmoid") && node.input_size() == 1 &&
          is_about(real(node, "alpha", 0.2), 1. / 6) && is_about(real(node, "beta", 0.5), 0.5))
        times_its_input(&node, Activation{ActivationKind::hardswish}, node.input(0), {&node});
      if (is(&node, "Clip")) by_relu6(node);
      if (is(&node, "Erf") && node.input_size() == 1) gelu(node);
    }
    return std::move(found_);
  }

 private:
  // The only reader of a node's output.
  const Node* next(const Node* node) const {
    if (!node) return nullptr;
    const auto all = readers_.find(node->output(0));
    return all != readers_.end() && all->second.size() == 1 ? all->second.front() : nullptr;
  }
  const Node* producer(const std::string& name) const {
    const auto found = producers_.find(name);
    return found == producers_.end() ? nullptr : found->second;
  }
  // The other input of a node of two inputs, one of which is this value.
  std::optional<std::string> beside(const Node* node, const std::string& value) const {
    if (!node || node->input_size() != 2) return {};
    if (node->input(0) == value) return node->input(1);
    if (node->input(1) == value) return node->input(0);
    return {};
  }
  // The value that a node multiplies or divides to be `factor` times it.
  std::optional<std::string> scaled_by(const Node* node, double factor) const {
    if (!node || node->input_size() != 2) return {};
    if (is(node, "Div") && is_about(scalar(values_, node->input(1)), 1 / factor))
      return node->input(0);
    if (!is(node, "Mul")) return {};
    for (const int i : {0, 1})
      if (is_about(scalar(values_, node->input(i)), factor)) return node->input(1 - i);
    return {};
  }
  std::optional<std::string> plus(const Node* node, double term) const {
    if (!is(node, "Add") || node->input_size() != 2) return {};
    for (const int i : {0, 1})
      if (is_about(scalar(values_, node->input(i)), term)) return node->input(1 - i);
    return {};
  }

  using Inner = std::initializer_list<const Node*>;
  void add(const Node* last, const Layer& layer, const std::string& input, Inner inner) {
    found_.last[last] = {layer, input};
    found_.inner.insert(inner.begin(), inner.end());
  }
  void add(const Node* last, ActivationKind kind, const std::string& input, Inner inner) {
    add(last, Layer(Activation{kind}), input, inner);
  }

  // x times what the nodes, of which `gate` is the last, compute of x.
  void times_its_input(const Node* gate, const Layer& layer, const std::string& x, Inner nodes) {
    const Node* const product = next(gate);
    if (is(product, "Mul") && beside(product, gate->output(0)) == x) add(product, layer, x, nodes);
  }

  // relu6(x + 3) / 6, which may be times x before or after the division.
  void by_relu6(const Node& clip) {
    if (clip.input_size() < 1 || !clips_to(values_, clip, 0, 6)) return;
    const Node* const sum = producer(clip.input(0));
    const std::optional<std::string> x = plus(sum, 3);
    const Node* const sixth = next(&clip);
    if (!x || next(sum) != &clip || !sixth) return;
    if (scaled_by(sixth, 1. / 6) == clip.output(0)) {
      const Node* const product = next(sixth);
      if (is(product, "Mul") && beside(product, sixth->output(0)) == x)
        add(product, ActivationKind::hardswish, *x, {sum, &clip, sixth});
      else
        add(sixth, ActivationKind::hardsigmoid, *x, {sum, &clip});
    } else if (is(sixth, "Mul") && beside(sixth, clip.output(0)) == x) {
      const Node* const last = next(sixth);
      if (last && scaled_by(last, 1. / 6) == sixth->output(0))
        add(last, ActivationKind::hardswish, *x, {sum, &clip, sixth});
    }
  }

  // x (1 + erf(x / sqrt 2)) / 2, with the three factors in any order.
  void gelu(const Node& erf) {
    const Node* const scaled = producer(erf.input(0));
    const std::optional<std::string> x = scaled_by(scaled, std::numbers::sqrt2 / 2);
    const Node* const sum = next(&erf);
    if (!x || next(scaled) != &erf || plus(sum, 1) != erf.output(0)) return;
    const Node* const product = next(sum);
    if (!product) return;
    if (scaled_by(product, 0.5) == sum->output(0)) {
      const Node* const last = next(product);
      if (is(last, "Mul") && beside(last, product->output(0)) == x)
        add(last, ActivationKind::gelu, *x, {scaled, &erf, sum, product});
      return;
    }
    const std::optional<std::string> other = beside(product, sum->output(0));
    if (!is(product, "Mul") || !other) return;
    if (other == x) {
      const Node* const last = next(product);
      if (last && scaled_by(last, 0.5) == product->output(0))
        add(last, ActivationKind::gelu, *x, {scaled, &erf, sum, product});
    } else if (const Node* const half = producer(*other);
               scaled_by(half, 0.5) == x && next(half) == product) {
      add(product, ActivationKind::gelu, *x, {scaled, &erf, sum, half});
    }
  }

  const onnx::GraphProto& graph_;
  const Values& values_;
  const Readers& readers_;
  std::unordered_map<std::string, const Node*> producers_;
  WrittenOutActivations found_;
};

}  // namespace

std::optional<double> scalar(const Values& values, const std::string& name) {
  const auto v = values.find(name);
  if (v == values.end() || !v->second.data || v->second.data->size() != 1) return {};
  return v->second.data->front();
}

bool is_about(std::optional<double> value, double expected) {
  return value && std::abs(*value - expected) <= 1e-4 * std::abs(expected);
}

std::optional<std::pair<double, double>> clip_bounds(const Values& values, const Node& clip) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  // Attributes in older opsets, inputs since.
  const auto bound = [&](const char* name, int input, double none) -> std::optional<double> {
    if (const onnx::AttributeProto* const a = attribute(clip, name)) return a->f();
    if (input < clip.input_size() && !clip.input(input).empty())
      return scalar(values, clip.input(input));
    return none;
  };
  std::optional<double> low = bound("min", 1, -infinity), high = bound("max", 2, infinity);
  if (!low || !high) return {};
  if (*low < -1e38) low = -infinity;  // defaults of older opsets
  if (*high > 1e38) high = infinity;
  return std::pair(*low, *high);
}

bool clips_to(const Values& values, const Node& clip, double least, double most) {
  return clip_bounds(values, clip) == std::pair(least, most);
}

WrittenOutActivations find_written_out(const onnx::GraphProto& graph, const Values& values,
                                       const Readers& readers) {
  return Finder(graph, values, readers).find();
}

}  // namespace convlab::nets::onnx_reader
