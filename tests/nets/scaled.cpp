#include "tests/nets/scaled.h"

#include <algorithm>

namespace convlab::nets {
namespace {

struct Scaling {
  const Scale& scale;
  bool head;                 // the layer of the scores
  std::int64_t channels_in;  // in the whole net
  std::int64_t whole_image;

  std::int64_t divided(std::int64_t number) const { return ceil_div(number, scale.divisor); }
  // Divided likewise, but two stay two, and both numbers of channels are multiples of them. A
  // depthwise convolution stays one.
  std::int64_t groups(std::int64_t whole, std::int64_t in, std::int64_t out) const {
    std::int64_t groups = std::min(whole, std::max<std::int64_t>(2, divided(whole)));
    while (in % groups != 0 || out % groups != 0) --groups;
    return groups;
  }

  Layer operator()(Input input) const {
    return Input{{scale.batch, input.shape.c, scale.image, scale.image, scale.depth}};
  }
  Layer operator()(Conv conv) const {
    conv.filters = head ? scale.outputs : divided(conv.filters);
    conv.groups = groups(conv.groups, divided(channels_in), conv.filters);
    return conv;
  }
  Layer operator()(Linear linear) const {
    return Linear{head ? scale.outputs : divided(linear.outputs)};
  }
  Layer operator()(ConvTranspose conv) const {
    conv.filters = divided(conv.filters);
    return conv;
  }
  Layer operator()(Slice slice) const {
    return Slice{divided(slice.first), divided(slice.channels)};
  }
  Layer operator()(Resize resize) const {
    const auto of_image = [&](std::int64_t size) {
      return ceil_div(size * scale.image, whole_image);
    };
    return Resize{resize.kind, of_image(resize.h), of_image(resize.w)};
  }
  Layer operator()(PadChannels pad) const { return PadChannels{divided(pad.channels)}; }
  Layer operator()(Dropout dropout) const {
    if (!scale.dropout) dropout.p = 0;
    return dropout;
  }
  template <class Other>
  Layer operator()(Other layer) const {
    return layer;
  }
};

}  // namespace

Graph scaled(const Graph& net, const Scale& scale) {
  Graph small(net.name());
  for (const Node& node : net.nodes()) {
    const std::int64_t in = node.inputs.empty() ? 0 : net.nodes()[node.inputs[0]].shape.c;
    small.add(
        node.name,
        std::visit(Scaling{scale, &node == &net.nodes()[net.head()], in, net.nodes()[0].shape.h},
                   node.layer),
        node.inputs);
  }
  return small;
}

}  // namespace convlab::nets
