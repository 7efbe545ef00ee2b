#include <fmt/format.h>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

Tensor conv(Tensor x, const std::string& name, Conv layer) {
  layer.bias = false;
  return x.conv(name + ".conv", layer).batch_norm(name + ".bn", 1e-3).relu(name + ".relu");
}

Tensor pooled_branch(Tensor x, const std::string& name, std::int64_t channels) {
  return conv(x.avg_pool(name + ".avg_pool", 3, 1, 1), name + ".branch_pool",
              {.filters = channels});
}

// Filters of n x n as they are, then as a row and a column (1 x n, n x 1).
Conv square(std::int64_t filters, std::int64_t n) {
  return {.filters = filters, .kernel = n, .pad = n / 2};
}
Conv row(std::int64_t filters, std::int64_t n) {
  return {.filters = filters, .kernel = {1, n}, .pad = {0, n / 2}};
}
Conv column(std::int64_t filters, std::int64_t n) {
  return {.filters = filters, .kernel = {n, 1}, .pad = {n / 2, 0}};
}

Tensor module_a(Tensor x, const std::string& name, std::int64_t pool_channels) {
  const Tensor b1 = conv(x, name + ".branch1x1", {.filters = 64});
  const Tensor b5 =
      conv(conv(x, name + ".branch5x5_1", {.filters = 48}), name + ".branch5x5_2", square(64, 5));
  Tensor b3 = conv(x, name + ".branch3x3dbl_1", {.filters = 64});
  b3 = conv(b3, name + ".branch3x3dbl_2", square(96, 3));
  b3 = conv(b3, name + ".branch3x3dbl_3", square(96, 3));
  return concat(name, {b1, b5, b3, pooled_branch(x, name, pool_channels)});
}

Tensor reduction_b(Tensor x, const std::string& name) {
  const Tensor b3 = conv(x, name + ".branch3x3", {.filters = 384, .kernel = 3, .stride = 2});
  Tensor d = conv(x, name + ".branch3x3dbl_1", {.filters = 64});
  d = conv(d, name + ".branch3x3dbl_2", square(96, 3));
  d = conv(d, name + ".branch3x3dbl_3", {.filters = 96, .kernel = 3, .stride = 2});
  return concat(name, {b3, d, x.max_pool(name + ".max_pool", 3, 2)});
}

Tensor module_c(Tensor x, const std::string& name, std::int64_t inner) {
  const Tensor b1 = conv(x, name + ".branch1x1", {.filters = 192});
  Tensor b7 = conv(x, name + ".branch7x7_1", {.filters = inner});
  b7 = conv(b7, name + ".branch7x7_2", row(inner, 7));
  b7 = conv(b7, name + ".branch7x7_3", column(192, 7));
  Tensor d = conv(x, name + ".branch7x7dbl_1", {.filters = inner});
  d = conv(d, name + ".branch7x7dbl_2", column(inner, 7));
  d = conv(d, name + ".branch7x7dbl_3", row(inner, 7));
  d = conv(d, name + ".branch7x7dbl_4", column(inner, 7));
  d = conv(d, name + ".branch7x7dbl_5", row(192, 7));
  return concat(name, {b1, b7, d, pooled_branch(x, name, 192)});
}

Tensor reduction_d(Tensor x, const std::string& name) {
  const Tensor b3 = conv(conv(x, name + ".branch3x3_1", {.filters = 192}), name + ".branch3x3_2",
                         {.filters = 320, .kernel = 3, .stride = 2});
  Tensor b7 = conv(x, name + ".branch7x7x3_1", {.filters = 192});
  b7 = conv(b7, name + ".branch7x7x3_2", row(192, 7));
  b7 = conv(b7, name + ".branch7x7x3_3", column(192, 7));
  b7 = conv(b7, name + ".branch7x7x3_4", {.filters = 192, .kernel = 3, .stride = 2});
  return concat(name, {b3, b7, x.max_pool(name + ".max_pool", 3, 2)});
}

Tensor module_e(Tensor x, const std::string& name) {
  const auto split = [&](Tensor from, const std::string& a, const std::string& b,
                         const std::string& both) {
    return concat(name + both,
                  {conv(from, name + a, row(384, 3)), conv(from, name + b, column(384, 3))});
  };
  const Tensor b1 = conv(x, name + ".branch1x1", {.filters = 320});
  const Tensor b3 = split(conv(x, name + ".branch3x3_1", {.filters = 384}), ".branch3x3_2a",
                          ".branch3x3_2b", ".branch3x3");
  Tensor d = conv(x, name + ".branch3x3dbl_1", {.filters = 448});
  d = conv(d, name + ".branch3x3dbl_2", square(384, 3));
  d = split(d, ".branch3x3dbl_3a", ".branch3x3dbl_3b", ".branch3x3dbl");
  return concat(name, {b1, b3, d, pooled_branch(x, name, 192)});
}

}  // namespace

// Szegedy et al. 2016, "Rethinking the Inception architecture" (arXiv:1512.00567), as torchvision
// has it, without the auxiliary classifier.
Graph inception_v3(std::int64_t batch) {
  Graph net("inception_v3");
  Tensor x = input(net, {batch, 3, 299, 299});
  x = conv(x, "Conv2d_1a_3x3", {.filters = 32, .kernel = 3, .stride = 2});
  x = conv(x, "Conv2d_2a_3x3", {.filters = 32, .kernel = 3});
  x = conv(x, "Conv2d_2b_3x3", square(64, 3)).max_pool("maxpool1", 3, 2);
  x = conv(x, "Conv2d_3b_1x1", {.filters = 80});
  x = conv(x, "Conv2d_4a_3x3", {.filters = 192, .kernel = 3}).max_pool("maxpool2", 3, 2);
  x = module_a(x, "Mixed_5b", 32);
  x = module_a(x, "Mixed_5c", 64);
  x = module_a(x, "Mixed_5d", 64);
  x = reduction_b(x, "Mixed_6a");
  x = module_c(x, "Mixed_6b", 128);
  x = module_c(x, "Mixed_6c", 160);
  x = module_c(x, "Mixed_6d", 160);
  x = module_c(x, "Mixed_6e", 192);
  x = reduction_d(x, "Mixed_7a");
  x = module_e(x, "Mixed_7b");
  x = module_e(x, "Mixed_7c");
  x.global_avg_pool("avgpool").dropout("dropout").linear("fc", 1000);
  return net;
}

}  // namespace convlab::nets
