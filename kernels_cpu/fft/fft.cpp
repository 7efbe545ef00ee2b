// Convolution by whole-image FFT, with FFTW.
//
// Every pass is a cyclic correlation out[u] = sum_j a[u + j] b[j] on a grid of padded sizes, hence
// a product of spectra, OUT = A conj(B), summed over one dimension of the problem:
//   forward          y[n,k]  over c: a = x,  b = w,           y at row p is u = p - pad_h
//   backward_data    dx[n,c] over k: a = dy, b = w reversed,  dx at row h is u = h + pad_h
//   backward_filter  dw[k,c] over n: a = x,  b = dy,          dw at row r is u = r - pad_h
// Zero padding may wrap: row -1 is the grid's last row, and one strip of zeros serves both edges.
// So a grid of H + max(pad above, pad below) rows has no aliasing, in every pass.
//
// The spectra of real images are Hermitian; half is kept. For each frequency the product is a
// complex matrix product. It runs on SIMD over frequencies, with spectra stored split as
// [frequency block][row][depth][re, im][lane], so that no operand needs a broadcast or shuffle,
// and one image or one channel is enough to fill the vectors. A transform's result is a contiguous
// chunk of each frequency block.
//
// Mathieu, Henaff, LeCun 2013 (arXiv:1312.5851).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/fft/fft.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>

#ifndef CONVLAB_KERNELS_CPU_FFT_CPP_
#define CONVLAB_KERNELS_CPU_FFT_CPP_

namespace convlab::cpu {

// out[i, j] (+)= sum over l of a[i, l] conj(b[j, l]) for j in [j_begin, j_end), one block of
// frequencies. Strides count spectral elements: one vector of re and one of im.
template <class T>
struct SpectralProduct {
  const T* a;
  const T* b;
  T* out;
  std::int64_t rows, j_begin, j_end, depth;
  std::int64_t out_i, out_j;
  bool accumulate;
};

// The SIMD code for one element type on the instruction set in force.
template <class T>
struct SpectralKernels {
  void (*product)(const SpectralProduct<T>&);
  // Interleaved complex numbers, as FFTW has them, to and from one element of each of `blocks`
  // frequency blocks, which are `stride` scalars apart.
  void (*split)(const T* from, std::int64_t blocks, T* to, std::int64_t stride);
  void (*merge)(const T* from, std::int64_t stride, std::int64_t blocks, T* to);
};

}  // namespace convlab::cpu

#endif

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int kLanes = HWY_LANES(T);

// Register tile: 3x3 complex accumulators, 3 + 1 operands on 32 registers; 2x2 on 16.
constexpr int kTile = HWY_TARGET == HWY_AVX3 ? 3 : 2;
// Depth that keeps a tile's rows of a and b in L1 (3 + 3 rows of 64 x 128 bytes).
constexpr std::int64_t kDepthBlock = 64;

template <int I, int J, class T>
HWY_INLINE void ProductTile(const SpectralProduct<T>& p, std::int64_t i0, std::int64_t j0,
                            std::int64_t l0, std::int64_t l1) {
  using V = hn::Vec<Tag<T>>;
  const Tag<T> d;
  constexpr int kPair = 2 * kLanes<T>;
  const bool add = p.accumulate || l0 > 0;
  const T* a = p.a + (i0 * p.depth + l0) * kPair;
  const T* b = p.b + (j0 * p.depth + l0) * kPair;
  T* const out = p.out + (i0 * p.out_i + j0 * p.out_j) * kPair;
  V re[I][J], im[I][J];
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) {
      const T* const at = out + (i * p.out_i + j * p.out_j) * kPair;
      re[i][j] = add ? hn::Load(d, at) : hn::Zero(d);
      im[i][j] = add ? hn::Load(d, at + kLanes<T>) : hn::Zero(d);
    }
  for (std::int64_t l = l0; l < l1; ++l, a += kPair, b += kPair) {
    V ar[I], ai[I];
    for (int i = 0; i < I; ++i) {
      ar[i] = hn::Load(d, a + i * p.depth * kPair);
      ai[i] = hn::Load(d, a + i * p.depth * kPair + kLanes<T>);
    }
    for (int j = 0; j < J; ++j) {
      const V br = hn::Load(d, b + j * p.depth * kPair);
      const V bi = hn::Load(d, b + j * p.depth * kPair + kLanes<T>);
      for (int i = 0; i < I; ++i) {
        re[i][j] = hn::MulAdd(ai[i], bi, hn::MulAdd(ar[i], br, re[i][j]));
        im[i][j] = hn::NegMulAdd(ar[i], bi, hn::MulAdd(ai[i], br, im[i][j]));
      }
    }
  }
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) {
      T* const at = out + (i * p.out_i + j * p.out_j) * kPair;
      hn::Store(re[i][j], d, at);
      hn::Store(im[i][j], d, at + kLanes<T>);
    }
}

// All rows times J columns; smaller tiles take the rows that full tiles of I rows leave.
template <int I, int J, class T>
HWY_INLINE void ProductColumns(const SpectralProduct<T>& p, std::int64_t i, std::int64_t j,
                               std::int64_t l0, std::int64_t l1) {
  for (; i + I <= p.rows; i += I) ProductTile<I, J>(p, i, j, l0, l1);
  if constexpr (I > 1) ProductColumns<I - 1, J>(p, i, j, l0, l1);
}

template <int J, class T>
HWY_INLINE void ProductDepth(const SpectralProduct<T>& p, std::int64_t j, std::int64_t l0,
                             std::int64_t l1) {
  for (; j + J <= p.j_end; j += J) ProductColumns<kTile, J>(p, 0, j, l0, l1);
  if constexpr (J > 1) ProductDepth<J - 1>(p, j, l0, l1);
}

template <class T>
void Product(const SpectralProduct<T>& p) {
  for (std::int64_t l = 0; l < p.depth; l += kDepthBlock)
    ProductDepth<kTile>(p, p.j_begin, l, l + kDepthBlock < p.depth ? l + kDepthBlock : p.depth);
}

template <class T>
void Split(const T* from, std::int64_t blocks, T* to, std::int64_t stride) {
  const Tag<T> d;
  for (std::int64_t f = 0; f < blocks; ++f, from += 2 * kLanes<T>, to += stride) {
    hn::Vec<Tag<T>> re, im;
    hn::LoadInterleaved2(d, from, re, im);
    hn::Store(re, d, to);
    hn::Store(im, d, to + kLanes<T>);
  }
}

template <class T>
void Merge(const T* from, std::int64_t stride, std::int64_t blocks, T* to) {
  const Tag<T> d;
  for (std::int64_t f = 0; f < blocks; ++f, from += stride, to += 2 * kLanes<T>)
    hn::StoreInterleaved2(hn::Load(d, from), hn::Load(d, from + kLanes<T>), d, to);
}

template <class T>
constexpr SpectralKernels<T> kKernels{&Product<T>, &Split<T>, &Merge<T>};

const SpectralKernels<float>& KernelsF32() { return kKernels<float>; }
const SpectralKernels<double>& KernelsF64() { return kKernels<double>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <fftw3.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <type_traits>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/epilogue.h"

namespace convlab::cpu {
namespace {

HWY_EXPORT(KernelsF32);
HWY_EXPORT(KernelsF64);

template <class T>
const SpectralKernels<T>& spectral_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(KernelsF32)();
  else
    return HWY_DYNAMIC_DISPATCH(KernelsF64)();
}

// FFTW's planner keeps global state; executing a plan on other arrays does not.
std::mutex& planner_lock() {
  static std::mutex lock;
  return lock;
}
// Seconds that FFTW_MEASURE may take for one plan.
constexpr double planning_seconds = 0.2;

// FFTW has one set of names for each element type.
template <class T>
struct Fftw;

template <>
struct Fftw<float> {
  using Plan = fftwf_plan;
  using Complex = fftwf_complex;
  static constexpr auto set_timelimit = fftwf_set_timelimit;
  static constexpr auto plan_r2c = fftwf_plan_dft_r2c_2d;
  static constexpr auto plan_c2r = fftwf_plan_dft_c2r_2d;
  static constexpr auto execute_r2c = fftwf_execute_dft_r2c;
  static constexpr auto execute_c2r = fftwf_execute_dft_c2r;
  static constexpr auto destroy = fftwf_destroy_plan;
};

template <>
struct Fftw<double> {
  using Plan = fftw_plan;
  using Complex = fftw_complex;
  static constexpr auto set_timelimit = fftw_set_timelimit;
  static constexpr auto plan_r2c = fftw_plan_dft_r2c_2d;
  static constexpr auto plan_c2r = fftw_plan_dft_c2r_2d;
  static constexpr auto execute_r2c = fftw_execute_dft_r2c;
  static constexpr auto execute_c2r = fftw_execute_dft_c2r;
  static constexpr auto destroy = fftw_destroy_plan;
};

// The least 2^a 3^b 5^c 7^d that is no smaller: the sizes that FFTW is fast at.
std::int64_t good_size(std::int64_t least) {
  for (;; ++least) {
    std::int64_t rest = least;
    for (const int prime : {2, 3, 5, 7})
      while (rest % prime == 0) rest /= prime;
    if (rest == 1) return least;
  }
}

// Everything about one problem that follows from its sizes and the vector length.
struct Shape {
  std::int64_t grid_h, grid_w, half_w;  // half_w = grid_w / 2 + 1 columns of the spectrum are kept
  std::int64_t lanes, blocks;           // of frequencies
  std::int64_t rows, filters, depth;    // the product is [rows, depth] x [filters, depth]
  std::int64_t images;                  // transformed at a time

  Shape(const ConvProblem& p, const DeviceInfo& device) {
    grid_h = good_size(std::max({p.h + std::max(p.pad_h, p.pad_bottom()), p.h, p.p, p.r}));
    grid_w = good_size(std::max({p.w + std::max(p.pad_w, p.pad_right()), p.w, p.q, p.s}));
    half_w = grid_w / 2 + 1;
    lanes = device.vector_bytes / size_of(p.dtype);
    blocks = ceil_div(grid_h * half_w, lanes);
    // If the spectra of activations exceed this, a few images are processed at a time.
    constexpr std::int64_t spectra_bytes = 256 << 20;
    const std::int64_t image_bytes = (p.c + p.k) * blocks * lanes * 2 * size_of(p.dtype);
    images = std::clamp<std::int64_t>(spectra_bytes / image_bytes, 1, p.n);
    images = ceil_div(p.n, ceil_div(p.n, images));
    const bool filter_pass = p.pass == Pass::backward_filter;
    rows = filter_pass ? p.c : images;
    filters = p.pass == Pass::backward_data ? p.c : p.k;
    depth = filter_pass ? images : p.pass == Pass::forward ? p.c : p.k;
  }

  std::int64_t grid() const { return grid_h * grid_w; }
  // Scalars in one spectrum, all blocks.
  std::int64_t spectrum() const { return blocks * lanes * 2; }
  // Scalars from one frequency block to the next for a set of spectra: an odd number of elements,
  // since powers of two would put all blocks of one spectrum into the same cache set.
  std::int64_t stride(std::int64_t spectra) const { return (spectra | 1) * lanes * 2; }
};

template <class T>
class FftPlan final : public ConvPlan {
  using Library = Fftw<T>;

 public:
  FftPlan(const ConvProblem& problem, bool measure, Device& device)
      : problem_(problem), device_(device), shape_(problem, device.info()) {
    threads_ = device.info().threads;
    const Buffer scratch = device.allocate(scratch_size() * sizeof(T));
    const unsigned flags = (measure ? FFTW_MEASURE : FFTW_ESTIMATE) | FFTW_DESTROY_INPUT;
    T* const plane = scratch.as<T>();
    const int h = static_cast<int>(shape_.grid_h), w = static_cast<int>(shape_.grid_w);
    const std::lock_guard<std::mutex> guard(planner_lock());
    Library::set_timelimit(planning_seconds);
    r2c_ = Library::plan_r2c(h, w, plane, as_complex(plane + plane_size()), flags);
    c2r_ = Library::plan_c2r(h, w, as_complex(plane + plane_size()), plane, flags);
    if (r2c_ == nullptr || c2r_ == nullptr)
      throw EnvironmentError(fmt::format("FFTW cannot plan a {}x{} transform", h, w));
  }
  ~FftPlan() override {
    const std::lock_guard<std::mutex> guard(planner_lock());
    Library::destroy(r2c_);
    Library::destroy(c2r_);
  }

  std::size_t workspace_bytes() const noexcept override {
    return (a_size() + b_size() + out_size() + threads_ * scratch_size()) * sizeof(T);
  }
  std::size_t packed_filter_bytes() const noexcept override {
    if (problem_.pass == Pass::backward_filter) return 0;
    return shape_.blocks * shape_.stride(problem_.k * problem_.c) * sizeof(T);
  }

  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    const std::int64_t count = problem_.k * problem_.c, taps = problem_.r * problem_.s;
    const T* const from = reinterpret_cast<const T*>(w.data());
    T* const to = reinterpret_cast<T*>(packed.data());
    const Buffer scratch = device_.allocate(threads_ * scratch_size() * sizeof(T));
    const bool transposed = problem_.pass == Pass::backward_data;
#pragma omp parallel num_threads(threads_)
    {
      const Scratch my = my_scratch(scratch.as<T>());
#pragma omp for
      for (std::int64_t i = 0; i < count; ++i) {
        place_filter(from + i * taps, my.plane);
        const std::int64_t k = i / problem_.c, c = i % problem_.c;
        transform(my, to, transposed ? c * problem_.k + k : i, count);
      }
    }
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    T* const a = reinterpret_cast<T*>(workspace.data());
    T* const b = a + a_size();
    T* const out = b + b_size();
    const bool filter_pass = problem_.pass == Pass::backward_filter;
#pragma omp parallel num_threads(threads_)
    {
      const Scratch my = my_scratch(out + out_size());
      for (std::int64_t n = 0; n < problem_.n; n += shape_.images) {
        const std::int64_t images = std::min(shape_.images, problem_.n - n);
        {
          const PhaseScope scope(args.phases, 0);
          if (problem_.pass == Pass::backward_data)
            transform_images(args.dy, problem_.y_desc(), n, images, my, a);
          else
            transform_images(args.x, problem_.x_desc(), n, images, my, a);
          if (filter_pass) transform_images(args.dy, problem_.y_desc(), n, images, my, b);
        }
#pragma omp barrier
        {
          const PhaseScope scope(args.phases, 1);
          multiply(a, filter_pass ? b : static_cast<const T*>(args.w), out, images, n > 0);
        }
#pragma omp barrier
        if (!filter_pass) {
          const PhaseScope scope(args.phases, 2);
          if (problem_.pass == Pass::forward)
            write_images(out, problem_.y_desc(), n, images, -problem_.pad_h, -problem_.pad_w, my,
                         args);
          else
            write_images(out, problem_.x_desc(), n, images, problem_.pad_h, problem_.pad_w, my,
                         args);
        }
        // The next chunk's transforms write only `a` and `b`, which are no longer read.
      }
      if (filter_pass) {
        const PhaseScope scope(args.phases, 2);
        write_filter(out, my, static_cast<T*>(args.out));
      }
    }
  }

 private:
  static typename Library::Complex* as_complex(T* data) {
    return reinterpret_cast<typename Library::Complex*>(data);
  }

  struct Scratch {
    T* plane;      // one image on the grid
    T* frequency;  // its spectrum, interleaved
  };

  std::int64_t plane_size() const { return round_up(shape_.grid(), 64); }
  std::int64_t scratch_size() const { return plane_size() + round_up(shape_.spectrum(), 64); }
  std::int64_t a_size() const { return shape_.blocks * shape_.stride(shape_.rows * shape_.depth); }
  std::int64_t b_size() const {
    if (problem_.pass != Pass::backward_filter) return 0;
    return shape_.blocks * shape_.stride(shape_.filters * shape_.depth);
  }
  std::int64_t out_size() const {
    return shape_.blocks * shape_.stride(shape_.rows * shape_.filters);
  }
  Scratch my_scratch(T* all) const {
    T* const mine = all + omp_get_thread_num() * scratch_size();
    return {mine, mine + plane_size()};
  }

  // my.plane -> spectrum `index` of `count`. Overwrites my.plane.
  void transform(const Scratch& my, T* spectra, std::int64_t index, std::int64_t count) const {
    Library::execute_r2c(r2c_, my.plane, as_complex(my.frequency));
    std::fill(my.frequency + 2 * shape_.grid_h * shape_.half_w, my.frequency + shape_.spectrum(),
              T(0));
    kernels_.split(my.frequency, shape_.blocks, spectra + index * 2 * shape_.lanes,
                   shape_.stride(count));
  }
  // The inverse of transform; unnormalised.
  void invert(const T* spectra, std::int64_t index, std::int64_t count, const Scratch& my) const {
    kernels_.merge(spectra + index * 2 * shape_.lanes, shape_.stride(count), shape_.blocks,
                   my.frequency);
    Library::execute_c2r(c2r_, as_complex(my.frequency), my.plane);
  }

  void place_filter(const T* taps, T* plane) const {
    std::fill_n(plane, shape_.grid(), T(0));
    const bool reversed = problem_.pass == Pass::backward_data;
    for (std::int64_t r = 0; r < problem_.r; ++r)
      for (std::int64_t s = 0; s < problem_.s; ++s) {
        const std::int64_t row = reversed ? (shape_.grid_h - r) % shape_.grid_h : r;
        const std::int64_t column = reversed ? (shape_.grid_w - s) % shape_.grid_w : s;
        plane[row * shape_.grid_w + column] = taps[r * problem_.s + s];
      }
  }

  // Called by every thread; no barrier at the end. Spectra are [n][channel], in the filter pass
  // [channel][n].
  void transform_images(const void* data, const TensorDesc& desc, std::int64_t first,
                        std::int64_t images, const Scratch& my, T* spectra) const {
    const bool by_channel = problem_.pass == Pass::backward_filter;
    const std::int64_t row_step = desc.offset(0, 0, 1, 0), step = desc.offset(0, 0, 0, 1);
#pragma omp for collapse(2) nowait
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t c = 0; c < desc.c; ++c) {
        const T* row = static_cast<const T*>(data) + desc.offset(first + n, c, 0, 0);
        T* to = my.plane;
        for (std::int64_t h = 0; h < desc.h; ++h, row += row_step, to += shape_.grid_w) {
          for (std::int64_t w = 0; w < desc.w; ++w) to[w] = row[w * step];
          std::fill(to + desc.w, to + shape_.grid_w, T(0));
        }
        std::fill(to, my.plane + shape_.grid(), T(0));
        transform(my, spectra, by_channel ? c * images + n : n * desc.c + c, images * desc.c);
      }
  }

  // Called by every thread; no barrier at the end.
  void multiply(const T* a, const T* b, T* out, std::int64_t images, bool accumulate) const {
    const bool filter_pass = problem_.pass == Pass::backward_filter;
    const std::int64_t rows = filter_pass ? shape_.rows : images;
    const std::int64_t depth = filter_pass ? images : shape_.depth;
    const std::int64_t filters = shape_.filters;
    // A task is a frequency block and enough filters to use what it reads of `a`.
    constexpr std::int64_t filters_per_task = 48;
#pragma omp for collapse(2) nowait
    for (std::int64_t f = 0; f < shape_.blocks; ++f)
      for (std::int64_t j = 0; j < filters; j += filters_per_task)
        kernels_.product({.a = a + f * shape_.stride(rows * depth),
                          .b = b + f * shape_.stride(filters * depth),
                          .out = out + f * shape_.stride(rows * filters),
                          .rows = rows,
                          .j_begin = j,
                          .j_end = std::min(j + filters_per_task, filters),
                          .depth = depth,
                          .out_i = filter_pass ? 1 : filters,
                          .out_j = filter_pass ? rows : 1,
                          .accumulate = filter_pass && accumulate});
  }

  // Called by every thread; no barrier at the end. Element (i, j) is the grid's at
  // (i + shift_h, j + shift_w), wrapped.
  void write_images(const T* spectra, const TensorDesc& desc, std::int64_t first,
                    std::int64_t images, std::int64_t shift_h, std::int64_t shift_w,
                    const Scratch& my, const ConvArgs& args) const {
    const std::int64_t step = desc.offset(0, 0, 0, 1);
    const OutputEpilogue<T> output = output_epilogue<T>(problem_, args);
    const T scale = T(1) / static_cast<T>(shape_.grid());
#pragma omp for collapse(2) nowait
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t c = 0; c < desc.c; ++c) {
        invert(spectra, n * desc.c + c, images * desc.c, my);
        for (std::int64_t h = 0; h < desc.h; ++h) {
          const T* const from = my.plane + wrap(h + shift_h, shape_.grid_h) * shape_.grid_w;
          const std::int64_t offset = desc.offset(first + n, c, h, 0);
          std::int64_t column = wrap(shift_w, shape_.grid_w);
          const auto next = [&](std::int64_t) {
            const T value = from[column] * scale;
            if (++column == shape_.grid_w) column = 0;
            return value;
          };
          output.store_line(offset, step, desc.w, next, [&](std::int64_t) { return c; });
        }
      }
  }

  void write_filter(const T* spectra, const Scratch& my, T* dw) const {
    const std::int64_t count = problem_.k * problem_.c;
    const T scale = T(1) / static_cast<T>(shape_.grid());
#pragma omp for nowait
    for (std::int64_t i = 0; i < count; ++i) {
      invert(spectra, i, count, my);
      for (std::int64_t r = 0; r < problem_.r; ++r)
        for (std::int64_t s = 0; s < problem_.s; ++s) {
          const T value = scale * my.plane[wrap(r - problem_.pad_h, shape_.grid_h) * shape_.grid_w +
                                           wrap(s - problem_.pad_w, shape_.grid_w)];
          T& to = dw[(i * problem_.r + r) * problem_.s + s];
          to = problem_.accumulate ? to + value : value;
        }
    }
  }

  static std::int64_t wrap(std::int64_t i, std::int64_t size) {
    const std::int64_t rest = i % size;
    return rest < 0 ? rest + size : rest;
  }

  const ConvProblem problem_;
  Device& device_;
  const Shape shape_;
  const SpectralKernels<T>& kernels_ = spectral_kernels<T>();
  int threads_ = 1;
  typename Library::Plan r2c_ = nullptr, c2r_ = nullptr;
};

// How FFTW chooses its plans: by its cost model, or by timing them.
enum class Planner : std::uint8_t { estimate, measure };
constexpr std::array<std::string_view, 2> planner_names{"estimate", "measure"};

bool measures(const Config& config) {
  return config.choice<Planner>("planner", planner_names) == Planner::measure;
}

class Fft final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{
        .id = "fft",
        .version = 2,
        .device = DeviceKind::cpu,
        .origin = Origin::own,
        .summary = "whole-image FFT (FFTW), product on SIMD over frequencies",
        .libraries = {"fftw"}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device&) const override {
    if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
    if (auto refusal = refuse_all_but_dense(p)) return refusal;
    if (auto refusal = refuse_blocked_layouts(p)) return refusal;
    constexpr std::int64_t longest = 1 << 15;  // FFTW counts in int
    if (std::max({p.h, p.w, p.r, p.s, p.p, p.q}) > longest)
      return Refusal{Field::image, fmt::format("images and filters of at most {0}x{0}", longest),
                     extent(std::max({p.h, p.r, p.p}), std::max({p.w, p.s, p.q}))};
    return {};
  }

  // planner=measure lets FFTW time its plans, so that two processes may choose different ones.
  std::vector<Config> configs(const ConvProblem&, Device&) const override {
    return {{{"planner", "estimate"}}, {{"planner", "measure"}}};
  }
  bool deterministic(const ConvProblem&, const Config& config) const override {
    return !measures(config);
  }

  WorkEstimate work(const ConvProblem& p, const Config&, Device& device) const override {
    const Shape shape(p, device.info());
    const double size = double(size_of(p.dtype));
    const double spectrum = double(shape.spectrum()) * size, grid = double(shape.grid());
    const double transform = 2.5 * grid * std::log2(grid);  // FFTW's count for real data
    const bool filter_pass = p.pass == Pass::backward_filter;
    const double x = double(p.n * p.c), y = double(p.n * p.k), w = double(p.k * p.c);
    const double in = filter_pass ? x + y : p.pass == Pass::forward ? x : y;
    const double out = filter_pass ? w : p.pass == Pass::forward ? y : x;
    const double in_bytes = double(filter_pass               ? p.x_bytes() + p.y_bytes()
                                   : p.pass == Pass::forward ? p.x_bytes()
                                                             : p.y_bytes());
    const double chunks = double(ceil_div(p.n, shape.images));
    WorkEstimate estimate;
    // FFTW's share of the FLOP peak on short 2-D transforms: no FMA, shuffles, 256-bit vectors.
    constexpr double fft_efficiency = 0.06;
    estimate.phases.push_back(
        {"input_fft", in * transform, in_bytes, in * spectrum, fft_efficiency});
    estimate.phases.push_back({"product", 4 * double(shape.spectrum()) * double(p.n) * w,
                               (in + (filter_pass ? (chunks - 1) * w : chunks * w)) * spectrum,
                               (filter_pass ? chunks : 1) * out * spectrum, 0.4});
    estimate.phases.push_back(
        {"output_ifft", out * transform, out * spectrum, double(p.output_bytes()), fft_efficiency});
    if (!filter_pass)
      estimate.pack = {"pack_filter", w * transform, double(p.filter_bytes()), w * spectrum,
                       fft_efficiency};
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({"planner"});
    const bool measure = measures(config);
    if (p.dtype == DType::f64) return std::make_unique<FftPlan<double>>(p, measure, device);
    return std::make_unique<FftPlan<float>>(p, measure, device);
  }
};

}  // namespace

std::string fftw_version() { return ::fftwf_version; }

std::unique_ptr<ConvAlgo> make_fft() { return std::make_unique<Fft>(); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
