// implicit_gemm on tensor cores, through mma.sync: TF32, 3xTF32, f16 and bf16, summed in f32.
//
// Images are NHWC here, with channels padded to 16 bytes, so that one cp.async copies 4 or 8
// channels of a pixel. Four warps take a quarter of the block's tile each. cp.async copies slices
// of 128 bytes of the depth into a ring of three stages.
//
// forward and backward_data sum over channels, which are contiguous in both operands, as ldmatrix
// expects: it serves 4-byte elements as well as 2-byte ones. backward_filter sums over pixels, each
// of which has its own row of shared memory. ldmatrix transposes 2-byte elements. Those of 4 bytes
// are loaded one by one, from rows whose pitch puts the lanes into different banks.
//
// 3xTF32 adds the small products first. Images are split after they are loaded; packed filters hold
// pairs.
#include "conv/error.h"
#include "kernels_cuda/implicit_gemm/implicit_gemm.h"

namespace convlab::cuda::implicit_gemm {
namespace {

constexpr int threads = 128, stages = 3;

// Of one stage of an operand.
constexpr int bytes_across_rows(int rows) { return 128 * rows; }
constexpr int bytes_along_rows(int rows) { return 128 * (rows + 8); }

// 128 bytes of the depth for each row of the operand.
template <class T, int rows_>
struct AcrossRows {
  static constexpr int rows = rows_, vector = 16 / int(sizeof(T));
  static constexpr int units = 8, elements = bytes_across_rows(rows) / int(sizeof(T));
  using Layout = Swizzled<vector>;

  // Fragments of rows [row, row + 16) for step k (32 bytes of the depth) of mma's left operand.
  __device__ static void left(unsigned* r, const T* tile, int row, int k) {
    const int lane = lane_id();
    ldmatrix<4>(r, tile + Layout::at(row + lane % 16, 2 * k + lane / 16));
  }
  // The right operand's: r[0], r[1] of the first eight rows, r[2], r[3] of the others.
  __device__ static void right(unsigned* r, const T* tile, int row, int k) {
    const int lane = lane_id();
    ldmatrix<4>(r, tile + Layout::at(row + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
  }
};

// A row for each step of the depth.
template <class T, int rows_>
struct AlongRows {
  static constexpr int rows = rows_;
  static constexpr int units = 128 / int(sizeof(T)), pitch = rows + 8;
  static constexpr int elements = bytes_along_rows(rows) / int(sizeof(T));
  static_assert(elements == units * pitch);
  using Layout = DepthMajor<pitch>;

  __device__ static void left(unsigned* r, const T* tile, int row, int k) {
    const int lane = lane_id();
    if constexpr (sizeof(T) == 2) {
      ldmatrix_trans<4>(
          r, tile + Layout::at(row + lane / 8 % 2 * 8, k * 16 + lane / 16 * 8 + lane % 8));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        r[i] = load_shared<unsigned>(
            tile + Layout::at(row + lane / 4 + i % 2 * 8, k * 8 + lane % 4 + i / 2 * 4));
    }
  }
  __device__ static void right(unsigned* r, const T* tile, int row, int k) {
    const int lane = lane_id();
    if constexpr (sizeof(T) == 2) {
      ldmatrix_trans<4>(r, tile + Layout::at(row + lane / 16 * 8, k * 16 + lane % 16));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        r[i] = load_shared<unsigned>(
            tile + Layout::at(row + lane / 4 + i / 2 * 8, k * 8 + lane % 4 + i % 2 * 4));
    }
  }
};

// The registers of an mma operand. Elements of 4 bytes are rounded or split after they are loaded,
// packed filters only taken apart: they were rounded at packing.
template <MathType math>
struct Fragment {
  static constexpr bool is_split = math == MathType::tf32x3;
  unsigned big[4], small[is_split ? 4 : 1];
  template <Check check>
  __device__ void prepare() {
    constexpr bool is_packed = check == Check::none;
    if constexpr (is_split || (math == MathType::tf32 && !is_packed)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float v = __uint_as_float(big[i]);
        if constexpr (is_split && is_packed)
          split_pair(v, big[i], small[i]);
        else if constexpr (is_split)
          split_rounded(v, big[i], small[i]);
        else
          big[i] = to_tf32(v);
      }
    }
  }
};

template <class T, MathType math>
__device__ __forceinline__ void multiply(float* sums, const Fragment<math>& a,
                                         const Fragment<math>& b, int half) {
  if constexpr (sizeof(T) == 2) {
    mma_m16n8k16<T>(sums, a.big, b.big + 2 * half, sums);
  } else {
    if constexpr (math == MathType::tf32x3) {
      mma_m16n8k8_tf32(sums, a.small, b.big + 2 * half, sums);
      mma_m16n8k8_tf32(sums, a.big, b.small + 2 * half, sums);
    }
    mma_m16n8k8_tf32(sums, a.big, b.big + 2 * half, sums);
  }
}

template <class Left, class Right, MathType math, class A, class B, class Output>
__global__ void __launch_bounds__(threads, 2)
    multiply_tiles(A a, B b, StridePhases phases, Output out, TileCounts tiles) {
  using T = typename A::T;
  constexpr int rows = Left::rows, columns = Right::rows;
  constexpr int stage_elements = Left::elements + Right::elements;
  SHARED_DYN(T, shared);
  const Block block(phases, tiles);
  const StridePhase phase = phases.phase[block.phase];
  if (block.unit >= phase.planes.units) return;
  const Job job(phases, block);
  Slices<B::in_planes> slices(job, phase);
  const int first_row = (out.channels_are_rows ? block.channels : block.others) * rows;
  const int first_column = (out.channels_are_rows ? block.others : block.channels) * columns;
  Loader<A, rows, Left::units, threads, typename Left::Layout> load_a(
      a, phase, block, slices.first_term(), first_row);
  Loader<B, columns, Right::units, threads, typename Right::Layout> load_b(
      b, phase, block, slices.first_term(), first_column);

  constexpr int high = rows / 32, wide = columns / 32;  // of a warp's quarter, in units of 16
  const int warp = int(threadIdx.x) / 32;
  const int row = warp % 2 * (rows / 2), column = warp / 2 * (columns / 2);
  float sums[high][2 * wide][4]{};

  for (int i = 0; i < stages - 1; ++i) {
    if (job.first_slice + i < job.end_slice) {
      const int first = slices.next(job.first_slice + i);
      load_a.issue(first, shared + i * stage_elements);
      load_b.issue(first, shared + i * stage_elements + Left::elements);
      if (slices.advance()) load_a.next_plane(), load_b.next_plane();
    }
    cp_async_commit();
  }
  unsigned stage = 0;
  for (int slice = job.first_slice; slice < job.end_slice; ++slice) {
    cp_async_wait<stages - 2>();
    __syncthreads();  // this slice has arrived, and all threads are done with the last one
    if (slice + stages - 1 < job.end_slice) {
      const int next = slices.next(slice + stages - 1);
      T* const free = shared + (stage + stages - 1) % stages * stage_elements;
      load_a.issue(next, free);
      load_b.issue(next, free + Left::elements);
      if (slices.advance()) load_a.next_plane(), load_b.next_plane();
    }
    cp_async_commit();
    const T* const tile_a = shared + stage * stage_elements;
    const T* const tile_b = tile_a + Left::elements;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      Fragment<math> x[high];
#pragma unroll
      for (int i = 0; i < high; ++i) {
        Left::left(x[i].big, tile_a, row + 16 * i, k);
        x[i].template prepare<A::check>();
      }
#pragma unroll
      for (int j = 0; j < wide; ++j) {
        Fragment<math> y;
        Right::right(y.big, tile_b, column + 16 * j, k);
        y.template prepare<B::check>();
#pragma unroll
        for (int i = 0; i < high; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half) multiply<T>(sums[i][2 * j + half], x[i], y, half);
      }
    }
    stage = (stage + 1) % stages;
  }

  cp_async_wait<0>();
  __syncthreads();
  float* const staged = reinterpret_cast<float*>(shared);
  constexpr int pitch = columns + 8;
  static_assert(rows * pitch * sizeof(float) <= stages * stage_elements * sizeof(T));
  const int lane = lane_id();
#pragma unroll
  for (int i = 0; i < high; ++i)
#pragma unroll
    for (int j = 0; j < 2 * wide; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_shared(
            staged + (row + 16 * i + 8 * half + lane / 4) * pitch + column + 8 * j + lane % 4 * 2,
            make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]));
  __syncthreads();
  // The stride phase is read again, so that it takes no registers in the loop.
  write_rows<threads, columns, pitch>(staged, rows, out, phases.phase[block.phase], block,
                                      first_row, first_column, [](int i) { return i; });
}

template <class Left, class Right, MathType math, class A, class B, class Output>
void launch_tiles(const Product& p, const A& a, const B& b, const Output& out, Stream& stream) {
  launch(multiply_tiles<Left, Right, math, A, B, Output>, grid_of(p), threads,
         std::size_t(tensor_shared_bytes(p)), stream, a, b, p.phases, out, tile_counts(p));
}

// Packed filters have `filter_pitch` steps along the depth for each channel of the output.
template <class T, MathType math, int rows, int columns>
void multiply_by_filter(const Product& p, Stream& stream) {
  constexpr int vector = 16 / int(sizeof(T));
  using Filter = Operand<T, Steps, Steps, Lanes::along_depth, Check::none, vector>;
  using Columns = Operand<T, WindowPixels, TapTable, Lanes::along_depth, Check::inside, vector>;
  using Left = AcrossRows<T, rows>;
  using Right = AcrossRows<T, columns>;
  const Filter filter{
      static_cast<const T*>(p.other_data), {p.filter_pitch}, {vector}, 0, 0, filter_origin(p)};
  const Columns image{static_cast<const T*>(p.gathered_data),
                      window_pixels(p),
                      {p.taps},
                      p.gathered.height,
                      p.gathered.width,
                      image_origin(p)};
  if (p.channels_are_rows)
    launch_tiles<Left, Right, math>(p, filter, image, channels_by_pixels<T>(p), stream);
  else
    launch_tiles<Left, Right, math>(p, image, filter, pixels_by_channels<T>(p), stream);
}

template <class T, MathType math, int rows, int columns>
void multiply_pixels(const Product& p, Stream& stream) {
  constexpr int vector = 16 / int(sizeof(T));
  using Dy = Operand<T, Channels, PlainPixels, Lanes::along_rows, Check::exists, vector>;
  using X = Operand<T, WindowTaps, WindowPixels, Lanes::along_rows, Check::inside, vector>;
  launch_tiles<AlongRows<T, rows>, AlongRows<T, columns>, math>(
      p,
      Dy{static_cast<const T*>(p.other_data),
         {p.dy.channels, p.dy.channel},
         {p.dy.image, p.dy.column},
         0,
         0,
         dy_origin(p)},
      X{static_cast<const T*>(p.gathered_data), window_taps(p), window_pixels(p), p.gathered.height,
        p.gathered.width, x_origin(p)},
      gradient<T>(p), stream);
}

// 16-bit types have no choice of `math`.
template <class T, MathType math = MathType::f32>
void multiply(const Product& p, Stream& stream) {
  const auto with = [&](auto rows, auto columns) {
    if (p.problem.pass == Pass::backward_filter)
      multiply_pixels<T, math, rows, columns>(p, stream);
    else
      multiply_by_filter<T, math, rows, columns>(p, stream);
  };
  constexpr std::integral_constant<int, 64> small;
  constexpr std::integral_constant<int, 128> large;
  if (p.tile.rows == 128 && p.tile.columns == 128) return with(large, large);
  if (p.tile.rows == 128 && p.tile.columns == 64) return with(large, small);
  if (p.tile.rows == 64 && p.tile.columns == 128) return with(small, large);
  if (p.tile.rows == 64 && p.tile.columns == 64) return with(small, small);
  throw Error("implicit_gemm: no such tile");
}

}  // namespace

void multiply_tensor(const Product& p, Stream& stream) {
  if (p.problem.dtype == DType::f16) return multiply<f16>(p, stream);
  if (p.problem.dtype == DType::bf16) return multiply<bf16>(p, stream);
  if (p.math == MathType::tf32x3) return multiply<float, MathType::tf32x3>(p, stream);
  multiply<float, MathType::tf32>(p, stream);
}

std::int64_t tensor_shared_bytes(const Product& p) {
  const bool along = p.problem.pass == Pass::backward_filter;
  const auto bytes = [&](int rows) {
    return along ? bytes_along_rows(rows) : bytes_across_rows(rows);
  };
  return stages * (bytes(p.tile.rows) + bytes(p.tile.columns));
}

}  // namespace convlab::cuda::implicit_gemm
