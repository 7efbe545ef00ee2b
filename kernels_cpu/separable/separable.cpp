// Depthwise separable convolution (Howard et al. 2017, MobileNets, arXiv:1704.04861) in one pass:
//
//   z[c][pixel] = activation(sum over taps of x[c][pixel * stride + tap] w[c][tap])
//   y[pixel][k] = sum over c of z[c][pixel] v[k][c]
//
// A depthwise output has as many channels as its input, in MobileNetV2 six times those of y, and is
// read once. As an operation of its own a depthwise convolution is bound by the memory that it
// writes and that the product reads. Here a thread computes a block of output rows, all channels of
// them, into a buffer that stays in L2, and multiplies it at once.
//
// Both halves are those of the algorithms depthwise and implicit_gemm. The block is to the product
// a tensor of its own with channel blocks; an nhwc product goes to a second buffer, from where its
// pixels are stored.
#include "kernels_cpu/separable/separable.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "conv/refusals.h"
#include "kernels_cpu/depthwise/rows.h"
#include "kernels_cpu/implicit_gemm/block_product.h"

namespace convlab::cpu {
namespace {

using i64 = std::int64_t;

constexpr std::size_t float_bytes = sizeof(float);

// Rows of output whose depthwise sums fill a quarter of L2: beside them x, y and the filter pass.
i64 rows_of_block(const ConvProblem& depthwise, const DeviceInfo& device) {
  const i64 row_bytes = round_up(depthwise.k, tile_shape().block) * depthwise.q * i64(float_bytes);
  return std::clamp<i64>(device.l2_bytes / 4 / row_bytes, 1, depthwise.p);
}

class Plan : public SeparablePlan {
 public:
  Plan(const SeparableProblem& problem, const DeviceInfo& device)
      : problem_(problem),
        blocked_(blocked_layout(device)),
        nhwc_(problem.depthwise.x_layout == Layout::nhwc),
        threads_(device.threads),
        depthwise_(plan_depthwise(into_blocks(problem.depthwise), device)) {
    const ConvProblem& p = problem_.depthwise;
    for (i64 thread = 0; thread < threads_; ++thread)
      for_each_block(thread, rows_of_block(p, device),
                     [&](i64, Range rows) { most_rows_ = std::max(most_rows_, rows.size()); });
    DeviceInfo one = device;
    one.threads = 1;
    std::size_t gemm_bytes = 0;
    for (i64 thread = 0; thread < threads_; ++thread)
      for_each_block(thread, most_rows_, [&](i64, Range rows) {
        const auto [found, is_new] = gemms_.try_emplace(rows.size());
        if (is_new) found->second = plan_pixels(product_of(rows.size()), {{"depth", 512}}, one);
        gemm_bytes = std::max(gemm_bytes, found->second.thread_bytes);
      });
    sums_at_ = round_up(gemm_bytes);
    y_at_ = sums_at_ + round_up(std::size_t(sums_elements()) * float_bytes);
    thread_bytes_ = y_at_ + (nhwc_ ? round_up(std::size_t(y_elements()) * float_bytes) : 0);
  }

  std::size_t workspace_bytes() const noexcept override {
    return std::size_t(threads_) * thread_bytes_;
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return product_filter_at() +
           std::size_t(gemms_.begin()->second.packed_elements()) * float_bytes;
  }
  void pack_filters(ConstSpan depthwise, ConstSpan pointwise, Span packed, Stream&) const override {
    pack_depthwise(depthwise_, depthwise, packed);
    pack_pixels(gemms_.begin()->second, problem_.pointwise, pointwise,
                packed.subspan(product_filter_at()), int(threads_));
  }

  void run(const SeparableArgs& args, Workspace workspace, Stream&) const override {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (i64 thread = 0; thread < threads_; ++thread) {
      std::byte* const own = workspace.data() + std::size_t(thread) * thread_bytes_;
      float* const sums = reinterpret_cast<float*>(own + sums_at_);
      // Of a part of a block in nhwc the other lanes are not written.
      std::fill_n(sums + sums_elements() - sums_plane(), sums_plane(), 0.0F);
      for_each_block(thread, most_rows_, [&](i64 image, Range rows) {
        depthwise_block(args, image, rows, sums);
        multiply_block(args, image, rows, own);
      });
    }
  }

 private:
  static std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  // Its output goes to the buffer.
  ConvProblem into_blocks(ConvProblem p) const {
    p.y_layout = blocked_;
    return p;
  }

  // The thread's share of all images' rows, in blocks of one image each.
  template <class F>
  void for_each_block(i64 thread, i64 most, const F& f) const {
    const ConvProblem& p = problem_.depthwise;
    const Range own = share(p.n * p.p, thread, threads_);
    for (i64 at = own.begin; at < own.end;) {
      const i64 image = at / p.p, first = at % p.p;
      const i64 rows = std::min(p.p - first, own.end - at), parts = ceil_div(rows, most);
      for (i64 part = 0; part < parts; ++part) {
        const Range block = share(rows, part, parts);
        f(image, Range{first + block.begin, first + block.end});
      }
      at += rows;
    }
  }

  // ---- The buffers, in elements ----

  i64 block() const { return channel_block(blocked_); }
  i64 sums_plane() const { return most_rows_ * problem_.depthwise.q * block(); }
  i64 sums_elements() const {
    return convlab::round_up(problem_.depthwise.k, block()) / block() * sums_plane();
  }
  i64 y_elements() const {
    return convlab::round_up(problem_.pointwise.k, block()) / block() * sums_plane();
  }
  std::size_t product_filter_at() const {
    return round_up(std::size_t(packed_depthwise_bytes(depthwise_)));
  }

  // The product of a block of rows, as a problem of one row.
  ConvProblem product_of(i64 rows) const {
    const ConvProblem& pointwise = problem_.pointwise;
    ConvProblem p = pointwise;
    p.n = p.h = p.p = 1;
    p.w = p.q = rows * pointwise.q;
    p.x_layout = p.y_layout = blocked_;
    p.x_steps.channel = sums_plane();
    p.y_steps.channel = nhwc_ ? sums_plane() : pointwise.y_desc().channel_step();
    return p;
  }

  void depthwise_block(const SeparableArgs& args, i64 image, Range rows, float* sums) const {
    const Epilogue& epilogue = problem_.depthwise.epilogue;
    DepthwiseRows job;
    job.in = static_cast<const float*>(args.x) + image * depthwise_.in.image;
    job.filter = static_cast<const float*>(args.packed);
    job.bias = epilogue.bias ? static_cast<const float*>(args.depthwise_bias) : nullptr;
    job.activation = epilogue.activation;
    job.rows = rows;
    job.out = sums;
    job.out_block = sums_plane();
    depthwise_rows(depthwise_, job, {0, depthwise_.vectors});
  }

  void multiply_block(const SeparableArgs& args, i64 image, Range rows, std::byte* own) const {
    const ConvProblem& p = problem_.pointwise;
    const PixelGemm& gemm = gemms_.at(rows.size());
    ConvArgs whole;
    whole.bias = args.pointwise_bias;
    whole.residual = args.residual;
    whole.out = args.out;
    const OutputEpilogue<float> output =
        output_epilogue<float>(p, whole).at(p.y_desc().offset(image, 0, rows.begin, 0), 0);
    const auto* const filter = reinterpret_cast<const float*>(
        static_cast<const std::byte*>(args.packed) + product_filter_at());
    float* const y = reinterpret_cast<float*>(own + y_at_);
    const OutputEpilogue<float> to_buffer{.out = y, .bias = output.bias};
    run_thread(gemm,
               PixelOperands<float>{reinterpret_cast<const float*>(own + sums_at_), filter,
                                    nhwc_ ? to_buffer : output},
               own, 0, nullptr);
    if (nhwc_) store_nhwc(y, sums_plane(), rows.size() * p.q, p.k, output);
  }

  SeparableProblem problem_;
  Layout blocked_;
  bool nhwc_;
  i64 threads_;
  Depthwise depthwise_;
  i64 most_rows_ = 1;
  std::map<i64, PixelGemm> gemms_;  // by the rows of a block
  std::size_t sums_at_ = 0, y_at_ = 0, thread_bytes_ = 0;
};

Refusal one_after_the_other() {
  return {Field::size, "a pointwise convolution of the depthwise one's output"};
}

}  // namespace

std::optional<Refusal> refuse_separable(const SeparableProblem& problem, const DeviceInfo& device) {
  const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
  if (auto refusal = refuse_all_but({DType::f32}, d)) return refusal;
  if (d.pass != Pass::forward || p.pass != Pass::forward)
    return Refusal{Field::pass, "forward passes"};
  if (d.has_depth() || p.has_depth()) return Refusal{Field::depth, "two dimensions"};
  if (auto refusal = refuse_depthwise(d, device)) return refusal;
  if (d.r * d.s == 1)
    return Refusal{Field::filter, "a depthwise filter larger than 1x1", extent(d.r, d.s)};
  if (p.r * p.s != 1 || p.stride_h * p.stride_w != 1 || p.pad_h != 0 || p.pad_w != 0)
    return Refusal{Field::filter, "a 1x1 filter without stride or padding second",
                   extent(p.r, p.s)};
  if (p.groups != 1)
    return Refusal{Field::groups, "a pointwise convolution of one group", std::to_string(p.groups)};
  if (p.dtype != d.dtype || p.n != d.n || p.c != d.k || p.h != d.p || p.w != d.q || p.p != p.h ||
      p.q != p.w)
    return one_after_the_other();
  if (p.x_layout != d.y_layout || p.y_layout != p.x_layout)
    return Refusal{Field::layout, fmt::format("{} throughout", to_string(d.x_layout)),
                   std::string(to_string(p.y_layout))};
  if (d.epilogue.residual || d.accumulate || p.accumulate)
    return Refusal{Field::epilogue, "an addition in the pointwise convolution's epilogue only"};
  for (const Epilogue& epilogue : {d.epilogue, p.epilogue})
    if (epilogue.activation && !keeps_zero(*epilogue.activation))
      return Refusal{Field::epilogue, "activations that are 0 at 0",
                     std::string(to_string(*epilogue.activation))};
  return {};
}

std::unique_ptr<SeparablePlan> plan_separable(const SeparableProblem& problem,
                                              const DeviceInfo& device) {
  return std::make_unique<Plan>(problem, device);
}

}  // namespace convlab::cpu
