#include "nets/onnx/net.h"

#include <fmt/format.h>

#include <filesystem>

#include "conv/error.h"
#include "nets/onnx/translation.h"

namespace convlab::nets {

using namespace onnx_reader;

class OnnxNet::Model {
 public:
  Model(onnx::ModelProto proto, const std::string& name, Folder folder, const OnnxSizes& sizes)
      : proto_(std::move(proto)),
        name_(name),
        folder_(std::move(folder)),
        graph_(std::filesystem::path(name).filename().string()) {
    try {
      Translation translation(proto_, sizes, folder_, graph_);
      translation.run();
      sources_ = translation.sources();
      for (const std::string& note : translation.notes())
        notes_.push_back(fmt::format("{}: {}", name, note));
    } catch (const InputError& e) {
      throw InputError(fmt::format("{}: {}", name, e.what()));
    }
  }

  ArrayFile weights() const {
    ArrayFile file;
    try {
      for (const Source& source : sources_) file.arrays[source.parameter] = elements_of(source);
    } catch (const InputError& e) {
      throw InputError(fmt::format("{}: {}", name_, e.what()));
    }
    return file;
  }

  const Graph& graph() const { return graph_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Array elements_of(const Source& source) const {
    std::int64_t count = 1;
    for (const std::int64_t d : source.shape) count *= d;
    if (!source.from)
      return array_of(ElementType::f32, source.shape,
                      std::vector<double>(std::size_t(count), source.value));
    Array array = read_constant(*source.from, folder_);
    const std::int64_t given = source.from->elements();
    if (given != count || source.factor != 1 || source.inverted) {
      std::vector<double> values = values_of(array);
      if (given == 1) values.assign(std::size_t(count), values.front());
      for (double& v : values) v = source.factor * (source.inverted ? 1 / v : v);
      return array_of(array.type, source.shape, values);
    }
    array.shape = source.shape;
    return array;
  }

  onnx::ModelProto proto_;  // sources_ point into it
  std::string name_;
  Folder folder_;
  Graph graph_;
  std::vector<Source> sources_;
  std::vector<std::string> notes_;
};

const Graph& OnnxNet::graph() const { return model_->graph(); }
ArrayFile OnnxNet::weights() const { return model_->weights(); }
const std::vector<std::string>& OnnxNet::notes() const { return model_->notes(); }

OnnxNet read_onnx_net(const std::string& file, const OnnxSizes& sizes) {
  return OnnxNet(std::make_shared<const OnnxNet::Model>(
      read_model(file), file, std::filesystem::path(file).parent_path(), sizes));
}

OnnxNet decode_onnx_net(std::span<const std::uint8_t> file, const std::string& name,
                        const OnnxSizes& sizes) {
  return OnnxNet(
      std::make_shared<const OnnxNet::Model>(decode_model(file, name), name, std::nullopt, sizes));
}

}  // namespace convlab::nets
