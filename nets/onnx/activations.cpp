// Rules of the activations. Those of several nodes are found before (written_out.h).
#include <fmt/format.h>

#include <limits>

#include "nets/onnx/attributes.h"
#include "nets/onnx/translation.h"

namespace convlab::nets::onnx_reader {
namespace {

using Kind = LayerActivation::Kind;

void activation(Call& call, ActivationKind kind) {
  elementwise(call, call.value(0), Activation{kind});
}
void relu(Call& call) { activation(call, ActivationKind::relu); }
void sigmoid(Call& call) { activation(call, ActivationKind::sigmoid); }
void hyperbolic_tangent(Call& call) { activation(call, ActivationKind::tanh); }
void hard_swish(Call& call) { activation(call, ActivationKind::hardswish); }

void activation(Call& call, Kind kind, double a = 0) {
  elementwise(call, call.value(0), LayerActivation{kind, a});
}
void leaky_relu(Call& call) { activation(call, Kind::leaky_relu, real(call.node, "alpha", 0.01)); }
void elu(Call& call) { activation(call, Kind::elu, real(call.node, "alpha", 1)); }
void softplus(Call& call) { activation(call, Kind::softplus); }
void mish(Call& call) { activation(call, Kind::mish); }

// gamma times ELU.
void selu(Call& call) {
  const LayerActivation elu{Kind::elu, real(call.node, "alpha", 1.67326319217681884765625)};
  NetValue y = call.value(0);
  y.id = call.add(elu, {y.id});
  call.put(affine(call, y, real(call.node, "gamma", 1.05070102214813232421875), 0));
}

void prelu(Call& call) {
  const NetValue& x = call.value(0);
  const Constant& slope = call.weight(1, "slope");
  if (!is_per_channel(call, x, slope)) throw Lacking{"with a slope that is not one a channel"};
  NetValue y = x;
  y.id = call.add(PRelu{}, {x.id});
  call.source({.parameter = call.name_of_layer(y.id) + ".weight",
               .shape = {call.shape(x).c},
               .from = slope});
  call.put(std::move(y));
}

void hard_sigmoid(Call& call) {
  const double alpha = real(call.node, "alpha", 0.2), beta = real(call.node, "beta", 0.5);
  if (is_about(alpha, 1. / 6) && is_about(beta, 0.5))
    return activation(call, ActivationKind::hardsigmoid);
  elementwise(call, affine(call, call.value(0), alpha, beta), LayerActivation{Kind::clip, 0, 1});
}

void gelu(Call& call) {
  if (const std::string how = text(call.node, "approximate"); !how.empty() && how != "none")
    throw Lacking{"by its approximation"};
  activation(call, ActivationKind::gelu);
}

void clip(Call& call) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto bounds = clip_bounds(call.known(), call.node);
  if (!bounds) throw Lacking{"with bounds that the model computes"};
  const auto [least, most] = *bounds;
  if (!(least <= most)) call.contradict(fmt::format("from {} to {}", least, most));
  if (least == 0 && most == 6) return activation(call, ActivationKind::relu6);
  if (least == 0 && most == infinity) return activation(call, ActivationKind::relu);
  if (least == -infinity && most == infinity) return call.put(call.value(0));
  elementwise(call, call.value(0), LayerActivation{Kind::clip, least, most});
}

// Nets end with the scores; who wants probabilities computes them from these. Without an axis it is
// the last, or in opsets before 13 the channels': the same of scores that are no image.
void softmax(Call& call) {
  const NetValue& x = call.value(0);
  const auto rank = std::int64_t(x.rank);
  const std::int64_t axis = integer(call.node, "axis", -1);
  const bool of_channels = (axis < 0 ? axis + rank : axis) == std::int64_t(call.channel_axis(x));
  if (!call.is_last() || !of_channels) throw Lacking{"but as the last node, over the classes"};
  call.note(
      fmt::format("{} is left out: the net ends with the scores before it", describe(call.node)));
  call.put(x);
}

}  // namespace

void add_activation_rules(Rules& rules) {
  const Rules mine{{"Relu", relu},
                   {"Sigmoid", sigmoid},
                   {"Tanh", hyperbolic_tangent},
                   {"HardSwish", hard_swish},
                   {"HardSigmoid", hard_sigmoid},
                   {"Gelu", gelu},
                   {"Clip", clip},
                   {"LeakyRelu", leaky_relu},
                   {"PRelu", prelu},
                   {"Elu", elu},
                   {"Selu", selu},
                   {"Softplus", softplus},
                   {"Mish", mish},
                   {"Softmax", softmax},
                   {"LogSoftmax", softmax}};
  rules.insert(mine.begin(), mine.end());
}

}  // namespace convlab::nets::onnx_reader
