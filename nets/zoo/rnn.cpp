#include <fmt/format.h>

#include <algorithm>

#include "conv/text/counted.h"
#include "nets/tensor.h"
#include "nets/zoo/described_name.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

// The words behind the numbers: a cell, and :bi.
Recurrent layer_of(const DescribedName& name) {
  Recurrent layer;
  std::string_view word = name.word();
  constexpr std::string_view both = "bi";
  if (word == both || word.ends_with(":bi")) {
    layer.bidirectional = true;
    word.remove_suffix(std::min(word.size(), both.size() + 1));
  }
  if (word == "gru")
    layer.cell = RecurrentCell::gru;
  else if (word == "lstm")
    layer.cell = RecurrentCell::lstm;
  else if (word == "relu")
    layer.cell = RecurrentCell::rnn_relu;
  else if (word != "tanh" && (!word.empty() || (name.has_word() && !layer.bidirectional)))
    name.fail(fmt::format("'{}' is not tanh, relu, gru or lstm, perhaps with :bi", word));
  return layer;
}

}  // namespace

Graph rnn(std::string_view text, std::int64_t batch) {
  const DescribedName name(text, "rnn:", "rnn:28-128x2-10:lstm");
  Recurrent layer = layer_of(name);
  if (name.parts().size() != 3)
    name.fail(fmt::format("it has {}, not inputs, hidden units and outputs",
                          counted(name.parts().size(), "part")));
  const DescribedName::Part &inputs = name.parts()[0], &hidden = name.parts()[1],
                            &outputs = name.parts()[2];
  if (outputs.repeat > 0)
    name.fail(fmt::format("'{}' repeats, but outputs stand once", outputs.text));
  layer.hidden = hidden.width;
  layer.layers = std::max<std::int64_t>(1, hidden.repeat);
  const std::int64_t steps = inputs.repeat > 0 ? inputs.repeat : inputs.width;
  Graph net{std::string(text)};
  input(net, {batch, 1, steps, inputs.width}).recurrent("rnn", layer).linear("fc", outputs.width);
  return net;
}

}  // namespace convlab::nets
