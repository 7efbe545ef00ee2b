// One wave of blocks, all of which run from the start to the end. Every thread has enough chains of
// work to hide their latency. It writes its result, so that nothing is optimised away and a test
// sees that all of the work was done.
#include <memory>
#include <string>
#include <utility>

#include "conv/error.h"
#include "kernels_cuda/device/ceilings.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda {
namespace {

constexpr int threads = ceiling_threads;
constexpr int blocks_at_once = 4;  // on any card: 1024 threads, 64 registers each, 64 KB
constexpr int chains = 8;          // of each thread, in registers

__device__ __forceinline__ std::int64_t global_thread() {
  return std::int64_t(blockIdx.x) * threads + threadIdx.x;
}

// ---- Registers ----

constexpr int fma_steps = 32,
              mma_steps = 8;  // a round, unrolled: the loop's overhead is negligible

// Called with factor = term = 1, which the compiler cannot know: all is exact below 2^24.
template <class T>
__global__ void __launch_bounds__(threads, blocks_at_once)
    multiply_adds(int rounds, T factor, T term, T* sums) {
  T x[chains];
#pragma unroll
  for (int i = 0; i < chains; ++i) x[i] = T(int(threadIdx.x) + i);
#pragma unroll 1
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int step = 0; step < fma_steps; ++step)
#pragma unroll
      for (int i = 0; i < chains; ++i) x[i] = x[i] * factor + term;
  T sum = 0;
#pragma unroll
  for (int i = 0; i < chains; ++i) sum += x[i];
  sums[global_thread()] = sum;
}

// float stands for TF32. `ones`: a register of a fragment.
template <class T>
__global__ void __launch_bounds__(threads, blocks_at_once)
    tensor_multiply_adds(int rounds, unsigned ones, float* sums) {
  const unsigned a[4] = {ones, ones, ones, ones}, b[2] = {ones, ones};
  float d[chains][4] = {};
#pragma unroll 1
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int step = 0; step < mma_steps; ++step)
#pragma unroll
      for (int i = 0; i < chains; ++i)
        if constexpr (std::is_same_v<T, float>)
          mma_m16n8k8_tf32(d[i], a, b, d[i]);
        else
          mma_m16n8k16<T>(d[i], a, b, d[i]);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < chains; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  sums[global_thread()] = sum;
}

template <class T>
double queue_fma(const CeilingRun& run, Stream& stream) {
  launch(multiply_adds<T>, run.blocks, threads, 0, stream, run.rounds, T(1), T(1),
         static_cast<T*>(run.sums));
  return 2.0 * chains * fma_steps * run.rounds * threads * run.blocks;
}

template <class T>
double queue_mma(const CeilingRun& run, unsigned ones, Stream& stream) {
  launch(tensor_multiply_adds<T>, run.blocks, threads, 0, stream, run.rounds, ones,
         static_cast<float*>(run.sums));
  constexpr double of_a_warp = 2.0 * 16 * 8 * (32 / sizeof(T));
  return of_a_warp * chains * mma_steps * run.rounds * (threads / 32) * run.blocks;
}

// ---- Memory: four accesses of 16 bytes a thread at a time ----

constexpr int parts = 4;
static_assert(parts * threads * sizeof(uint4) == ceiling_tile_bytes);

__device__ __forceinline__ void add(uint4& sum, uint4 v) {
  sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
}
__device__ __forceinline__ unsigned total(uint4 v) { return v.x + v.y + v.z + v.w; }

// Every round starts elsewhere, since a compiler would read equal rounds only once. The words are
// their own indices.
__global__ void __launch_bounds__(threads, blocks_at_once)
    read_shared(unsigned rounds, unsigned* sums) {
  SHARED(uint4, tile, [parts][threads]);
  for (unsigned part = 0; part < parts; ++part) {
    const unsigned word = 4 * (part * threads + threadIdx.x);
    store_shared(&tile[part][threadIdx.x], make_uint4(word, word + 1, word + 2, word + 3));
  }
  __syncthreads();
  uint4 sum = make_uint4(0, 0, 0, 0);
#pragma unroll 4
  for (unsigned round = 0; round < rounds; ++round) {
    const unsigned place = (threadIdx.x + 32 * round) % threads;
#pragma unroll
    for (int part = 0; part < parts; ++part) add(sum, load_shared<uint4>(&tile[part][place]));
  }
  sums[global_thread()] = total(sum);
}

// Every block writes its own tiles.
template <class F>
__device__ __forceinline__ void for_each_tile(std::int64_t tiles, int rounds, F f) {
#pragma unroll 1
  for (int round = 0; round < rounds; ++round)
#pragma unroll 1
    for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
      f(round, tile * parts * threads + threadIdx.x);
}

__global__ void __launch_bounds__(threads, blocks_at_once)
    read_global(const uint4* data, std::int64_t tiles, int rounds, unsigned* sums) {
  uint4 sum = make_uint4(0, 0, 0, 0);
  for_each_tile(tiles, rounds, [&](int, std::int64_t at) {
    uint4 v[parts];
#pragma unroll
    for (int part = 0; part < parts; ++part)
      v[part] = load_past_l1<uint4>(data + at + part * threads);
#pragma unroll
    for (int part = 0; part < parts; ++part) add(sum, v[part]);
  });
  sums[global_thread()] = total(sum);
}

}  // namespace

// Not only this file's: the device asks whether the build has it for a card (cuda_device.cpp).
__global__ void __launch_bounds__(threads, blocks_at_once)
    write_global(uint4* data, std::int64_t tiles, int rounds, unsigned word) {
  for_each_tile(tiles, rounds, [&](int round, std::int64_t at) {
    const unsigned w = word + unsigned(round);
#pragma unroll
    for (int part = 0; part < parts; ++part)
      store_global(data + at + part * threads, make_uint4(w, w, w, w));
  });
}

namespace {

std::int64_t whole_tiles(std::size_t bytes) {
  const auto tiles = std::int64_t(bytes / ceiling_tile_bytes);
  if (tiles < 1) throw Error("ceilings: less than a tile of memory");
  return tiles;
}

}  // namespace

double queue_multiply_adds(DType dtype, const CeilingRun& run, Stream& stream) {
  if (dtype == DType::f32) return queue_fma<float>(run, stream);
  if (dtype == DType::f64) return queue_fma<double>(run, stream);
  throw Error("ceilings: multiply-adds are f32 or f64");
}

double queue_tensor_multiply_adds(DType dtype, const CeilingRun& run, Stream& stream) {
  if (dtype == DType::f32) return queue_mma<float>(run, 0x3f800000u, stream);
  if (dtype == DType::f16) return queue_mma<f16>(run, 0x3c003c00u, stream);
  if (dtype == DType::bf16) return queue_mma<bf16>(run, 0x3f803f80u, stream);
  throw Error("ceilings: tensor cores take f32, f16 or bf16");
}

double queue_shared_reads(const CeilingRun& run, Stream& stream) {
  launch(read_shared, run.blocks, threads, 0, stream, unsigned(run.rounds),
         static_cast<unsigned*>(run.sums));
  return double(ceiling_tile_bytes) * run.rounds * run.blocks;
}

double queue_reads(ConstSpan data, const CeilingRun& run, Stream& stream) {
  const std::int64_t tiles = whole_tiles(data.size());
  launch(read_global, run.blocks, threads, 0, stream, reinterpret_cast<const uint4*>(data.data()),
         tiles, run.rounds, static_cast<unsigned*>(run.sums));
  return double(ceiling_tile_bytes) * double(tiles) * run.rounds;
}

double queue_writes(Span data, std::uint32_t word, const CeilingRun& run, Stream& stream) {
  const std::int64_t tiles = whole_tiles(data.size());
  launch(write_global, run.blocks, threads, 0, stream, reinterpret_cast<uint4*>(data.data()), tiles,
         run.rounds, word);
  return double(ceiling_tile_bytes) * double(tiles) * run.rounds;
}

std::vector<CeilingLoop> ceiling_loops(Device& device, const CeilingSizes& sizes) {
  const int blocks = blocks_at_once * device.info().threads;
  const auto sums =
      std::make_shared<Buffer>(device.allocate(std::size_t(blocks) * threads * sizeof(double)));
  const auto data = std::make_shared<Buffer>(device.allocate(std::size_t(sizes.uncached_bytes)));
  const std::unique_ptr<Stream> filling = device.make_stream();
  queue_writes(data->span(), 1, {.blocks = blocks}, *filling);
  filling->synchronize();
  const auto run = [=](int rounds) { return CeilingRun{blocks, rounds, sums->data()}; };

  std::vector<CeilingLoop> loops;
  for (const DType dtype : {DType::f32, DType::f64})
    loops.push_back({"registers", std::string(to_string(dtype)), [=](Stream& stream) {
                       return queue_multiply_adds(dtype, run(sizes.rounds), stream);
                     }});
  const std::pair<DType, const char*> tensor[] = {
      {DType::f32, "tf32 mma"}, {DType::f16, "f16 mma"}, {DType::bf16, "bf16 mma"}};
  for (const auto& kind : tensor)
    loops.push_back({"registers", kind.second, [=, dtype = kind.first](Stream& stream) {
                       return queue_tensor_multiply_adds(dtype, run(sizes.rounds), stream);
                     }});
  loops.push_back({"shared", "read",
                   [=](Stream& stream) { return queue_shared_reads(run(sizes.rounds), stream); }});
  // L2 and memory move equally many bytes in total. If L2 holds a tile for each block, every block
  // has equally many tiles.
  const std::int64_t wave = blocks * std::int64_t(ceiling_tile_bytes);
  const std::int64_t cached =
      sizes.cached_bytes < wave ? sizes.cached_bytes : sizes.cached_bytes / wave * wave;
  const std::pair<const char*, std::int64_t> levels[] = {{"L2", cached},
                                                         {"memory", sizes.uncached_bytes}};
  for (const auto& level : levels) {
    const auto bytes = std::size_t(level.second);
    const int rounds = int(sizes.uncached_bytes / level.second);
    loops.push_back({level.first, "read", [=](Stream& stream) {
                       return queue_reads(data->span().first(bytes), run(rounds), stream);
                     }});
    loops.push_back({level.first, "write", [=](Stream& stream) {
                       return queue_writes(data->span().first(bytes), 1, run(rounds), stream);
                     }});
  }
  return loops;
}

}  // namespace convlab::cuda
