#include "kernels_cpu/slices/slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "conv/two_dimensional.h"
#include "kernels_cpu/epilogue.h"
#include "kernels_cpu/zero_padding.h"

namespace convlab::cpu {
namespace {

std::size_t aligned(std::size_t bytes) { return std::size_t(round_up(std::int64_t(bytes), 64)); }

// One slice of KCTRS, as KCRS.
struct FilterSlice {
  std::int64_t filters, taps, size;  // K * C/groups, T, R * S
  std::size_t element;

  explicit FilterSlice(const ConvProblem& p)
      : filters(p.filter_elements() / (p.t * p.r * p.s)),
        taps(p.t),
        size(p.r * p.s),
        element(std::size_t(size_of(p.dtype))) {}
  std::size_t bytes() const { return std::size_t(filters * size) * element; }
  std::size_t at(std::int64_t filter, std::int64_t tap) const {
    return std::size_t((filter * taps + tap) * size) * element;
  }
  void copy(const std::byte* w, std::int64_t tap, std::byte* to) const {
    const std::size_t row = std::size_t(size) * element;
    for (std::int64_t i = 0; i < filters; ++i, to += row) std::memcpy(to, w + at(i, tap), row);
  }
  // dw[:, :, tap] = from, or += from.
  template <class T>
  void put(const T* from, bool add, T* dw, std::int64_t tap, int threads) const {
#pragma omp parallel for num_threads(threads)
    for (std::int64_t i = 0; i < filters; ++i) {
      T* const to = dw + (i * taps + tap) * size;
      for (std::int64_t j = 0; j < size; ++j)
        to[j] = (from ? from[i * size + j] : T(0)) + (add ? to[j] : T(0));
    }
  }
};

class Plan : public ConvPlan {
 public:
  // plan_of(problem): the plan of one slice. last_phase: putting slices of dw into place, or all of
  // the work where every tap reads padding.
  template <class PlanOf>
  Plan(const ConvProblem& p, Views views, int threads, int last_phase, const PlanOf& plan_of)
      : problem_(p), threads_(threads), last_phase_(last_phase), filter_(p) {
    std::vector<ConvProblem> known;
    for (const SliceCall& call : slice_calls(p, views)) {
      const std::size_t plan =
          std::size_t(std::find(known.begin(), known.end(), call.problem) - known.begin());
      if (plan == known.size()) {
        known.push_back(call.problem);
        plans_.push_back(plan_of(call.problem));
        workspace_bytes_ = std::max(workspace_bytes_, plans_.back()->workspace_bytes());
      }
      calls_.push_back(
          {plan, call.tap, call.x_at * size_of(p.dtype), call.y_at * size_of(p.dtype)});
    }
    if (backward_filter()) {
      gradient_bytes_ = p.t > 1 && !calls_.empty() ? aligned(filter_.bytes()) : 0;
      return;
    }
    if (!p.accumulate) untouched_ = untouched_slices(p);
    // A single slice is the filter as it is.
    if (p.t > 1 || std::any_of(plans_.begin(), plans_.end(),
                               [](const auto& plan) { return plan->packed_filter_bytes() > 0; }))
      for (Call& call : calls_) call.filter_at = packed_at(call.plan, call.tap);
  }

  std::size_t workspace_bytes() const noexcept override {
    return gradient_bytes_ + workspace_bytes_;
  }
  std::size_t packed_filter_bytes() const noexcept override { return packed_bytes_; }

  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    std::vector<std::byte> slice(filter_.bytes());
    for (const Packed& p : packed_) {
      const std::size_t bytes = plan_bytes(p.plan);
      filter_.copy(w.data(), p.tap, bytes > 0 ? slice.data() : packed.data() + p.at);
      if (bytes > 0) plans_[p.plan]->pack_filter(slice, packed.subspan(p.at, bytes), stream);
    }
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    if (problem_.dtype == DType::f64)
      run<double>(args, workspace, stream);
    else
      run<float>(args, workspace, stream);
  }

 private:
  struct Call {
    std::size_t plan;
    std::int64_t tap, x_at, y_at;  // in bytes
    std::size_t filter_at = 0;
  };
  struct Packed {
    std::size_t plan;
    std::int64_t tap;
    std::size_t at;
  };

  bool backward_filter() const { return problem_.pass == Pass::backward_filter; }
  std::size_t plan_bytes(std::size_t plan) const { return plans_[plan]->packed_filter_bytes(); }

  // Where the plan's filter of the tap is packed. Plans that take it as KCRS share it.
  std::size_t packed_at(std::size_t plan, std::int64_t tap) {
    const std::size_t bytes = plan_bytes(plan);
    for (const Packed& p : packed_)
      if (p.tap == tap && (p.plan == plan || (bytes == 0 && plan_bytes(p.plan) == 0))) return p.at;
    const std::size_t at = packed_bytes_;
    packed_.push_back({plan, tap, at});
    packed_bytes_ += aligned(bytes > 0 ? bytes : filter_.bytes());
    return at;
  }

  template <class T>
  static T* advance(T* data, std::int64_t bytes) {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return data == nullptr ? nullptr : static_cast<Byte*>(data) + bytes;
  }

  template <class T>
  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const {
    const Workspace of_plan = workspace.subspan(gradient_bytes_);
    if (!backward_filter()) {
      if (calls_.empty()) {
        const PhaseScope phase(args.phases, last_phase_);
        fill_untouched<T>(args);
        return;
      }
      fill_untouched<T>(args);
      for (const Call& call : calls_) run(call, args, of_plan, stream);
      return;
    }
    auto call = calls_.begin();
    for (std::int64_t tap = 0; tap < problem_.t; ++tap) {
      ConvArgs slice = args;
      if (gradient_bytes_ > 0) slice.out = workspace.data();
      const auto first = call;
      for (; call != calls_.end() && call->tap == tap; ++call) run(*call, slice, of_plan, stream);
      const PhaseScope phase(args.phases, last_phase_);
      if (const bool computed = call != first; gradient_bytes_ > 0 || !computed)
        filter_.put(computed ? static_cast<const T*>(slice.out) : nullptr, problem_.accumulate,
                    static_cast<T*>(args.out), tap, threads_);
    }
  }

  void run(const Call& call, const ConvArgs& args, Workspace workspace, Stream& stream) const {
    ConvArgs slice = args;
    slice.x = advance(args.x, call.x_at);
    slice.dy = advance(args.dy, call.y_at);
    slice.residual = advance(args.residual, call.y_at);
    if (problem_.pass == Pass::forward) slice.out = advance(args.out, call.y_at);
    if (problem_.pass == Pass::backward_data) slice.out = advance(args.out, call.x_at);
    if (packed_bytes_ > 0 && args.w != nullptr)
      slice.w = static_cast<const std::byte*>(args.w) + call.filter_at;
    plans_[call.plan]->run(slice, workspace, stream);
  }

  // Their sums are empty.
  template <class T>
  void fill_untouched(const ConvArgs& args) const {
    const bool forward = problem_.pass == Pass::forward;
    const TensorDesc out = forward ? problem_.y_desc() : problem_.x_desc();
    const std::int64_t rows = forward ? problem_.p : problem_.h;
    const OutputEpilogue<T> output = output_epilogue<T>(problem_, args);
    for (const std::int64_t slice : untouched_) {
#pragma omp parallel for collapse(2) num_threads(threads_)
      for (std::int64_t n = 0; n < out.n; ++n)
        for (std::int64_t row = slice * rows; row < (slice + 1) * rows; ++row)
          for (std::int64_t c = 0; c < out.padded_c(); ++c)
            for (std::int64_t w = 0; w < out.w; ++w) {
              const std::int64_t at = out.offset(n, c, row, w);
              if (c < out.c)
                output.store(at, c, T(0));
              else
                output.out[at] = 0;
            }
    }
  }

  ConvProblem problem_;
  int threads_, last_phase_;
  FilterSlice filter_;
  std::vector<std::unique_ptr<ConvPlan>> plans_;
  std::vector<Call> calls_;
  std::vector<Packed> packed_;
  std::vector<std::int64_t> untouched_;
  std::size_t workspace_bytes_ = 0, packed_bytes_ = 0, gradient_bytes_ = 0;
};

// A problem of a schedule, and how often it runs, with how many taps.
struct Distinct {
  ConvProblem problem;
  std::int64_t runs = 0;
  std::set<std::int64_t> taps = {};
};

// The largest batch first. Where every tap reads padding nothing runs: a single slice then stands
// for the problem, and decides who refuses it and with which configs.
std::vector<Distinct> distinct_problems(const ConvProblem& p, Views views) {
  std::vector<Distinct> found;
  for (const SliceCall& call : slice_calls(p, views)) {
    auto at = std::find_if(found.begin(), found.end(),
                           [&](const Distinct& d) { return d.problem == call.problem; });
    if (at == found.end()) at = found.insert(at, {call.problem});
    ++at->runs;
    at->taps.insert(call.tap);
  }
  if (found.empty()) found.push_back({single_slice(p)});
  std::stable_sort(found.begin(), found.end(),
                   [](const Distinct& a, const Distinct& b) { return a.problem.n > b.problem.n; });
  return found;
}

void add(const PhaseWork& from, std::size_t times, PhaseWork& to) {
  if (to.name.empty()) to = {from.name, 0, 0, 0, from.efficiency};
  to.flops += double(times) * from.flops;
  to.bytes_read += double(times) * from.bytes_read;
  to.bytes_written += double(times) * from.bytes_written;
  to.waits_s += double(times) * from.waits_s;
}

}  // namespace

std::optional<Refusal> BySlices::refuse(const ConvProblem& p, Device& device) const {
  if (const auto flat = without_depth(p)) return ForwardingAlgo::refuse(*flat, device);
  const std::vector<Distinct> slices = distinct_problems(p, views_);
  for (const Distinct& slice : slices) {
    if (auto refusal = ForwardingAlgo::refuse(slice.problem, device)) return refusal;
    if (views_ == Views::none && slice.problem.is_view())
      return Refusal{Field::depth, "slices of a depth that are tensors themselves, as in nhwc",
                     fmt::format("{} to {}", to_string(p.x_layout), to_string(p.y_layout))};
  }
  return {};
}

std::vector<Config> BySlices::configs(const ConvProblem& p, Device& device) const {
  if (const auto flat = without_depth(p)) return ForwardingAlgo::configs(*flat, device);
  return ForwardingAlgo::configs(distinct_problems(p, views_).front().problem, device);
}

bool BySlices::deterministic(const ConvProblem& p, const Config& config) const {
  if (const auto flat = without_depth(p)) return ForwardingAlgo::deterministic(*flat, config);
  return ForwardingAlgo::deterministic(distinct_problems(p, views_).front().problem, config);
}

Config BySlices::config_of(const ConvProblem& slice, const Config& config, Device& device) const {
  const std::vector<Config> known = ForwardingAlgo::configs(slice, device);
  return std::find(known.begin(), known.end(), config) != known.end() ? config : known.front();
}

WorkEstimate BySlices::work(const ConvProblem& p, const Config& config, Device& device) const {
  if (const auto flat = without_depth(p)) return ForwardingAlgo::work(*flat, config, device);
  const std::vector<Distinct> slices = distinct_problems(p, views_);
  WorkEstimate sum;
  if (slices.front().runs == 0) {
    sum.phases.push_back({"fill_zeros", 0, 0, p.accumulate ? 0 : double(p.output_bytes()), 1});
    return sum;
  }
  for (const Distinct& slice : slices) {
    const WorkEstimate one =
        ForwardingAlgo::work(slice.problem, config_of(slice.problem, config, device), device);
    sum.phases.resize(std::max(sum.phases.size(), one.phases.size()));
    for (std::size_t i = 0; i < one.phases.size(); ++i)
      add(one.phases[i], std::size_t(slice.runs), sum.phases[i]);
    if (!one.pack.name.empty()) add(one.pack, slice.taps.size(), sum.pack);
  }
  if (p.pass == Pass::backward_filter && p.t > 1)
    sum.phases.push_back(
        {"place_slices", 0, double(p.filter_bytes()), double(p.filter_bytes()), 1});
  return sum;
}

std::unique_ptr<ConvPlan> BySlices::plan(const ConvProblem& p, const Config& config,
                                         Device& device) const {
  if (const auto flat = without_depth(p))
    return with_zero_padding(*flat, ForwardingAlgo::plan(*flat, config, device));
  const ConvProblem whole_batch = distinct_problems(p, views_).front().problem;
  const int last_phase = int(work(p, config, device).phases.size()) - 1;
  auto by_slices = std::make_unique<Plan>(
      p, views_, device.info().threads, last_phase, [&](const ConvProblem& slice) {
        return ForwardingAlgo::plan(
            slice, slice == whole_batch ? config : config_of(slice, config, device), device);
      });
  return with_zero_padding(p, std::move(by_slices));
}

}  // namespace convlab::cpu
