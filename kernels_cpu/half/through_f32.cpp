#include "kernels_cpu/half/through_f32.h"

#include <algorithm>
#include <utility>

#include "conv/two_dimensional.h"
#include "conv/types/arithmetic_type.h"
#include "conv/types/math_type.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/half/convert.h"

namespace convlab::cpu {
namespace {

std::size_t in_lines(std::int64_t floats) {
  return std::size_t(round_up(floats * std::int64_t{sizeof(float)}, 64));
}

bool reads_filter(const ConvProblem& p) { return p.pass != Pass::backward_filter; }

// The tensors of a pass. `other` is what else is read like an activation: the residual, or dy.
struct Tensors {
  std::int64_t in = 0, other = 0, out = 0;  // elements

  explicit Tensors(const ConvProblem& p) {
    const std::int64_t x = p.x_desc().elements(), y = p.y_desc().elements();
    switch (p.pass) {
      case Pass::forward:
        in = x, other = p.epilogue.residual ? y : 0, out = y;
        return;
      case Pass::backward_data:
        in = y, out = x;
        return;
      case Pass::backward_filter:
        in = x, other = y, out = p.filter_elements();
        return;
    }
  }
};

class Plan : public ConvPlan {
 public:
  Plan(const ConvProblem& problem, const ConvProblem& part, std::unique_ptr<ConvPlan> plan,
       int phases, int threads)
      : problem_(problem),
        part_(part),
        of_part_(part),
        plan_(std::move(plan)),
        phases_(phases),
        threads_(threads) {}

  std::size_t workspace_bytes() const noexcept override {
    return in_lines(of_part_.in) + in_lines(of_part_.other) + in_lines(of_part_.out) +
           in_lines(biases()) + plan_->workspace_bytes();
  }
  std::size_t packed_filter_bytes() const noexcept override {
    if (!reads_filter(problem_)) return 0;
    const std::size_t packed = plan_->packed_filter_bytes();
    return packed > 0 ? packed : std::size_t(part_.filter_bytes());
  }
  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    const std::int64_t count = problem_.filter_elements();
    if (plan_->packed_filter_bytes() == 0)
      return widen(problem_.dtype, w.data(), reinterpret_cast<float*>(packed.data()), count,
                   threads_, nullptr, 0);
    std::vector<float> wide(static_cast<std::size_t>(count));
    widen(problem_.dtype, w.data(), wide.data(), count, threads_, nullptr, 0);
    plan_->pack_filter(std::as_bytes(std::span(wide)), packed, stream);
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    std::byte* free = workspace.data();
    const auto take = [&](std::int64_t floats) {
      float* const taken = reinterpret_cast<float*>(free);
      free += in_lines(floats);
      return taken;
    };
    float* const in = take(of_part_.in);
    float* const other = take(of_part_.other);
    float* const out = take(of_part_.out);
    float* const bias = take(biases());
    const bool filter_pass = problem_.pass == Pass::backward_filter;
    const void* const in_half = problem_.pass == Pass::backward_data ? args.dy : args.x;
    const void* const other_half = filter_pass ? args.dy : args.residual;
    ConvArgs wide{.x = in,
                  .w = args.w,
                  .dy = filter_pass ? other : in,
                  .bias = bias,
                  .residual = other,
                  .out = out,
                  .phases = args.phases};
    if (biases() > 0) widen(problem_.dtype, args.bias, bias, biases());
    if (filter_pass) start_sums(args, out);
    const std::int64_t parts = problem_.n / part_.n;
    for (std::int64_t part = 0; part < parts; ++part) {
      read(args, in_half, part, of_part_.in, in);
      read(args, other_half, part, of_part_.other, other);
      if (!filter_pass && problem_.accumulate) read(args, args.out, part, of_part_.out, out);
      plan_->run(wide, workspace.subspan(std::size_t(free - workspace.data())), stream);
      if (!filter_pass || part + 1 == parts) write(args, filter_pass ? 0 : part, out);
    }
  }

 private:
  std::int64_t biases() const { return problem_.epilogue.bias ? problem_.k : 0; }

  void read(const ConvArgs& args, const void* from, std::int64_t part, std::int64_t count,
            float* to) const {
    if (count > 0)
      widen(problem_.dtype, static_cast<const std::uint16_t*>(from) + part * count, to, count,
            threads_, args.phases, phases_);
  }
  void write(const ConvArgs& args, std::int64_t part, const float* from) const {
    round(problem_.dtype, from, static_cast<std::uint16_t*>(args.out) + part * of_part_.out,
          of_part_.out, threads_, args.phases, phases_ + 1);
  }
  void start_sums(const ConvArgs& args, float* sums) const {
    if (problem_.accumulate)
      read(args, args.out, 0, of_part_.out, sums);
    else if (part_.accumulate)
      std::fill_n(sums, of_part_.out, 0.0f);
  }

  const ConvProblem problem_, part_;
  const Tensors of_part_;
  const std::unique_ptr<ConvPlan> plan_;
  const int phases_;  // of the plan
  const int threads_;
};

void multiply(PhaseWork& work, double times) {
  for (double* const part : {&work.flops, &work.bytes_read, &work.bytes_written, &work.waits_s})
    *part *= times;
}

}  // namespace

// The copies of a part are to stay in the cores' own caches, but a part must be large enough that
// passing over the filter again, or over the sums of its gradient, costs little. Parts are equal,
// so that one plan does: their number divides N.
ConvProblem part_in_f32(const ConvProblem& p, const DeviceInfo& device) {
  ConvProblem part = p;
  part.dtype = DType::f32;
  const std::int64_t image = (part.x_bytes() + part.y_bytes()) / p.n;
  const std::int64_t bytes =
      std::max(std::int64_t{device.threads} * device.l2_bytes, 4 * part.filter_bytes());
  part.n = std::clamp<std::int64_t>(bytes / image, 1, p.n);
  while (p.n % part.n != 0) --part.n;
  if (p.pass == Pass::backward_filter && part.n < p.n) part.accumulate = true;
  return part;
}

std::optional<Refusal> ThroughF32::refuse(const ConvProblem& p, Device& device) const {
  if (!has_16_bits(p.dtype)) return ForwardingAlgo::refuse(p, device);
  return ForwardingAlgo::refuse(part_in_f32(p, device.info()), device);
}

bool ThroughF32::by_itself(const ConvProblem& p, const Config& config, Device& device) const {
  return !has_16_bits(p.dtype) || (math_type(config) == MathType::bf16 && takes_itself(p, device));
}

// Slices of depth would be rounded one by one.
bool ThroughF32::takes_itself(const ConvProblem& p, Device& device) const {
  return !refuse_depth(p) && !ForwardingAlgo::refuse(p, device);
}

// Three bf16 products are as good as f32's for a result of 16 bits, so six are not listed. For one
// of bf16 minimal filtering by the smallest tiles may do with one.
std::vector<Config> ThroughF32::configs(const ConvProblem& p, Device& device) const {
  if (!has_16_bits(p.dtype)) return ForwardingAlgo::configs(p, device);
  std::vector<Config> configs = ForwardingAlgo::configs(part_in_f32(p, device.info()), device);
  std::erase_if(configs, [](const Config& c) { return math_type(c) == MathType::bf16x6; });
  std::vector<Config> rounded;
  for (const Config& config : configs)
    if (p.dtype == DType::bf16 && math_type(config) == MathType::bf16x3 && config.has("tile") &&
        config.get("tile") == 2)
      rounded.emplace_back(config).set("math", "bf16");
  configs.insert(configs.end(), rounded.begin(), rounded.end());
  if (takes_itself(p, device)) {
    const std::vector<Config> own = ForwardingAlgo::configs(p, device);
    configs.insert(configs.begin(), own.begin(), own.end());
  }
  return configs;
}

bool ThroughF32::deterministic(const ConvProblem& p, const Config& config) const {
  ConvProblem in_f32 = p;
  if (has_16_bits(p.dtype)) in_f32.dtype = DType::f32;
  return ForwardingAlgo::deterministic(in_f32, config);
}

// The copies are written to and read from the caches that the inner phases count as memory.
WorkEstimate ThroughF32::work(const ConvProblem& p, const Config& config, Device& device) const {
  if (by_itself(p, config, device)) return ForwardingAlgo::work(p, config, device);
  const ConvProblem part = part_in_f32(p, device.info());
  WorkEstimate work = ForwardingAlgo::work(part, config, device);
  const double parts = double(p.n / part.n);
  for (PhaseWork& phase : work.phases) multiply(phase, parts);
  const Tensors of_all(p);
  const bool filter_pass = p.pass == Pass::backward_filter;
  const double read = double(of_all.in + of_all.other + (p.accumulate ? of_all.out : 0));
  const double written = double(of_all.out), w = double(p.filter_elements());
  constexpr double half = 2, wide = 4;
  work.phases.push_back({"widen", 0, half * read, wide * read, packing_efficiency});
  work.phases.push_back({"round", 0, wide * written, half * written, packing_efficiency});
  if (filter_pass) return work;
  if (work.pack.name.empty()) {
    work.pack = {"pack_filter", 0, half * w, wide * w, packing_efficiency};
  } else {
    work.pack.bytes_read += half * w;
    work.pack.bytes_written += wide * w;
  }
  return work;
}

std::unique_ptr<ConvPlan> ThroughF32::plan(const ConvProblem& p, const Config& config,
                                           Device& device) const {
  if (by_itself(p, config, device)) return ForwardingAlgo::plan(p, config, device);
  const ConvProblem part = part_in_f32(p, device.info());
  const auto phases = ForwardingAlgo::work(part, config, device).phases.size();
  return std::make_unique<Plan>(p, part, ForwardingAlgo::plan(part, config, device), int(phases),
                                device.info().threads);
}

}  // namespace convlab::cpu
