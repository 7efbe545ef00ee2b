#include "nets/onnx/layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "conv/error.h"
#include "nets/onnx/attributes.h"
#include "nets/onnx/model.h"
#include "nets/onnx/shapes.h"

namespace convlab::nets {
namespace {

using namespace onnx_reader;

// Of the last axes of an image: 1-D has width alone.
using SpatialSizes = std::array<std::int64_t ConvProblem::*, 3>;
void set(ConvProblem& p, const SpatialSizes& members, const Dims& sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    p.*members[members.size() - sizes.size() + i] = sizes[i];
}

Dims image_of(const Dims& x) { return {x.begin() + 2, x.end()}; }

ConvProblem problem_of(const onnx::NodeProto& node, const Dims& x, const Dims& w) {
  const auto fail = [&](const std::string& what) {
    throw InputError(fmt::format("{}: {}", describe(node), what));
  };
  if (x.size() < 3 || x.size() > 5 || w.size() != x.size())
    fail(fmt::format("an input of {} dimensions and a filter of {}: expected 3 to 5 in both",
                     x.size(), w.size()));
  const bool transposed = node.op_type() == "ConvTranspose";
  const std::int64_t groups = integer(node, "group", 1);
  const std::int64_t channels = transposed ? w[0] : w[1] * groups;
  if (groups < 1 || groups > largest_size || x[1] != channels)
    fail(fmt::format("{} channels, a filter of {}x{} and {} groups do not go together", x[1], w[0],
                     w[1], groups));
  Window window = window_of(node, image_of(x), image_of(w));
  const Dims out =
      transposed ? transposed_output(node, window, image_of(x)) : output_of(window, image_of(x));
  ConvProblem p;
  p.n = x[0];
  p.c = transposed ? w[1] * groups : x[1];
  p.k = w[0];
  p.groups = groups;
  constexpr SpatialSizes reads{&ConvProblem::d, &ConvProblem::h, &ConvProblem::w};
  constexpr SpatialSizes writes{&ConvProblem::z, &ConvProblem::p, &ConvProblem::q};
  set(p, transposed ? writes : reads, image_of(x));
  set(p, transposed ? reads : writes, out);
  set(p, {&ConvProblem::t, &ConvProblem::r, &ConvProblem::s}, window.kernel);
  set(p, {&ConvProblem::stride_d, &ConvProblem::stride_h, &ConvProblem::stride_w}, window.stride);
  set(p, {&ConvProblem::dilation_d, &ConvProblem::dilation_h, &ConvProblem::dilation_w},
      window.dilation);
  set(p, {&ConvProblem::pad_d, &ConvProblem::pad_h, &ConvProblem::pad_w}, window.pad_begin);
  try {
    validate(p);
  } catch (const InputError& e) {
    fail(e.what());
  }
  return p;
}

class Reader {
 public:
  Reader(const onnx::ModelProto& model, const OnnxSizes& sizes)
      : graph_(model.graph()), known_(known_values(model, sizes)) {
    found_.notes = std::move(known_.notes);
  }

  OnnxLayers read() {
    for (const onnx::NodeProto& node : graph_.node()) {
      infer(node, known_.values);
      if (is_convolution(node)) add(node);
      for (const onnx::AttributeProto& a : node.attribute())
        if (a.has_g() || a.graphs_size() > 0) bodies_.insert(describe(node));
    }
    summarise();
    return std::move(found_);
  }

 private:
  void add(const onnx::NodeProto& node) {
    ++convolutions_;
    const auto value = [&](int i) {
      const auto v =
          i < node.input_size() ? known_.values.find(node.input(i)) : known_.values.end();
      return v == known_.values.end() ? Value{{}, {}, describe(node)} : v->second;
    };
    const Value x = value(0), w = value(filter_input(node));
    for (const Value& v : {x, w})
      if (!v.complete()) {
        ++unknown_[v.dims ? describe(node) : v.unknown_since];
        return;
      }
    quantised_ += node.op_type() == "ConvInteger" || node.op_type() == "QLinearConv";
    ConvLayer layer;
    layer.layer.problem = problem_of(node, *x.dims, *w.dims);
    layer.layer.name = name_of(node);
    layer.transposed = node.op_type() == "ConvTranspose";
    layer.first = known_.images.contains(node.input(0));
    found_.layers.push_back(std::move(layer));
  }

  void summarise() {
    std::vector<std::string> blamed;
    for (const auto& [who, count] : unknown_) blamed.push_back(fmt::format("{} by {}", count, who));
    const std::string left_out = fmt::format("{} of {} convolutions have no known shape: {}",
                                             convolutions_ - std::int64_t(found_.layers.size()),
                                             convolutions_, fmt::join(blamed, ", "));
    if (convolutions_ == 0)
      throw InputError(bodies_.empty() ? std::string("the model has no convolutions")
                                       : fmt::format("no convolutions outside of the bodies of {}",
                                                     fmt::join(bodies_, ", ")));
    if (found_.layers.empty()) throw InputError(left_out);
    if (!unknown_.empty()) found_.notes.push_back(left_out);
    if (!bodies_.empty())
      found_.notes.push_back(fmt::format("convolutions in the bodies of {} are not counted",
                                         fmt::join(bodies_, ", ")));
    if (quantised_ > 0)
      found_.notes.push_back(fmt::format(
          "{} of {} convolutions are quantised in the model, and of --dtype's type here",
          quantised_, convolutions_));
  }

  const onnx::GraphProto& graph_;
  Known known_;
  std::set<std::string> bodies_;
  std::map<std::string, std::int64_t> unknown_;  // convolutions, by who is to blame
  std::int64_t convolutions_ = 0, quantised_ = 0;
  OnnxLayers found_;
};

OnnxLayers layers_of(const onnx::ModelProto& model, const std::string& name,
                     const OnnxSizes& sizes) {
  try {
    OnnxLayers found = Reader(model, sizes).read();
    for (std::string& note : found.notes) note = fmt::format("{}: {}", name, note);
    return found;
  } catch (const InputError& e) {
    throw InputError(fmt::format("{}: {}", name, e.what()));
  }
}

}  // namespace

OnnxLayers read_onnx_layers(const std::string& path, const OnnxSizes& sizes) {
  return layers_of(read_model(path), path, sizes);
}

OnnxLayers decode_onnx_layers(std::span<const std::uint8_t> file, const std::string& name,
                              const OnnxSizes& sizes) {
  return layers_of(decode_model(file, name), name, sizes);
}

}  // namespace convlab::nets
