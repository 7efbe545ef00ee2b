// oneDNN as a peer: the library that everything here is measured against.
//
// It runs as its users would run it: with the activation layouts it prefers (the tuner tries every
// pair), filters in the format it chooses (packed once, outside the timed run), and as many threads
// as all others. It may not fall back: a problem that ends in its reference loops, or in another
// algorithm than the one named, is refused.
//
// Both the 2.x and the 3.x C++ interface are supported. They differ in how a primitive descriptor
// is made, which only `describe` does.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/device/team.h"
#include "kernels_cpu/inside_taps.h"
#include "kernels_cpu/onednn/primitive.h"

namespace convlab::cpu {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::query;
using namespace onednn;

memory::format_tag tag(Layout layout, bool depth) {
  using Tag = memory::format_tag;
  switch (layout) {
    case Layout::nchw:
      return depth ? Tag::ncdhw : Tag::nchw;
    case Layout::nhwc:
      return depth ? Tag::ndhwc : Tag::nhwc;
    case Layout::nchw8c:
      return depth ? Tag::nCdhw8c : Tag::nChw8c;
    case Layout::nchw16c:
      return depth ? Tag::nCdhw16c : Tag::nChw16c;
  }
  return Tag::undef;
}

// `sizes` and those of the spatial dimensions that the problem has.
memory::dims dims(const ConvProblem& p, memory::dims sizes, std::int64_t d, std::int64_t h,
                  std::int64_t w) {
  if (p.has_depth()) sizes.push_back(d);
  sizes.insert(sizes.end(), {h, w});
  return sizes;
}

memory::desc x_desc(const ConvProblem& p) {
  return {dims(p, {p.n, p.c}, p.d, p.h, p.w), memory::data_type::f32,
          tag(p.x_layout, p.has_depth())};
}
memory::desc y_desc(const ConvProblem& p) {
  return {dims(p, {p.n, p.k}, p.z, p.p, p.q), memory::data_type::f32,
          tag(p.y_layout, p.has_depth())};
}

// The filter, KCTRS: in that order in memory, as users hold it, or (any) in oneDNN's preferred
// format.
enum class FilterFormat : std::uint8_t { plain, any };

memory::desc filter(const ConvProblem& p, FilterFormat format) {
  using Tag = memory::format_tag;
  const memory::dims channels = p.groups == 1
                                    ? memory::dims{p.k, p.c}
                                    : memory::dims{p.groups, p.k / p.groups, p.c / p.groups};
  const Tag plain = p.groups == 1 ? (p.has_depth() ? Tag::oidhw : Tag::oihw)
                                  : (p.has_depth() ? Tag::goidhw : Tag::goihw);
  return {dims(p, channels, p.t, p.r, p.s), memory::data_type::f32,
          format == FilterFormat::plain ? plain : Tag::any};
}

memory::desc bias_desc(const ConvProblem& p) {
  return {{p.k}, memory::data_type::f32, memory::format_tag::x};
}

// Strict f32, and y = conv + bias + residual: oneDNN's `sum` adds to what is in y already. Its
// activations take maxima, which turn a NaN into a number, and 2.6.3's crash behind some sums; a
// plan has ours instead.
dnnl::primitive_attr attributes(const ConvProblem& p) {
  dnnl::primitive_attr attr = user_scratchpad();
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
  dnnl::post_ops ops;
  if (p.epilogue.residual || p.accumulate) ops.append_sum();
  attr.set_post_ops(ops);
  return attr;
}

// The primitives that oneDNN would use, its preferred one first: every Winograd it has, but only
// one direct convolution. Throws dnnl::error when it has none.
std::vector<dnnl::primitive_desc> describe(const ConvProblem& p, algorithm algo) {
  using Fwd = dnnl::convolution_forward;
  using BwdData = dnnl::convolution_backward_data;
  using BwdFilter = dnnl::convolution_backward_weights;
  using dnnl::prop_kind;
  const memory::desc x = x_desc(p), y = y_desc(p), w = filter(p, FilterFormat::any);
  const memory::desc bias = p.epilogue.bias ? bias_desc(p) : memory::desc();
  const memory::dims stride = dims(p, {}, p.stride_d, p.stride_h, p.stride_w);
  const memory::dims dilation = dims(p, {}, p.dilation_d - 1, p.dilation_h - 1, p.dilation_w - 1);
  const memory::dims before = dims(p, {}, p.pad_d, p.pad_h, p.pad_w),
                     after = dims(p, {}, p.pad_back(), p.pad_bottom(), p.pad_right());
  const dnnl::primitive_attr attr = attributes(p);

#if DNNL_VERSION_MAJOR >= 3
  if (p.pass == Pass::forward)
    return {Fwd::primitive_desc(engine(), prop_kind::forward_inference, algo, x, w, bias, y, stride,
                                dilation, before, after, attr)};
  const Fwd::primitive_desc hint(engine(), prop_kind::forward_training, algo, x, w, y, stride,
                                 dilation, before, after);
  if (p.pass == Pass::backward_data)
    return {BwdData::primitive_desc(engine(), algo, x, w, y, stride, dilation, before, after, hint,
                                    attr)};
  return {BwdFilter::primitive_desc(engine(), algo, x, w, y, stride, dilation, before, after, hint,
                                    attr)};
#else
  // next_impl() reads the operation's description again, so that has to be alive still: here it is
  // a temporary of the expression that calls `all`.
  const auto all = [&](dnnl::primitive_desc pd) {
    std::vector<dnnl::primitive_desc> found{pd};
    while (algo == algorithm::convolution_winograd && pd.next_impl()) found.push_back(pd);
    return found;
  };
  if (p.pass == Pass::forward)
    return all(Fwd::primitive_desc(
        {prop_kind::forward_inference, algo, x, w, bias, y, stride, dilation, before, after}, attr,
        engine()));
  const Fwd::primitive_desc hint(
      {prop_kind::forward_training, algo, x, w, y, stride, dilation, before, after}, engine());
  if (p.pass == Pass::backward_data)
    return all(BwdData::primitive_desc({algo, x, w, y, stride, dilation, before, after}, attr,
                                       engine(), hint));
  return all(BwdFilter::primitive_desc({algo, x, w, y, stride, dilation, before, after}, attr,
                                       engine(), hint));
#endif
}

// The library allocates small argument records of its own in every execution; all that grows with
// the problem is in our workspace: dw in oneDNN's format (backward_filter only), then the
// scratchpad that the steps of a run use one after the other.
class Plan : public ConvPlan {
 public:
  Plan(const ConvProblem& p, const dnnl::primitive_desc& pd, Device& device, int threads)
      : problem_(p),
        ops_(device.ops()),
        threads_(threads),
        x_(x_desc(p)),
        y_(y_desc(p)),
        plain_filter_(filter(p, FilterFormat::plain)),
        filter_(pd.query_md(backward_filter() ? query::diff_weights_md : query::weights_md)),
        convolution_(pd, dnnl::primitive(pd)) {
    if (filter_ != plain_filter_)
      reorder_ =
          backward_filter() ? reorder(filter_, plain_filter_) : reorder(plain_filter_, filter_);
    if (p.epilogue.residual) copy_ = reorder(y_, y_);
    scratchpad_bytes_ = convolution_.scratchpad_bytes();
    for (const auto* step : {&reorder_, &copy_})
      if (*step) scratchpad_bytes_ = std::max(scratchpad_bytes_, (*step)->scratchpad_bytes());
    if (backward_filter() && reorder_) blocked_dw_bytes_ = round_up(filter_.get_size(), 64);
  }

  std::size_t workspace_bytes() const noexcept override {
    return blocked_dw_bytes_ + scratchpad_bytes_;
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return !backward_filter() && reorder_ ? filter_.get_size() : 0;
  }

  void pack_filter(ConstSpan w, Span packed, Stream&) const override {
    const ThreadCount count = require_threads(threads_);
    std::vector<std::byte> scratchpad(reorder_->scratchpad_bytes());
    reorder_->execute({{DNNL_ARG_FROM, view(plain_filter_, w.data())},
                       {DNNL_ARG_TO, view(filter_, packed.data())}},
                      scratchpad.data());
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    const ThreadCount count = require_threads(threads_);
    std::byte* const scratchpad = workspace.data() + blocked_dw_bytes_;
    switch (problem_.pass) {
      case Pass::forward:
        forward(args, scratchpad);
        if (const auto kind = problem_.epilogue.activation)
          ops_.activation_forward(problem_.dtype, *kind, problem_.y_desc(), args.out, args.out,
                                  stream);
        break;
      case Pass::backward_data: {
        const PhaseScope phase(args.phases, 0);
        convolution_.execute({{DNNL_ARG_DIFF_DST, view(y_, args.dy)},
                              {DNNL_ARG_WEIGHTS, view(filter_, args.w)},
                              {DNNL_ARG_DIFF_SRC, view(x_, args.out)}},
                             scratchpad);
        break;
      }
      case Pass::backward_filter: {
        void* const dw = reorder_ ? workspace.data() : args.out;
        {
          const PhaseScope phase(args.phases, 0);
          convolution_.execute({{DNNL_ARG_SRC, view(x_, args.x)},
                                {DNNL_ARG_DIFF_DST, view(y_, args.dy)},
                                {DNNL_ARG_DIFF_WEIGHTS, view(filter_, dw)}},
                               scratchpad);
        }
        if (reorder_) {
          const PhaseScope phase(args.phases, 1);
          reorder_->execute(
              {{DNNL_ARG_FROM, view(filter_, dw)}, {DNNL_ARG_TO, view(plain_filter_, args.out)}},
              scratchpad);
        }
        break;
      }
    }
  }

 private:
  bool backward_filter() const { return problem_.pass == Pass::backward_filter; }

  void forward(const ConvArgs& args, std::byte* scratchpad) const {
    const PhaseScope phase(args.phases, 0);
    if (copy_)
      copy_->execute({{DNNL_ARG_FROM, view(y_, args.residual)}, {DNNL_ARG_TO, view(y_, args.out)}},
                     scratchpad);
    Primitive::Args operands{{DNNL_ARG_SRC, view(x_, args.x)},
                             {DNNL_ARG_WEIGHTS, view(filter_, args.w)},
                             {DNNL_ARG_DST, view(y_, args.out)}};
    if (problem_.epilogue.bias)
      operands.insert({DNNL_ARG_BIAS, view(bias_desc(problem_), args.bias)});
    convolution_.execute(std::move(operands), scratchpad);
  }

  ConvProblem problem_;
  const LayerOps& ops_;
  int threads_;
  memory::desc x_, y_, plain_filter_, filter_;
  Primitive convolution_;
  std::optional<Primitive> reorder_, copy_;  // of the filter, absent if KCRS; of the residual
  std::size_t scratchpad_bytes_ = 0, blocked_dw_bytes_ = 0;
};

class OneDnn : public ConvAlgo {
 public:
  OneDnn(AlgoInfo info, algorithm algo) : info_(std::move(info)), algo_(algo) {}

  const AlgoInfo& info() const noexcept override { return info_; }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
    const DeviceInfo& d = device.info();
    if (auto refusal = refuse_other_isa(d)) return refusal;
    try {
      const ThreadCount count(d.threads);
      const std::string implementation = describe(p, algo_).front().impl_info_str();
      if (implementation.find("ref") != std::string::npos)
        return Refusal{
            Field::layout,
            fmt::format("faster code than the reference loops of oneDNN {}", onednn_version()),
            fmt::format("only {} for {} to {}", implementation, to_string(p.x_layout),
                        to_string(p.y_layout))};
      // Seen with 2.6.3 and 3.14, at 1 to 6 channels; once it did not end.
      if (implementation == "jit_1x1:avx2" && p.pass == Pass::backward_filter &&
          p.stride_d * p.stride_h * p.stride_w > 1 && p.x_layout == Layout::nhwc && p.c < 8)
        return Refusal{
            Field::channels, "at least 8 channels with a stride",
            fmt::format("{}, for which {} of oneDNN {} computes wrong sums or never ends", p.c,
                        implementation, onednn_version())};
      // Seen with 2.6.3, by benchdnn's shapes.
      if (winograd() && p.pass == Pass::backward_data && p.pad_bottom() != p.pad_h)
        return Refusal{Field::padding, "as much padding below as above",
                       fmt::format("{} above and {} below, where bwd_d of oneDNN {} is wrong",
                                   p.pad_h, p.pad_bottom(), onednn_version())};
      // Seen with 2.6.3: it adds to those pixels twice.
      if (implementation.starts_with("brgconv") && p.pass == Pass::forward &&
          (p.epilogue.residual || p.accumulate) && some_outside(p))
        return Refusal{
            Field::padding, "pixels of y that all read some of x",
            fmt::format("some that read padding only, where {} of oneDNN {} adds wrongly",
                        implementation, onednn_version())};
    } catch (const dnnl::error& e) {
      if (e.status != dnnl_unimplemented)
        return Refusal{
            Field::library, {}, fmt::format("oneDNN {}: {}", onednn_version(), e.what())};
      return Refusal{Field::layout,
                     {},
                     fmt::format("oneDNN {} has no {} convolution for {} with x in {}, y in {}",
                                 onednn_version(), winograd() ? "Winograd" : "direct",
                                 to_string(p.pass), to_string(p.x_layout), to_string(p.y_layout))};
    }
    return {};
  }

  // For its Winograd every tile size it has, its preferred one first; otherwise the one that it
  // picks.
  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    if (!winograd()) return {Config{}};
    const ThreadCount count(device.info().threads);
    std::vector<Config> configs;
    for (const dnnl::primitive_desc& pd : describe(p, algo_))
      configs.push_back({{"tile", winograd_tile(pd)}});
    return configs;
  }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  // The phase is named after the implementation that oneDNN picks ("jit:avx512_core"). For its
  // Winograd the FLOPs are those of the products: its transforms are not documented.
  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    const ThreadCount count(device.info().threads);
    const dnnl::primitive_desc pd = choose(p, config);
    // If both activations are plain, its kernels reach half of their usual rate.
    const bool plain = p.x_layout == Layout::nchw && p.y_layout == Layout::nchw;
    // Its direct kernels skip the padding, or they would exceed the machine's peak.
    PhaseWork convolution{pd.impl_info_str(), p.flops() * inside_share(p), 0, 0,
                          plain ? 0.45 : 0.75};
    convolution.bytes_read =
        double(p.x_bytes() + p.y_bytes() + p.filter_bytes() - p.output_bytes());
    convolution.bytes_written = double(p.output_bytes());
    if (winograd()) {
      // The transformed tensors go through memory; the filter's was written when it was packed,
      // but in the backward passes it is made in each run.
      const std::int64_t m = winograd_tile(pd), points = (m + 2) * (m + 2);
      const double tiles = double(p.n * ceil_div(p.p, m) * ceil_div(p.q, m));
      const double point_bytes = double(points * size_of(p.dtype));
      const double activations = point_bytes * tiles * double(p.c + p.k);
      const double filter = point_bytes * double(p.k * p.c);
      convolution.flops = 2 * tiles * double(p.k * p.c * points);
      convolution.efficiency = 0.25;
      convolution.bytes_read += activations + filter;
      convolution.bytes_written += activations + (p.pass == Pass::forward ? 0 : filter);
    }
    WorkEstimate estimate{{convolution}};
    if (p.pass != Pass::backward_filter) {
      const memory::desc wanted = pd.query_md(query::weights_md);
      // A reorder into its Winograd's transformed filter is not parallel.
      if (wanted != filter(p, FilterFormat::plain))
        estimate.pack = {"pack_filter", 0, double(p.filter_bytes()), double(wanted.get_size()),
                         winograd() ? 0.02 : 0.8};
    }
    if (p.pass == Pass::backward_filter) {
      const memory::desc dw = pd.query_md(query::diff_weights_md);
      if (dw != filter(p, FilterFormat::plain))
        estimate.phases.push_back(
            {"reorder_dw", 0, double(dw.get_size()), double(p.filter_bytes()), 1});
    }
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    if (winograd())
      config.require_only({"tile"});
    else
      config.require_only({});
    const ThreadCount count(device.info().threads);
    return std::make_unique<Plan>(p, choose(p, config), device, count.threads());
  }

 private:
  bool winograd() const { return algo_ == algorithm::convolution_winograd; }

  // F(m x m, 3 x 3): implementations are named "jit_wino_4x3:avx512_core" and the like.
  static std::int64_t winograd_tile(const dnnl::primitive_desc& pd) {
    return std::string_view(pd.impl_info_str()).find("4x3") != std::string_view::npos ? 4 : 2;
  }

  dnnl::primitive_desc choose(const ConvProblem& p, const Config& config) const {
    for (const dnnl::primitive_desc& pd : describe(p, algo_))
      if (config == Config{} || (winograd() && config == Config{{"tile", winograd_tile(pd)}}))
        return pd;
    throw InputError(
        fmt::format("{} has no configuration '{}' for this problem", info_.id, config.text()));
  }

  AlgoInfo info_;
  algorithm algo_;
};

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

void append_onednn(AlgoRegistry& registry) {
  registry.append(std::make_unique<OneDnn>(
      AlgoInfo{"onednn.direct",
               1,
               DeviceKind::cpu,
               Origin::vendor,
               "oneDNN's direct convolution, whichever implementation it picks",
               {"onednn"},
               "onednn"},
      algorithm::convolution_direct));
#if DNNL_VERSION_MAJOR < 3  // 3.x has none for x86
  registry.append(std::make_unique<OneDnn>(AlgoInfo{"onednn.winograd",
                                                    1,
                                                    DeviceKind::cpu,
                                                    Origin::vendor,
                                                    "oneDNN 2.x's Winograd convolution",
                                                    {"onednn"},
                                                    "onednn"},
                                           algorithm::convolution_winograd));
#endif
}

}  // namespace convlab::cpu
