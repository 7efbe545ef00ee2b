#include "nets/onnx/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <map>
#include <optional>

#include "conv/error.h"

namespace convlab::nets::onnx_reader {
namespace {

constexpr std::int64_t newest_opset = 23;  // whose operators were read for the rules of shapes.cpp

void require_model(bool parsed, const onnx::ModelProto& model, const std::string& name) {
  if (!parsed || model.ir_version() <= 0 || !model.has_graph())
    throw InputError(fmt::format("{}: is no ONNX model, or is cut short", name));
}

const onnx::TensorShapeProto* shape_of(const onnx::ValueInfoProto& info) {
  const auto& type = info.type();
  return type.has_tensor_type() && type.tensor_type().has_shape() ? &type.tensor_type().shape()
                                                                  : nullptr;
}

using Named = std::map<std::string, std::int64_t>;

// What the file says of a value, with the sizes that are named by now.
std::optional<Dims> known(const onnx::ValueInfoProto& info, const Named& named) {
  const onnx::TensorShapeProto* const shape = shape_of(info);
  if (!shape) return {};
  Dims dims;
  for (const auto& d : shape->dim()) {
    const auto size = named.find(d.dim_param());
    dims.push_back(d.dim_value() > 0 ? d.dim_value() : size != named.end() ? size->second : -1);
  }
  return dims;
}

class Inputs {
 public:
  Inputs(const onnx::GraphProto& graph, const OnnxSizes& sizes, Known& found)
      : graph_(graph), sizes_(sizes), found_(found), named_(sizes.dims) {}

  void read() {
    collect();
    name_sizes();
    std::set<std::string> open;
    for (const onnx::ValueInfoProto* input : inputs_) {
      Value& v = found_.values[input->name()];
      v.dims = known(*input, named_);
      v.unknown_since = fmt::format("input '{}'", input->name());
      if (has_batch(*input)) fix(*input, *v.dims, open);
    }
    if (!open.empty())
      throw InputError(
          fmt::format("its inputs have sizes without a number: expected {}", fmt::join(open, " ")));
    // After another batch the file's own sizes hold no more.
    if (overrides_batch_) return;
    for (const onnx::ValueInfoProto& info : graph_.value_info())
      if (!found_.values.contains(info.name()))
        if (std::optional<Dims> dims = known(info, named_))
          found_.values[info.name()].dims = std::move(dims);
  }

 private:
  void collect() {
    // A weight may stand there too, with a value or, in an export without parameters, without.
    std::set<std::string> filters;
    for (const onnx::NodeProto& node : graph_.node())
      if (is_convolution(node) && node.input_size() > filter_input(node))
        filters.insert(node.input(filter_input(node)));
    for (const onnx::ValueInfoProto& input : graph_.input()) {
      if (found_.values.contains(input.name())) continue;
      found_.inputs.push_back(input.name());
      if (filters.contains(input.name()))
        found_.values[input.name()].dims = known(input, named_);
      else
        inputs_.push_back(&input);
    }
    for (const onnx::ValueInfoProto* input : inputs_)
      if (const onnx::TensorShapeProto* const shape = shape_of(*input); shape && has_batch(*input))
        names_batch_ |= shape->dim(0).dim_value() <= 0;
  }

  // The first input has one, and every image with the same first dimension.
  bool has_batch(const onnx::ValueInfoProto& input) const {
    const auto *const shape = shape_of(input), *const first = shape_of(*inputs_.front());
    if (!shape || shape->dim_size() == 0) return false;
    if (&input == inputs_.front()) return true;
    if (shape->dim_size() < 3) return false;
    if (!first || first->dim_size() == 0) return true;
    return shape->dim(0).dim_value() == first->dim(0).dim_value() &&
           shape->dim(0).dim_param() == first->dim(0).dim_param();
  }

  void name_sizes() {
    std::set<std::string> names;
    for (const onnx::ValueInfoProto* input : inputs_) {
      const onnx::TensorShapeProto* const shape = shape_of(*input);
      if (!shape) continue;
      for (const auto& d : shape->dim())
        if (!d.dim_param().empty()) names.insert(d.dim_param());
      if (shape->dim_size() == 0) continue;
      if (const auto& batch = shape->dim(0);
          batch.dim_value() <= 0 && !batch.dim_param().empty() &&
          named_.emplace(batch.dim_param(), sizes_.batch.value_or(1)).second && !sizes_.batch)
        found_.notes.push_back(fmt::format(
            "dimension {0} is 1: --batch N or --dim {0}=N says otherwise", batch.dim_param()));
    }
    for (const auto& [name, size] : sizes_.dims)
      if (!names.contains(name))
        throw InputError(names.empty()
                             ? fmt::format("--dim {}: the model names no dimension", name)
                             : fmt::format("--dim {}: unknown dimension: expected one of {}", name,
                                           fmt::join(names, ", ")));
  }

  void fix(const onnx::ValueInfoProto& input, Dims& dims, std::set<std::string>& open) {
    found_.images.insert(input.name());
    std::int64_t& batch = dims.front();
    if (batch < 0) batch = sizes_.batch.value_or(1);
    if (sizes_.batch && batch != *sizes_.batch && !names_batch_) {
      batch = *sizes_.batch;
      overrides_batch_ = true;
    }
    for (int i = 1; i < int(dims.size()); ++i) {
      if (dims[std::size_t(i)] > 0) continue;
      const std::string& name = shape_of(input)->dim(i).dim_param();
      if (name.empty())
        throw InputError(
            fmt::format("input '{}': its dimension {} has neither size nor name: "
                        "export the model with one",
                        input.name(), i));
      open.insert(fmt::format("--dim {}=N", name));
    }
  }

  const onnx::GraphProto& graph_;
  const OnnxSizes& sizes_;
  Known& found_;
  Named named_;
  std::vector<const onnx::ValueInfoProto*> inputs_;  // but for filters
  bool names_batch_ = false, overrides_batch_ = false;
};

}  // namespace

bool is_standard(const onnx::NodeProto& node) {
  return node.domain().empty() || node.domain() == "ai.onnx";
}

bool is_convolution(const onnx::NodeProto& node) {
  static const std::set<std::string> types{"Conv", "ConvInteger", "QLinearConv", "ConvTranspose"};
  return types.contains(node.op_type()) && is_standard(node);
}

Known known_values(const onnx::ModelProto& model, const OnnxSizes& sizes) {
  Known found;
  for (const onnx::OperatorSetIdProto& set : model.opset_import())
    if ((set.domain().empty() || set.domain() == "ai.onnx") && set.version() > newest_opset)
      found.notes.push_back(
          fmt::format("opset {} is newer than {}, the last that was read here: an operator whose "
                      "attributes changed since gives wrong sizes",
                      set.version(), newest_opset));
  const onnx::GraphProto& graph = model.graph();
  for (const onnx::TensorProto& tensor : graph.initializer())
    found.values[tensor.name()] = value_of(tensor);
  for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer())
    found.values[tensor.values().name()].dims.emplace(tensor.dims().begin(), tensor.dims().end());
  Inputs(graph, sizes, found).read();
  return found;
}

onnx::ModelProto read_model(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(fmt::format("{}: cannot be opened: expected an ONNX model", path));
  onnx::ModelProto model;
  // Protobuf's own limit is 2 GiB, and a length beyond the file's end fails.
  require_model(model.ParseFromIstream(&file), model, path);
  return model;
}

onnx::ModelProto decode_model(std::span<const std::uint8_t> file, const std::string& name) {
  onnx::ModelProto model;
  require_model(model.ParseFromArray(file.data(), int(file.size())), model, name);
  return model;
}

}  // namespace convlab::nets::onnx_reader
