// Convolution as matrix products with an explicit column matrix:
//   y = W col(x),   col(dx) = W^T dy,   dW = dy col(x)^T,
// where col(x) has a row per tap (c, r, s) of one group and a column per output pixel (p, q).
// Chellapilla et al. 2006; the chunks of output rows, sized so that a chunk's columns are still in
// L2 when the product reads them, keep the R*S-fold copy of x out of memory.
//
// NCHW stores the column matrix by taps (c, r, s), so that copying runs along image rows and the
// filter is used as it is. NHWC stores it by pixels with taps in order (r, s, c), so that copying
// runs along channels; the filter is packed to K R S C. A 1x1 convolution with stride 1 and
// no padding finds its column matrix in x itself.
//
// Threads share either each product, which OpenBLAS divides (share=product), or tasks that have
// nothing in common, each with single-threaded products (share=tasks): chunks in forward, and in
// the backward passes ranges of C, whose column matrices, gradients and filters are disjoint.

#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>
#include <type_traits>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/device/team.h"
#include "kernels_cpu/epilogue.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

enum class Share : std::uint8_t { product, tasks };
constexpr std::array<std::string_view, 2> share_names{"product", "tasks"};

bool shares_tasks(const Config& config) {
  return config.choice<Share>("share", share_names) == Share::tasks;
}

// A matrix in memory: element (i, j) at data[i * ld + j], or at data[j * ld + i] if transposed.
template <class T>
struct Matrix {
  T* data;
  i64 ld;
  bool transposed = false;

  Matrix t() const { return {data, ld, !transposed}; }
};

// c(m x n) = a(m x k) b(k x n) + beta c
template <class T>
void multiply(i64 m, i64 n, i64 k, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  if (c.transposed) return multiply(n, m, k, b.t(), a.t(), beta, c.t());
  constexpr auto op = [](const Matrix<const T>& x) {
    return x.transposed ? CblasTrans : CblasNoTrans;
  };
  constexpr auto gemm = [] {
    if constexpr (std::is_same_v<T, float>)
      return cblas_sgemm;
    else
      return cblas_dgemm;
  }();
  gemm(CblasRowMajor, op(a), op(b), int(m), int(n), int(k), T(1), a.data, int(a.ld), b.data,
       int(b.ld), beta, c.data, int(c.ld));
}

bool columns_are_x(const ConvProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_h == 0 &&
         p.pad_w == 0 && p.p == p.h && p.q == p.w;
}

bool filter_is_packed(const ConvProblem& p) {
  return p.x_layout == Layout::nhwc && p.r * p.s > 1 && p.c > p.groups;
}

// How one run is divided: all sizes that plan, work and configs share.
struct Cut {
  i64 rows;    // output rows of a chunk; rows are numbered n * P + p
  i64 ranges;  // ranges of the C / groups channels of a group
  i64 span;    // rows that a chunk must not straddle: one image's, or all

  Cut(const ConvProblem& p, const Config& config, int threads) {
    const i64 channels = p.c / p.groups;
    span = span_of(p);
    rows = std::min(config.get("rows"), span);
    const i64 tasks = p.groups * (p.pass == Pass::backward_data ? p.n : 1);
    ranges = p.pass == Pass::forward || !shares_tasks(config)
                 ? 1
                 : std::min(channels, ceil_div(threads, tasks));
  }
  i64 chunks_in_span() const { return ceil_div(span, rows); }

  static i64 span_of(const ConvProblem& p) {
    const bool all_nhwc = p.x_layout == Layout::nhwc && p.y_layout == Layout::nhwc;
    return all_nhwc && !p.is_view() && p.pass != Pass::backward_data ? p.n * p.p : p.p;
  }
};

template <class T>
class Im2colPlan : public ConvPlan {
 public:
  Im2colPlan(const ConvProblem& problem, const Config& config, int threads)
      : p_(problem),
        cut_(problem, config, threads),
        shares_tasks_(shares_tasks(config)),
        threads_(threads) {}

  std::size_t packed_filter_bytes() const noexcept override {
    return filter_is_packed(p_) && p_.pass != Pass::backward_filter ? p_.filter_bytes() : 0;
  }

  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    permute_filter(reinterpret_cast<const T*>(w.data()), reinterpret_cast<T*>(packed.data()),
                   [](const T& kcrs, T& krsc) { krsc = kcrs; });
  }

  std::size_t workspace_bytes() const noexcept override {
    return (columns_elements() * (shares_tasks_ ? threads_ : 1) + packed_gradient_elements()) *
           sizeof(T);
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    const ThreadCount scope(threads_);
    const Run run{static_cast<const T*>(args.x),          static_cast<const T*>(args.w),
                  static_cast<const T*>(args.dy),         output_epilogue<T>(p_, args),
                  reinterpret_cast<T*>(workspace.data()), args.phases};
    if (p_.pass == Pass::forward)
      forward(run);
    else if (p_.pass == Pass::backward_data)
      backward_data(run);
    else
      backward_filter(run);
  }

 private:
  struct Run {
    const T *x, *w, *dy;
    OutputEpilogue<T> output;
    T* workspace;
    PhaseRecorder* phases;
  };
  enum Phase { copying, product, finishing };

  i64 channels() const { return p_.c / p_.groups; }
  i64 filters() const { return p_.k / p_.groups; }
  i64 taps(i64 channels) const { return channels * p_.r * p_.s; }
  bool by_pixel() const { return p_.x_layout == Layout::nhwc; }

  i64 columns_elements() const {
    if (columns_are_x(p_)) return 0;
    return round_up(taps(ceil_div(channels(), cut_.ranges)) * cut_.rows * p_.q, 64);
  }
  i64 packed_gradient_elements() const {
    return p_.pass == Pass::backward_filter && filter_is_packed(p_) ? p_.filter_elements() : 0;
  }
  T* columns_of_this_thread(const Run& run) const {
    return run.workspace + (shares_tasks_ ? omp_get_thread_num() : 0) * columns_elements();
  }

  Range chunk(i64 i) const {  // rows
    const i64 n = cut_.chunks_in_span(), begin = i / n * cut_.span;
    return {begin + i % n * cut_.rows, begin + std::min((i % n + 1) * cut_.rows, cut_.span)};
  }
  i64 chunks() const { return p_.n * p_.p / cut_.span * cut_.chunks_in_span(); }

  // Calls f(position in KCRS, position in the packed filter). Packed is [group][range] of K R S c.
  template <class From, class To, class F>
  void permute_filter(From* kcrs, To* packed, F f) const {
    const i64 area = p_.r * p_.s;
#pragma omp parallel for num_threads(threads_)
    for (i64 k = 0; k < p_.k; ++k)
      for (i64 i = 0; i < cut_.ranges; ++i) {
        const Range c = share(channels(), i, cut_.ranges);
        To* to = packed + packed_filter_offset(k / filters(), i) + k % filters() * taps(c.size());
        for (i64 rs = 0; rs < area; ++rs)
          for (i64 j = c.begin; j < c.end; ++j) f(kcrs[(k * channels() + j) * area + rs], *to++);
      }
  }
  i64 packed_filter_offset(i64 group, i64 range) const {
    return filters() *
           (group * taps(channels()) + taps(share(channels(), range, cut_.ranges).begin));
  }

  // K/g x taps of a range.
  template <class U>
  Matrix<U> filter(U* w, i64 group, i64 range) const {
    const Range c = share(channels(), range, cut_.ranges);
    if (filter_is_packed(p_)) return {w + packed_filter_offset(group, range), taps(c.size())};
    return {w + group * filters() * taps(channels()) + taps(c.begin), taps(channels())};
  }
  // K/g x pixels of a chunk.
  template <class U>
  Matrix<U> output(U* y, i64 group, Range rows) const {
    const TensorDesc desc = p_.y_desc();
    U* const first = y + desc.offset(rows.begin / p_.p, group * filters(), rows.begin % p_.p, 0);
    if (desc.layout == Layout::nhwc) return {first, p_.k, true};
    return {first, desc.channel_step()};
  }
  // taps x pixels of a chunk; in x itself if columns_are_x.
  template <class U>
  Matrix<U> columns(U* x, T* scratch, i64 group, Range c, Range rows) const {
    const i64 c0 = group * channels() + c.begin;
    if (!columns_are_x(p_)) {
      if (by_pixel()) return {scratch, taps(c.size()), true};
      return {scratch, rows.size() * p_.q};
    }
    const TensorDesc desc = p_.x_desc();
    U* const first = x + desc.offset(rows.begin / p_.p, c0, rows.begin % p_.p, 0);
    if (by_pixel()) return {first, p_.c, true};
    return {first, desc.channel_step()};
  }
  template <class U>
  static Matrix<const T> read_only(Matrix<U> m) {
    return {m.data, m.ld, m.transposed};
  }

  // The output columns q whose tap s falls inside the image.
  Range inside(i64 s) const {
    const i64 first = s * p_.dilation_w - p_.pad_w;  // input column of q = 0
    const i64 begin = std::clamp<i64>(ceil_div(std::max<i64>(-first, 0), p_.stride_w), 0, p_.q);
    const i64 end = first >= p_.w ? 0 : (p_.w - 1 - first) / p_.stride_w + 1;
    return {begin, std::clamp(end, begin, p_.q)};
  }

  // Threads share tasks, or within a task the lines that it copies. The other loop is a plain one,
  // not a parallel region of one thread: in such a region libgomp starts new threads for each
  // nested region, OpenBLAS's among them.
  template <class Body>
  void for_tasks(i64 count, const Body& body) const {
    if (!shares_tasks_) return in_turn(count, body);
#pragma omp parallel for schedule(dynamic)
    for (i64 i = 0; i < count; ++i) body(i);
  }
  template <class Body>
  void for_lines(i64 count, const Body& body) const {
    if (shares_tasks_) return in_turn(count, body);
#pragma omp parallel for
    for (i64 i = 0; i < count; ++i) body(i);
  }
  template <class Body>
  static void in_turn(i64 count, const Body& body) {
    for (i64 i = 0; i < count; ++i) body(i);
  }

  void copy_to_columns(const T* x, T* to, i64 group, Range c, Range rows) const {
    const T* const first = x + p_.x_desc().offset(0, group * channels() + c.begin, 0, 0);
    if (by_pixel())
      copy_by_pixel(first, to, c.size(), rows);
    else
      copy_by_tap(first, to, c.size(), rows);
  }

  void copy_by_tap(const T* x, T* to, i64 c_count, Range rows) const {
    const i64 ld = rows.size() * p_.q;
    const TensorDesc desc = p_.x_desc();
    for_lines(c_count, [&](i64 c) {
      for (i64 r = 0; r < p_.r; ++r)
        for (i64 s = 0; s < p_.s; ++s) {
          const Range in = inside(s);
          const i64 first = s * p_.dilation_w - p_.pad_w;
          T* row = to + ((c * p_.r + r) * p_.s + s) * ld;
          for (i64 i = rows.begin; i < rows.end; ++i, row += p_.q) {
            const i64 h = i % p_.p * p_.stride_h - p_.pad_h + r * p_.dilation_h;
            if (h < 0 || h >= p_.h) {
              std::fill_n(row, p_.q, T(0));
              continue;
            }
            const T* const from = x + desc.offset(i / p_.p, c, h, 0) + first;
            std::fill(row, row + in.begin, T(0));
            if (p_.stride_w == 1)
              std::copy(from + in.begin, from + in.end, row + in.begin);
            else
              for (i64 q = in.begin; q < in.end; ++q) row[q] = from[q * p_.stride_w];
            std::fill(row + in.end, row + p_.q, T(0));
          }
        }
    });
  }

  void copy_by_pixel(const T* x, T* to, i64 c_count, Range rows) const {
    const i64 ld = taps(c_count), image_step = p_.x_desc().image_step();
    for_lines(rows.size(), [&](i64 line) {
      const i64 i = rows.begin + line;
      const T* const image = x + i / p_.p * image_step;
      for (i64 q = 0; q < p_.q; ++q) {
        T* pixel = to + (line * p_.q + q) * ld;
        for (i64 r = 0; r < p_.r; ++r)
          for (i64 s = 0; s < p_.s; ++s, pixel += c_count) {
            const i64 h = i % p_.p * p_.stride_h - p_.pad_h + r * p_.dilation_h;
            const i64 w = q * p_.stride_w - p_.pad_w + s * p_.dilation_w;
            if (h < 0 || h >= p_.h || w < 0 || w >= p_.w)
              std::fill_n(pixel, c_count, T(0));
            else
              std::copy_n(image + (h * p_.w + w) * p_.c, c_count, pixel);
          }
      }
    });
  }

  // dx += col2im of one image's chunk: the reverse copy, by input rows, each of which belongs to
  // one thread.
  void add_from_columns(const T* columns, T* dx, i64 group, Range c, Range rows) const {
    const i64 n = rows.begin / p_.p;
    const TensorDesc desc = p_.x_desc();
    for_lines((by_pixel() ? 1 : c.size()) * p_.h, [&](i64 line) {
      const i64 j = line / p_.h, h = line % p_.h;
      for (i64 r = 0; r < p_.r; ++r) {
        const i64 up = h + p_.pad_h - r * p_.dilation_h;
        if (up < 0 || up % p_.stride_h != 0) continue;
        const i64 i = n * p_.p + up / p_.stride_h;
        if (up / p_.stride_h >= p_.p || i < rows.begin || i >= rows.end) continue;
        const i64 c0 = group * channels() + c.begin;
        if (by_pixel())
          add_row_by_pixel(columns + (i - rows.begin) * p_.q * taps(c.size()), r, c.size(),
                           dx + desc.offset(n, c0, h, 0));
        else
          add_row_by_tap(columns + taps(j) * rows.size() * p_.q + (i - rows.begin) * p_.q, r,
                         rows.size() * p_.q, dx + desc.offset(n, c0 + j, h, 0));
      }
    });
  }

  void add_row_by_tap(const T* columns, i64 r, i64 ld, T* row) const {
    for (i64 s = 0; s < p_.s; ++s) {
      const Range in = inside(s);
      const T* const from = columns + (r * p_.s + s) * ld;
      T* const to = row + s * p_.dilation_w - p_.pad_w;
      for (i64 q = in.begin; q < in.end; ++q) to[q * p_.stride_w] += from[q];
    }
  }

  void add_row_by_pixel(const T* columns, i64 r, i64 c_count, T* row) const {
    for (i64 s = 0; s < p_.s; ++s) {
      const Range in = inside(s);
      for (i64 q = in.begin; q < in.end; ++q) {
        const T* const from = columns + ((q * p_.r + r) * p_.s + s) * c_count;
        T* const to = row + (q * p_.stride_w - p_.pad_w + s * p_.dilation_w) * p_.c;
        for (i64 c = 0; c < c_count; ++c) to[c] += from[c];
      }
    }
  }

  void forward(const Run& run) const {
    const Range c{0, channels()};
    for_tasks(chunks() * p_.groups, [&](i64 task) {
      const i64 group = task % p_.groups;
      const Range rows = chunk(task / p_.groups);
      T* const scratch = columns_of_this_thread(run);
      if (!columns_are_x(p_)) {
        const PhaseScope scope(run.phases, copying);
        copy_to_columns(run.x, scratch, group, c, rows);
      }
      const Matrix<T> y = output(run.output.out, group, rows);
      {
        const PhaseScope scope(run.phases, product);
        multiply<T>(filters(), rows.size() * p_.q, taps(channels()), filter(run.w, group, 0),
                    read_only(columns(run.x, scratch, group, c, rows)), T(p_.accumulate), y);
      }
      if (!p_.epilogue.empty()) {
        const PhaseScope scope(run.phases, finishing);
        finish(run, group, rows, y);
      }
    });
  }

  // The epilogue on a chunk that is still in cache, along the contiguous dimension of y.
  void finish(const Run& run, i64 group, Range rows, Matrix<T> y) const {
    const i64 pixels = rows.size() * p_.q, k0 = group * filters();
    const i64 lines = y.transposed ? pixels : filters(), length = y.transposed ? filters() : pixels;
    OutputEpilogue<T> output = run.output;
    if (p_.accumulate) output.addend = nullptr;  // the product has added it
    for_lines(lines, [&](i64 i) {
      const i64 line = y.data + i * y.ld - output.out;
      output.store_line(
          line, 1, length, [&](i64 j) { return output.out[line + j]; },
          [&](i64 j) { return k0 + (y.transposed ? j : i); });
    });
  }

  void backward_data(const Run& run) const {
    const i64 per_image = cut_.chunks_in_span();
    for_tasks(p_.n * p_.groups * cut_.ranges, [&](i64 task) {
      const i64 range = task % cut_.ranges, group = task / cut_.ranges % p_.groups;
      const i64 n = task / cut_.ranges / p_.groups;
      const Range c = share(channels(), range, cut_.ranges);
      T* const scratch = columns_of_this_thread(run);
      if (!columns_are_x(p_) && !p_.accumulate) {
        const PhaseScope scope(run.phases, copying);
        clear(run.output.out, n, group, c);
      }
      for (i64 i = n * per_image; i < (n + 1) * per_image; ++i) {
        const Range rows = chunk(i);
        {
          const PhaseScope scope(run.phases, product);
          multiply<T>(taps(c.size()), rows.size() * p_.q, filters(),
                      filter(run.w, group, range).t(), output(run.dy, group, rows),
                      T(columns_are_x(p_) && p_.accumulate),
                      columns(run.output.out, scratch, group, c, rows));
        }
        if (!columns_are_x(p_)) {
          const PhaseScope scope(run.phases, copying);
          add_from_columns(scratch, run.output.out, group, c, rows);
        }
      }
    });
  }

  void clear(T* dx, i64 n, i64 group, Range c) const {
    const i64 pixels = p_.h * p_.w;
    const TensorDesc desc = p_.x_desc();
    T* const first = dx + desc.offset(n, group * channels() + c.begin, 0, 0);
    const i64 step = by_pixel() ? p_.c : desc.channel_step();
    const i64 lines = by_pixel() ? pixels : c.size(), length = by_pixel() ? c.size() : pixels;
    for_lines(lines, [&](i64 i) { std::fill_n(first + i * step, length, T(0)); });
  }

  void backward_filter(const Run& run) const {
    const bool packed = packed_gradient_elements() > 0;
    T* const dw = packed ? run.workspace + columns_elements() * (shares_tasks_ ? threads_ : 1)
                         : run.output.out;
    for_tasks(p_.groups * cut_.ranges, [&](i64 task) {
      const i64 range = task % cut_.ranges, group = task / cut_.ranges;
      const Range c = share(channels(), range, cut_.ranges);
      T* const scratch = columns_of_this_thread(run);
      for (i64 i = 0; i < chunks(); ++i) {
        const Range rows = chunk(i);
        if (!columns_are_x(p_)) {
          const PhaseScope scope(run.phases, copying);
          copy_to_columns(run.x, scratch, group, c, rows);
        }
        const PhaseScope scope(run.phases, product);
        multiply<T>(filters(), taps(c.size()), rows.size() * p_.q, output(run.dy, group, rows),
                    read_only(columns(run.x, scratch, group, c, rows)).t(),
                    T(i > 0 || (p_.accumulate && !packed)), filter(dw, group, range));
      }
    });
    if (!packed) return;
    const PhaseScope scope(run.phases, finishing);
    if (p_.accumulate)
      permute_filter(run.output.out, dw, [](T& kcrs, const T& krsc) { kcrs += krsc; });
    else
      permute_filter(run.output.out, dw, [](T& kcrs, const T& krsc) { kcrs = krsc; });
  }

  ConvProblem p_;
  Cut cut_;
  bool shares_tasks_;
  int threads_;
};

class Im2col : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override { return info_; }

  std::optional<Refusal> refuse(const ConvProblem& p, Device&) const override {
    if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
    if (auto refusal = refuse_blocked_layouts(p)) return refusal;
    const i64 largest = std::max({p.x_desc().channel_step(), p.y_desc().channel_step(), p.c, p.k,
                                  p.c / p.groups * p.r * p.s});
    if (largest > INT_MAX)
      return Refusal{Field::size,
                     fmt::format("matrices of at most {} rows and columns for BLAS", INT_MAX),
                     std::to_string(largest)};
    return {};
  }

  // Chunks whose columns stay in half of L2: larger ones are hardly ever faster.
  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    const DeviceInfo& info = device.info();
    const i64 row_bytes = p.c / p.groups * p.r * p.s * p.q * size_of(p.dtype);
    const i64 span = std::min(Cut::span_of(p), INT_MAX / p.q);
    const i64 rows = std::clamp<i64>(info.l2_bytes / 2 / row_bytes, 1, span);
    // The backward passes cut C as well, and always have enough tasks.
    const i64 tasks = p.pass == Pass::forward
                          ? p.groups * (p.n * p.p / Cut::span_of(p)) * ceil_div(span, rows)
                          : info.threads;
    std::vector<Config> configs;
    if (info.threads > 1 && tasks >= info.threads)
      configs.push_back({{"rows", rows}, {"share", "tasks"}});
    configs.push_back({{"rows", rows}, {"share", "product"}});
    return configs;
  }

  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const Cut cut(p, config, device.info().threads);
    const double x = double(p.x_bytes()), y = double(p.y_bytes()), w = double(p.filter_bytes());
    const double columns = columns_are_x(p) ? 0
                                            : double(p.c) * double(p.r * p.s) * double(p.n * p.p) *
                                                  double(p.q) * double(size_of(p.dtype));
    const double chunk_bytes = columns / double(p.n * p.p * p.groups) * double(cut.rows);
    const bool cached = chunk_bytes < double(device.info().l2_bytes);
    const double spilled = cached ? 0 : columns;  // written, and read again by the other side
    const double filter_reads = w * double(p.n * p.p / cut.span * cut.chunks_in_span());
    const bool data = p.pass == Pass::backward_data;
    const double x_once = columns_are_x(p) ? 0 : x;
    // OpenBLAS loses a third of its rate if its threads share one product of a chunk's few columns.
    const double gemm_efficiency = shares_tasks(config) ? 0.65 : 0.45;
    // An element of the column matrix takes K multiply-adds, and as long to copy as about 15.
    const double efficiency = 1 / (1 / gemm_efficiency + 15 * double(p.groups) / double(p.k));
    WorkEstimate estimate;
    estimate.phases.push_back(
        {data ? "col2im" : "im2col", 0, x_once + (data ? spilled : 0), data ? x_once : spilled, 1});
    estimate.phases.push_back({"product", p.flops(), y + filter_reads + (data ? 0 : spilled),
                               p.pass == Pass::forward ? y
                               : data                  ? spilled
                                                       : w,
                               columns_are_x(p) ? gemm_efficiency : efficiency});
    estimate.phases.push_back({"epilogue", 0, p.epilogue.residual ? y : 0, 0, 1});
    if (filter_is_packed(p) && p.pass != Pass::backward_filter)
      estimate.pack = {"pack_filter", 0, w, w, packing_efficiency};
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({"rows", "share"});
    if (config.get("rows") < 1)
      throw InputError(fmt::format("im2col: rows={}: expected 1 or more", config.get("rows")));
    const i64 pixels = config.get("rows") * p.q;
    if (pixels > INT_MAX)
      throw InputError(fmt::format("im2col: rows={} makes {} pixels a chunk, BLAS takes {}",
                                   config.get("rows"), pixels, INT_MAX));
    const int threads = device.info().threads;
    if (p.dtype == DType::f64) return std::make_unique<Im2colPlan<double>>(p, config, threads);
    return std::make_unique<Im2colPlan<float>>(p, config, threads);
  }

 private:
  AlgoInfo info_{"im2col",
                 3,
                 DeviceKind::cpu,
                 Origin::own,
                 "column matrix in cache-sized chunks, times the filter by OpenBLAS",
                 {"openblas"},
                 "im2col"};
};

}  // namespace

std::unique_ptr<ConvAlgo> make_im2col() { return std::make_unique<Im2col>(); }

}  // namespace convlab::cpu
