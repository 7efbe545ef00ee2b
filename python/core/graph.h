// A graph of layers that Python builds, by PyTorch's conventions.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nets/graph.h"

namespace convlab::python {

using Sizes = std::vector<std::int64_t>;

// Nodes are numbered from 0, the input. Every function that adds a node returns its number, and
// throws InputError for a node that does not exist, sizes that do not fit, and a name that is
// taken. Kernels, strides, paddings and dilations have a number for each axis of the image, or one
// for all. An empty pad_end is like pad.
class GraphBuilder {
 public:
  GraphBuilder(const std::string& name, const Sizes& shape);  // N C H W or N C D H W

  // matrix: the weight of a 1x1 filter is K C, as of a Linear over the channels of each pixel.
  std::int64_t conv(std::int64_t x, const std::string& name, std::int64_t filters,
                    const Sizes& kernel, const Sizes& stride, const Sizes& pad,
                    const Sizes& dilation, std::int64_t groups, bool bias, bool matrix,
                    const Sizes& pad_end);
  std::int64_t conv_transpose(std::int64_t x, const std::string& name, std::int64_t filters,
                              const Sizes& kernel, const Sizes& stride, const Sizes& pad,
                              const Sizes& output_pad, const Sizes& dilation, std::int64_t groups,
                              bool bias);
  // Reads an image as C*D*H*W values in that order. The output has two axes.
  std::int64_t linear(std::int64_t x, const std::string& name, std::int64_t outputs, bool bias);
  // kind "max" or "average"; averages divide by the window's elements within image and padding, or
  // without count_padding by those within the image.
  std::int64_t pool(std::int64_t x, const std::string& name, const std::string& kind,
                    const Sizes& kernel, const Sizes& stride, const Sizes& pad, bool ceil_mode,
                    bool count_padding = true);
  // Of ActivationKind, which has no numbers, or of LayerActivation, whose numbers a and b are.
  std::int64_t activation(std::int64_t x, const std::string& name, const std::string& kind,
                          std::optional<double> a, std::optional<double> b);
  std::int64_t resize(std::int64_t x, const std::string& name, const std::string& kind,
                      std::int64_t h, std::int64_t w);
  std::int64_t add(const std::string& name, nets::Layer, const Sizes& inputs);

  Sizes shape(std::int64_t node) const;
  const nets::Graph& graph() const { return graph_; }
  std::size_t dims() const { return dims_; }  // of the image: 2, or 3
  // The layer has it, but the model does not: it stays zero.
  bool is_absent(const std::string& parameter) const { return absent_.contains(parameter); }

 private:
  std::vector<nets::NodeId> ids(const Sizes& nodes, const std::string& of) const;
  // By axis D, H, W; `otherwise` where there is no D.
  struct Axes {
    std::int64_t d, h, w;
  };
  Axes axes(const Sizes& sizes, std::int64_t otherwise, const char* what,
            const std::string& layer) const;
  template <class L>
  L window(L, const Sizes& kernel, const Sizes& stride, const Sizes& pad, const Sizes& dilation,
           const std::string& layer) const;

  nets::Graph graph_;
  std::size_t dims_;
  std::vector<bool> flat_;  // by node: N C
  std::set<std::string> absent_;
};

}  // namespace convlab::python
