#include "autotune/testbed/testbed.h"

#include <algorithm>
#include <map>

#include "autotune/measure/measure.h"
#include "autotune/testbed/recurrent_testbed.h"
#include "autotune/testbed/verify.h"
#include "conv/optional/plan_note.h"

namespace convlab {
namespace {

class ConvRun : public PlannedRun {
 public:
  ConvRun(const ReferenceCase& reference, std::unique_ptr<Trial> trial)
      : reference_(reference), trial_(std::move(trial)) {}
  std::size_t workspace_bytes() const override { return trial_->plan().workspace_bytes(); }
  std::size_t packed_bytes() const override { return trial_->plan().packed_filter_bytes(); }
  std::string note() const override {
    const auto* const noted = dynamic_cast<const PlanNote*>(&trial_->plan());
    return noted ? noted->note() : "";
  }
  void pack() override { trial_->pack(); }
  void prepare() override { trial_->prepare(); }
  void run(PhaseRecorder* phases) override { trial_->run(phases); }
  std::vector<ConstSpan> memory() const override { return trial_->memory(); }
  CheckResult check(double max_error) override { return trial_->check(reference_, max_error); }

 private:
  const ReferenceCase& reference_;
  std::unique_ptr<Trial> trial_;
};

class ConvTestbed : public Testbed {
 public:
  ConvTestbed(const ConvProblem& problem, std::uint64_t seed, ReferenceCase::Evaluate evaluate,
              Device& device, Stream& stream)
      : reference_(problem, seed, DataKind::normal, evaluate), device_(device), stream_(stream) {}

  bool sampled() const override { return reference_.sampled(); }

  std::unique_ptr<PlannedRun> plan(const AlgoRef& algo, const Candidate& c) override {
    return std::make_unique<ConvRun>(
        reference_,
        std::make_unique<Trial>(*algo.conv(), c.config, operands(c), workspace_, device_, stream_));
  }

  double time_conversions(const Candidate& c) override {
    double sum = 0;
    const ConvProblem problem = in_layouts_of(c);
    for (const TensorDesc& desc : {problem.x_desc(), problem.y_desc()}) {
      if (desc.layout == Layout::nchw) continue;
      TensorDesc plain = desc;
      plain.layout = Layout::nchw;
      const auto bytes = [&](const TensorDesc& d) {
        return std::size_t(d.elements() * size_of(problem.dtype));
      };
      const Buffer from = device_.allocate(bytes(plain)), to = device_.allocate(bytes(desc));
      const std::vector<std::byte> zeros(from.bytes());
      device_.copy_to_device(from.data(), zeros, stream_);
      sum += quick_s([&] {
        device_.ops().convert_layout(problem.dtype, plain, from.data(), desc, to.data(), stream_);
        stream_.synchronize();
      });
    }
    return sum;
  }

 private:
  ConvProblem in_layouts_of(const Candidate& c) const {
    return with_layouts(reference_.problem(), {c.x_layout, c.y_layout});
  }
  Operands& operands(const Candidate& c) {
    std::unique_ptr<Operands>& operands = operands_[{c.x_layout, c.y_layout}];
    if (!operands)
      operands = std::make_unique<Operands>(reference_, in_layouts_of(c), device_, stream_);
    return *operands;
  }

  ReferenceCase reference_;
  Device& device_;
  Stream& stream_;
  std::map<Layouts, std::unique_ptr<Operands>> operands_;
  GuardedBuffer workspace_;  // shared by the candidates in turn
};

}  // namespace

std::unique_ptr<Testbed> make_testbed(const Problem& problem, std::uint64_t seed,
                                      ReferenceCase::Evaluate evaluate, Device& device,
                                      Stream& stream) {
  if (const ConvProblem* const conv = problem.conv())
    return std::make_unique<ConvTestbed>(*conv, seed, evaluate, device, stream);
  return make_recurrent_testbed(*problem.recurrent(), seed, evaluate, device, stream);
}

double reference_s(const Problem& problem) {
  constexpr double flops_per_s = 1e9;
  const double flops = problem.recurrent() ? recurrent_reference_flops(*problem.recurrent())
                                           : std::min(problem.flops(), 2 * full_reference_limit);
  return flops / flops_per_s;
}

}  // namespace convlab
