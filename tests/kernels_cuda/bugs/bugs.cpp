// Kernels with one deliberate bug each, and the same kernels without: `bugs NAME` reports whether
// the result was right. CMakeLists.txt states where each bug is detected: in the result under some
// schedule, by the executor or the interpreter, or by a sanitizer.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/kernel.h"
#include "kernels_cuda/on_cpu/sanitizers.h"
#include "kernels_cuda/on_cpu/schedule.h"

namespace convlab::cuda {
namespace {

// Memory of the device, exactly as large as its values.
template <class T>
class Array {
 public:
  explicit Array(const std::vector<T>& values)
      : count_(values.size()), buffer_(device().allocate(count_ * sizeof(T))) {
    device().copy_to_device(buffer_.data(), std::as_bytes(std::span(values)), stream());
  }
  T* data() { return reinterpret_cast<T*>(buffer_.data()); }
  std::vector<T> values() {
    std::vector<T> all(count_);
    device().copy_to_host(std::as_writable_bytes(std::span(all)), buffer_.data(), stream());
    return all;
  }

  static Device& device() {
    static const std::unique_ptr<Device> device = make_cuda_device();
    return *device;
  }
  static Stream& stream() {
    static const std::unique_ptr<Stream> stream = device().make_stream();
    return *stream;
  }

 private:
  std::size_t count_;
  Buffer buffer_;
};
Stream& stream() { return Array<float>::stream(); }

enum class Bug {
  none,
  // in product()
  no_first_barrier,
  no_loop_barrier,
  overwritten_while_read,
  divergent_barrier,
  two_barriers,
  out_of_bounds,
  past_dynamic_shared,
  misaligned_vector,
  misaligned_pointer,
  // in sum()
  missing_barrier,
  missing_syncwarp,
  plain_add,
  // in handed_over()
  shuffle_as_fence,
  // in tensor_product()
  copy_not_awaited,
  copy_into_tile_in_use,
  copy_past_row,
  wrong_fragment,
};

// --- c (m x n) = a (m x k) b (k x n), double-buffered in shared memory; 64 threads, 4 x 4 each

constexpr int tile = 32, depth = 8;
constexpr std::size_t product_shared = sizeof(float[2][depth][tile]);

template <Bug bug>
__global__ void product(int m, int n, int k, const float* a, const float* b, float* c) {
  constexpr bool misaligned = bug == Bug::misaligned_vector || bug == Bug::misaligned_pointer;
  SHARED_DYN(float, as);  // [2][depth][tile]
  SHARED(float, bs, [2][depth][misaligned ? tile + 1 : tile]);
  const int t = int(threadIdx.x), row0 = int(blockIdx.y) * tile, column0 = int(blockIdx.x) * tile;
  const auto fill = [&](int buffer, int k0) {
    for (int i = t; i < tile * depth; i += 64) {
      const int row = row0 + i % tile, kk = k0 + i / tile, column = column0 + i % tile;
      as[buffer * depth * tile + i] = row < m && kk < k ? a[row * k + kk] : 0;
      bs[buffer][i / tile][i % tile] = column < n && kk < k ? b[kk * n + column] : 0;
    }
  };
  const int row = t / 8 * 4, column = t % 8 * 4;
  float sums[4][4] = {};
  fill(0, 0);
  if constexpr (bug != Bug::no_first_barrier) __syncthreads();
  for (int k0 = 0, buffer = 0; k0 < k; k0 += depth) {
    for (int kk = 0; kk < depth; ++kk) {
      const float4 x = load_shared<float4>(&as[(buffer * depth + kk) * tile + row]);
      const float* const from = &bs[buffer][kk][column];
      const float4 y = bug == Bug::misaligned_pointer ? *reinterpret_cast<const float4*>(from)
                                                      : load_shared<float4>(from);
      const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sums[i][j] += xs[i] * ys[j];
    }
    if constexpr (bug != Bug::overwritten_while_read) buffer ^= 1;
    if (k0 + depth < k) fill(buffer, k0 + depth);
    if constexpr (bug == Bug::divergent_barrier) {
      if (t < 40) __syncthreads();
    } else if constexpr (bug == Bug::two_barriers) {
      if (t < 32)
        __syncthreads();
      else
        __syncthreads();
    } else if constexpr (bug != Bug::no_loop_barrier) {
      __syncthreads();
    }
  }
  if (bug == Bug::past_dynamic_shared && t == 63) as[2 * depth * tile] = 1;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (bug == Bug::out_of_bounds || (row0 + row + i < m && column0 + column + j < n))
        c[(row0 + row + i) * n + column0 + column + j] = sums[i][j];
}

std::vector<float> integers(int count) {
  std::vector<float> values(std::size_t(count), 0.0f);
  unsigned state = unsigned(count);
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = float(int(state >> 28) - 7);
  }
  return values;
}

bool is_product(int m, int n, int k, const std::vector<float>& a, const std::vector<float>& b,
                const std::vector<float>& c) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int l = 0; l < k; ++l) sum += a[std::size_t(i * k + l)] * b[std::size_t(l * n + j)];
      if (!(c[std::size_t(i * n + j)] == sum)) return false;
    }
  return true;
}

template <Bug bug>
bool product_is_right() {
  const int m = 45, n = 40, k = 27;
  const std::vector<float> a = integers(m * k), b = integers(k * n);
  Array<float> from_a(a), from_b(b), c(std::vector<float>(std::size_t(m * n), NAN));
  launch(product<bug>, dim3((n + tile - 1) / tile, (m + tile - 1) / tile), 64, product_shared,
         stream(), m, n, k, from_a.data(), from_b.data(), c.data());
  return is_product(m, n, k, a, b, c.values());
}

// --- *out += the sum of x: shuffles in a warp, shared memory between warps, atomics between blocks

template <Bug bug>
__global__ void sum(int n, const float* x, float* out) {
  SHARED(float, part, [32]);
  SHARED(float, total);
  const int lane = lane_id(), warp = int(threadIdx.x) / 32;
  float s = 0;
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += int(gridDim.x * blockDim.x))
    s += x[i];
  for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(~0u, s, unsigned(d));
  if (lane == 0) part[warp] = s;
  if constexpr (bug != Bug::missing_barrier) __syncthreads();
  if (warp > 0) return;
  s = lane < int(blockDim.x) / 32 ? part[lane] : 0;
  for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  if (lane == 0) total = s;
  if constexpr (bug != Bug::missing_syncwarp) __syncwarp();
  if (lane != 1) return;
  if constexpr (bug == Bug::plain_add)
    *out += total;
  else
    atomicAdd(out, total);
}

template <Bug bug>
bool sum_is_right() {
  const std::vector<float> x = integers(5000);
  float expected = 0;
  for (const float v : x) expected += v;
  Array<float> from(x), out({0.0f});
  launch(sum<bug>, 2, bug == Bug::shuffle_as_fence ? 1024 : 128, 0, stream(), 5000, from.data(),
         out.data());
  return out.values()[0] == expected;
}

// --- *out = 5, handed over by another thread

template <Bug bug>
__global__ void handed_over(int* out) {
  SHARED(int, cell);
  if (threadIdx.x == 0) cell = 5;
  if constexpr (bug == Bug::shuffle_as_fence)
    __shfl_sync(~0u, 0, 0);
  else
    __syncwarp();
  if (threadIdx.x == 1) *out = cell;
}

template <Bug bug>
bool handed_over_is_right() {
  Array<int> out({0});
  launch(handed_over<bug>, 1, 32, 0, stream(), out.data());
  return out.values()[0] == 5;
}

// --- c (m x 8) = a (m x k) b (8 x k)^T in f16 on tensor cores, tiles copied by cp.async; two warps

template <Bug bug>
__global__ void tensor_product(int m, int k, const f16* a, const f16* b, float* c) {
  constexpr int rows = 32, columns = 8, step = 16;
  SHARED(f16, as, [2][rows][step + 8]);
  SHARED(f16, bs, [2][columns][step + 8]);
  const int t = int(threadIdx.x), lane = lane_id(), warp = t / 32, row0 = int(blockIdx.x) * rows;
  const auto copy = [&](int buffer, int k0) {
    const int row = t / 2, kk = t % 2 * 8;
    const auto bytes = [&](bool inside) {
      return inside && (bug == Bug::copy_past_row || k0 + kk < k) ? 16 : 0;
    };
    const int a_bytes = bytes(row0 + row < m), b_bytes = bytes(row < columns);
    cp_async<16>(&as[buffer][row][kk], a_bytes ? a + (row0 + row) * k + k0 + kk : a, a_bytes);
    if (row < columns)
      cp_async<16>(&bs[buffer][row][kk], b_bytes ? b + row * k + k0 + kk : b, b_bytes);
    cp_async_commit();
  };
  float d[4] = {};
  copy(0, 0);
  for (int k0 = 0, buffer = 0; k0 < k; k0 += step, buffer ^= 1) {
    if (k0 + step < k) {
      copy(buffer ^ 1, k0 + step);
      if constexpr (bug != Bug::copy_not_awaited) cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    unsigned fa[4], fb[2];
    ldmatrix<4>(fa, &as[buffer][16 * warp + lane % 16][lane / 16 * 8]);
    ldmatrix<2>(fb, &bs[buffer][lane % 8][lane / 8 % 2 * 8]);
    if (bug == Bug::wrong_fragment) {
      const unsigned second = fa[1];
      fa[1] = fa[2];
      fa[2] = second;
    }
    mma_m16n8k16<f16>(d, fa, fb, d);
    if constexpr (bug != Bug::copy_into_tile_in_use) __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    const int row = row0 + 16 * warp + lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    if (row < m) c[row * columns + column] = d[i];
  }
}

template <Bug bug>
bool tensor_product_is_right() {
  const int m = 45, n = 8, k = 56;
  const std::vector<float> a = integers(m * k), b = integers(k * n);
  std::vector<f16> half_a(a.size()), half_b(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) half_a[i] = __float2half(a[i]);
  for (int l = 0; l < k; ++l)
    for (int j = 0; j < n; ++j)
      half_b[std::size_t(j * k + l)] = __float2half(b[std::size_t(l * n + j)]);
  Array<f16> from_a(half_a), from_b(half_b);
  Array<float> c(std::vector<float>(std::size_t(m * n), NAN));
  launch(tensor_product<bug>, 2, 64, 0, stream(), m, k, from_a.data(), from_b.data(), c.data());
  return is_product(m, n, k, a, b, c.values());
}

struct Case {
  const char* name;
  bool (*is_right)();
};
constexpr Case cases[] = {
    {"right_product", product_is_right<Bug::none>},
    {"no_first_barrier", product_is_right<Bug::no_first_barrier>},
    {"no_loop_barrier", product_is_right<Bug::no_loop_barrier>},
    {"overwritten_while_read", product_is_right<Bug::overwritten_while_read>},
    {"divergent_barrier", product_is_right<Bug::divergent_barrier>},
    {"two_barriers", product_is_right<Bug::two_barriers>},
    {"out_of_bounds", product_is_right<Bug::out_of_bounds>},
    {"past_dynamic_shared", product_is_right<Bug::past_dynamic_shared>},
    {"misaligned_vector", product_is_right<Bug::misaligned_vector>},
    {"misaligned_pointer", product_is_right<Bug::misaligned_pointer>},
    {"right_sum", sum_is_right<Bug::none>},
    {"missing_barrier", sum_is_right<Bug::missing_barrier>},
    {"missing_syncwarp", sum_is_right<Bug::missing_syncwarp>},
    {"plain_add", sum_is_right<Bug::plain_add>},
    {"right_hand_over", handed_over_is_right<Bug::none>},
    {"shuffle_as_fence", handed_over_is_right<Bug::shuffle_as_fence>},
    {"right_tensor_product", tensor_product_is_right<Bug::none>},
    {"copy_not_awaited", tensor_product_is_right<Bug::copy_not_awaited>},
    {"copy_into_tile_in_use", tensor_product_is_right<Bug::copy_into_tile_in_use>},
    {"copy_past_row", tensor_product_is_right<Bug::copy_past_row>},
    {"wrong_fragment", tensor_product_is_right<Bug::wrong_fragment>},
};

}  // namespace
}  // namespace convlab::cuda

int main(int argc, char** argv) try {
  using namespace convlab;
  const unsigned schedules = on_cpu::asan || on_cpu::tsan ? 4 : 16;
  for (const cuda::Case& c : cuda::cases) {
    if (argc != 2 || std::strcmp(argv[1], c.name) != 0) continue;
    for (unsigned seed = 0; seed < schedules; ++seed) {
      on_cpu::config.seed = seed;
      if (c.is_right()) continue;
      std::printf("wrong result in schedule %u\n", seed);
      return 1;
    }
    std::puts("right in every schedule");
    return 0;
  }
  std::fputs("usage: bugs NAME\n", stderr);
  return 2;
} catch (const convlab::Error& error) {
  std::puts(error.what());
  return 1;
}
