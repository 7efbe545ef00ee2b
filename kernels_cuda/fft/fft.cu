// Convolution by whole-image FFT: cuFFT, and a batched complex product over frequencies.
//
// Every pass is a cyclic sum on a padded grid, hence a product of spectra for each frequency:
//   forward          Y[n,k]  = sum over c of X[n,c] conj(W[k,c])      y at row p is row p - pad_h
//   backward_data    DX[n,c] = sum over k of DY[n,k] W[k,c]           dx at row h is row h + pad_h
//   backward_filter  DW[k,c] = sum over n of conj(DY[n,k]) X[n,c]     dw at row r is row r - pad_h
// since a correlation is a product with a conjugate, and backward_data a convolution. Zero padding
// may wrap: row -1 is the grid's last row, and one strip of zeros serves both edges. So a grid of
// H + max(pad above, pad below) rows has no aliasing, in every pass.
//
// Activations are padded to the grid, transformed by cuFFT (a real image needs half of its
// spectrum), and transposed from [image, channel][frequency] to [frequency][image, channel] for the
// product. The result takes the same steps backwards. Filters are small, so the defining sums
// compute their spectra (by rows, then by columns), straight into [frequency][K, C]: less traffic
// than a padded FFT, and no scratch memory.
//
// A chunk is `images` images and `filters` of the K filters, since all spectra of filters are K C
// grids: 64 x 64 of 224 x 224 take a gigabyte. With all K in one chunk, forward and backward_data
// pack them; else each chunk computes them again. The last chunk is padded with zeros.
//
// Mathieu, Henaff, LeCun 2013 (arXiv:1312.5851); Vasilache et al. 2014 (arXiv:1412.7580).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/epilogue.h"
#include "kernels_cuda/fft/fft.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {
namespace {

// Blocks of pad, crop and transpose take tiles of 32 x 32 elements, four a thread.
constexpr int tile = 32, tile_rows = 8;

// planes[n][c][grid_h][grid_w] = the image at the top left, zeros around it, for c < channels, of
// which the image may have fewer. A block takes 32 grid points of 32 channels. In NHWC it reads the
// channels of a point as neighbours, and writes plane by plane.
template <class T, bool nhwc>
__global__ void __launch_bounds__(tile* tile_rows)
    pad(Image image, const T* data, int channels, int grid_h, int grid_w, T* planes) {
  SHARED(T, staged, [nhwc ? tile : 1][tile + 1]);
  const int grid = grid_h * grid_w, point = int(blockIdx.x) * tile, c0 = int(blockIdx.y) * tile;
  const int n = int(blockIdx.z), lane = int(threadIdx.x);
  T* const to = planes + (std::int64_t(n) * channels + c0) * grid + point;
  const auto load = [&](int i, int c) {
    const int h = i / grid_w, w = i % grid_w;
    return n < image.n && c < image.c && h < image.h && w < image.w
               ? load_global<T>(data + image.offset(n, c, h, w))
               : T(0);
  };
  if constexpr (nhwc) {
    for (int i = int(threadIdx.y); i < tile; i += tile_rows)
      store_shared(&staged[lane][i], load(point + i, c0 + lane));
    __syncthreads();
  }
  if (point + lane >= grid) return;
  for (int c = int(threadIdx.y); c < tile && c0 + c < channels; c += tile_rows) {
    if constexpr (nhwc)
      store_global(to + std::int64_t(c) * grid + lane, load_shared<T>(&staged[c][lane]));
    else
      store_global(to + std::int64_t(c) * grid + lane, load(point + lane, c0 + c));
  }
}

// The inverse of pad: the image's element (h, w) is the grid's at (h + shift_h, w + shift_w),
// wrapped. A block takes 32 pixels of 32 channels.
template <class T, bool nhwc>
__global__ void __launch_bounds__(tile* tile_rows)
    crop(Image image, const T* planes, int channels, int grid_h, int grid_w, int shift_h,
         int shift_w, T scale, OutputEpilogue<T> epilogue) {
  SHARED(T, staged, [nhwc ? tile : 1][tile + 1]);
  const int pixels = image.h * image.w, pixel = int(blockIdx.x) * tile;
  const int c0 = int(blockIdx.y) * tile, n = int(blockIdx.z), lane = int(threadIdx.x);
  const int mine = pixel + lane, h = mine / image.w, w = mine % image.w;
  int row = h + shift_h, column = w + shift_w;
  row += row < 0 ? grid_h : row >= grid_h ? -grid_h : 0;
  column += column < 0 ? grid_w : column >= grid_w ? -grid_w : 0;
  const std::int64_t grid = std::int64_t(grid_h) * grid_w;
  const T* const from =
      planes + (std::int64_t(n) * channels + c0) * grid + std::int64_t(row) * grid_w + column;
  for (int c = int(threadIdx.y); c < tile && c0 + c < image.c; c += tile_rows) {
    if (mine >= pixels) break;
    if constexpr (nhwc)
      store_shared(&staged[lane][c], load_global<T>(from + c * grid));
    else
      epilogue.store(n * image.image + h * image.row + w + std::int64_t(c0 + c) * image.channel,
                     c0 + c, scale * load_global<T>(from + c * grid));
  }
  if constexpr (nhwc) {
    __syncthreads();
    if (c0 + lane >= image.c) return;
    for (int i = int(threadIdx.y); i < tile && pixel + i < pixels; i += tile_rows)
      epilogue.store(n * image.image + std::int64_t(pixel + i) * image.column + c0 + lane,
                     c0 + lane, scale * load_shared<T>(&staged[i][lane]));
  }
}

// to[columns][rows] = from[rows][columns].
template <class T>
__global__ void __launch_bounds__(tile* tile_rows)
    transpose(const Complex<T>* from, std::int64_t rows, std::int64_t columns, Complex<T>* to) {
  SHARED(Complex<T>, staged, [tile][tile + 1]);
  const std::int64_t across = (columns + tile - 1) / tile;
  const std::int64_t row = blockIdx.x / across * tile, column = blockIdx.x % across * tile;
  const int lane = int(threadIdx.x);
  for (int i = int(threadIdx.y); i < tile && row + i < rows; i += tile_rows)
    if (column + lane < columns)
      store_shared(&staged[i][lane], from[(row + i) * columns + column + lane]);
  __syncthreads();
  for (int i = int(threadIdx.y); i < tile && column + i < columns; i += tile_rows)
    if (row + lane < rows)
      store_global(to + (column + i) * rows + row + lane,
                   load_shared<Complex<T>>(&staged[lane][i]));
}

// to[u][v][filter] = sum over r and s of w[filter][r][s] exp(-2 pi i (u r / grid_h + v s /
// grid_w)). A block takes one v and 32 of the K C filters; those from `existing` on are zero. It
// sums over s first, once for all u.
template <class T>
__global__ void __launch_bounds__(tile* tile_rows)
    filter_spectra(const T* w, std::int64_t existing, std::int64_t filters, int R, int S,
                   int grid_h, int grid_w, double turn_h, double turn_w, Complex<T>* to) {
  SHARED_DYN(Complex<T>, roots_h);
  Complex<T>* const roots_w = roots_h + grid_h;
  Complex<T>* const rows = roots_w + S;  // [r][filter]
  const int lane = int(threadIdx.x), v = int(blockIdx.y), half_w = grid_w / 2 + 1;
  const int thread = int(threadIdx.y) * tile + lane;
  for (int j = thread; j < grid_h + S; j += tile * tile_rows) {
    double sin, cos;  // of 2 pi times j / grid_h, then s v / grid_w
    sincospi(j < grid_h ? j * turn_h : (j - grid_h) * v % grid_w * turn_w, &sin, &cos);
    roots_h[j] = {T(cos), T(-sin)};
  }
  __syncthreads();
  const std::int64_t filter = std::int64_t(blockIdx.x) * tile + lane;
  for (int r = int(threadIdx.y); r < R; r += tile_rows) {
    Complex<T> sum{0, 0};
    if (filter < existing)
      for (int s = 0; s < S; ++s) {
        const T value = w[(filter * R + r) * S + s];
        sum.re += value * roots_w[s].re;
        sum.im += value * roots_w[s].im;
      }
    rows[r * tile + lane] = sum;
  }
  __syncthreads();
  if (filter >= filters) return;
  for (int u = int(threadIdx.y); u < grid_h; u += tile_rows) {
    Complex<T> sum{0, 0};
    for (int r = 0, j = 0; r < R; ++r) {
      const Complex<T> a = rows[r * tile + lane], b = roots_h[j];
      sum.re += a.re * b.re - a.im * b.im;
      sum.im += a.re * b.im + a.im * b.re;
      j += u;
      if (j >= grid_h) j -= grid_h;
    }
    to[(std::int64_t(u) * half_w + v) * filters + filter] = sum;
  }
}

// Of a block of filter_spectra.
std::int64_t filter_spectra_bytes(std::int64_t grid_h, std::int64_t r, std::int64_t s,
                                  DType dtype) {
  return (grid_h + s + r * tile) * 2 * size_of(dtype);
}

// The least even 2^a 3^b 5^c 7^d that is no smaller: the sizes that cuFFT is fast at.
std::int64_t good_size(std::int64_t least) {
  for (std::int64_t size = round_up(least, 2);; size += 2) {
    std::int64_t rest = size;
    for (const int prime : {2, 3, 5, 7})
      while (rest % prime == 0) rest /= prime;
    if (rest == 1) return size;
  }
}

// The padded grid of a problem.
struct Grid {
  TensorDesc from, to;  // the transformed tensor (in backward_filter x), and the result
  std::int64_t h, w, frequencies;

  explicit Grid(const ConvProblem& p) {
    from = p.pass == Pass::backward_data ? p.y_desc() : p.x_desc();
    to = p.pass == Pass::forward         ? p.y_desc()
         : p.pass == Pass::backward_data ? p.x_desc()
                                         : TensorDesc{p.k, p.c, p.r, p.s, Layout::nchw};
    h = good_size(std::max({p.h + std::max(p.pad_h, p.pad_bottom()), p.h, p.p, p.r}));
    w = good_size(std::max({p.w + std::max(p.pad_w, p.pad_right()), p.w, p.q, p.s}));
    frequencies = h * (w / 2 + 1);
  }
  std::int64_t spectrum_bytes(DType dtype) const { return frequencies * 2 * size_of(dtype); }
};

// The most images and filters at a time for which each of the spectra in flight takes `bytes`.
Config chunks(const ConvProblem& p, std::int64_t bytes, MathType math) {
  const std::int64_t spectra = bytes / Grid(p).spectrum_bytes(p.dtype);
  const auto even = [](std::int64_t all, std::int64_t most) {
    return ceil_div(all, ceil_div(all, std::clamp<std::int64_t>(most, 1, all)));
  };
  constexpr std::int64_t most_images = 65535;  // blockIdx.z
  return with_math({{"images", even(p.n, std::min(spectra / std::max(p.c, p.k), most_images))},
                    {"filters", even(p.k, std::min(spectra / p.c, most_images))}},
                   p.dtype, math);
}

template <class T>
class FftPlan final : public ConvPlan {
 public:
  FftPlan(const ConvProblem& problem, const Config& config, Device& device)
      : problem_(problem),
        grid_(problem),
        images_(config.get("images")),
        filters_(config.get("filters")),
        math_(math_type(config, problem.dtype, library_math_types)) {
    const auto bytes = [&](std::int64_t items) {
      return round_up(items * grid_.spectrum_bytes(problem_.dtype), 256);
    };
    const auto fft = [&](std::int64_t items) {
      return make_fft2d(problem_.dtype, grid_.h, grid_.w, items, device);
    };
    const std::int64_t x = images_ * problem.c, y = images_ * filters_, w = filters_ * problem.c;
    const std::int64_t in = is(Pass::backward_data) ? y : x;
    const std::int64_t dy = is(Pass::backward_filter) ? y : 0;
    const std::int64_t out = is(Pass::forward) ? y : is(Pass::backward_data) ? x : w;
    in_fft_ = fft(in);
    out_fft_ = fft(out);
    if (dy > 0) dy_fft_ = fft(dy);
    // Two areas that the steps read and write alternately; then the one that is kept from chunk to
    // chunk of K, the spectra of x or the sum; then the filters' spectra.
    const bool chunked = !packs();
    const bool in_stays = chunked && !is(Pass::backward_data);
    const bool out_stays = chunked && !is(Pass::forward);
    const auto take = [&](std::int64_t items) {
      return std::exchange(scratch_, scratch_ + bytes(items));
    };
    take(std::max({in, dy, out}));
    pong_ = take(std::max({in, dy, out_stays ? 0 : out}));
    in_ = in_stays ? take(in) : 0;
    out_ = out_stays ? take(out) : pong_;
    if (chunked && !is(Pass::backward_filter)) w_ = take(w);
    scratch_bytes_ = std::max({in_fft_->workspace_bytes(), out_fft_->workspace_bytes(),
                               dy_fft_ ? dy_fft_->workspace_bytes() : 0});
  }

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(scratch_) + scratch_bytes_;
  }
  std::size_t packed_filter_bytes() const noexcept override {
    if (!packs()) return 0;
    return std::size_t(problem_.k * problem_.c * grid_.spectrum_bytes(problem_.dtype));
  }

  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    transform_filters(w.data(), 0, packed.data(), stream);
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    const Run run{args, workspace, stream};
    switch (problem_.pass) {
      case Pass::forward:
        return forward(run);
      case Pass::backward_data:
        return backward_data(run);
      case Pass::backward_filter:
        return backward_filter(run);
    }
  }

 private:
  struct Run {
    const ConvArgs& args;
    Workspace workspace;
    Stream& stream;
    std::byte* at(std::int64_t offset) const { return workspace.data() + offset; }
  };

  bool is(Pass pass) const { return problem_.pass == pass; }
  bool packs() const { return !is(Pass::backward_filter) && filters_ == problem_.k; }

  void forward(const Run& run) const {
    Gemm g = product();
    g.m = images_;
    g.n = g.ldc = filters_;
    g.k = g.lda = g.ldb = problem_.c;
    g.transpose_b = g.conjugate_b = true;
    for (std::int64_t n = 0; n < problem_.n; n += images_) {
      run_phase(run.args.phases, 0, run.stream, [&] {
        spectra(run, *in_fft_, run.args.x, problem_.x_desc(), n, 0, problem_.c, in_);
      });
      for (std::int64_t k = 0; k < problem_.k; k += filters_) {
        multiply_by_filters(run, g, k, 0);
        run_phase(run.args.phases, 2, run.stream, [&] { write(run, n, k, images_, filters_); });
      }
    }
  }

  void backward_data(const Run& run) const {
    Gemm g = product();
    g.m = images_;
    g.n = g.ldb = g.ldc = problem_.c;
    g.k = g.lda = filters_;
    for (std::int64_t n = 0; n < problem_.n; n += images_) {
      for (std::int64_t k = 0; k < problem_.k; k += filters_) {
        run_phase(run.args.phases, 0, run.stream, [&] {
          spectra(run, *in_fft_, run.args.dy, problem_.y_desc(), n, k, filters_, in_);
        });
        multiply_by_filters(run, g, k, k > 0 ? 1 : 0);
      }
      run_phase(run.args.phases, 2, run.stream, [&] { write(run, n, 0, images_, problem_.c); });
    }
  }

  void backward_filter(const Run& run) const {
    Gemm g = product();
    g.m = g.lda = filters_;
    g.n = g.ldb = g.ldc = problem_.c;
    g.k = images_;
    g.transpose_a = g.conjugate_a = true;
    for (std::int64_t k = 0; k < problem_.k; k += filters_) {
      for (std::int64_t n = 0; n < problem_.n; n += images_) {
        run_phase(run.args.phases, 0, run.stream, [&] {
          if (k == 0 || images_ < problem_.n)
            spectra(run, *in_fft_, run.args.x, problem_.x_desc(), n, 0, problem_.c, in_);
          spectra(run, *dy_fft_, run.args.dy, problem_.y_desc(), n, k, filters_, 0);
        });
        run_phase(run.args.phases, 1, run.stream,
                  [&] { multiply(run, g, run.at(0), run.at(in_), n > 0 ? 1 : 0); });
      }
      run_phase(run.args.phases, 2, run.stream, [&] { write(run, k, 0, filters_, problem_.c); });
    }
  }

  // Multiplies by the spectra of filters from k on, packed or computed on the fly.
  void multiply_by_filters(const Run& run, const Gemm& g, std::int64_t k, double beta) const {
    const void* filters = run.args.w;
    if (!packs())
      run_phase(run.args.phases, 0, run.stream, [&] {
        transform_filters(run.args.w, k, run.at(w_), run.stream);
        filters = run.at(w_);
      });
    run_phase(run.args.phases, 1, run.stream,
              [&] { multiply(run, g, run.at(in_), filters, beta); });
  }

  // [frequency][k, c] for filters from k on.
  void transform_filters(const void* w, std::int64_t k, std::byte* to, Stream& stream) const {
    const std::int64_t filters = filters_ * problem_.c;
    launch(filter_spectra<T>, dim3(unsigned(ceil_div(filters, tile)), unsigned(grid_.w / 2 + 1)),
           dim3(tile, tile_rows),
           std::size_t(filter_spectra_bytes(grid_.h, problem_.r, problem_.s, problem_.dtype)),
           stream, static_cast<const T*>(w) + k * problem_.c * problem_.r * problem_.s,
           std::min(filters_, problem_.k - k) * problem_.c, filters, int(problem_.r),
           int(problem_.s), int(grid_.h), int(grid_.w), 2.0 / double(grid_.h),
           2.0 / double(grid_.w), reinterpret_cast<Complex<T>*>(to));
  }

  Gemm product() const {
    return {.dtype = problem_.dtype, .complex = true, .math = math_, .batch = grid_.frequencies};
  }
  void multiply(const Run& run, Gemm g, const void* a, const void* b, double beta) const {
    g.stride_a = g.m * g.k, g.stride_b = g.n * g.k, g.stride_c = g.m * g.n;
    gemm(g, 1, a, b, beta, run.at(out_), run.stream);
  }

  // The spectra of images from n on, `channels` channels from c on, as [frequency][image][channel]
  // at `to`: the first area, or one after both.
  void spectra(const Run& run, const Fft2d& fft, const void* data, const TensorDesc& desc,
               std::int64_t n, std::int64_t c, std::int64_t channels, std::int64_t to) const {
    const Image image(desc, std::min(images_, desc.n - n), std::min(channels, desc.c - c));
    T* const planes = reinterpret_cast<T*>(run.at(0));
    launch(desc.layout == Layout::nhwc ? pad<T, true> : pad<T, false>,
           dim3(unsigned(ceil_div(grid_.h * grid_.w, tile)), unsigned(ceil_div(channels, tile)),
                unsigned(images_)),
           dim3(tile, tile_rows), 0, run.stream, image,
           static_cast<const T*>(data) + desc.offset(n, c, 0, 0), int(channels), int(grid_.h),
           int(grid_.w), planes);
    fft.forward(planes, run.at(pong_), scratch(run), run.stream);
    transpose_spectra(run, pong_, images_ * channels, grid_.frequencies, to);
  }

  void transpose_spectra(const Run& run, std::int64_t from, std::int64_t rows, std::int64_t columns,
                         std::int64_t to) const {
    launch(transpose<T>, dim3(unsigned(ceil_div(rows, tile) * ceil_div(columns, tile))),
           dim3(tile, tile_rows), 0, run.stream, reinterpret_cast<Complex<T>*>(run.at(from)), rows,
           columns, reinterpret_cast<Complex<T>*>(run.at(to)));
  }

  // Inverts the result's spectra in their area, and crops them to `images` images of the output
  // from n on, `channels` channels from c on.
  void write(const Run& run, std::int64_t n, std::int64_t c, std::int64_t images,
             std::int64_t channels) const {
    const int sign = is(Pass::backward_data) ? 1 : -1;
    const TensorDesc& to = grid_.to;
    transpose_spectra(run, out_, grid_.frequencies, images * channels, 0);
    out_fft_->inverse(run.at(0), run.at(out_), scratch(run), run.stream);
    const Image image(to, std::min(images, to.n - n), std::min(channels, to.c - c));
    const auto epilogue = output_epilogue<T>(problem_.epilogue, problem_.accumulate, run.args,
                                             to.offset(n, c, 0, 0), c);
    launch(to.layout == Layout::nhwc ? crop<T, true> : crop<T, false>,
           dim3(unsigned(ceil_div(to.h * to.w, tile)), unsigned(ceil_div(image.c, tile)),
                unsigned(image.n)),
           dim3(tile, tile_rows), 0, run.stream, image, reinterpret_cast<const T*>(run.at(out_)),
           int(channels), int(grid_.h), int(grid_.w), sign * int(problem_.pad_h),
           sign * int(problem_.pad_w), T(1) / T(grid_.h * grid_.w), epilogue);
  }

  Workspace scratch(const Run& run) const { return {run.at(scratch_), scratch_bytes_}; }

  const ConvProblem problem_;
  const Grid grid_;
  const std::int64_t images_, filters_;
  const MathType math_;
  std::unique_ptr<Fft2d> in_fft_, dy_fft_, out_fft_;
  // Offsets of the workspace's areas; the first is at 0.
  std::int64_t pong_ = 0, in_ = 0, out_ = 0, w_ = 0, scratch_ = 0;
  std::size_t scratch_bytes_ = 0;
};

class Fft final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "fft",
                               .version = 3,
                               .device = DeviceKind::cuda,
                               .origin = Origin::own,
                               .summary = "whole-image FFT (cuFFT), complex products (cuBLAS)",
                               .libraries = {"cublas", "cufft"}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
    if (auto refusal = refuse_all_but_relu(p)) return refusal;
    if (auto refusal = refuse_all_but_dense(p)) return refusal;
    if (auto refusal = refuse_blocked_layouts(p)) return refusal;
    // filter_spectra holds a column's roots and the rows of 32 filters in shared memory; positions
    // within a grid are counted in int, channels by 32 in blockIdx.y.
    constexpr std::int64_t longest = 4096, most_taps = 200, most_channels = 1 << 16;
    if (std::max(p.r, p.s) > most_taps)
      return Refusal{Field::filter, fmt::format("filters of at most {0}x{0}", most_taps),
                     extent(p.r, p.s)};
    if (std::max({p.h, p.w, p.p, p.q}) > longest)
      return Refusal{Field::image, fmt::format("images of at most {0}x{0}", longest),
                     extent(std::max(p.h, p.p), std::max(p.w, p.q))};
    if (const Grid grid(p); std::max(grid.h, grid.w) > longest)
      return Refusal{Field::image, fmt::format("padded images of at most {0}x{0}", longest),
                     extent(grid.h, grid.w)};
    if (std::max(p.c, p.k) > most_channels)
      return Refusal{Field::channels, fmt::format("at most {} channels", most_channels),
                     std::to_string(std::max(p.c, p.k))};
    if (p.pass != Pass::backward_filter)
      if (auto refusal = refuse_shared_memory(filter_spectra_bytes(Grid(p).h, p.r, p.s, p.dtype),
                                              device.info()))
        return refusal;
    return refuse_missing_libraries(info());
  }

  // Spectra of 256 MB keep the card busy; with 16 MB a run's working set stays in L2; the last
  // config takes all of the memory.
  std::vector<Config> configs(const ConvProblem& p, Device&) const override {
    std::vector<Config> configs;
    const auto add = [&](std::int64_t bytes, MathType math) {
      Config config = chunks(p, bytes, math);
      if (std::find(configs.begin(), configs.end(), config) == configs.end())
        configs.push_back(std::move(config));
    };
    for (const MathType math : {MathType::f32, MathType::tf32})
      if (math == MathType::f32 || p.dtype == DType::f32)
        for (const std::int64_t megabytes : {256, 16, 2048}) add(megabytes << 20, math);
    return configs;
  }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device&) const override {
    const Grid grid(p);
    const double points = double(grid.h * grid.w), spectrum = double(grid.spectrum_bytes(p.dtype));
    const double transform = 2.5 * points * std::log2(points);
    const bool filter_pass = p.pass == Pass::backward_filter;
    const double image_chunks = double(ceil_div(p.n, config.get("images")));
    const double filter_chunks = double(ceil_div(p.k, config.get("filters")));
    const double x = double(p.n * p.c), y = double(p.n * p.k), w = double(p.k * p.c);
    // Items transformed, read and written by the product, and filters transformed on the fly.
    double in = x, in_bytes = double(p.x_bytes()), read = 0, written = 0, out = 0, filters = 0;
    if (!filter_pass && filter_chunks > 1) filters = image_chunks * w;
    if (p.pass == Pass::forward) {
      out = written = y;
      read = filter_chunks * x + image_chunks * w;
    } else if (p.pass == Pass::backward_data) {
      in = y, in_bytes = double(p.y_bytes()), out = x;
      written = filter_chunks * x;
      read = y + image_chunks * w + (filter_chunks - 1) * x;
    } else {
      // x is transformed again for each chunk of filters, unless its spectra all fit.
      const double again = image_chunks > 1 ? filter_chunks : 1;
      in = again * x + y, in_bytes = again * in_bytes + double(p.y_bytes()), out = w;
      written = image_chunks * w;
      read = filter_chunks * x + y + (image_chunks - 1) * w;
    }
    const double filter_flops =
        double(grid.w / 2 + 1) * (4.0 * double(p.r * p.s) + 8.0 * double(grid.h * p.r));
    // Each transform crosses memory padded, as a spectrum, and transposed.
    WorkEstimate estimate;
    estimate.phases.push_back(
        {"input_fft", in * transform + filters * filter_flops,
         in_bytes + 2 * in * spectrum + filters * double(p.r * p.s * size_of(p.dtype)),
         (3 * in + filters) * spectrum, 0.04});
    estimate.phases.push_back({"product", 4 * spectrum / double(size_of(p.dtype)) * double(p.n) * w,
                               read * spectrum, written * spectrum, 0.4});
    estimate.phases.push_back({"output_ifft", out * transform, 3 * out * spectrum,
                               2 * out * spectrum + double(p.output_bytes()), 0.04});
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    const auto expect = [&](const char* key, std::int64_t most) {
      const std::int64_t value = config.get(key);
      if (value < 1 || value > most)
        throw InputError(fmt::format("fft: {}={}: expected 1 to {}", key, value, most));
    };
    config.require_only({"images", "filters", "math"});
    expect("images", std::min<std::int64_t>(p.n, 65535));
    expect("filters", std::min<std::int64_t>(p.k, 65535));
    if (p.dtype == DType::f64) return std::make_unique<FftPlan<double>>(p, config, device);
    return std::make_unique<FftPlan<float>>(p, config, device);
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_fft() { return std::make_unique<Fft>(); }

}  // namespace convlab::cuda
