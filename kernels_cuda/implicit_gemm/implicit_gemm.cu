// implicit_gemm: a convolution as one matrix product. The larger operand, the column matrix, is
// never written to memory: kernels gather its tiles from the image straight into shared memory.
//
// forward:         y[k][npq]  = sum over (c, r, s) of w[k][crs] x[npq + crs]
// backward_data:   dx[c][nhw] = sum over (k, r, s) of w[c][krs] dy[(nhw - krs) / stride]. Pixels of
//                  dx with one remainder by the stride have only the taps with that remainder, so
//                  each of the stride_h x stride_w stride phases is a dense product (polyphase).
//                  One launch computes them all.
// backward_filter: dw[k][crs] = sum over (n, p, q) of dy[k][npq] x[npq + crs]
//
// Groups are products of their own, in one launch; their channels are padded to a tile's. So are
// the planes of an image with depth: in forward and backward_data the output's, each of which sums
// over those taps in depth that meet a plane of the image; in backward_filter the taps in depth,
// each of which sums over the planes of dy.
//
// Small outputs with a long sum are split along the depth (split-K), to occupy every
// multiprocessor (kernels_cuda/parts.h).
//
// The filter is packed once, padded with zeros to whole tiles, behind a table with the address of
// each step along the depth in the image. So main loops read it in vectors and without a check.
//
// Chetlur et al. 2014 (cuDNN, arXiv:1410.0759); tiles as in Kerr et al., "CUTLASS" (2017).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/implicit_gemm/implicit_gemm.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {
namespace implicit_gemm {
namespace {

using i64 = std::int64_t;

constexpr int block_size = 256;
constexpr i64 limit = (i64(1) << 31) - (1 << 16);
constexpr i64 max_split = 1024;    // times phases, it has to fit the grid's last dimension
constexpr i64 max_groups = 65535;  // the grid's second dimension

constexpr Tile tiles[]{{128, 128}, {128, 64}, {64, 128}, {64, 64}};

// --- Kernels beside the product

struct Packing {
  StridePhases phases;
  int groups;
  int depth;                   // of all stride phases and terms
  int vector;                  // steps of the depth to an entry of the table
  int slice;                   // steps of the depth to a slice
  int channels, out_channels;  // of a group
  int padded_out_channels;
  bool depth_fast;  // packed [channel of the output][step], not [step][channel]
  bool channels_last, transposed;
  MathType math;  // rounded for it, so that the loop need not
  int t, r, s;
  Image gathered;
};

// A thread packs one element: a step of the depth and a channel of the output.
template <class T>
__global__ void __launch_bounds__(block_size) pack(Packing p, const T* w, int4* table, T* packed) {
  const int group_size = p.depth * p.padded_out_channels;
  const int at = int(blockIdx.x) * int(blockDim.x) + int(threadIdx.x);
  if (at >= p.groups * group_size) return;
  const int group = at / group_size, i = at % group_size;
  const int step = p.depth_fast ? i % p.depth : i / p.padded_out_channels;
  const int channel = p.depth_fast ? i / p.depth : i % p.padded_out_channels;
  int f = 0;
  while (f + 1 < p.phases.count && step >= p.phases.phase[f + 1].first_slice * p.slice) ++f;
  const StridePhase phase = p.phases.phase[f];
  const int in_phase = step - phase.first_slice * p.slice;
  const int term = in_phase / (phase.slices * p.slice),
            in_term = in_phase % (phase.slices * p.slice);
  const int taps = phase.r.count * phase.s.count;
  int4 place{0, nowhere, nowhere, 0};
  T value = narrow<T>(0);
  if (in_term < taps * p.gathered.channels) {
    const int c = p.channels_last ? in_term % p.gathered.channels : in_term / taps;
    const int tap = p.channels_last ? in_term / p.gathered.channels : in_term % taps;
    const int a = tap / phase.s.count, b = tap % phase.s.count;
    const int h = phase.r.place + a * phase.r.move, v = phase.s.place + b * phase.s.move;
    const int plane = phase.planes.origin + term * phase.planes.by_term;
    place = {c * p.gathered.channel + plane * p.gathered.plane + h * p.gathered.row +
                 v * p.gathered.column,
             h, v, 0};
    const int t = phase.t.first + term * phase.t.step;
    const int r = phase.r.first + a * phase.r.step, s = phase.s.first + b * phase.s.step;
    if (channel < p.out_channels && c < p.channels) {
      const int filter = group * p.channels * p.out_channels +
                         (p.transposed ? c * p.out_channels + channel : channel * p.channels + c);
      value = w[((filter * p.t + t) * p.r + r) * p.s + s];
      if constexpr (std::is_same_v<T, float>) {
        if (p.math == MathType::tf32) value = __uint_as_float(to_tf32(value));
        if (p.math == MathType::tf32x3) value = tf32_pair(value);
      }
    }
  }
  if (group == 0 && channel == 0 && step % p.vector == 0) table[step / p.vector] = place;
  packed[at] = value;
}

// Copies an image into NHWC with each group's channels padded by zeros, through tiles of 32 pixels
// x 32 channels. T: any type of the elements' size.
constexpr int tile_side = 32;
struct Padding {
  Image from;
  int pixels;     // of all planes
  Divisor group;  // of padded channels
  int channels;   // padded, of all groups
};
template <class T>
__global__ void __launch_bounds__(block_size) pad_channels(Padding p, const T* x, T* padded) {
  SHARED(T, tile, [tile_side][tile_side + 1]);
  const Image& from = p.from;
  const int pixels = p.pixels;
  const int tiles = (pixels + tile_side - 1) / tile_side;
  const int n = int(blockIdx.x) / tiles, first_pixel = int(blockIdx.x) % tiles * tile_side;
  const int first_channel = int(blockIdx.y) * tile_side;
  const int lane = int(threadIdx.x) % tile_side, warp = int(threadIdx.x) / tile_side;
  for (int i = warp; i < tile_side; i += block_size / tile_side) {
    const int pixel = from.channel == 1 ? i : lane, c = from.channel == 1 ? lane : i;
    const int group = p.group.quotient(first_channel + c);
    const int in_group = first_channel + c - group * p.group.divisor;
    const bool exists =
        first_pixel + pixel < pixels && first_channel + c < p.channels && in_group < from.channels;
    tile[pixel][c] = exists
                         ? load_global<T>(x + n * from.image + (first_pixel + pixel) * from.column +
                                          group * from.group + in_group * from.channel)
                         : T(0);
  }
  __syncthreads();
  for (int i = warp; i < tile_side; i += block_size / tile_side)
    if (first_pixel + i < pixels && first_channel + lane < p.channels)
      store_global(padded + (n * pixels + first_pixel + i) * p.channels + first_channel + lane,
                   tile[i][lane]);
}

unsigned blocks_for(i64 threads) { return unsigned(ceil_div(threads, block_size)); }

// --- The convolution as a product

i64 floor_mod(i64 a, i64 b) { return (a % b + b) % b; }

// Taps r with r * dilation = remainder (mod stride), and the rows of dy that they read, relative to
// that of the phase's origin.
TapAxis taps_of_phase(i64 taps, i64 stride, i64 dilation, i64 remainder) {
  const i64 step = stride / std::gcd(stride, dilation);
  for (i64 first = 0; first < std::min(step, taps); ++first)
    if (first * dilation % stride == remainder)
      return {int(first), int(step), int(ceil_div(taps - first, step)),
              -int(first * dilation / stride), -int(step * dilation / stride)};
  return {0, 1, 0, 0, 0};
}

struct PhaseAxis {
  TapAxis taps;
  i64 first, count;  // output pixels first, first + stride, ...
  i64 origin;        // where the first lies in the gathered image
};

PhaseAxis phase_axis(i64 image, i64 pad, i64 taps, i64 stride, i64 dilation, i64 remainder) {
  const i64 first = floor_mod(remainder - pad, stride);
  return {taps_of_phase(taps, stride, dilation, remainder), first,
          first < image ? ceil_div(image - first, stride) : 0, (first + pad) / stride};
}

// Of planes of `height` rows.
Image image_of(const TensorDesc& t, i64 height, i64 groups) {
  const bool last = t.layout == Layout::nhwc;
  const i64 channels = t.c / groups, channel = last ? 1 : t.h * t.w, row = last ? t.w * t.c : t.w;
  return {int(channels),        int(height),       int(t.w),
          int(t.c * t.h * t.w), int(height * row), int(row),
          int(last ? t.c : 1),  int(channel),      int(channels * channel)};
}

// The layout that the tensor cores' kernels read: NHWC with groups in whole vectors of 16 bytes.
TensorDesc vectorised(TensorDesc t, DType dtype, i64 groups) {
  t.c = groups * round_up(t.c / groups, 16 / size_of(dtype));
  t.layout = Layout::nhwc;
  return t;
}

// Steps of the depth in a slice: 128 bytes on tensor cores.
int slice_of(const Product& p) { return p.tensor_cores ? 128 / int(size_of(p.problem.dtype)) : 8; }

// Channels of a group of the output, padded to whole tiles.
int padded_out_channels(const Product& p) {
  return int(round_up(p.out.channels, p.channels_are_rows ? p.tile.rows : p.tile.columns));
}

// The config's choices, and the images' strides.
Product operands(const ConvProblem& p, const Config& config) {
  const bool data = p.pass == Pass::backward_data;
  Product product{};
  product.problem = p;
  product.math = math_type(config, p.dtype, card_math_types);
  product.tensor_cores = p.dtype != DType::f32 || product.math != MathType::f32;
  product.tile = {int(config.get("m")), int(config.get("n"))};
  product.phases.split = int(config.get("split"));
  const auto operand = [&](const TensorDesc& t, i64 height) {
    return image_of(product.tensor_cores ? vectorised(t, p.dtype, p.groups) : t, height, p.groups);
  };
  product.channels_last = product.tensor_cores || p.x_layout == Layout::nhwc;
  product.channels_are_rows = p.pass == Pass::backward_filter || p.y_layout != Layout::nhwc;
  product.gathered = data ? operand(p.y_desc(), p.p) : operand(p.x_desc(), p.h);
  product.dy = operand(p.y_desc(), p.p);
  product.out = data ? image_of(p.x_desc(), p.h, p.groups) : image_of(p.y_desc(), p.p, p.groups);
  product.phases.planes = int(data ? p.z : p.d);
  product.out_elements = p.output_bytes() / size_of(p.dtype);
  return product;
}

void add_data_phases(const ConvProblem& p, const Image& dx, StridePhases& phases) {
  const i64 all = p.stride_d * p.stride_h * p.stride_w;
  for (i64 i = 0; i < all; ++i) {
    const PhaseAxis d =
        phase_axis(p.d, p.pad_d, p.t, p.stride_d, p.dilation_d, i / (p.stride_h * p.stride_w));
    const PhaseAxis h =
        phase_axis(p.h, p.pad_h, p.r, p.stride_h, p.dilation_h, i / p.stride_w % p.stride_h);
    const PhaseAxis w = phase_axis(p.w, p.pad_w, p.s, p.stride_w, p.dilation_w, i % p.stride_w);
    if (d.count * h.count * w.count == 0) continue;
    StridePhase& phase = phases.phase[phases.count++];
    phase.image = Divisor(h.count * w.count);
    phase.row = Divisor(w.count);
    phase.pixels = int(p.n * h.count * w.count);
    phase.origin_h = int(h.origin);
    phase.origin_w = int(w.origin);
    phase.first_out = int(d.first * dx.plane + h.first * dx.row + w.first * dx.column);
    phase.t = d.taps;
    phase.r = h.taps;
    phase.s = w.taps;
    phase.planes = {int(d.count), d.taps.count, 1, d.taps.move, int(d.origin) + d.taps.place};
  }
}

void add_only_phase(const ConvProblem& p, StridePhases& phases) {
  StridePhase& phase = phases.phase[phases.count++];
  phase.image = Divisor(p.p * p.q);
  phase.row = Divisor(p.q);
  phase.pixels = int(p.n * p.p * p.q);
  phase.origin_h = -int(p.pad_h);
  phase.origin_w = -int(p.pad_w);
  phase.t = {0, 1, int(p.t), 0, int(p.dilation_d)};
  phase.r = {0, 1, int(p.r), 0, int(p.dilation_h)};
  phase.s = {0, 1, int(p.s), 0, int(p.dilation_w)};
  phase.planes = {int(p.z), int(p.t), int(p.stride_d), int(p.dilation_d), -int(p.pad_d)};
  if (p.pass == Pass::backward_filter) {
    std::swap(phase.planes.units, phase.planes.terms);
    std::swap(phase.planes.by_unit, phase.planes.by_term);
  }
}

// A Product without its pointers.
Product lower(const ConvProblem& p, const Config& config) {
  const bool filter = p.pass == Pass::backward_filter;
  Product product = operands(p, config);
  StridePhases& phases = product.phases;
  if (p.pass == Pass::backward_data)
    add_data_phases(p, product.out, phases);
  else
    add_only_phase(p, phases);

  int slices = 0, pixels = 0;
  for (int i = 0; i < phases.count; ++i) {
    StridePhase& phase = phases.phase[i];
    const i64 depth =
        filter ? phase.pixels : i64(phase.r.count) * phase.s.count * product.gathered.channels;
    phase.first_slice = slices;
    phase.slices = int(ceil_div(depth, slice_of(product)));
    slices += phase.planes.terms * phase.slices;
    pixels = std::max(pixels, phase.pixels);
  }
  const int others = filter ? product.gathered.channels * int(p.r * p.s) : pixels;
  product.rows = product.channels_are_rows ? product.out.channels : others;
  product.columns = product.channels_are_rows ? others : product.out.channels;
  product.filter_pitch =
      product.tensor_cores ? slices * slice_of(product) : padded_out_channels(product);
  product.filter_group = slices * slice_of(product) * padded_out_channels(product);
  return product;
}

int total_slices(const Product& p) {
  const StridePhase& last = p.phases.phase[p.phases.count - 1];
  return last.first_slice + last.planes.terms * last.slices;
}

// visit(phase, slices) for each unit of each stride phase.
template <class Visit>
void for_units(const Product& p, const Visit& visit) {
  for (int i = 0; i < p.phases.count; ++i) {
    const StridePhase& phase = p.phases.phase[i];
    for (int unit = 0; unit < phase.planes.units; ++unit) {
      const Range terms = phase.planes.terms_of(unit, p.phases.planes);
      visit(phase, (terms.end - terms.begin) * phase.slices);
    }
  }
}

int longest_sum(const Product& p) {  // in slices
  int longest = 0;
  for_units(p, [&](const StridePhase&, int slices) { longest = std::max(longest, slices); });
  return longest;
}

// visit(T()) with the problem's type.
template <class Visit>
void with_type(DType dtype, const Visit& visit) {
  if (dtype == DType::f32)
    visit(float());
  else if (dtype == DType::f16)
    visit(f16());
  else
    visit(bf16());
}

// Workspace: x and dy in the layout of the tensor cores' kernels, unless they have it already; then
// the parts of a split sum. Packed filter: the table, then the filter.
class Plan : public ConvPlan {
 public:
  explicit Plan(const Product& product) : product_(product) {
    if (!product.tensor_cores) return;
    const ConvProblem& p = problem();
    if (p.pass != Pass::backward_data) x_bytes_ = padded_bytes(p.x_desc());
    if (p.pass != Pass::forward) dy_bytes_ = padded_bytes(p.y_desc());
  }

  std::size_t padded_bytes() const { return x_bytes_ + dy_bytes_; }
  std::size_t partial_bytes() const {
    const int split = product_.phases.split;
    return split == 1 ? 0 : std::size_t(split * product_.out_elements) * sizeof(float);
  }

  std::size_t workspace_bytes() const noexcept override { return padded_bytes() + partial_bytes(); }

  std::size_t packed_filter_bytes() const noexcept override {
    if (problem().pass == Pass::backward_filter) return 0;
    return table_bytes() + std::size_t(problem().groups * product_.filter_group * element_bytes());
  }

  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    const bool data = problem().pass == Pass::backward_data;
    const i64 groups = problem().groups;
    const Packing packing{product_.phases,
                          int(groups),
                          int(depth()),
                          vector(),
                          slice_of(product_),
                          int((data ? problem().k : problem().c) / groups),
                          int((data ? problem().c : problem().k) / groups),
                          padded_out_channels(product_),
                          product_.tensor_cores,
                          product_.channels_last,
                          data,
                          product_.math,
                          int(problem().t),
                          int(problem().r),
                          int(problem().s),
                          product_.gathered};
    with_type(problem().dtype, [&](auto zero) {
      using T = decltype(zero);
      launch(pack<T>, blocks_for(groups * product_.filter_group), block_size, 0, stream, packing,
             reinterpret_cast<const T*>(w.data()), reinterpret_cast<int4*>(packed.data()),
             reinterpret_cast<T*>(packed.data() + table_bytes()));
    });
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    const ConvProblem& p = problem();
    Product product = product_;
    product.args = args;
    const void* x = args.x;
    const void* dy = args.dy;
    int phase = 0;
    if (padded_bytes() > 0)
      run_phase(args.phases, phase++, stream, [&] {
        if (x_bytes_ > 0) x = pad(p.x_desc(), args.x, workspace.data(), stream);
        if (dy_bytes_ > 0) dy = pad(p.y_desc(), args.dy, workspace.data() + x_bytes_, stream);
      });
    product.gathered_data = p.pass == Pass::backward_data ? dy : x;
    if (p.pass == Pass::backward_filter) {
      product.other_data = dy;
    } else {
      product.taps = static_cast<const int4*>(args.w);
      product.other_data = static_cast<const std::byte*>(args.w) + table_bytes();
    }
    if (partial_bytes() > 0)
      product.partial = reinterpret_cast<float*>(workspace.data() + padded_bytes());
    run_phase(args.phases, phase++, stream, [&] {
      product.tensor_cores ? multiply_tensor(product, stream) : multiply_fma(product, stream);
    });
    if (partial_bytes() == 0) return;
    run_phase(args.phases, phase, stream, [&] {
      // As many as a channel has in NCHW.
      const int pixels = product.channels_are_rows ? product.out.channel : 1;
      with_type(p.dtype, [&](auto zero) {
        using T = decltype(zero);
        add_parts<T>(product.partial, product.phases.split, product.out_elements,
                     product.out.channels * int(p.groups), pixels,
                     output_epilogue<T>(p.epilogue, p.accumulate, args), stream);
      });
    });
  }

 private:
  const ConvProblem& problem() const { return product_.problem; }
  i64 element_bytes() const { return size_of(problem().dtype); }
  i64 depth() const { return i64(total_slices(product_)) * slice_of(product_); }
  int vector() const { return product_.tensor_cores ? 16 / int(element_bytes()) : 1; }
  std::size_t table_bytes() const { return std::size_t(depth() / vector()) * sizeof(int4); }

  // 0 if the kernels take the image as it is.
  std::size_t padded_bytes(const TensorDesc& t) const {
    const TensorDesc wanted = vectorised(t, problem().dtype, problem().groups);
    return wanted == t ? 0 : std::size_t(round_up(wanted.elements() * element_bytes(), 256));
  }

  const void* pad(const TensorDesc& t, const void* from, std::byte* to, Stream& stream) const {
    const i64 groups = problem().groups;
    const int channels = int(vectorised(t, problem().dtype, groups).c);
    const Padding padding{image_of(t, t.h, groups), int(t.h * t.w), Divisor(channels / groups),
                          channels};
    const dim3 grid(unsigned(t.n * ceil_div(t.h * t.w, tile_side)),
                    unsigned(ceil_div(channels, tile_side)));
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      launch(pad_channels<T>, grid, block_size, 0, stream, padding, static_cast<const T*>(from),
             reinterpret_cast<T*>(to));
    };
    if (element_bytes() == 4)
      run(float());
    else
      run(static_cast<unsigned short>(0));
    return to;
  }

  Product product_;
  std::size_t x_bytes_ = 0, dy_bytes_ = 0;
};

// Multiply-adds a clock that a multiprocessor's loop reaches, roughly.
double rate(const Product& p) {
  if (!p.tensor_cores) return 85;
  return p.problem.dtype != DType::f32 ? 500 : p.math == MathType::tf32x3 ? 115 : 260;
}

// Clock cycles that a multiprocessor is busy, roughly; they rank tiles and splits.
double cycles(const Product& p, const DeviceInfo& device) {
  const dim3 grid = grid_of(p);
  const double blocks = double(grid.x) * grid.y * grid.z;
  const double in_turn = std::ceil(blocks / double(device.threads));
  const double area = double(p.tile.rows) * p.tile.columns;
  const double warps = in_turn * (p.tensor_cores ? 4 : area / 64 / 32);
  // Small tiles load more for each product.
  const double reuse = area >= 128 * 128 ? 1 : area > 64 * 64 ? 0.9 : 0.75;
  const double slices = std::ceil(double(longest_sum(p)) / p.phases.split) + 6;  // 6: the prologue
  const double adding = p.phases.split == 1 ? 0 : adding_cycles(p.phases.split, p.out_elements);
  return in_turn * slices * slice_of(p) * area / (rate(p) * reuse * std::min(1.0, warps / 8)) +
         adding;
}

std::int64_t shared_bytes(const Product& p) {
  return p.tensor_cores ? tensor_shared_bytes(p) : fma_shared_bytes(p);
}

// Counts whole tiles and slices, padding included.
double executed_flops(const Product& p) {
  double sum = 0;
  for_units(p, [&](const StridePhase& phase, int slices) {
    const bool filter = p.problem.pass == Pass::backward_filter;
    const i64 rows = filter || p.channels_are_rows ? p.rows : phase.pixels;
    const i64 columns = filter || !p.channels_are_rows ? p.columns : phase.pixels;
    sum += 2.0 * double(round_up(rows, p.tile.rows)) * double(round_up(columns, p.tile.columns)) *
           double(slices) * slice_of(p);
  });
  return sum * double(p.problem.groups);
}

class ImplicitGemm : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override { return info_; }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32, DType::f16, DType::bf16}, p)) return refusal;
    if (auto refusal = refuse_all_but_relu(p)) return refusal;
    if (auto refusal = refuse_blocked_layouts(p)) return refusal;
    if (auto refusal = refuse_two_layouts(p)) return refusal;
    const bool data = p.pass == Pass::backward_data;
    const i64 phases = data ? p.stride_d * p.stride_h * p.stride_w : 1;
    if (phases > max_stride_phases)
      return Refusal{Field::stride,
                     fmt::format("strides whose product is at most {}", max_stride_phases),
                     std::to_string(phases)};
    if (p.groups > max_groups)
      return Refusal{Field::groups, fmt::format("at most {} groups", max_groups),
                     std::to_string(p.groups)};
    // Offsets within a tensor are 32-bit; so are the steps along the depth and the pixels.
    const i64 k = round_up(p.k / p.groups, 128), c = round_up(p.c / p.groups, 128);
    const i64 filter = p.groups * p.t * (k * c * p.r * p.s + std::max(k, c) * 64 * phases);
    const i64 largest = std::max({vectorised(p.x_desc(), p.dtype, p.groups).elements(),
                                  vectorised(p.y_desc(), p.dtype, p.groups).elements(), filter});
    if (largest > limit)
      return Refusal{Field::size, fmt::format("tensors of at most {} elements", limit),
                     std::to_string(largest)};
    return refuse_shared_memory(shared_bytes(lower(p, config_of(p, smallest, MathType::f32))),
                                device.info());
  }

  // Each tile that a block has shared memory for, with the split that occupies the device best, and
  // unsplit. f32 comes before 3xTF32
  // and TF32; within a math type the fastest by estimate comes first.
  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    std::vector<Config> configs;
    add_ranked(p, device.info(), MathType::f32, configs);
    if (p.dtype == DType::f32)
      for (const MathType math : {MathType::tf32x3, MathType::tf32})
        add_ranked(p, device.info(), math, configs);
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const Product product = lower(p, config);
    const Plan plan(product);
    const double padded = double(plan.padded_bytes()), partial = double(plan.partial_bytes());
    const double out = double(p.output_bytes());
    const double in = double(p.x_bytes() + p.y_bytes() + p.filter_bytes()) - out;
    const double flops = executed_flops(product);
    // Relative to the peak of CUDA cores, 128 multiply-adds a clock, which tensor cores exceed.
    const double peak = 2 * 128.0 * device.info().threads;
    const double efficiency = flops / peak / cycles(product, device.info());
    WorkEstimate estimate;
    if (padded > 0) estimate.phases.push_back({"pad_channels", 0, in, padded, 1});
    estimate.phases.push_back({"product", flops, in + (p.epilogue.residual ? out : 0),
                               partial > 0 ? partial : out, std::max(efficiency, 0.01)});
    if (partial > 0) estimate.phases.push_back({"add_parts", 0, partial, out, 1});
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({"m", "n", "split", "math"});
    const i64 m = config.get("m"), n = config.get("n"), split = config.get("split");
    const bool known = std::any_of(std::begin(tiles), std::end(tiles), [&](const Tile& tile) {
      return tile.rows == m && tile.columns == n;
    });
    if (!known || split < 1 || split > max_split)
      throw InputError(
          fmt::format("implicit_gemm: config '{}': expected m and n 64 or 128, split 1 to {}",
                      config.text(), max_split));
    const Product product = lower(p, config);
    require_shared_memory(info_.id, config, shared_bytes(product), device.info());
    return std::make_unique<Plan>(product);
  }

 private:
  static constexpr Tile smallest = tiles[std::size(tiles) - 1];

  static Config config_of(const ConvProblem& p, const Tile& tile, MathType math) {
    return with_math({{"m", tile.rows}, {"n", tile.columns}, {"split", 1}}, p.dtype, math);
  }
  static void add_ranked(const ConvProblem& p, const DeviceInfo& device, MathType math,
                         std::vector<Config>& configs) {
    std::vector<std::pair<double, Config>> ranked;
    for (const Tile tile : tiles) {
      Config config = config_of(p, tile, math);
      if (!fits_block(shared_bytes(lower(p, config)), device)) continue;
      const auto cost = [&] { return cycles(lower(p, config), device); };
      ranked.push_back({cost(), config});
      std::pair<double, Config> best = ranked.back();
      const int slices = longest_sum(lower(p, config));
      for (int split = 2; split <= std::min(slices / 2, 256); split *= 2) {
        config.set("split", split);
        if (cost() < best.first) best = {cost(), config};
      }
      if (best.second != ranked.back().second) ranked.push_back(best);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [cost, config] : ranked)
      if (cost < 4 * ranked.front().first) configs.push_back(config);
  }

  AlgoInfo info_{"implicit_gemm",
                 7,
                 DeviceKind::cuda,
                 Origin::own,
                 "one product, image columns gathered into shared memory",
                 {}};
};

}  // namespace
}  // namespace implicit_gemm

std::unique_ptr<ConvAlgo> make_implicit_gemm() {
  return std::make_unique<implicit_gemm::ImplicitGemm>();
}

}  // namespace convlab::cuda
