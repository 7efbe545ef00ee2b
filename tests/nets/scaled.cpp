#include "tests/nets/scaled.h"

namespace convlab::nets {
namespace {

struct Scaling {
  const Scale& scale;
  bool last;  // of all layers

  std::int64_t divided(std::int64_t number) const { return ceil_div(number, scale.divisor); }

  Layer operator()(Input input) const {
    return Input{{scale.batch, input.shape.c, scale.image, scale.image}};
  }
  Layer operator()(Conv conv) const {
    conv.filters = divided(conv.filters);
    return conv;
  }
  Layer operator()(Linear linear) const {
    return Linear{last ? scale.outputs : divided(linear.outputs)};
  }
  Layer operator()(PadChannels pad) const { return PadChannels{divided(pad.channels)}; }
  Layer operator()(Dropout dropout) const { return Dropout{scale.dropout ? dropout.p : 0}; }
  template <class Other>
  Layer operator()(Other layer) const {
    return layer;
  }
};

}  // namespace

Graph scaled(const Graph& net, const Scale& scale) {
  Graph small(net.name());
  for (const Node& node : net.nodes())
    small.add(node.name, std::visit(Scaling{scale, &node == &net.nodes().back()}, node.layer),
              node.inputs);
  return small;
}

}  // namespace convlab::nets
