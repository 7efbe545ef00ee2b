// Guarantees for kernels executed on the CPU, in order and in shuffled schedules: warps, barriers,
// shared memory, grids, copies, fragments. Operations that would hang or be undefined on a card end
// the program.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "kernels_cuda/kernel.h"

namespace convlab::cuda {
namespace {

constexpr unsigned full = 0xffffffffu;

// In order, then in shuffled schedules; on one OS thread, then on three.
template <class F>
void in_every_schedule(F body) {
  const on_cpu::Config before = on_cpu::config;
  for (const unsigned workers : {1u, 3u})
    for (unsigned seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", workers " << workers);
      on_cpu::config = {.seed = seed, .workers = workers};
      body();
    }
  on_cpu::config = before;
}

template <class... P, class... A>
void run(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, A&&... args) {
  ASSERT_EQ(on_cpu::launch(kernel, grid, block, shared_bytes, nullptr, std::forward<A>(args)...),
            cudaSuccess);
}

// --- warps

// Every thread writes each operation's result.
constexpr int warp_results = 9;
__global__ void warp_operations(int* out) {
  const int lane = lane_id();
  int* const mine = out + int(blockIdx.x * blockDim.x + threadIdx.x) * warp_results;
  mine[0] = __shfl_sync(full, lane, 5, 8);
  mine[1] = __shfl_up_sync(full, lane, 3, 16);
  mine[2] = __shfl_down_sync(full, lane, 3, 16);
  mine[3] = int(2 * __shfl_xor_sync(full, 1.5 * lane, 16));
  mine[4] = int(__ballot_sync(full, lane % 3 == 0));
  mine[5] = __all_sync(full, lane < 31) + 2 * __any_sync(full, lane == 31);
  // The two halves of a warp diverge and reconverge.
  if (lane < 16) {
    mine[6] = int(__reduce_add_sync(0x0000ffffu, unsigned(lane)));
  } else {
    for (int i = 0; i < 3; ++i) mine[6] = __shfl_xor_sync(0xffff0000u, lane, 1);
  }
  __syncwarp();
  mine[7] = int(__reduce_max_sync(full, unsigned(lane)));
  if (lane >= 8) return;  // exited lanes no longer count
  mine[8] = int(__ballot_sync(full, 1));
}

TEST(OnCpu, WarpOperations) {
  in_every_schedule([] {
    constexpr int threads = 2 * 96;
    std::vector<int> out(threads * warp_results, -7);
    run(warp_operations, 2, 96, 0, out.data());
    for (int i = 0; i < threads; ++i) {
      const int lane = i % 32, *mine = &out[std::size_t(i) * warp_results];
      EXPECT_EQ(mine[0], lane / 8 * 8 + 5);
      EXPECT_EQ(mine[1], lane % 16 < 3 ? lane : lane - 3);
      EXPECT_EQ(mine[2], lane % 16 > 12 ? lane : lane + 3);
      EXPECT_EQ(mine[3], 3 * (lane ^ 16));
      EXPECT_EQ(unsigned(mine[4]), 0x49249249u);
      EXPECT_EQ(mine[5], 2);
      EXPECT_EQ(mine[6], lane < 16 ? 120 : lane ^ 1);
      EXPECT_EQ(mine[7], 31);
      EXPECT_EQ(mine[8], lane < 8 ? 0xff : -7);
    }
  });
}

// Neighbours pass a value around through shared memory many times, so that lanes run ahead.
__global__ void handed_around(int* out) {
  SHARED(int, cells, [64]);
  const int lane = lane_id(), first = int(threadIdx.x) / 32 * 32;
  int value = lane;
  for (int i = 0; i < 40; ++i) {
    cells[first + lane] = value;
    __syncwarp();
    value = cells[first + (lane + 1) % 32];
    __syncwarp();
  }
  out[threadIdx.x] = value;
}

TEST(OnCpu, SyncwarpOrdersMemory) {
  in_every_schedule([] {
    int out[64];
    run(handed_around, 1, 64, 0, out);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], (i % 32 + 40) % 32);
  });
}

// --- barriers

__global__ void counts_down(int* out, int steps) {
  SHARED(int, sums, [2]);
  if (threadIdx.x % 2 == 1) return;  // barriers wait only for live threads
  if (threadIdx.x == 0) sums[0] = sums[1] = 0;
  __syncthreads();
  for (int i = 0; i < steps; ++i) {
    atomicAdd(&sums[i % 2], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
      out[i] += sums[i % 2];
      sums[i % 2] = 0;
    }
    __syncthreads();
  }
}

TEST(OnCpu, BarriersSeparateSteps) {
  in_every_schedule([] {
    std::vector<int> out(7);
    run(counts_down, 1, 100, 0, out.data(), 7);
    EXPECT_EQ(out, std::vector<int>(7, 50));
  });
}

// --- grids and shared memory

__global__ void three_dimensional(int* out) {
  SHARED_DYN(int, dynamic);
  SHARED(int, one);
  const bool poisoned = one == -1 && dynamic[threadIdx.x] == -1;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) one = 7;
  __syncthreads();
  if (threadIdx.y == 0) dynamic[threadIdx.x] = one;
  __syncthreads();
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  atomicAdd(&out[block], poisoned ? dynamic[threadIdx.x] + int(blockDim.x * threadIdx.y) : -1);
}

TEST(OnCpu, GridsAndFreshSharedMemory) {
  in_every_schedule([] {
    std::vector<int> out(2 * 3 * 2);
    run(three_dimensional, dim3(2, 3, 2), dim3(32, 4), 128, out.data());
    EXPECT_EQ(out, std::vector<int>(12, 32 * 4 * 7 + 32 * 32 * (0 + 1 + 2 + 3)));
  });
}

__global__ void count_up(int* out) { atomicAdd(out, 1); }

// A sanitizer that kept what each thread leaves behind at its end had no room after a while.
TEST(OnCpu, ABlockLeavesNothingBehind) {
  int blocks = 0;
  run(count_up, 70'000, 1, 0, &blocks);
  EXPECT_EQ(blocks, 70'000);
}

TEST(OnCpu, FromAnyHostThread) {
  std::vector<int> out(12);
  const auto launch = [&] { run(three_dimensional, dim3(2, 3, 2), dim3(32, 4), 128, out.data()); };
  launch();
  std::thread(launch).join();
  launch();
  EXPECT_EQ(out, std::vector<int>(12, 3 * (32 * 4 * 7 + 32 * 32 * 6)));
}

__global__ void does_nothing() {}

TEST(OnCpu, RefusesWhatTheDriverRefuses) {
  const auto error = [](dim3 grid, dim3 block, std::size_t shared_bytes) {
    return on_cpu::launch(does_nothing, grid, block, shared_bytes, nullptr);
  };
  EXPECT_EQ(error(1, 1024, 227 << 10), cudaSuccess);
  EXPECT_EQ(error(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error(1, dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error(dim3(1, 65536), 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error(0, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(error(1, 32, (227 << 10) + 1), cudaErrorInvalidValue);
}

// --- cp.async

// A thread's view of four copied groups, the last of which are filled with zeros.
__global__ void copies(const float* in, float* out) {
  SHARED(float, tile, [4][128]);
  const unsigned t = threadIdx.x;
  for (int group = 0; group < 4; ++group) {
    cp_async<16>(&tile[group][4 * t], in + 4 * t, 4 * group);
    cp_async_commit();
  }
  out[0 + t] = tile[0][4 * t];  // still in flight
  cp_async_wait<2>();
  out[32 + t] = tile[1][4 * t] + tile[1][4 * t + 1];  // one element and a zero
  out[64 + t] = tile[3][4 * t];                       // still in flight
  cp_async_wait<0>();
  out[96 + t] = tile[3][4 * t + 2];
  out[128 + t] = tile[3][4 * t + 3];
}

TEST(OnCpu, CopiesComeWithTheirWait) {
  in_every_schedule([] {
    alignas(16) float in[128];
    for (int i = 0; i < 128; ++i) in[i] = float(i + 1);
    float out[160];
    run(copies, 1, 32, 0, in, out);
    for (int t = 0; t < 32; ++t) {
      EXPECT_TRUE(std::isnan(out[t]));
      EXPECT_EQ(out[32 + t], float(4 * t + 1));
      EXPECT_TRUE(std::isnan(out[64 + t]));
      EXPECT_EQ(out[96 + t], float(4 * t + 3));
      EXPECT_EQ(out[128 + t], 0);
    }
  });
}

// --- fragments, against a plain product

// out (16 x 8) = a (16 x 8) b (8 x 8), elements placed as the PTX ISA says for m16n8k8.
__global__ void tf32_product(const float* a, const float* b, float* out) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  const unsigned fa[4] = {to_tf32(a[g * 8 + t]), to_tf32(a[(g + 8) * 8 + t]),
                          to_tf32(a[g * 8 + t + 4]), to_tf32(a[(g + 8) * 8 + t + 4])};
  const unsigned fb[2] = {to_tf32(b[t * 8 + g]), to_tf32(b[(t + 4) * 8 + g])};
  float d[4] = {1, 1, 1, 1};
  mma_m16n8k8_tf32(d, fa, fb, d);
  for (int i = 0; i < 4; ++i) out[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = d[i];
}

// out (16 x 8) = a (16 x 16) b (16 x 8). b is loaded once as stored and once transposed, and
// ldmatrix loads the fragments.
template <class T>
__global__ void half_product(const float* a, const float* b, float* out) {
  SHARED(T, as, [16][24]);
  SHARED(T, bs, [16][8]);
  SHARED(T, bt, [8][24]);
  const int lane = lane_id();
  for (int i = lane; i < 16 * 16; i += 32) as[i / 16][i % 16] = narrow<T>(a[i]);
  for (int i = lane; i < 16 * 8; i += 32) bs[i / 8][i % 8] = bt[i % 8][i / 8] = narrow<T>(b[i]);
  __syncwarp();
  unsigned fa[4], fb[2], fbt[2];
  ldmatrix<4>(fa, &as[lane % 16][lane / 16 * 8]);
  ldmatrix_trans<2>(fb, &bs[lane % 16][0]);
  ldmatrix<2>(fbt, &bt[lane % 8][lane / 8 % 2 * 8]);
  float d[4] = {1, 1, 1, 1};
  mma_m16n8k16<T>(d, fa, fb, d);
  mma_m16n8k16<T>(d, fa, fbt, d);
  for (int i = 0; i < 4; ++i) out[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2] = d[i];
}

std::vector<float> small_integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = float(int(random() % 9) - 4);
  return values;
}

void expect_product(const std::vector<float>& a, const std::vector<float>& b, std::size_t depth,
                    float times, const float* out) {
  for (std::size_t m = 0; m < 16; ++m)
    for (std::size_t n = 0; n < 8; ++n) {
      float sum = 0;
      for (std::size_t k = 0; k < depth; ++k) sum += a[m * depth + k] * b[k * 8 + n];
      EXPECT_EQ(out[m * 8 + n], 1 + times * sum) << "row " << m << ", column " << n;
    }
}

TEST(OnCpu, TensorCoreProducts) {
  in_every_schedule([] {
    float out[16 * 8];
    const std::vector<float> a8 = small_integers(16 * 8, 1), b8 = small_integers(8 * 8, 2);
    run(tf32_product, 1, 32, 0, a8.data(), b8.data(), out);
    expect_product(a8, b8, 8, 1, out);

    const std::vector<float> a = small_integers(16 * 16, 3), b = small_integers(16 * 8, 4);
    run(half_product<f16>, 1, 32, 0, a.data(), b.data(), out);
    expect_product(a, b, 16, 2, out);
    run(half_product<bf16>, 1, 32, 0, a.data(), b.data(), out);
    expect_product(a, b, 16, 2, out);
  });
}

// Matrix i of ldmatrix<4> is read from the addresses of lanes 8 i to 8 i + 7, in any order.
__global__ void rows_in_any_order(unsigned* out) {
  SHARED(std::uint16_t, rows, [32][8]);
  const int lane = lane_id();
  for (int i = 0; i < 8; ++i) rows[lane][i] = std::uint16_t(8 * lane + i);
  __syncwarp();
  unsigned plain[4], transposed[4], one[1];
  ldmatrix<4>(plain, rows[31 - lane]);
  ldmatrix_trans<4>(transposed, rows[31 - lane]);
  ldmatrix<1>(one, rows[lane % 8]);
  for (int i = 0; i < 4; ++i) {
    out[lane * 9 + i] = plain[i];
    out[lane * 9 + 4 + i] = transposed[i];
  }
  out[lane * 9 + 8] = one[0];
}

TEST(OnCpu, LdmatrixFollowsItsAddresses) {
  in_every_schedule([] {
    unsigned out[32 * 9];
    run(rows_in_any_order, 1, 32, 0, out);
    const auto pair = [](int first, int second) {
      return unsigned(first) | unsigned(second) << 16;
    };
    for (int lane = 0; lane < 32; ++lane) {
      const int a = lane / 4, b = 2 * (lane % 4);
      for (int i = 0; i < 4; ++i) {
        const auto row = [i](int j) { return 8 * (31 - (8 * i + j)); };
        EXPECT_EQ(out[lane * 9 + i], pair(row(a) + b, row(a) + b + 1));
        EXPECT_EQ(out[lane * 9 + 4 + i], pair(row(b) + a, row(b + 1) + a));
      }
      EXPECT_EQ(out[lane * 9 + 8], pair(8 * a + b, 8 * a + b + 1));
    }
  });
}

TEST(OnCpu, RoundsToTf32) {
  const auto rounded = [](float v) { return __uint_as_float(to_tf32(v)); };
  EXPECT_EQ(rounded(1.0f + 0x1p-11f), 1.0f + 0x1p-10f);  // ties round away from zero
  EXPECT_EQ(rounded(-1.0f - 0x1p-11f), -1.0f - 0x1p-10f);
  EXPECT_EQ(rounded(1.0f + 0x1.8p-12f), 1.0f);
  EXPECT_EQ(rounded(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(rounded(NAN)));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 1000; ++i) {
    const float v = normal(random);
    unsigned big, small;
    split_tf32(v, big, small);
    EXPECT_NEAR(__uint_as_float(big), v, std::abs(v) * 0x1p-11f);
    EXPECT_NEAR(__uint_as_float(big) + __uint_as_float(small), v, std::abs(v) * 0x1p-21f);
  }
}

TEST(OnCpu, ConvertsElements) {
  EXPECT_EQ(widen(narrow<f16>(0.5f)), 0.5f);
  EXPECT_EQ(widen(narrow<f16>(2049.0f)), 2048.0f);  // 11 bits, ties to even
  EXPECT_EQ(widen(narrow<bf16>(257.0f)), 256.0f);   // 8 bits
  EXPECT_EQ(narrow<double>(1.0 / 3), 1.0 / 3);
  const unsigned pair = pack(narrow<f16>(1.0f), narrow<f16>(-2.0f));
  EXPECT_EQ(widen(low_half<f16>(pair)), 1.0f);
  EXPECT_EQ(widen(high_half<f16>(pair)), -2.0f);
}

// --- errors on a card. (ThreadSanitizer cannot follow a fork of a process with threads.)

__global__ void waits_for_nobody() {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __syncthreads();
}
__global__ void divergent_barriers() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void not_in_its_mask() { __shfl_sync(0x0000000fu, 1, 0); }
__global__ void different_operations() {
  if (threadIdx.x % 2)
    __shfl_sync(full, 1, 0);
  else
    __ballot_sync(full, 1);
}
__global__ void half_a_warp_multiplies() {
  unsigned a[4] = {}, b[2] = {};
  float c[4] = {};
  if (lane_id() < 16) return;
  mma_m16n8k8_tf32(c, a, b, c);
}
__global__ void too_much_static() {
  SHARED(float, big, [64][256]);
  big[0][0] = 0;
}
__global__ void too_much_together() {
  SHARED(float, more, [1024]);
  more[0] = 0;
}
__global__ void misaligned(const float* p, float* out) { *out = load_global<float4>(p + 1).x; }
__global__ void not_shared(float* p) { store_shared(p, 1.0f); }
__global__ void past_shared() {
  SHARED(float, tile, [32]);
  store_shared(tile + 32, 1.0f);
}
__attribute__((noinline)) int deeper(int calls, const volatile int* caller) {
  volatile int frame = calls + *caller;
  return calls ? deeper(calls - 1, &frame) : frame;
}
__global__ void deep(int* out) { *out = deeper(1 << 20, out); }

class OnCpuDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (on_cpu::tsan) GTEST_SKIP() << "ThreadSanitizer does not follow forks";
  }
};

TEST_F(OnCpuDeathTest, Deadlock) {
  EXPECT_DEATH(run(waits_for_nobody, 1, 64, 0),
               "deadlock.*\n.*\n.*waiting in a warp operation at .*\n.*waiting in __syncthreads");
}
TEST_F(OnCpuDeathTest, DivergentBarriers) {
  EXPECT_DEATH(run(divergent_barriers, 1, 64, 0), "wait at different __syncthreads");
}
TEST_F(OnCpuDeathTest, Masks) {
  EXPECT_DEATH(run(not_in_its_mask, 1, 32, 0), "not in its mask");
  EXPECT_DEATH(run(different_operations, 1, 32, 0), "deadlock");
  EXPECT_DEATH(run(half_a_warp_multiplies, 1, 32, 0), "mma needs all 32 lanes");
}
TEST_F(OnCpuDeathTest, TooMuchSharedMemory) {
  EXPECT_DEATH(run(too_much_static, 1, 32, 0), "more than 48 KB of static");
  EXPECT_DEATH(run(too_much_together, 1, 32, 225 << 10), "more than 227 KB");
}
TEST_F(OnCpuDeathTest, Addresses) {
  alignas(16) float memory[8] = {};
  EXPECT_DEATH(run(misaligned, 1, 32, 0, memory, memory), "misaligned access\n  at .*on_cpu_test");
  EXPECT_DEATH(run(not_shared, 1, 32, 0, memory), "not an address in shared memory");
  EXPECT_DEATH(run(past_shared, 1, 32, 0), "not an address in shared memory");
}
TEST_F(OnCpuDeathTest, StackOverflow) {
  int out = 0;
  EXPECT_DEATH(run(deep, 1, 32, 0, &out), "");
}

// --- counting

// Threads (x) and rows (y) of a tile of 33 columns, which makes columns conflict-free, and of one
// of 32, where a column is in one bank.
__global__ void tiles(const float* in, float* out) {
  SHARED(float, padded, [32][33]);
  SHARED(float, tile, [32][32]);
  const unsigned x = threadIdx.x, y = threadIdx.y;
  store_shared(&padded[y][x], load_global<float>(in + 32 * y + x));
  store_shared(&tile[y][x], load_global<float>(in + 32 * x + y));
  __syncthreads();
  store_global(out + 32 * y + x, load_shared<float>(&padded[x][y]));
  store_global(out + 1024 + 32 * y + x, load_shared<float>(&tile[x][y]));
  store_global(out + 2048 + 32 * y + x, load_shared<float>(&tile[y][0]));
  if (x < 8) store_global(out + 3072 + 32 * y + 4 * x, load_shared<float4>(&tile[y][4 * x]));
}

TEST(OnCpu, CountsConflictsAndSectors) {
  const on_cpu::Config before = on_cpu::config;
  for (const unsigned seed : {0u, 1u}) {
    on_cpu::config.seed = seed;
    std::vector<float> buffer(1024 + 4096 + 8);
    float* const in =
        buffer.data() + (32 - reinterpret_cast<std::uintptr_t>(buffer.data()) % 32) / 4;
    float* const out = in + 1024;
    const auto counts = on_cpu::count_accesses([&] { run(tiles, 2, dim3(32, 32), 0, in, out); });
    struct Expected {
      on_cpu::AccessKind kind;
      std::int64_t transactions, least;  // a warp's
    };
    using enum on_cpu::AccessKind;
    // In line order, stores after loads.
    const std::vector<Expected> expected{
        {shared_store, 1, 1}, {global_load, 4, 4},    // rows
        {shared_store, 1, 1}, {global_load, 32, 4},   // a column of global memory
        {shared_load, 1, 1},  {global_store, 4, 4},   // a padded column
        {shared_load, 32, 1}, {global_store, 4, 4},   // a column in one bank
        {shared_load, 1, 1},  {global_store, 4, 4},   // one word for all
        {shared_load, 1, 1},  {global_store, 4, 4}};  // float4, of eight lanes
    ASSERT_EQ(counts.size(), expected.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
      EXPECT_EQ(counts[i].kind, expected[i].kind) << "line " << counts[i].site.line;
      EXPECT_EQ(counts[i].requests, 2 * 32) << "line " << counts[i].site.line;
      EXPECT_EQ(counts[i].transactions, 2 * 32 * expected[i].transactions)
          << "line " << counts[i].site.line;
      EXPECT_EQ(counts[i].least, 2 * 32 * expected[i].least) << "line " << counts[i].site.line;
    }
  }
  on_cpu::config = before;
}

}  // namespace
}  // namespace convlab::cuda
