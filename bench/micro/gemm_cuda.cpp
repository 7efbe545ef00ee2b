// cuBLAS's products on a card, named as in micro_kernels: gemm/cublas/TYPE/OPS/MxNxK is
// column-major and N is the batch. TYPE also gives the arithmetic: f32 multiplies in full
// precision; tf32, f16 and bf16 multiply on tensor cores and sum in f32. `transpose/card` is an
// explicit transpose of M x K.
//
//   micro_gemm_cuda --benchmark_filter=gemm/cublas/f16/NN --benchmark_out=gemm.json
//   micro_gemm_cuda 4096        of these M = K instead of the usual ones
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "autotune/store/provenance.h"
#include "conv/error.h"
#include "conv/types/half.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/vendor.h"

namespace convlab::micro {
namespace {

struct Card {
  std::unique_ptr<Device> device = make_cuda_device();
  std::unique_ptr<Stream> stream = device->make_stream();
};
Card& card() {
  static Card one;
  return one;
}

template <class T>
Buffer normals(std::int64_t count) {
  static const std::vector<T> pool = [] {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    std::vector<T> values((1 << 16) + 1);
    for (T& v : values) v = T(normal(random));
    return values;
  }();
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = pool[i % pool.size()];
  Buffer there = card().device->allocate(values.size() * sizeof(T));
  card().device->copy_to_device(there.data(), std::as_bytes(std::span(values)), *card().stream);
  card().stream->synchronize();
  return there;
}

Buffer normals(DType dtype, std::int64_t count) {
  switch (dtype) {
    case DType::f64:
      return normals<double>(count);
    case DType::f16:
      return normals<Float16>(count);
    case DType::bf16:
      return normals<BFloat16>(count);
    default:
      return normals<float>(count);
  }
}

// Work to queue, and how much it adds to `counter`.
struct Work {
  std::function<void()> enqueue;
  const char* counter;
  double amount;
};

// Timed by the card's clock; each sample is the mean of a few runs.
void add_case(const std::string& name, const std::function<Work()>& make) {
  constexpr int samples = 10, runs = 32;
  benchmark::RegisterBenchmark(name.c_str(),
                               [make](benchmark::State& state) {
                                 const Work work = make();
                                 work.enqueue();  // the library initialises at its first call
                                 double best = 1e9;
                                 for (auto _ : state) {
                                   const double s = card().stream->time(work.enqueue, runs);
                                   best = std::min(best, s);
                                   state.SetIterationTime(s);
                                 }
                                 state.counters[work.counter] = work.amount / best * 1e-9;
                               })
      ->UseManualTime()
      ->Iterations(samples)
      ->Unit(benchmark::kMicrosecond);
}

struct Type {
  const char* name;
  DType dtype;
  MathType math;
};
constexpr Type types[] = {{"f32", DType::f32, MathType::f32},
                          {"f64", DType::f64, MathType::f32},
                          {"tf32", DType::f32, MathType::tf32},
                          {"f16", DType::f16, MathType::f32},
                          {"bf16", DType::bf16, MathType::f32}};

// Column-major C = A B is row-major C' = B' A', and cuda::gemm is row-major.
void add_gemm(const Type& type, const std::string& ops, std::int64_t m, std::int64_t n,
              std::int64_t k) {
  add_case(fmt::format("gemm/cublas/{}/{}/{}x{}x{}", type.name, ops, m, n, k), [=] {
    const bool ta = ops == "TN", tb = ops == "NT";
    const cuda::Gemm gemm{.dtype = type.dtype,
                          .math = type.math,
                          .m = n,
                          .n = m,
                          .k = k,
                          .transpose_a = tb,
                          .transpose_b = ta,
                          .lda = tb ? n : k,
                          .ldb = ta ? k : m,
                          .ldc = m};
    const auto a = std::make_shared<Buffer>(normals(type.dtype, m * k)),
               b = std::make_shared<Buffer>(normals(type.dtype, k * n)),
               c = std::make_shared<Buffer>(normals(type.dtype, m * n));
    return Work{[=] { cuda::gemm(gemm, 1, b->data(), a->data(), 0, c->data(), *card().stream); },
                "best_GFLOPs", 2.0 * double(m) * double(n) * double(k)};
  });
}

// Converting channels first to channels last is a transposition.
void add_transpose(const Type& type, std::int64_t m, std::int64_t k) {
  add_case(fmt::format("transpose/card/{}/{}x{}", type.name, m, k), [=] {
    const auto from = std::make_shared<Buffer>(normals(type.dtype, m * k)),
               to = std::make_shared<Buffer>(normals(type.dtype, m * k));
    const TensorDesc rows{1, m, 1, k, Layout::nchw}, columns{1, m, 1, k, Layout::nhwc};
    return Work{[=] {
                  card().device->ops().convert_layout(type.dtype, rows, from->data(), columns,
                                                      to->data(), *card().stream);
                },
                "best_GBps", 2.0 * double(from->bytes())};
  });
}

void add_all(const std::vector<int>& sizes) {
  for (const Type& type : types)
    for (const int size : sizes) {
      for (const char* const ops : {"NN", "TN", "NT"})
        for (const int n : {1, 2, 4, 7, 8, 16, 31, 32, 48, 64, 96, 128, 192, 256})
          add_gemm(type, ops, size, n, size);
      if (type.name == to_string(type.dtype) && size_of(type.dtype) >= 4)
        add_transpose(type, size, size);  // the other types have no kernel
    }
}

// Empty if one of them is no number.
std::vector<int> sizes_of(int count, char** words) {
  if (count == 0) return {512, 1024, 1760, 2048, 2560};
  std::vector<int> sizes;
  for (int i = 0; i < count; ++i) {
    const std::string_view word = words[i];
    int size = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    if (error != std::errc{} || end != word.data() + word.size() || size < 1 || size > 1 << 15)
      return {};
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace
}  // namespace convlab::micro

int main(int argc, char** argv) {
  using namespace convlab;
  benchmark::Initialize(&argc, argv);
  const std::vector<int> sizes = micro::sizes_of(argc - 1, argv + 1);
  if (sizes.empty()) {
    fmt::print(stderr, "micro_gemm_cuda: expected sizes M = K, 1 to 32768, and --benchmark_...\n");
    return 2;
  }
  try {
    for (const auto& [name, value] : collect_provenance(micro::card().device->info()).fields)
      if (name != "date") benchmark::AddCustomContext(name, value);  // Google Benchmark adds a date
  } catch (const EnvironmentError& error) {
    fmt::print(stderr, "micro_gemm_cuda: {}\n", error.what());
    return 3;
  }
  micro::add_all(sizes);
  benchmark::RunSpecifiedBenchmarks();
}
