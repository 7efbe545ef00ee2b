#include "nets/onnx/layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "conv/error.h"
#include "conv/text/text_file.h"
#include "nets/onnx/attributes.h"
#include "nets/onnx/shapes.h"

namespace convlab::nets {
namespace {

using namespace onnx_reader;

constexpr std::int64_t newest_opset = 23;  // whose operators were read for the rules of shapes.cpp

void require_model(bool parsed, const onnx::ModelProto& model, const std::string& name) {
  if (!parsed || model.ir_version() <= 0 || !model.has_graph())
    throw InputError(fmt::format("{}: is no ONNX model, or is cut short", name));
}

bool is_convolution(const onnx::NodeProto& node) {
  static const std::set<std::string> types{"Conv", "ConvInteger", "QLinearConv", "ConvTranspose"};
  return types.contains(node.op_type()) && (node.domain().empty() || node.domain() == "ai.onnx");
}

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
      : graph_(model.graph()), sizes_(sizes) {
    for (const onnx::OperatorSetIdProto& set : model.opset_import())
      if ((set.domain().empty() || set.domain() == "ai.onnx") && set.version() > newest_opset)
        found_.notes.push_back(
            fmt::format("opset {} is newer than {}, the last that was read here: an operator whose "
                        "attributes changed since gives wrong sizes",
                        set.version(), newest_opset));
  }

  OnnxLayers read() {
    for (const onnx::TensorProto& tensor : graph_.initializer())
      values_[tensor.name()] = value_of(tensor);
    for (const onnx::SparseTensorProto& tensor : graph_.sparse_initializer())
      values_[tensor.values().name()].dims.emplace(tensor.dims().begin(), tensor.dims().end());
    read_inputs();
    // After another batch the file's own sizes hold no more.
    if (!overrides_batch_)
      for (const onnx::ValueInfoProto& info : graph_.value_info())
        if (!values_.contains(info.name()))
          if (std::optional<Dims> dims = known(info)) values_[info.name()].dims = std::move(dims);
    for (const onnx::NodeProto& node : graph_.node()) {
      infer(node, values_);
      if (is_convolution(node)) add(node);
      for (const onnx::AttributeProto& a : node.attribute())
        if (a.has_g() || a.graphs_size() > 0) bodies_.insert(describe(node));
    }
    summarise();
    return std::move(found_);
  }

 private:
  const onnx::TensorShapeProto* shape_of(const onnx::ValueInfoProto& info) const {
    const auto& type = info.type();
    return type.has_tensor_type() && type.tensor_type().has_shape() ? &type.tensor_type().shape()
                                                                    : nullptr;
  }

  // What the file says of a value, with the sizes that are named by now.
  std::optional<Dims> known(const onnx::ValueInfoProto& info) const {
    const onnx::TensorShapeProto* const shape = shape_of(info);
    if (!shape) return {};
    Dims dims;
    for (const auto& d : shape->dim()) {
      const auto named = named_.find(d.dim_param());
      dims.push_back(d.dim_value() > 0       ? d.dim_value()
                     : named != named_.end() ? named->second
                                             : -1);
    }
    return dims;
  }

  void read_inputs() {
    named_ = sizes_.dims;
    std::set<std::string> names, open;
    std::vector<const onnx::ValueInfoProto*> inputs;
    // A weight may stand there too, with a value or, in an export without parameters, without.
    std::set<std::string> filters;
    for (const onnx::NodeProto& node : graph_.node())
      if (is_convolution(node) && node.input_size() > filter_input(node))
        filters.insert(node.input(filter_input(node)));
    bool names_batch = false;
    for (const onnx::ValueInfoProto& input : graph_.input()) {
      if (values_.contains(input.name())) continue;
      if (filters.contains(input.name())) {
        values_[input.name()].dims = known(input);
        continue;
      }
      inputs.push_back(&input);
      const onnx::TensorShapeProto* const shape = shape_of(input);
      names_batch |= shape && shape->dim_size() > 0 && shape->dim(0).dim_value() <= 0;
    }
    for (const onnx::ValueInfoProto* input : inputs) {
      const onnx::TensorShapeProto* const shape = shape_of(*input);
      if (!shape) continue;
      for (const auto& d : shape->dim())
        if (!d.dim_param().empty()) names.insert(d.dim_param());
      if (shape->dim_size() == 0) continue;
      if (const auto& batch = shape->dim(0);
          batch.dim_value() <= 0 && !batch.dim_param().empty() &&
          named_.emplace(batch.dim_param(), sizes_.batch.value_or(1)).second && !sizes_.batch)
        found_.notes.push_back(
            fmt::format("dimension {0} is 1: --batch N or --dim {0}=N says "
                        "otherwise",
                        batch.dim_param()));
    }
    for (const auto& [name, size] : sizes_.dims)
      if (!names.contains(name))
        throw InputError(names.empty()
                             ? fmt::format("--dim {}: the model names no dimension", name)
                             : fmt::format("--dim {}: unknown dimension: expected one of {}", name,
                                           fmt::join(names, ", ")));
    for (const onnx::ValueInfoProto* input : inputs) {
      Value& v = values_[input->name()];
      v.dims = known(*input);
      v.unknown_since = fmt::format("input '{}'", input->name());
      if (!v.dims || v.dims->size() < 3) continue;
      data_inputs_.insert(input->name());
      std::int64_t& batch = v.dims->front();
      if (batch < 0) batch = 1;
      if (sizes_.batch && batch != *sizes_.batch && !names_batch) {
        batch = *sizes_.batch;
        overrides_batch_ = true;
      }
      for (int i = 1; i < int(v.dims->size()); ++i) {
        if ((*v.dims)[std::size_t(i)] > 0) continue;
        const std::string& name = shape_of(*input)->dim(i).dim_param();
        if (name.empty())
          throw InputError(
              fmt::format("input '{}': its dimension {} has neither size nor name: "
                          "export the model with one",
                          input->name(), i));
        open.insert(fmt::format("--dim {}=N", name));
      }
    }
    if (!open.empty())
      throw InputError(
          fmt::format("its inputs have sizes without a number: expected {}", fmt::join(open, " ")));
  }

  void add(const onnx::NodeProto& node) {
    ++convolutions_;
    const auto value = [&](int i) {
      const auto v = i < node.input_size() ? values_.find(node.input(i)) : values_.end();
      return v == values_.end() ? Value{{}, {}, describe(node)} : v->second;
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
    layer.layer.name = node.name().empty() ? node.output(0) : node.name();
    layer.transposed = node.op_type() == "ConvTranspose";
    layer.first = data_inputs_.contains(node.input(0));
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
  const OnnxSizes& sizes_;
  std::map<std::string, std::int64_t> named_;
  bool overrides_batch_ = false;
  Values values_;
  std::set<std::string> data_inputs_, bodies_;
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
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(fmt::format("{}: cannot be opened: expected an ONNX model", path));
  onnx::ModelProto model;
  // Protobuf's own limit is 2 GiB, and a length beyond the file's end fails.
  require_model(model.ParseFromIstream(&file), model, path);
  return layers_of(model, path, sizes);
}

OnnxLayers decode_onnx_layers(std::span<const std::uint8_t> file, const std::string& name,
                              const OnnxSizes& sizes) {
  onnx::ModelProto model;
  require_model(model.ParseFromArray(file.data(), int(file.size())), model, name);
  return layers_of(model, name, sizes);
}

}  // namespace convlab::nets
