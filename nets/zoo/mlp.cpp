#include <fmt/format.h>

#include <algorithm>

#include "nets/tensor.h"
#include "nets/zoo/described_name.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

Activation::Kind activation_of(const DescribedName& name) {
  if (!name.has_word() || name.word() == "tanh") return Activation::Kind::tanh;
  if (name.word() == "relu") return Activation::Kind::relu;
  if (name.word() == "sigmoid") return Activation::Kind::sigmoid;
  name.fail(fmt::format("'{}' is not tanh, relu or sigmoid", name.word()));
}

// Of inputs, hidden layers, outputs.
std::vector<std::int64_t> widths_of(const DescribedName& name) {
  std::vector<std::int64_t> widths;
  for (const DescribedName::Part& part : name.parts()) {
    const bool hidden = &part != &name.parts().front() && &part != &name.parts().back();
    if (part.repeat > 0 && !hidden)
      name.fail(fmt::format("'{}' repeats, but inputs and outputs stand once", part.text));
    widths.insert(widths.end(), std::size_t(std::max<std::int64_t>(1, part.repeat)), part.width);
    if (std::int64_t(widths.size()) > largest_repeat + 2)
      name.fail(fmt::format("it has more than {} hidden layers", largest_repeat));
  }
  if (name.parts().size() < 2) name.fail("it has no outputs");
  return widths;
}

}  // namespace

Graph mlp(std::string_view text, std::int64_t batch) {
  const DescribedName name(text, "mlp:", "mlp:20-256x5-1");
  const Activation::Kind activation = activation_of(name);
  const std::vector<std::int64_t> widths = widths_of(name);
  Graph net{std::string(text)};
  Tensor x = input(net, {batch, widths.front(), 1, 1});
  for (std::size_t i = 1; i < widths.size(); ++i) {
    x = x.linear(fmt::format("fc{}", i), widths[i]);
    if (i + 1 < widths.size()) x = x.apply(fmt::format("act{}", i), Activation{activation});
  }
  return net;
}

}  // namespace convlab::nets
