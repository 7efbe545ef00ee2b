// What the kernels of implicit_gemm share: where the elements of the matrices lie, how tiles of
// them come into shared memory, and how tiles of the product leave.
//
// An element of the matrix of image columns belongs to an output pixel and to a tap (a channel and
// a place in the filter). Its address is a sum, base[pixel] + offset[tap], and it is a zero of the
// padding unless row and column, sums as well, fall inside the image. A Place holds the three
// terms; forward has pixels as rows of the matrix and taps along the depth, backward_filter the
// other way round, and whatever stays the same for a thread is worked out once. Plain matrices
// (packed filters, dy) are the case where the sum is always inside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "conv/problem.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda::implicit_gemm {

// Row of what does not exist. Two of them still add up to something negative.
inline constexpr int nowhere = -(1 << 30);

struct Place {
  int offset, h, w;
};

// Quotients of dividends below 2^31 by one multiplication (Granlund & Montgomery 1994).
struct Divisor {
  int divisor = 1;
  unsigned multiplier = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(std::int64_t d) : divisor(int(d)) {
    while (std::int64_t(1) << shift < d) ++shift;
    multiplier = unsigned(((std::uint64_t(1) << 32) * ((std::uint64_t(1) << shift) - d)) / d + 1);
  }
  __device__ int quotient(int n) const {
    return int((unsigned((std::uint64_t(unsigned(n)) * multiplier) >> 32) + unsigned(n)) >> shift);
  }
};

// The taps of one axis that a phase meets, first + i * step, and where each leads in the image.
struct TapAxis {
  int first, step, count, place, move;
};

// Output pixels that meet the same taps: all of them, but for backward_data with strides, where
// pixels of dx with one remainder make a phase. Pixel (n, a, b) has the number (n A + a) B + b.
struct Phase {
  Divisor image, row;      // A B and B
  int pixels;              // N A B
  int origin_h, origin_w;  // of pixel (0, 0) in the gathered image
  int first_out;           // offset of pixel (0, 0) in the output
  int first_slice, slices;
  TapAxis r, s;
};

inline constexpr int max_phases = 16;

struct Phases {
  Phase phase[max_phases];
  int count, split;
};

// --- Where things lie. at(index, phase); indices beyond the end lie nowhere.

// An output pixel by number, or the last one: branches cost more than what they would save.
struct Pixel {
  bool exists;
  int n, rest, a, b;
  __device__ Pixel(int i, const Phase& phase) {
    exists = i < phase.pixels;
    i = min(i, phase.pixels - 1);
    n = phase.image.quotient(i);
    rest = i - n * phase.image.divisor;
    a = phase.row.quotient(rest);
    b = rest - a * phase.row.divisor;
  }
};

struct WindowPixels {  // of the gathered image
  int step_h, step_w, image, row, column;
  __device__ Place at(int i, const Phase& phase) const {
    const Pixel pixel(i, phase);
    const int h = pixel.a * step_h + phase.origin_h, w = pixel.b * step_w + phase.origin_w;
    return {pixel.n * image + h * row + w * column, pixel.exists ? h : nowhere, w};
  }
};

struct PlainPixels {  // of an image that has just these pixels
  int image, column;
  __device__ Place at(int i, const Phase& phase) const {
    const Pixel pixel(i, phase);
    return {pixel.n * image + pixel.rest * column, pixel.exists ? 0 : nowhere, 0};
  }
};

struct OutputPixels {
  int image, row, column;
  __device__ Place at(int i, const Phase& phase) const {
    const Pixel pixel(i, phase);
    return {phase.first_out + pixel.n * image + pixel.a * row + pixel.b * column,
            pixel.exists ? 0 : nowhere, 0};
  }
};

struct Channels {
  int count, stride;
  __device__ Place at(int i, const Phase&) const {
    return {i * stride, i < count ? 0 : nowhere, 0};
  }
};

struct Steps {  // without an end
  int stride;
  __device__ Place at(int i, const Phase&) const { return {i * stride, 0, 0}; }
};

struct TapTable {  // one int4 a step along the depth
  const int4* taps;
  __device__ Place at(int i, const Phase&) const {
    const int4 tap = load_global<int4>(taps + i);
    return {tap.x, tap.y, tap.z};
  }
};

// All taps of a filter by number: (c, r, s), or (r, s, c) where channels come last.
struct TapNumbers {
  bool channels_last;
  int count;
  Divisor fast;  // taps of a channel, or channels of a tap
  Divisor s;
  __device__ void split(int i, int& c, int& r, int& col) const {
    const int slow = fast.quotient(i), rest = i - slow * fast.divisor;
    const int tap = channels_last ? slow : rest;
    c = channels_last ? rest : slow;
    r = s.quotient(tap);
    col = tap - r * s.divisor;
  }
};

struct WindowTaps {  // of the gathered image
  TapNumbers numbers;
  int dilation_h, dilation_w, channel, row, column;
  __device__ Place at(int i, const Phase&) const {
    if (i >= numbers.count) return {0, nowhere, nowhere};
    int c, r, s;
    numbers.split(i, c, r, s);
    const int h = r * dilation_h, w = s * dilation_w;
    return {c * channel + h * row + w * column, h, w};
  }
};

struct FilterTaps {  // of a row of KCRS; padding channels lie nowhere
  TapNumbers numbers;
  int channels, taps;
  __device__ Place at(int i, const Phase&) const {
    int c = channels, r = 0, s = 0;
    if (i < numbers.count) numbers.split(i, c, r, s);
    return {c * taps + r * numbers.s.divisor + s, c < channels ? 0 : nowhere, 0};
  }
};

// --- Operands on their way into shared memory

enum class Lanes : std::uint8_t { along_rows, along_depth };  // where memory is contiguous
enum class Check : std::uint8_t { none, exists, inside };

// A matrix of rows x depth. Both are counted in units of `vector` elements in the direction of the
// lanes: one cp.async each.
template <class T_, class Rows, class Depth, Lanes lanes_, Check check_, int vector_>
struct Operand {
  using T = T_;
  static constexpr Lanes lanes = lanes_;
  static constexpr Check check = check_;
  static constexpr int vector = vector_;
  const T* data;
  Rows rows;
  Depth depth;
  int height, width;  // of the image, to tell padding
};

// Shared memory with a row for each step of the depth. Four bytes a copy may come down a column:
// `pitch` is 4 more than a multiple of 32 for these.
template <int pitch>
struct DepthMajor {
  __device__ static int at(int row, int depth) { return depth * pitch + row; }
};

// Rows of 128 bytes; 16-byte chunks change places within a row, so that eight rows' chunks of one
// number, which ldmatrix reads together, lie in different banks.
template <int vector>
struct Swizzled {
  __device__ static int at(int row, int chunk) { return (row * 8 + (chunk ^ (row & 7))) * vector; }
};

// One thread's share of bringing an operand's tiles of `extent` rows x `depth` units: 32 lanes at
// most along the rows, so that a thread has as few steps along the depth to look up as can be.
template <class Operand, int extent, int depth, int threads, class Layout>
class Loader {
  using T = typename Operand::T;
  static constexpr bool along_rows = Operand::lanes == Lanes::along_rows;
  static constexpr int vector = Operand::vector;
  static constexpr int lanes = along_rows ? std::min(extent / vector, 32) : depth;
  static constexpr int groups = threads / lanes;
  static constexpr int row_step = along_rows ? lanes * vector : groups;
  static constexpr int depth_step = along_rows ? groups : depth;
  static constexpr int own_rows = extent / row_step, own_depth = depth / depth_step;
  static_assert(threads % lanes == 0 && extent % row_step == 0 && depth % depth_step == 0);

 public:
  __device__ Loader(const Operand& operand, const Phase& phase, int first_row)
      : operand_(operand), phase_(phase) {
    const int lane = int(threadIdx.x) % lanes, group = int(threadIdx.x) / lanes;
    const int row = along_rows ? lane * vector : group;
    depth_ = along_rows ? group : lane;
    shared_ = Layout::at(row, depth_);
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      rows_[i] = operand.rows.at(first_row + row + i * row_step, phase);
      // Sums of rows that do not exist are not written: they may read anything.
      if (Operand::check == Check::exists && rows_[i].h < 0) rows_[i].offset = 0;
    }
  }

  // Looks up what the slice's steps along the depth add; issue() brings them.
  __device__ void look_up(int slice) {
#pragma unroll
    for (int i = 0; i < own_depth; ++i)
      steps_[i] = operand_.depth.at(slice * depth + depth_ + i * depth_step, phase_);
  }

  __device__ void issue(T* tile) const {
    constexpr int bytes = vector * int(sizeof(T));
#pragma unroll
    for (int i = 0; i < own_depth; ++i)
#pragma unroll
      for (int j = 0; j < own_rows; ++j) {
        const int h = rows_[j].h + steps_[i].h, w = rows_[j].w + steps_[i].w;
        bool valid = true;
        if constexpr (Operand::check == Check::exists) valid = steps_[i].h >= 0;
        if constexpr (Operand::check == Check::inside)
          valid = unsigned(h) < unsigned(operand_.height) && unsigned(w) < unsigned(operand_.width);
        // Steps are multiples of 8 rows, which Swizzled's order does not see.
        static_assert(row_step % 8 == 0);
        const int to = shared_ + Layout::at(j * row_step, i * depth_step);
        cp_async<bytes>(tile + to, operand_.data + (rows_[j].offset + steps_[i].offset),
                        valid ? bytes : 0);
      }
  }

 private:
  const Operand& operand_;
  const Phase& phase_;
  int depth_, shared_;
  Place rows_[own_rows], steps_[own_depth]{};
};

// Which phase a block works on, over which slices of the depth.
struct Job {
  int phase, part, first_slice, end_slice;
  __device__ explicit Job(const Phases& phases) {
    phase = int(blockIdx.z) / phases.split;
    part = int(blockIdx.z) % phases.split;
    const Phase& p = phases.phase[phase];
    first_slice = p.first_slice + p.slices * part / phases.split;
    end_slice = p.first_slice + p.slices * (part + 1) / phases.split;
  }
};

// --- The product on its way out

// Neighbours in memory that one access moves.
template <class T, int count>
struct alignas(count * sizeof(T)) Neighbours {
  T element[count];
};

// y = relu(conv + bias + residual), or out += conv.
struct Finish {
  void* out;
  const void* bias;
  const void* residual;
  bool relu, accumulate;
  // Of one channel (channel_step 0), or of `count` channels (1).
  template <class T, int count>
  __device__ void store(int offset, int channel, int channel_step, float (&v)[count]) const {
    using Values = Neighbours<T, count>;
    auto* const to = reinterpret_cast<Values*>(static_cast<T*>(out) + offset);
    const auto add = [&](const Values& values) {
#pragma unroll
      for (int i = 0; i < count; ++i) v[i] += widen(values.element[i]);
    };
    if (bias)
#pragma unroll
      for (int i = 0; i < count; ++i)
        v[i] += widen(static_cast<const T*>(bias)[channel + i * channel_step]);
    if (residual) add(*reinterpret_cast<const Values*>(static_cast<const T*>(residual) + offset));
    if (accumulate) add(*to);
    Values result;
#pragma unroll
    for (int i = 0; i < count; ++i) result.element[i] = narrow<T>(relu ? cuda::relu(v[i]) : v[i]);
    store_global(to, result);
  }
};

template <class T_, class Rows, class Columns>
struct Output {
  using T = T_;
  Rows rows;
  Columns columns;
  bool channels_are_rows;
  Finish finish;
  float* partial;  // where the depth is split: one output of f32 a part
  std::int64_t elements;
  bool contiguous;  // columns, 16 bytes at a time: see contiguous_columns
};

// Writes rows of the product that lie in shared memory, lanes along the columns, `count` of them a
// lane. row_of(i) is the row in the tile's matrix of the i-th one in shared memory.
template <int count, int threads, int columns, int pitch, class Output, class RowOf>
__device__ void write_neighbours(const float* staged, int rows, const Output& out,
                                 const Phase& phase, int part, int first_row, int first_column,
                                 const RowOf& row_of) {
  constexpr int lanes = columns / count, at_once = count < 4 ? count : 4;
  using Floats = Neighbours<float, at_once>;
  static_assert(threads % lanes == 0 && pitch % at_once == 0 && count % at_once == 0);
  const int column = int(threadIdx.x) % lanes * count;
  const Place y = out.columns.at(first_column + column, phase);
  if (y.h < 0) return;
  for (int i = int(threadIdx.x) / lanes; i < rows; i += threads / lanes) {
    const int row = first_row + row_of(i);
    const Place x = out.rows.at(row, phase);
    if (x.h < 0) continue;
    const int offset = x.offset + y.offset;
    float v[count];
#pragma unroll
    for (int j = 0; j < count; j += at_once) {
      const auto floats = load_shared<Floats>(staged + i * pitch + column + j);
      if (out.partial) store_global(out.partial + part * out.elements + offset + j, floats);
#pragma unroll
      for (int k = 0; k < at_once; ++k) v[j + k] = floats.element[k];
    }
    if (!out.partial)
      out.finish.template store<typename Output::T>(
          offset, out.channels_are_rows ? row : first_column + column,
          out.channels_are_rows ? 0 : 1, v);
  }
}

// 16 bytes a lane where the columns lie so, which takes a fraction of the instructions.
template <int threads, int columns, int pitch, class Output, class RowOf>
__device__ void write_rows(const float* staged, int rows, const Output& out, const Phase& phase,
                           int part, int first_row, int first_column, const RowOf& row_of) {
  const auto write = [&](auto count) {
    write_neighbours<decltype(count)::value, threads, columns, pitch>(
        staged, rows, out, phase, part, first_row, first_column, row_of);
  };
  if (out.contiguous)
    write(std::integral_constant<int, 16 / int(sizeof(typename Output::T))>());
  else
    write(std::integral_constant<int, 1>());
}

// --- What a launch needs to know

struct Image {  // strides in elements; h x w pixels
  int channels, height, width;
  int image, row, column, channel;
};

struct Tile {
  int rows, columns;
};

// One run's matrix product, of `rows` x `columns` at most in any phase. Channels of the output are
// its rows in NCHW and its columns in NHWC, so that columns are contiguous in memory.
struct Product {
  ConvProblem problem;
  int math;            // of f32: Math's values
  bool tensor_cores;   // else CUDA cores
  bool channels_last;  // in the gathered image, and along the depth
  bool channels_are_rows;
  Tile tile;
  Phases phases;
  Image gathered;  // x, or dy for backward_data
  Image dy;        // for backward_filter
  Image out;       // y or dx
  int filter_pitch;
  int rows, columns;

  const void* gathered_data;
  const void* other_data;  // the packed filter, or dy
  const int4* taps;
  Finish finish;
  float* partial;
  std::int64_t out_elements;
};

// Multiply in f32 on CUDA cores, and on tensor cores.
void multiply_fma(const Product&, Stream&);
void multiply_tensor(const Product&, Stream&);

inline WindowPixels window_pixels(const Product& p) {
  const bool data = p.problem.pass == Pass::backward_data;
  return {data ? 1 : int(p.problem.stride_h), data ? 1 : int(p.problem.stride_w), p.gathered.image,
          p.gathered.row, p.gathered.column};
}

inline OutputPixels output_pixels(const Product& p) {
  const bool data = p.problem.pass == Pass::backward_data;
  return {p.out.image, p.out.row * (data ? int(p.problem.stride_h) : 1),
          p.out.column * (data ? int(p.problem.stride_w) : 1)};
}

// Whether the output's columns, taken as many at a time as fill 16 bytes, exist together, lie side
// by side and are aligned. Columns are channels, or pixels of planes.
inline bool contiguous_columns(const Product& p) {
  const int together = 16 / int(size_of(p.problem.dtype));
  const auto is_aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  };
  const int plane = p.out.height * p.out.width;
  const bool whole_planes = p.phases.count == 1 && p.phases.phase[0].image.divisor == plane;
  const bool fits = p.channels_are_rows ? p.out.column == 1 && whole_planes && plane % together == 0
                                        : p.out.channel == 1 && p.out.channels % together == 0;
  return fits && is_aligned(p.finish.out) && is_aligned(p.finish.residual) && is_aligned(p.partial);
}

inline TapNumbers tap_numbers(const Product& p) {
  const std::int64_t taps = p.problem.r * p.problem.s;
  return {p.channels_last, int(p.gathered.channels * taps),
          Divisor(p.channels_last ? p.gathered.channels : taps), Divisor(p.problem.s)};
}

inline WindowTaps window_taps(const Product& p) {
  return {tap_numbers(p), int(p.problem.dilation_h), int(p.problem.dilation_w), p.gathered.channel,
          p.gathered.row, p.gathered.column};
}

// dw: KCRS, rows of which the product's columns number their own way.
template <class T>
Output<T, Channels, FilterTaps> gradient(const Product& p) {
  const int taps = int(p.problem.r * p.problem.s), channels = int(p.problem.c);
  return {{int(p.problem.k), channels * taps},
          {tap_numbers(p), channels, taps},
          true,
          p.finish,
          p.partial,
          p.out_elements,
          false};
}

// Tiles of different channels come one after the other: they read the same piece of an image.
inline int channel_tiles(const Product& p) {
  return int(p.channels_are_rows ? ceil_div(p.rows, p.tile.rows)
                                 : ceil_div(p.columns, p.tile.columns));
}

inline dim3 grid_of(const Product& p) {
  return dim3(unsigned(ceil_div(p.rows, p.tile.rows) * ceil_div(p.columns, p.tile.columns)), 1,
              unsigned(p.phases.count * p.phases.split));
}

}  // namespace convlab::cuda::implicit_gemm
