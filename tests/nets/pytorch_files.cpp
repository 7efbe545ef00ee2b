#include "tests/nets/pytorch_files.h"

#include <cctype>
#include <filesystem>

#include "nets/zoo/zoo.h"
#include "tests/nets/scaled.h"

namespace convlab::nets {

const std::vector<std::string>& pytorch_nets() {
  static const std::vector<std::string> nets{"alexnet",
                                             "alexnet2012",
                                             "overfeat",
                                             "vgg11",
                                             "vgg11_bn",
                                             "googlenet",
                                             "googlenet2014",
                                             "resnet18",
                                             "resnet50",
                                             "resnext50_32x4d",
                                             "squeezenet1_1",
                                             "mobilenet_v2",
                                             "mobilenet_v3_large",
                                             "densenet121",
                                             "efficientnet_b0",
                                             "regnet_y_400mf",
                                             "inception_v3",
                                             "shufflenet_v2_x1_0",
                                             "convnext_tiny",
                                             "deeplabv3_resnet50",
                                             "unet",
                                             "r3d_18",
                                             "unet3d",
                                             "resnet8",
                                             "lenet",
                                             "mlp:7-13x3-3",
                                             "mlp:20-33-9-10:relu",
                                             "mlp:20-17-10:sigmoid",
                                             "rnn:7-13x2-10",
                                             "rnn:9x5-11-10:relu:bi",
                                             "rnn:5x8-12x2-10:gru",
                                             "rnn:5x8-12x2-10:lstm:bi"};
  return nets;
}

std::string test_name(std::string net) {
  for (char& c : net)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return net;
}

ArrayFile read_pytorch(std::string net) {
  for (char& c : net)
    if (c == ':') c = '_';
  return read_arrays(std::filesystem::path(CONVLAB_PYTORCH_DATA) / (net + ".safetensors"));
}

Graph pytorch_graph(const std::string& name, const ArrayFile& file, std::int64_t batch) {
  const std::vector<std::int64_t>& x = file.at("input").shape;
  if (batch == 0) batch = x[0];
  const Graph net = name == "resnet8" ? cifar_resnet(8, batch) : make_net(name, batch);
  if (name.find(':') != name.npos) return net;  // its name says its sizes
  return scaled(net, {.batch = batch,
                      .image = x.size() > 2 ? x.rbegin()[1] : 1,
                      .depth = x.size() > 4 ? x[2] : 1,
                      .divisor = std::stoll(file.metadata.at("divisor")),
                      .outputs = file.at("training/output").shape[1]});
}

Loss pytorch_loss(const ArrayFile& file) {
  return file.arrays.count("labels") ? Loss::cross_entropy : Loss::squared_error;
}

}  // namespace convlab::nets
