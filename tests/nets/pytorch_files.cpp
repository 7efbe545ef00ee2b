#include "tests/nets/pytorch_files.h"

#include <filesystem>

#include "nets/zoo.h"
#include "tests/nets/scaled.h"

namespace convlab {

ArrayFile read_pytorch(std::string net) {
  for (char& c : net)
    if (c == ':') c = '_';
  return read_arrays(std::filesystem::path(CONVLAB_PYTORCH_DATA) / (net + ".safetensors"));
}

Graph pytorch_graph(const std::string& name, const ArrayFile& file, std::int64_t batch) {
  const std::vector<std::int64_t>& x = file.at("input").shape;
  if (batch == 0) batch = x[0];
  const Graph net = name == "resnet8" ? cifar_resnet(8, batch) : make_net(name, batch);
  return scaled(net, {.batch = batch,
                      .image = x.size() > 2 ? x[2] : 1,
                      .divisor = std::stoll(file.metadata.at("divisor")),
                      .outputs = file.at("training/output").shape[1]});
}

Loss pytorch_loss(const ArrayFile& file) {
  return file.arrays.count("labels") ? Loss::cross_entropy : Loss::squared_error;
}

}  // namespace convlab
