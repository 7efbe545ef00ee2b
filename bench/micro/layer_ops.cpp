// The layers other than convolutions, as training steps of well-known nets run them:
//
//   micro_layer_ops --benchmark_filter=batch_norm
//
// best_GBps describes the fastest run. It counts each tensor that an operation must read or write
// once, however often the operation does so. of_copy divides it by the bandwidth of the fastest
// copy of as many bytes, measured just before.
#include "conv/layer_ops.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bench/micro/lab.h"

namespace convlab::micro {
namespace {

std::string text(const TensorDesc& t) {
  return fmt::format("{}x{}x{}x{}/{}", t.n, t.c, t.h, t.w, to_string(t.layout));
}

// Buffers that live as long as the case that uses them.
class Operands {
 public:
  void* operator()(std::int64_t elements) {
    buffers_->push_back(random_floats(elements));
    return buffers_->back().data();
  }
  void* operator()(const TensorDesc& t) { return (*this)(t.elements()); }

 private:
  std::shared_ptr<std::vector<Buffer>> buffers_ = std::make_shared<std::vector<Buffer>>();
};

constexpr DType f32 = DType::f32;
constexpr std::int64_t size = sizeof(float);

// f(operands, workspace) gives the work.
template <class F>
void add_layer(const std::string& name, const TensorDesc& desc, F f) {
  add_case(name + "/" + text(desc), [desc, f] {
    Operands operands;
    const std::size_t bytes = lab().ops.workspace_bytes(f32, desc);
    auto* const scratch = static_cast<std::byte*>(operands(std::int64_t(bytes / size + 1)));
    Work work = f(desc, operands, Workspace(scratch, bytes));
    work.run = [operands, run = std::move(work.run)] { run(); };
    return work;
  });
}

void add_elementwise(const TensorDesc& desc) {
  add_layer("relu_forward", desc, [](const TensorDesc& t, Operands& make, Workspace) {
    void* const y = make(t);
    return Work{
        [=] { lab().ops.activation_forward(f32, ActivationKind::relu, t, y, y, *lab().stream); },
        2 * t.elements() * size};
  });
  add_layer("relu_backward", desc, [](const TensorDesc& t, Operands& make, Workspace) {
    void *const y = make(t), *const dy = make(t);
    return Work{[=] {
                  lab().ops.activation_backward(f32, ActivationKind::relu, t, y, dy, dy,
                                                *lab().stream);
                },
                3 * t.elements() * size};
  });
  add_layer("add", desc, [](const TensorDesc& t, Operands& make, Workspace) {
    void *const a = make(t), *const b = make(t);
    return Work{[=] { lab().ops.add(f32, t, a, b, a, *lab().stream); }, 3 * t.elements() * size};
  });
  add_layer("dropout", desc, [](const TensorDesc& t, Operands& make, Workspace) {
    void *const a = make(t), *const b = make(t);
    return Work{[=] {
                  lab().ops.dropout(f32, {t, 0.5, 1, 2}, a, b, *lab().stream);
                },
                2 * t.elements() * size};
  });
  add_layer("bias_backward", desc, [](const TensorDesc& t, Operands& make, Workspace w) {
    void *const dy = make(t), *const dbias = make(t.padded_c());
    return Work{[=] { lab().ops.bias_backward(f32, t, dy, dbias, w, *lab().stream); },
                t.elements() * size};
  });
}

void add_batch_norm(const TensorDesc& desc, bool residual) {
  const auto per_channel = [](const TensorDesc& t, Operands& make) {
    std::array<void*, 8> arrays;
    for (void*& a : arrays) a = make(t.padded_c());
    return arrays;
  };
  const std::string with = residual ? "_residual" : "";
  add_layer(
      "batch_norm_forward" + with, desc, [=](const TensorDesc& t, Operands& make, Workspace w) {
        const BatchNormDesc norm{t, 1e-5, residual, true};
        const auto c = per_channel(t, make);
        const BatchNormForward io{make(t), residual ? make(t) : nullptr, c[0], c[1], make(t)};
        const BatchNormStatistics statistics{0.1, c[2], c[3], c[4], c[5]};
        return Work{
            [=] { lab().ops.batch_norm_training(f32, norm, io, statistics, w, *lab().stream); },
            (2 + residual) * t.elements() * size};
      });
  add_layer(
      "batch_norm_backward" + with, desc, [=](const TensorDesc& t, Operands& make, Workspace w) {
        const BatchNormDesc norm{t, 1e-5, residual, true};
        const auto c = per_channel(t, make);
        void* const dy = make(t);
        const BatchNormBackward io{make(t), residual ? make(t) : nullptr, dy, c[0], c[1], c[2],
                                   c[3],    residual ? make(t) : dy,      dy, c[4], c[5]};
        return Work{[=] { lab().ops.batch_norm_backward(f32, norm, io, w, *lab().stream); },
                    (3 + 2 * residual) * t.elements() * size};
      });
}

void add_pool(const PoolDesc& pool) {
  const std::string name = fmt::format("{}_pool_{}s{}", pool.kind == PoolKind::max ? "max" : "mean",
                                       pool.window_h, pool.stride_h);
  const std::int64_t bytes = (pool.x.elements() + pool.y.elements()) * size + pool.index_bytes();
  add_layer(name + "_forward", pool.x, [=](const TensorDesc&, Operands& make, Workspace) {
    void *const x = make(pool.x), *const y = make(pool.y), *const index = make(pool.y);
    return Work{[=] { lab().ops.pool_forward(f32, pool, x, y, index, *lab().stream); }, bytes};
  });
  add_layer(name + "_backward", pool.x, [=](const TensorDesc&, Operands& make, Workspace) {
    void *const x = make(pool.x), *const y = make(pool.y), *const index = make(pool.y);
    lab().ops.pool_forward(f32, pool, x, y, index, *lab().stream);
    return Work{[=] { lab().ops.pool_backward(f32, pool, y, index, x, *lab().stream); }, bytes};
  });
}

PoolDesc max_pool(TensorDesc x, std::int64_t window, std::int64_t stride, std::int64_t pad,
                  std::int64_t out) {
  PoolDesc pool{PoolKind::max, x, x, window, window, stride, stride, pad, pad};
  pool.y.h = pool.y.w = out;
  return pool;
}

void add_lrn(const TensorDesc& desc) {
  add_layer("lrn_forward", desc, [](const TensorDesc& t, Operands& make, Workspace w) {
    void *const x = make(t), *const y = make(t);
    return Work{[=] { lab().ops.lrn_forward(f32, {t}, x, y, w, *lab().stream); },
                2 * t.elements() * size};
  });
  add_layer("lrn_backward", desc, [](const TensorDesc& t, Operands& make, Workspace w) {
    void *const x = make(t), *const dy = make(t), *const dx = make(t);
    return Work{[=] { lab().ops.lrn_backward(f32, {t}, x, dy, dx, w, *lab().stream); },
                3 * t.elements() * size};
  });
}

void add_conversion(const TensorDesc& from, Layout layout) {
  TensorDesc to = from;
  to.layout = layout;
  add_layer(fmt::format("convert_to_{}", to_string(layout)), from,
            [=](const TensorDesc& t, Operands& make, Workspace) {
              void *const a = make(t), *const b = make(to);
              return Work{[=] { lab().ops.convert_layout(f32, t, a, to, b, *lab().stream); },
                          (t.elements() + to.elements()) * size};
            });
}

void add_sgd(std::int64_t count) {
  add_case(fmt::format("sgd_update/{}", count), [=] {
    Operands make;
    void *const dw = make(count), *const w = make(count), *const v = make(count);
    const SgdDesc sgd{1e-3, 0.9, 1e-4};
    return Work{
        [=, keep = make] { lab().ops.sgd_update(f32, sgd, count, dw, w, v, *lab().stream); },
        5 * count * size};
  });
}

// A fully connected layer of k outputs and c inputs. Its weights dominate the memory traffic.
void add_fully_connected(std::int64_t images, std::int64_t k, std::int64_t c) {
  const auto add = [=](const char* pass, const GemmDesc& g) {
    add_case(fmt::format("fully_connected_{}/{}x{}x{}", pass, images, k, c), [=] {
      Operands make;
      void *const a = make(g.m * g.k), *const b = make(g.k * g.n), *const out = make(g.m * g.n);
      return Work{[=, keep = make] { lab().ops.gemm(f32, g, a, b, out, *lab().stream); },
                  k * c * size};
    });
  };
  add("forward", {images, k, c, false, true});
  add("backward_data", {images, c, k});
  add("backward_filter", {k, c, images, true});
}

void add_all() {
  for (const Layout layout : {Layout::nchw16c, Layout::nchw, Layout::nhwc}) {
    for (const auto& [c, h] : {std::pair<std::int64_t, std::int64_t>{64, 112},
                               {64, 56},
                               {128, 28},
                               {256, 14},
                               {512, 7}}) {
      const TensorDesc t{16, c, h, h, layout};
      add_batch_norm(t, false);
      if (h < 112) add_batch_norm(t, true);
    }
    add_elementwise({16, 64, 56, 56, layout});
    add_elementwise({16, 64, 224, 224, layout});
    const TensorDesc resnet{16, 64, 112, 112, layout}, vgg{16, 128, 112, 112, layout},
        inception{16, 480, 14, 14, layout}, last{16, 512, 7, 7, layout};
    add_pool(max_pool(resnet, 3, 2, 1, 56));
    add_pool(max_pool(vgg, 2, 2, 0, 56));
    add_pool(max_pool(inception, 3, 1, 1, 14));
    add_pool(max_pool({64, 192, 27, 27, layout}, 3, 2, 0, 13));
    add_pool(global_average_pool(last));
    add_lrn({16, 192, 56, 56, layout});
    for (const Layout to : {Layout::nchw16c, Layout::nchw, Layout::nhwc})
      if (to != layout) add_conversion({16, 64, 56, 56, layout}, to);
  }
  for (const std::int64_t count : {36864, 2359296, 61100840}) add_sgd(count);
  for (const std::int64_t images : {1, 4, 16, 64}) {
    add_fully_connected(images, 4096, 9216);
    add_fully_connected(images, 4096, 4096);
    add_fully_connected(images, 1000, 4096);
  }
}

}  // namespace
}  // namespace convlab::micro

int main(int argc, char** argv) {
  convlab::micro::prepare(argv);
  convlab::micro::add_all();
  return convlab::micro::run_cases(argc, argv);
}
