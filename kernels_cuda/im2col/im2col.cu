// Convolution as matrix products with an explicit column matrix (Chellapilla et al. 2006):
//   y = W col(x),   col(dx) = W^T dy,   dW = dy col(x)^T   for each group.
//
// NCHW stores columns by tap, [group][c, r, s][pixel], so that copies run along image rows, the
// filter is used unpacked, and each image is one product of a batch. backward_filter sums over the
// pixels of all images in one product: it copies dy to [k][pixel] as well, unless a chunk is within
// one image. NHWC stores them by pixel, [group][pixel][r, s, c], so that copies run along channels.
// It packs the filter to K R S C, and all pixels of a chunk are one product. Groups are batches in
// both layouts.
//
// A chunk is `rows` rows of output, numbered n * P + p: some rows of an image, or whole images. It
// bounds the workspace. The columns of a small chunk stay in L2. With a 1x1 filter of stride 1
// without padding x itself is the column matrix.
//
// col2im gathers: each element of dx sums its taps in a fixed order. Chunks that share rows of dx
// run one after the other.
#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/epilogue.h"
#include "kernels_cuda/kernel.h"
#include "kernels_cuda/vendor.h"
#include "kernels_cuda/view.h"

namespace convlab::cuda {
namespace {

constexpr int block_size = 256;
constexpr std::int64_t most_blocks = 65535;  // in y and z

// Images [n, n + images), rows [p, p + rows) of each.
struct Chunk {
  std::int64_t n, images, p, rows;
};

// A problem and a chunk, for the copying kernels.
struct Columns {
  View x;  // or dx
  int channels, groups;
  int r, s, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int n, p0, rows, q;   // the chunk
  std::int64_t pixels;  // of the chunk: images * rows * q

  Columns(const ConvProblem& p, const Chunk& chunk)
      : x(p.x_desc()),
        channels(int(p.c / p.groups)),
        groups(int(p.groups)),
        r(int(p.r)),
        s(int(p.s)),
        stride_h(int(p.stride_h)),
        stride_w(int(p.stride_w)),
        pad_h(int(p.pad_h)),
        pad_w(int(p.pad_w)),
        dilation_h(int(p.dilation_h)),
        dilation_w(int(p.dilation_w)),
        n(int(chunk.n)),
        p0(int(chunk.p)),
        rows(int(chunk.rows)),
        q(int(p.q)),
        pixels(chunk.images * chunk.rows * p.q) {}

  // Image, and coordinates of tap (0, 0), of a pixel of the chunk.
  struct Pixel {
    int n, h, w;
  };
  __device__ Pixel pixel(std::int64_t i) const {
    const int row = int(i) / q, image = row / rows;
    return {n + image, (p0 + row - image * rows) * stride_h - pad_h,
            (int(i) - row * q) * stride_w - pad_w};
  }
};

// The kernels that only copy take elements as unsigned integers E of their size.
//
// NCHW: a thread copies the taps of a pixel in every gridDim.y-th channel. Neighbouring threads
// write neighbours. The inputs that taps share come from L1.
template <class E>
__global__ void __launch_bounds__(block_size) copy_by_tap(Columns c, const E* x, E* columns) {
  const std::int64_t i = std::int64_t(blockIdx.x) * block_size + threadIdx.x;
  if (i >= c.pixels) return;
  const auto [n, h0, w0] = c.pixel(i);
  const E* const image = x + n * c.x.image;
  for (int channel = int(blockIdx.y); channel < c.x.channels; channel += int(gridDim.y)) {
    const E* const plane = image + std::int64_t(channel) * c.x.channel;
    E* to = columns + std::int64_t(channel) * c.r * c.s * c.pixels + i;
    for (int r = 0; r < c.r; ++r) {
      const int h = h0 + r * c.dilation_h;
      for (int s = 0; s < c.s; ++s, to += c.pixels) {
        const int w = w0 + s * c.dilation_w;
        const bool inside = unsigned(h) < unsigned(c.x.h) && unsigned(w) < unsigned(c.x.w);
        store_global<E>(to, inside ? load_global<E>(plane + h * c.x.row + w) : E{});
      }
    }
  }
}

// NHWC: `lanes` neighbouring threads share a pixel and copy its rows of taps, S x channels
// contiguous elements each. E may be 16 bytes; `width` is the number of E in a pixel of one group,
// `pitch` in a pixel of x.
template <class E>
__global__ void __launch_bounds__(block_size)
    copy_by_pixel(Columns c, int lanes, int width, int pitch, const E* x, E* columns) {
  const int lane = int(threadIdx.x) % lanes;
  const std::int64_t i = std::int64_t(blockIdx.x) * (block_size / lanes) + int(threadIdx.x) / lanes;
  if (i >= c.pixels) return;
  const auto [n, h0, w0] = c.pixel(i);
  const E* const image = x + std::int64_t(n) * c.x.h * c.x.w * pitch;
  const int run = c.s * width;
  for (int group = int(blockIdx.y); group < c.groups; group += int(gridDim.y)) {
    E* to = columns + (group * c.pixels + i) * c.r * run;
    for (int r = 0; r < c.r; ++r, to += run) {
      const int h = h0 + r * c.dilation_h;
      for (int j = lane; j < run; j += lanes) {
        const int s = j / width, w = w0 + s * c.dilation_w;
        const bool inside = unsigned(h) < unsigned(c.x.h) && unsigned(w) < unsigned(c.x.w);
        store_global<E>(to + j, inside ? load_global<E>(image + (h * c.x.w + w) * pitch +
                                                        group * width + j - s * width)
                                       : E{});
      }
    }
  }
}

// The output coordinate whose tap reads the input `distance` = coordinate + pad - tap * dilation,
// or -1.
__device__ __forceinline__ int output_of(int distance, int stride, int first, int count) {
  const int at = stride == 1 ? distance : distance / stride;
  return distance >= 0 && at * stride == distance && unsigned(at - first) < unsigned(count)
             ? at - first
             : -1;
}

// Rows [h0, h0 + height) of dx from the columns, an element a thread. Neighbouring threads follow W
// in NCHW, C in NHWC.
template <class T>
__global__ void __launch_bounds__(block_size, 4)
    gather(Columns c, int h0, int height, const T* columns, OutputEpilogue<T> epilogue) {
  const bool last = c.x.channels_last;
  const int fast = last ? c.x.channels : height * c.x.w,
            slow = last ? height * c.x.w : c.x.channels;
  const std::int64_t i = std::int64_t(blockIdx.x) * block_size + threadIdx.x;
  if (i >= std::int64_t(fast) * slow) return;
  const int outer = int(i / fast), inner = int(i - std::int64_t(outer) * fast);
  const int channel = last ? inner : outer, position = last ? outer : inner;
  const int h = h0 + position / c.x.w, w = position % c.x.w;
  const int group = channel / c.channels, taps = c.r * c.s;
  const std::int64_t images = c.pixels / (std::int64_t(c.rows) * c.q);
  for (std::int64_t image = blockIdx.y; image < images; image += gridDim.y) {
    Accumulator<T> sum = 0;
    for (int r = 0; r < c.r; ++r) {
      const int p = output_of(h + c.pad_h - r * c.dilation_h, c.stride_h, c.p0, c.rows);
      if (p < 0) continue;
      for (int s = 0; s < c.s; ++s) {
        const int q = output_of(w + c.pad_w - s * c.dilation_w, c.stride_w, 0, c.q);
        if (q < 0) continue;
        const std::int64_t pixel = (image * c.rows + p) * c.q + q;
        const int tap = r * c.s + s;
        const std::int64_t at =
            last ? ((group * c.pixels + pixel) * taps + tap) * c.channels + channel % c.channels
                 : (std::int64_t(channel) * taps + tap) * c.pixels + pixel;
        sum += widen(load_global<T>(columns + at));
      }
    }
    epilogue.store((c.n + image) * c.x.image + std::int64_t(channel) * c.x.channel +
                       std::int64_t(h) * c.x.row + std::int64_t(w) * c.x.column,
                   channel, sum);
  }
}

// to[channel][n, pixel] = from[n][channel][pixel], for NCHW.
template <class E>
__global__ void __launch_bounds__(block_size)
    planes_to_rows(std::int64_t images, int channels, int plane, const E* from, E* to) {
  const std::int64_t i = std::int64_t(blockIdx.x) * block_size + threadIdx.x;
  if (i >= images * plane) return;
  const std::int64_t n = i / plane, pixel = i - n * plane;
  for (int c = int(blockIdx.y); c < channels; c += int(gridDim.y))
    to[c * images * plane + i] = from[(n * channels + c) * plane + pixel];
}

// to[k][rs][c] = from[k][c][rs].
template <class E>
__global__ void __launch_bounds__(block_size)
    pack_filter(std::int64_t count, int channels, int taps, const E* from, E* to) {
  const std::int64_t i = std::int64_t(blockIdx.x) * block_size + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = i / channels, k = row / taps;
  const std::int64_t c = i - row * channels, tap = row - k * taps;
  to[i] = from[(k * channels + c) * taps + tap];
}

// The inverse: dw[k][c][rs] = or += from[k][rs][c].
template <class T>
__global__ void __launch_bounds__(block_size)
    unpack_filter(std::int64_t count, int channels, int taps, const T* from,
                  OutputEpilogue<T> epilogue) {
  const std::int64_t i = std::int64_t(blockIdx.x) * block_size + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = i / taps, k = row / channels;
  const std::int64_t tap = i - row * taps, c = row - k * channels;
  epilogue.store(i, 0, widen(from[(k * taps + tap) * channels + c]));
}

// The epilogue on `lines` x `length` elements of y, lines `pitch` apart. Line i is channel
// i % channels; if channels are last, element j is channel j % channels.
template <class T>
__global__ void __launch_bounds__(block_size)
    finish_lines(std::int64_t lines, std::int64_t length, std::int64_t pitch, int channels,
                 bool channels_last, OutputEpilogue<T> epilogue) {
  const std::int64_t j = std::int64_t(blockIdx.x) * block_size + threadIdx.x;
  if (j >= length) return;
  for (std::int64_t i = blockIdx.y; i < lines; i += gridDim.y) {
    const std::int64_t at = i * pitch + j;
    epilogue.store(at, int((channels_last ? j : i) % channels), widen(epilogue.out[at]));
  }
}

bool columns_are_x(const ConvProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_h == 0 &&
         p.pad_w == 0 && p.p == p.h && p.q == p.w;
}

// The consequences of the rows of a chunk.
struct Cut {
  std::int64_t rows;
  bool by_pixel;      // NHWC
  bool in_place;      // x itself is the column matrix
  bool copies_dy;     // NCHW's backward_filter over several images
  bool packs_filter;  // NHWC multiplies by K R S C

  Cut(const ConvProblem& p, std::int64_t rows) : rows(rows) {
    by_pixel = p.x_layout == Layout::nhwc;
    copies_dy = !by_pixel && p.pass == Pass::backward_filter && rows > p.p;
    in_place = columns_are_x(p) && !copies_dy;
    packs_filter = by_pixel && p.r * p.s > 1 && p.c > p.groups;
  }
  std::int64_t columns(const ConvProblem& p) const {
    return in_place ? 0 : p.c * p.r * p.s * rows * p.q;
  }
};

template <class T>
class Im2colPlan final : public ConvPlan {
 public:
  using Element = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                     std::conditional_t<sizeof(T) == 4, unsigned, double>>;

  Im2colPlan(const ConvProblem& problem, std::int64_t rows, MathType math)
      : p_(problem), cut_(problem, rows), math_(math) {
    const auto area = [&](std::int64_t elements) {
      const std::int64_t start = workspace_;
      workspace_ += round_up(elements * std::int64_t(sizeof(T)), 256);
      return start;
    };
    area(cut_.columns(p_));
    if (cut_.copies_dy) dy_ = area(p_.k * rows * p_.q);
    if (unpacks()) dw_ = area(p_.filter_elements());
  }

  std::size_t workspace_bytes() const noexcept override { return std::size_t(workspace_); }
  std::size_t packed_filter_bytes() const noexcept override {
    return cut_.packs_filter && !unpacks() ? std::size_t(p_.filter_bytes()) : 0;
  }
  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    const std::int64_t count = p_.filter_elements();
    launch(cuda::pack_filter<Element>, blocks(count), block_size, 0, stream, count, int(channels()),
           int(p_.r * p_.s), reinterpret_cast<const Element*>(w.data()),
           reinterpret_cast<Element*>(packed.data()));
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    const Run run{args, workspace.data(), stream};
    if (cut_.rows >= p_.p) {
      const std::int64_t images = cut_.rows / p_.p;
      for (std::int64_t n = 0; n < p_.n; n += images)
        run_chunk(run, {n, std::min(images, p_.n - n), 0, p_.p});
    } else {
      for (std::int64_t n = 0; n < p_.n; ++n)
        for (std::int64_t p = 0; p < p_.p; p += cut_.rows)
          run_chunk(run, {n, 1, p, std::min(cut_.rows, p_.p - p)});
    }
    if (unpacks())
      run.phase(finishing, [&] {
        const std::int64_t count = p_.filter_elements();
        launch(unpack_filter<T>, blocks(count), block_size, 0, stream, count, int(channels()),
               int(p_.r * p_.s), run.at(dw_), output_epilogue<T>(p_.epilogue, p_.accumulate, args));
      });
  }

 private:
  enum Phase { copying, product, finishing };
  struct Run {
    const ConvArgs& args;
    std::byte* workspace;
    Stream& stream;
    T* at(std::int64_t offset) const { return reinterpret_cast<T*>(workspace + offset); }
    template <class Work>
    void phase(Phase phase, Work&& work) const {
      run_phase(args.phases, phase, stream, work);
    }
  };
  // A row-major matrix for each group, and in NCHW for each image.
  struct Matrix {
    const T* data;
    std::int64_t ld, image, group;
  };

  std::int64_t channels() const { return p_.c / p_.groups; }
  std::int64_t filters() const { return p_.k / p_.groups; }
  std::int64_t taps() const { return channels() * p_.r * p_.s; }
  bool unpacks() const { return cut_.packs_filter && p_.pass == Pass::backward_filter; }
  std::int64_t pixels(const Chunk& c) const { return c.images * c.rows * p_.q; }
  static unsigned blocks(std::int64_t threads) { return unsigned(ceil_div(threads, block_size)); }
  static unsigned layers(std::int64_t count) { return unsigned(std::min(count, most_blocks)); }

  void run_chunk(const Run& run, const Chunk& chunk) const {
    const bool data = p_.pass == Pass::backward_data;
    if (!data && !cut_.in_place) run.phase(copying, [&] { fill_columns(run, chunk); });
    run.phase(product, [&] { multiply(run, chunk); });
    if (data && !cut_.in_place) run.phase(copying, [&] { gather_columns(run, chunk); });
    if (!p_.epilogue.empty()) run.phase(finishing, [&] { finish(run, chunk); });
  }

  void fill_columns(const Run& run, const Chunk& chunk) const {
    const Columns c(p_, chunk);
    const auto* const x = static_cast<const Element*>(run.args.x);
    auto* const to = reinterpret_cast<Element*>(run.workspace);
    if (!cut_.by_pixel) {
      launch(copy_by_tap<Element>, dim3(blocks(c.pixels), layers(p_.c)), block_size, 0, run.stream,
             c, x, to);
    } else {
      constexpr std::int64_t quad = 16 / sizeof(T);
      const bool quads = channels() % quad == 0 && reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
      const std::int64_t width = quads ? channels() / quad : channels();
      int lanes = 1;  // enough for a run, at most a warp
      while (lanes < 32 && lanes < p_.s * width) lanes *= 2;
      const auto go = [&](auto kernel, auto zero) {
        using E = decltype(zero);
        launch(kernel, dim3(unsigned(ceil_div(c.pixels, block_size / lanes)), layers(p_.groups)),
               block_size, 0, run.stream, c, lanes, int(width), int(width * p_.groups),
               reinterpret_cast<const E*>(x), reinterpret_cast<E*>(to));
      };
      if (quads)
        go(copy_by_pixel<uint4>, uint4{});
      else
        go(copy_by_pixel<Element>, Element{});
    }
    if (cut_.copies_dy)
      launch(planes_to_rows<Element>, dim3(blocks(c.pixels), layers(p_.k)), block_size, 0,
             run.stream, chunk.images, int(p_.k), int(p_.p * p_.q),
             static_cast<const Element*>(run.args.dy) + chunk.n * p_.k * p_.p * p_.q,
             reinterpret_cast<Element*>(run.at(dy_)));
  }

  void gather_columns(const Run& run, const Chunk& chunk) const {
    // The first chunk of an image writes all of it, the others add to the rows that they reach.
    std::int64_t h0 = 0, h1 = p_.h;
    if (chunk.p > 0) {
      h0 = std::clamp<std::int64_t>(chunk.p * p_.stride_h - p_.pad_h, 0, p_.h);
      h1 = std::clamp<std::int64_t>(
          (chunk.p + chunk.rows - 1) * p_.stride_h - p_.pad_h + (p_.r - 1) * p_.dilation_h + 1, h0,
          p_.h);
    }
    if (h1 > h0)
      launch(gather<T>, dim3(blocks(p_.c * (h1 - h0) * p_.w), layers(chunk.images)), block_size, 0,
             run.stream, Columns(p_, chunk), int(h0), int(h1 - h0), run.at(0),
             output_epilogue<T>(p_.epilogue, p_.accumulate || chunk.p > 0, run.args));
  }

  void multiply(const Run& run, const Chunk& chunk) const {
    const std::int64_t area = p_.p * p_.q, first = chunk.p * p_.q, all = pixels(chunk);
    const bool data = p_.pass == Pass::backward_data, fwd = p_.pass == Pass::forward;
    const void* const y_data = fwd ? run.args.out : run.args.dy;
    const void* const x_data = data ? run.args.out : run.args.x;
    const void* const w_data = fwd || data ? run.args.w : unpacks() ? run.at(dw_) : run.args.out;
    const Matrix w{static_cast<const T*>(w_data), taps(), 0, filters() * taps()};
    Matrix y, columns;
    if (cut_.by_pixel) {
      const std::int64_t pixel = chunk.n * area + first;
      y = {static_cast<const T*>(y_data) + pixel * p_.k, p_.k, 0, filters()};
      columns = cut_.in_place
                    ? Matrix{static_cast<const T*>(x_data) + pixel * p_.c, p_.c, 0, channels()}
                    : Matrix{run.at(0), taps(), 0, all * taps()};
    } else {
      y = cut_.copies_dy ? Matrix{run.at(dy_), all, 0, filters() * all}
                         : Matrix{static_cast<const T*>(y_data) + chunk.n * p_.k * area + first,
                                  area, p_.k * area, filters() * area};
      columns = cut_.in_place
                    ? Matrix{static_cast<const T*>(x_data) + chunk.n * p_.c * area + first, area,
                             p_.c * area, channels() * area}
                    : Matrix{run.at(0), all, area, taps() * all};
    }
    // beta: the first product of an output replaces it, unless the problem accumulates.
    const bool first_sum = chunk.n == 0 && chunk.p == 0;
    const double beta = fwd    ? p_.accumulate
                        : data ? cut_.in_place && p_.accumulate
                               : !first_sum || (p_.accumulate && !unpacks());
    const std::int64_t images = cut_.by_pixel || (!fwd && !data) ? 1 : chunk.images;
    const std::int64_t size = cut_.by_pixel || (!fwd && !data) ? all : chunk.rows * p_.q;
    if (cut_.by_pixel) {
      if (fwd)
        multiply(run, {size, filters(), taps()}, columns, false, w, true, beta, y, 1);
      else if (data)
        multiply(run, {size, taps(), filters()}, y, false, w, false, beta, columns, 1);
      else
        multiply(run, {filters(), taps(), size}, y, true, columns, false, beta, w, 1);
    } else {
      if (fwd)
        multiply(run, {filters(), size, taps()}, w, false, columns, false, beta, y, images);
      else if (data)
        multiply(run, {taps(), size, filters()}, w, true, y, false, beta, columns, images);
      else
        multiply(run, {filters(), taps(), size}, y, false, columns, true, beta, w, 1);
    }
  }

  struct Sizes {
    std::int64_t m, n, k;
  };
  // c = op(a) op(b) + beta c for each group and image: batches of the larger number, one call for
  // each of the smaller.
  void multiply(const Run& run, const Sizes& size, const Matrix& a, bool transpose_a,
                const Matrix& b, bool transpose_b, double beta, const Matrix& c,
                std::int64_t images) const {
    const bool over_images = images >= p_.groups;
    const auto stride = [&](const Matrix& m, bool of_images) {
      return of_images ? m.image : m.group;
    };
    const Gemm g{.dtype = p_.dtype,
                 .math = math_,
                 .m = size.m,
                 .n = size.n,
                 .k = size.k,
                 .transpose_a = transpose_a,
                 .transpose_b = transpose_b,
                 .lda = a.ld,
                 .ldb = b.ld,
                 .ldc = c.ld,
                 .batch = over_images ? images : p_.groups,
                 .stride_a = stride(a, over_images),
                 .stride_b = stride(b, over_images),
                 .stride_c = stride(c, over_images)};
    for (std::int64_t i = 0; i < (over_images ? p_.groups : images); ++i)
      gemm(g, 1, a.data + i * stride(a, !over_images), b.data + i * stride(b, !over_images), beta,
           const_cast<T*>(c.data) + i * stride(c, !over_images), run.stream);
  }

  void finish(const Run& run, const Chunk& chunk) const {
    const std::int64_t area = p_.p * p_.q;
    const bool last = cut_.by_pixel;
    const std::int64_t first = chunk.n * p_.k * area + chunk.p * p_.q * (last ? p_.k : 1);
    const std::int64_t length = last ? pixels(chunk) * p_.k : chunk.rows * p_.q;
    const std::int64_t lines = last ? 1 : chunk.images * p_.k;
    launch(finish_lines<T>, dim3(blocks(length), layers(lines)), block_size, 0, run.stream, lines,
           length, area, int(p_.k), last, output_epilogue<T>(p_.epilogue, false, run.args, first));
  }

  const ConvProblem p_;
  const Cut cut_;
  const MathType math_;
  std::int64_t workspace_ = 0;    // bytes; columns first
  std::int64_t dy_ = 0, dw_ = 0;  // offsets of the copied dy and of the packed dw
};

// The rate of cuBLAS's products as a share of the f32 peak, which tensor cores exceed.
double product_efficiency(DType dtype, MathType math) {
  if (dtype == DType::f64) return 0.8;
  return size_of(dtype) == 2 ? 3.5 : math == MathType::tf32 ? 2 : 0.6;
}

class Im2col final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "im2col",
                               .version = 2,
                               .device = DeviceKind::cuda,
                               .origin = Origin::own,
                               .summary = "column matrix in chunks, products by cuBLAS",
                               .libraries = {"cublas"}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device&) const override {
    if (auto refusal = refuse_all_but_relu(p)) return refusal;
    if (auto refusal = refuse_blocked_layouts(p)) return refusal;
    if (auto refusal = refuse_two_layouts(p)) return refusal;
    // Kernels count positions within an image, pixels, and coordinates with their padding in int.
    constexpr std::int64_t most = std::int64_t(1) << 31, far = 1 << 28;
    if (const std::int64_t image = std::max(p.c * p.h * p.w, p.k * p.p * p.q); image >= most)
      return Refusal{Field::image, "images of fewer than 2^31 elements", std::to_string(image)};
    if (p.n * p.p * p.q >= most)
      return Refusal{Field::size, "fewer than 2^31 output pixels", std::to_string(p.n * p.p * p.q)};
    const std::int64_t reach = std::max({p.p * p.stride_h + p.r * p.dilation_h + p.pad_h + p.h,
                                         p.q * p.stride_w + p.s * p.dilation_w + p.pad_w + p.w});
    if (reach >= far)
      return Refusal{Field::image, "padded images of fewer than 2^28 rows and columns",
                     std::to_string(reach)};
    if (p.c / p.groups * p.r * p.s >= most)
      return Refusal{Field::filter, "fewer than 2^31 taps a filter",
                     std::to_string(p.c / p.groups * p.r * p.s)};
    return refuse_missing_libraries(info());
  }

  // Columns of 256 MB make large products; those of 24 MB stay in L2; the last config takes all of
  // the memory. Without columns one chunk suffices.
  std::vector<Config> configs(const ConvProblem& p, Device&) const override {
    std::vector<std::int64_t> rows;
    const auto add = [&](std::int64_t count) {
      if (std::find(rows.begin(), rows.end(), count) == rows.end()) rows.push_back(count);
    };
    if (Cut(p, p.n * p.p).in_place) {
      add(p.n * p.p);
    } else {
      const std::int64_t row_bytes = p.c * p.r * p.s * p.q * size_of(p.dtype);
      for (const std::int64_t megabytes : {256, 24, 4096})
        add(even_rows(p, (megabytes << 20) / row_bytes));
      if (columns_are_x(p)) add(p.p);  // one image at a time, in place
    }
    std::vector<Config> configs;
    for (const MathType math : {MathType::f32, MathType::tf32})
      for (const std::int64_t count : rows)
        if (math == MathType::f32 || p.dtype == DType::f32)
          configs.push_back(with_math({{"rows", count}}, p.dtype, math));
    return configs;
  }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const Cut cut(p, config.get("rows"));
    const double x = double(p.x_bytes()), y = double(p.y_bytes()), w = double(p.filter_bytes());
    const double element = double(size_of(p.dtype));
    const double columns =
        cut.in_place ? 0 : double(p.c * p.r * p.s) * double(p.n * p.p * p.q) * element;
    // The columns of a chunk that fits into half of L2 never go to memory.
    const bool cached = double(cut.columns(p)) * element < double(device.info().l2_bytes) / 2;
    const double spilled = cached ? 0 : columns, dy_copy = cut.copies_dy && !cached ? y : 0;
    const bool data = p.pass == Pass::backward_data;
    const double x_once = cut.in_place ? 0 : x;
    const double output = p.pass == Pass::forward ? y : data ? spilled : w;
    WorkEstimate estimate;
    estimate.phases.push_back(
        {data ? "col2im" : "im2col", 0,
         data ? spilled + (p.accumulate ? x_once : 0) : x_once + (cut.copies_dy ? y : 0),
         data ? x_once : spilled + dy_copy, 1});
    const double inputs = p.pass == Pass::forward ? w + spilled : data ? w + y : y + spilled;
    estimate.phases.push_back({"product", p.flops(), inputs + (cut.in_place && !data ? x : 0),
                               output + (cut.in_place && data ? x : 0),
                               product_efficiency(p.dtype, math_type(config))});
    const bool filter = p.pass == Pass::backward_filter && cut.packs_filter;
    const double finished = filter ? w : p.epilogue.empty() ? 0 : y;
    estimate.phases.push_back(
        {filter ? "unpack" : "epilogue", 0, finished + (p.epilogue.residual ? y : 0), finished, 1});
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device&) const override {
    config.require_only({"rows", "math"});
    const std::int64_t rows = config.get("rows");
    if (rows < 1 || rows > p.n * p.p || (rows > p.p && rows % p.p != 0))
      throw InputError(
          fmt::format("im2col: rows={}: expected 1 to {}, or a multiple of {} up to {}", rows, p.p,
                      p.p, p.n * p.p));
    const MathType math = math_type(config, p.dtype, library_math_types);
    std::unique_ptr<ConvPlan> plan;
    with_element(p.dtype, [&](auto zero) {
      plan = std::make_unique<Im2colPlan<decltype(zero)>>(p, rows, math);
    });
    return plan;
  }

 private:
  // The rows of chunks of nearly one size, at most `most`.
  static std::int64_t even_rows(const ConvProblem& p, std::int64_t most) {
    const auto even = [](std::int64_t all, std::int64_t limit) {
      return ceil_div(all, ceil_div(all, std::clamp<std::int64_t>(limit, 1, all)));
    };
    return most >= p.p ? even(p.n, most / p.p) * p.p : even(p.p, most);
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_im2col() { return std::make_unique<Im2col>(); }

}  // namespace convlab::cuda
