// The parts that implicit_gemm's kernels share: addressing the matrices' elements, copying tiles of
// them into shared memory, and writing tiles of the product.
//
// An element of the column matrix belongs to an output pixel and to a tap (a channel and a position
// in the filter). Its address is a sum, base[pixel] + offset[tap]. It is a zero of the padding
// unless its row and column in the image, sums as well, fall inside. A Place holds the three terms.
// In forward, pixels are rows of the matrix and taps its depth; in backward_filter it is the other
// way round. A thread computes once the terms that stay the same for it. Packed filters and dy are
// plain matrices, all of whose sums fall inside.
//
// Images with depth are D planes of H x W pixels. A block's outputs belong to one plane of y or dx,
// or to one tap in depth of dw, and its sum visits only the planes of the gathered image that
// exist. So a plane is one more term of the address, and needs no check of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "conv/algo.h"
#include "conv/types/math_type.h"
#include "kernels_cuda/depth.h"
#include "kernels_cuda/divisor.h"
#include "kernels_cuda/epilogue.h"
#include "kernels_cuda/kernel.h"
#include "kernels_cuda/parts.h"

namespace convlab::cuda::implicit_gemm {

// The row of an element that does not exist. The sum of two of them is still negative.
inline constexpr int nowhere = -(1 << 30);

struct Place {
  int offset, h, w;
};

// The taps of a stride phase along one axis, first + i * step: tap i reads the image at
// place + i * move from the output pixel's origin.
struct TapAxis {
  int first, step, count, place, move;
};

// A block takes one unit: an output plane, or in backward_filter a tap in depth. The terms of its
// sum are the taps in depth, or the planes of dy. Unit u and term i meet in plane u * by_unit +
// i * by_term + origin of the gathered image.
struct PlaneAxis {
  int units, terms;
  int by_unit, by_term, origin;
  __host__ __device__ Range terms_of(int unit, int planes) const {
    return indices_inside(unit * by_unit + origin, by_term, terms, planes);
  }
};

// Output pixels that have the same taps. Only backward_data with strides has several phases: the
// pixels of dx with one remainder by the stride. Pixel (n, a, b) of a plane has the number
// (n A + a) B + b.
struct StridePhase {
  Divisor image, row;       // A B and B
  int pixels;               // N A B
  int origin_h, origin_w;   // of pixel (0, 0) in the gathered image
  int first_out;            // offset of pixel (0, 0) of the first plane in the output
  int first_slice, slices;  // slices: of each term
  TapAxis t, r, s;
  PlaneAxis planes;
};

inline constexpr int max_stride_phases = 16;

struct StridePhases {
  StridePhase phase[max_stride_phases];
  int count;
  int split;   // parts of the depth
  int planes;  // of the gathered image
};

// --- Addresses: at(index, phase). Indices beyond the end lie nowhere.

// An output pixel by number, clamped to the last one: a branch would cost more than it saves.
struct Pixel {
  bool exists;
  int n, rest, a, b;
  __device__ Pixel(int i, const StridePhase& phase) {
    exists = i < phase.pixels;
    i = min(i, phase.pixels - 1);
    n = phase.image.quotient(i);
    rest = i - n * phase.image.divisor;
    a = phase.row.quotient(rest);
    b = rest - a * phase.row.divisor;
  }
};

struct WindowPixels {  // of the gathered image
  static constexpr bool in_planes = true;
  int step_h, step_w, image, row, column;
  __device__ Place at(int i, const StridePhase& phase) const {
    const Pixel pixel(i, phase);
    const int h = pixel.a * step_h + phase.origin_h, w = pixel.b * step_w + phase.origin_w;
    return {pixel.n * image + h * row + w * column, pixel.exists ? h : nowhere, w};
  }
};

struct PlainPixels {  // of an image that has just these pixels
  static constexpr bool in_planes = true;
  int image, column;
  __device__ Place at(int i, const StridePhase& phase) const {
    const Pixel pixel(i, phase);
    return {pixel.n * image + pixel.rest * column, pixel.exists ? 0 : nowhere, 0};
  }
};

struct OutputPixels {
  int image, row, column;
  __device__ Place at(int i, const StridePhase& phase) const {
    const Pixel pixel(i, phase);
    return {phase.first_out + pixel.n * image + pixel.a * row + pixel.b * column,
            pixel.exists ? 0 : nowhere, 0};
  }
};

struct Channels {
  int count, stride;
  __device__ Place at(int i, const StridePhase&) const {
    return {i * stride, i < count ? 0 : nowhere, 0};
  }
};

struct Steps {  // without an end
  static constexpr bool in_planes = false;
  int stride;
  __device__ Place at(int i, const StridePhase&) const { return {i * stride, 0, 0}; }
};

struct TapTable {  // an int4 for each step along the depth, of all terms
  static constexpr bool in_planes = false;
  const int4* taps;
  __device__ Place at(int i, const StridePhase&) const {
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
  __device__ void decompose(int i, int& c, int& r, int& col) const {
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
  __device__ Place at(int i, const StridePhase&) const {
    if (i >= numbers.count) return {0, nowhere, nowhere};
    int c, r, s;
    numbers.decompose(i, c, r, s);
    const int h = r * dilation_h, w = s * dilation_w;
    return {c * channel + h * row + w * column, h, w};
  }
};

struct FilterTaps {  // of one K in KCTRS; padding channels lie nowhere
  TapNumbers numbers;
  int channels, taps;  // taps: T R S
  __device__ Place at(int i, const StridePhase&) const {
    int c = channels, r = 0, s = 0;
    if (i < numbers.count) numbers.decompose(i, c, r, s);
    return {c * taps + r * numbers.s.divisor + s, c < channels ? 0 : nowhere, 0};
  }
};

// --- A block's work

struct TileCounts {
  int channels, others;  // others: pixels of a plane, or taps of one tap in depth
};

// Blocks that differ in the channels alone are neighbours: they read the same part of an image.
struct Block {
  int phase, part, group, unit;
  int channels, others;  // the tile
  __device__ Block(const StridePhases& phases, const TileCounts& tiles) {
    phase = int(blockIdx.z) / phases.split;
    part = int(blockIdx.z) % phases.split;
    group = int(blockIdx.y);
    const int rest = int(blockIdx.x) / tiles.channels;
    channels = int(blockIdx.x) % tiles.channels;
    unit = rest / tiles.others;
    others = rest % tiles.others;
  }
};

// --- Operands on their way into shared memory

enum class Lanes : std::uint8_t { along_rows, along_depth };  // the direction contiguous in memory
enum class Check : std::uint8_t { none, exists, inside };

// Where a block's part begins: elements from one group of channels to the next, and so on.
struct BlockOrigin {
  int first = 0, group = 0, unit = 0, term = 0;
  __device__ int of(const Block& block) const {
    return first + block.group * group + block.unit * unit;
  }
};

// A matrix of rows x depth, one for each group and unit. In the direction of the lanes `vector`
// elements are together, which one cp.async copies. If `in_planes`, the depth is that of one term.
template <class T_, class Rows, class Depth, Lanes lanes_, Check check_, int vector_>
struct Operand {
  using T = T_;
  static constexpr Lanes lanes = lanes_;
  static constexpr Check check = check_;
  static constexpr int vector = vector_;
  static constexpr bool in_planes = Depth::in_planes;
  const T* data;
  Rows rows;
  Depth depth;
  int height, width;  // of a plane, to tell padding
  BlockOrigin origin;
};

// Shared memory with a row for each step of the depth. Copies of four bytes may go down a column:
// for them `pitch` is 4 more than a multiple of 32.
template <int pitch>
struct DepthMajor {
  __device__ static int at(int row, int depth) { return depth * pitch + row; }
};

// Rows of 128 bytes. Their 16-byte chunks are permuted, so that chunk i of eight rows, which
// ldmatrix reads together, lies in different banks.
template <int vector>
struct Swizzled {
  __device__ static int at(int row, int chunk) { return (row * 8 + (chunk ^ (row & 7))) * vector; }
};

// A thread's share of copying an operand's tiles of `extent` rows x `depth` units. At most 32 lanes
// lie along the rows, so that a thread has as few steps along the depth to look up as possible.
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
  __device__ Loader(const Operand& operand, const StridePhase& phase, const Block& block,
                    int first_term, int first_row)
      : operand_(operand), phase_(phase) {
    if constexpr (Operand::in_planes) plane_ = operand.data + first_term * operand.origin.term;
    const int origin = operand.origin.of(block);
    const int lane = int(threadIdx.x) % lanes, group = int(threadIdx.x) / lanes;
    const int row = along_rows ? lane * vector : group;
    depth_ = along_rows ? group : lane;
    shared_ = Layout::at(row, depth_);
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      rows_[i] = operand.rows.at(first_row + row + i * row_step, phase);
      // Products of rows that do not exist are not written: they may read anything.
      if (Operand::check == Check::exists && rows_[i].h < 0) rows_[i].offset = 0;
      rows_[i].offset += origin;
    }
  }

  // Looks up the terms of the slice's steps along the depth, and copies their elements.
  __device__ void issue(int slice, T* tile) const {
    constexpr int bytes = vector * int(sizeof(T));
    Place steps[own_depth];
#pragma unroll
    for (int i = 0; i < own_depth; ++i)
      steps[i] = operand_.depth.at(slice * depth + depth_ + i * depth_step, phase_);
#pragma unroll
    for (int i = 0; i < own_depth; ++i)
#pragma unroll
      for (int j = 0; j < own_rows; ++j) {
        const int h = rows_[j].h + steps[i].h, w = rows_[j].w + steps[i].w;
        bool valid = true;
        if constexpr (Operand::check == Check::exists) valid = steps[i].h >= 0;
        if constexpr (Operand::check == Check::inside)
          valid = unsigned(h) < unsigned(operand_.height) && unsigned(w) < unsigned(operand_.width);
        // Swizzled permutes alike in rows that are a multiple of 8 apart.
        static_assert(row_step % 8 == 0);
        const int to = shared_ + Layout::at(j * row_step, i * depth_step);
        cp_async<bytes>(tile + to, data() + (rows_[j].offset + steps[i].offset), valid ? bytes : 0);
      }
  }

  __device__ void next_plane() {
    if constexpr (Operand::in_planes) plane_ += operand_.origin.term;
  }

 private:
  __device__ const T* data() const {
    if constexpr (Operand::in_planes)
      return plane_;
    else
      return operand_.data;
  }

  const Operand& operand_;
  const StridePhase& phase_;
  const T* plane_;  // of the next slice, if the operand is in planes
  int depth_, shared_;
  Place rows_[own_rows];
};

// The slices of the depth that a block sums up, those of all terms by number.
struct Job {
  int first_slice, end_slice;
  __device__ Job(const StridePhases& phases, const Block& block) {
    const StridePhase& p = phases.phase[block.phase];
    const Range terms = p.planes.terms_of(block.unit, phases.planes);
    const int first = p.first_slice + terms.begin * p.slices;
    const int slices = (terms.end - terms.begin) * p.slices;
    first_slice = first + part_start(block.part, slices, phases.split);
    end_slice = first + part_start(block.part + 1, slices, phases.split);
  }
};

// A job's slices one after the other, counted from the beginning of their plane if the operands are
// in planes.
template <bool in_planes>
class Slices {
 public:
  __device__ Slices(const Job& job, const StridePhase& phase)
      : slices_(phase.slices),
        next_(in_planes ? job.first_slice % slices_ : job.first_slice),
        first_term_(in_planes ? job.first_slice / slices_ : 0) {}
  __device__ int first_term() const { return first_term_; }
  __device__ int next(int slice) const { return in_planes ? next_ : slice; }
  // Whether that was the plane's last.
  __device__ bool advance() {
    if (!in_planes || ++next_ < slices_) return false;
    next_ = 0;
    return true;
  }

 private:
  int slices_, next_, first_term_;
};

// --- 3xTF32
//
// a = A + a' with A and a' in TF32, and a b = a' B + A b' + A B up to 2^-20, on average 2^-23. The
// tensor core reads the upper 19 bits of a register, so a' may have more.

// For images, in three instructions; split_tf32() takes eight. A is rounded: a' has either sign,
// and the missing a' b' average out. The sum of both is v, and NaN where v is.
__device__ __forceinline__ void split_rounded(float v, unsigned& big, unsigned& small) {
  big = (__float_as_uint(v) + 0x1000u) & 0xffffe000u;
  small = __float_as_uint(v - __uint_as_float(big));
}

// For filters, which are split at packing: v rounded to a pair, the sum of two TF32 numbers of one
// sign, of which its upper 19 bits are the larger.
__device__ __forceinline__ float tf32_pair(float v) {
  const float big = __uint_as_float(__float_as_uint(v) & 0xffffe000u);
  return big + __uint_as_float(to_tf32(v - big));
}

// In two instructions. A pair is as long as an f32, so that it costs no more shared memory and no
// more copies, as two numbers would.
__device__ __forceinline__ void split_pair(float pair, unsigned& big, unsigned& small) {
  big = __float_as_uint(pair) & 0xffffe000u;
  small = __float_as_uint(pair - __uint_as_float(big));
}

// --- Writing the product

template <class T_, class Rows, class Columns>
struct Output {
  using T = T_;
  Rows rows;
  Columns columns;
  bool channels_are_rows;
  BlockOrigin origin;
  int channels;  // of a group
  OutputEpilogue<T> epilogue;
  float* partial;  // if the depth is split: an output in f32 for each part
  std::int64_t elements;
  bool contiguous;  // columns, 16 bytes at a time: see contiguous_columns
};

// Writes rows of the product that lie in shared memory. A lane takes `count` columns. Row i in
// shared memory is row_of(i) of the block's tile.
template <int count, int threads, int columns, int pitch, class Output, class RowOf>
__device__ void write_neighbours(const float* staged, int rows, const Output& out,
                                 const StridePhase& phase, const Block& block, int first_row,
                                 int first_column, const RowOf& row_of) {
  constexpr int lanes = columns / count, at_once = count < 4 ? count : 4;
  using Floats = Vector<float, at_once>;
  static_assert(threads % lanes == 0 && pitch % at_once == 0 && count % at_once == 0);
  const int column = int(threadIdx.x) % lanes * count;
  const Place y = out.columns.at(first_column + column, phase);
  if (y.h < 0) return;
  const int origin = out.origin.of(block), channel = block.group * out.channels;
  for (int i = int(threadIdx.x) / lanes; i < rows; i += threads / lanes) {
    const int row = first_row + row_of(i);
    const Place x = out.rows.at(row, phase);
    if (x.h < 0) continue;
    const int offset = origin + x.offset + y.offset;
    float v[count];
#pragma unroll
    for (int j = 0; j < count; j += at_once) {
      const auto floats = load_shared<Floats>(staged + i * pitch + column + j);
      if (out.partial) store_global(out.partial + block.part * out.elements + offset + j, floats);
#pragma unroll
      for (int k = 0; k < at_once; ++k) v[j + k] = floats.at[k];
    }
    if (out.partial) continue;
    if (out.channels_are_rows)
      out.epilogue.add_bias(channel + row, 0, v);
    else
      out.epilogue.add_bias(channel + first_column + column, 1, v);
    out.epilogue.store(offset, v);
  }
}

// 16 bytes a lane if the columns are contiguous, which takes a fraction of the instructions.
template <int threads, int columns, int pitch, class Output, class RowOf>
__device__ void write_rows(const float* staged, int rows, const Output& out,
                           const StridePhase& phase, const Block& block, int first_row,
                           int first_column, const RowOf& row_of) {
  const auto write = [&](auto count) {
    write_neighbours<decltype(count)::value, threads, columns, pitch>(
        staged, rows, out, phase, block, first_row, first_column, row_of);
  };
  if (out.contiguous)
    write(std::integral_constant<int, 16 / int(sizeof(typename Output::T))>());
  else
    write(std::integral_constant<int, 1>());
}

// --- The arguments of a launch

struct Image {   // strides in elements; planes of height x width pixels
  int channels;  // of a group
  int height, width;
  int image, plane, row, column, channel, group;
};

struct Tile {
  int rows, columns;
};

// One run's matrix product, of at most `rows` x `columns` in any stride phase. Channels of the
// output are its rows in NCHW and its columns in NHWC, so that columns are contiguous in memory.
struct Product {
  ConvProblem problem;
  MathType math;       // of f32
  bool tensor_cores;   // else CUDA cores
  bool channels_last;  // in the gathered image, and along the depth
  bool channels_are_rows;
  Tile tile;
  StridePhases phases;
  Image gathered;                  // x, or dy for backward_data
  Image dy;                        // for backward_filter
  Image out;                       // y or dx
  int filter_pitch, filter_group;  // elements from one group's filters to the next's
  int rows, columns;               // of a unit

  const void* gathered_data;
  const void* other_data;  // the packed filter, or dy
  const int4* taps;
  ConvArgs args;
  float* partial;
  std::int64_t out_elements;
};

// In f32 on CUDA cores, and on tensor cores; and the shared memory of a block.
void multiply_fma(const Product&, Stream&);
void multiply_tensor(const Product&, Stream&);
std::int64_t fma_shared_bytes(const Product&);
std::int64_t tensor_shared_bytes(const Product&);

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

// y or dx, whose planes of one stride phase are a stride apart.
inline BlockOrigin output_planes(const Product& p) {
  const bool data = p.problem.pass == Pass::backward_data;
  return {0, p.out.group, p.out.plane * (data ? int(p.problem.stride_d) : 1), 0};
}

// Whether 16 bytes of the output's columns at a time exist together, are contiguous and aligned.
// Columns are channels, or pixels of planes.
template <class T>
bool contiguous_columns(const Product& p, const OutputEpilogue<T>& e) {
  constexpr int together = 16 / int(sizeof(T));
  const auto is_aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  };
  const int plane = p.out.height * p.out.width;
  const bool whole_planes = p.phases.count == 1 && p.phases.phase[0].image.divisor == plane;
  const bool fits = p.channels_are_rows ? p.out.column == 1 && whole_planes && plane % together == 0
                                        : p.out.channel == 1 && p.out.channels % together == 0;
  return fits && is_aligned(e.out) && is_aligned(e.addend) && is_aligned(p.partial);
}

template <class T, class Rows, class Columns>
Output<T, Rows, Columns> output(const Product& p, const Rows& rows, const Columns& columns,
                                bool channels_are_rows, const BlockOrigin& origin) {
  const auto e = output_epilogue<T>(p.problem.epilogue, p.problem.accumulate, p.args);
  constexpr bool is_dw = std::is_same_v<Columns, FilterTaps>;
  return {rows,      columns,        channels_are_rows,
          origin,    p.out.channels, e,
          p.partial, p.out_elements, !is_dw && contiguous_columns(p, e)};
}

// y or dx, as pixels x channels or the other way round.
template <class T>
Output<T, OutputPixels, Channels> pixels_by_channels(const Product& p) {
  return output<T>(p, output_pixels(p), Channels{p.out.channels, p.out.channel}, false,
                   output_planes(p));
}
template <class T>
Output<T, Channels, OutputPixels> channels_by_pixels(const Product& p) {
  return output<T>(p, Channels{p.out.channels, p.out.channel}, output_pixels(p), true,
                   output_planes(p));
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

// dw as K x taps, for each tap in depth: the product's columns count the taps of KCTRS in the order
// of the images.
template <class T>
Output<T, Channels, FilterTaps> gradient(const Product& p) {
  const int slice = int(p.problem.r * p.problem.s), taps = int(p.problem.t) * slice;
  const int channels = int(p.problem.c / p.problem.groups);
  const int filters = int(p.problem.k / p.problem.groups);
  return output<T>(p, Channels{filters, channels * taps},
                   FilterTaps{tap_numbers(p), channels, taps}, true,
                   BlockOrigin{0, filters * channels * taps, slice, 0});
}

// Where a block's operands begin. Packed filters have all terms behind each other, and the table
// has the origins of the stride phases.
inline BlockOrigin filter_origin(const Product& p) { return {0, p.filter_group, 0, 0}; }
inline BlockOrigin image_origin(const Product& p) {
  return {0, p.gathered.group, p.phases.phase[0].planes.by_unit * p.gathered.plane, 0};
}
inline BlockOrigin x_origin(const Product& p) {
  const PlaneAxis& planes = p.phases.phase[0].planes;
  return {planes.origin * p.gathered.plane, p.gathered.group, planes.by_unit * p.gathered.plane,
          planes.by_term * p.gathered.plane};
}
inline BlockOrigin dy_origin(const Product& p) { return {0, p.dy.group, 0, p.dy.plane}; }

inline TileCounts tile_counts(const Product& p) {
  const int down = int(ceil_div(p.rows, p.tile.rows));
  const int across = int(ceil_div(p.columns, p.tile.columns));
  return p.channels_are_rows ? TileCounts{down, across} : TileCounts{across, down};
}

inline dim3 grid_of(const Product& p) {
  const TileCounts tiles = tile_counts(p);
  int units = 0;
  for (int i = 0; i < p.phases.count; ++i) units = std::max(units, p.phases.phase[i].planes.units);
  return dim3(unsigned(std::int64_t(tiles.channels) * tiles.others * units),
              unsigned(p.problem.groups), unsigned(p.phases.count * p.phases.split));
}

}  // namespace convlab::cuda::implicit_gemm
