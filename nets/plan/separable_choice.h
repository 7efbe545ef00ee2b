// How one step computes a net's depthwise separable convolutions, in a layout and within limits:
// its memory, and the time that this is expected to take.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "nets/plan/conv_choice.h"
#include "nets/separable.h"

namespace convlab::nets {

class SeparableChoices {
 public:
  // All must outlive this object. Without pairs where the device joins none, and outside of
  // inference in f32.
  SeparableChoices(const Graph&, const std::vector<Step>&, const ChooseOptions&,
                   const AlgoRegistry&, Device&, const Ceilings&, const Store*);

  const std::vector<SeparableSteps>& all() const { return all_; }
  // Whether a joined step can take in this one, whose value it then keeps to itself.
  bool takes_in(std::size_t step) const;

  // The time is that of both convolutions by the algorithms that the joined step is made of, less
  // `moving_ms`, that of writing and reading the tensor between them. nullopt if one of these
  // algorithms is not admitted, the device refuses this layout or it exceeds the terms.
  std::optional<ConvChoice> best(const SeparableSteps&, Layout, const MemoryTerms&,
                                 double moving_ms);

 private:
  struct Bytes {
    std::int64_t workspace = 0, growth = 0;  // as in ConvChoice
  };
  const std::optional<Bytes>& bytes(const SeparableProblem&, NodeId node);

  const Graph& graph_;
  const std::optional<Layout> layout_;
  const ChooseOptions any_layout_;
  ConvChoices convs_;
  const Layout blocked_;
  SeparableDevice* const device_;
  std::vector<SeparableSteps> all_;
  std::map<std::pair<NodeId, Layout>, std::optional<Bytes>> bytes_;
};

}  // namespace convlab::nets
