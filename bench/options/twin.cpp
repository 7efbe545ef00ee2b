#include "bench/options/twin.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "bench/options/flags.h"
#include "conv/error.h"
#include "conv/forwarding_algo.h"

namespace convlab {
namespace {

class SlowedPlan : public ConvPlan {
 public:
  SlowedPlan(std::unique_ptr<ConvPlan> plan, double factor)
      : plan_(std::move(plan)), factor_(factor) {}
  std::size_t workspace_bytes() const noexcept override { return plan_->workspace_bytes(); }
  std::size_t packed_filter_bytes() const noexcept override { return plan_->packed_filter_bytes(); }
  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    slowed([&] { plan_->pack_filter(w, packed, stream); });
  }
  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    slowed([&] { plan_->run(args, workspace, stream); });
  }

 private:
  template <class Work>
  void slowed(const Work& work) const {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    work();
    if (factor_ <= 1) return;
    const auto end = start + std::chrono::duration<double>(factor_ * (Clock::now() - start));
    while (Clock::now() < end) {
    }
  }
  std::unique_ptr<ConvPlan> plan_;
  double factor_;
};

class Twin : public ForwardingAlgo {
 public:
  Twin(const ConvAlgo& algo, double factor)
      : ForwardingAlgo(algo), factor_(factor), info_(algo.info()) {
    info_.id += ".twin";  // the algorithm's name matches it too, and so does its family's
  }
  const AlgoInfo& info() const noexcept override { return info_; }
  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& c, Device& d) const override {
    return std::make_unique<SlowedPlan>(ForwardingAlgo::plan(p, c, d), factor_);
  }

 private:
  double factor_;
  AlgoInfo info_;
};

}  // namespace

void append_twin(AlgoRegistry& registry) {
  const char* const wanted = std::getenv("CONVLAB_TWIN");
  if (!wanted || *wanted == '\0') return;
  const std::string text = wanted;
  const std::size_t colon = text.find(':');
  const std::optional<double> factor =
      colon == std::string::npos
          ? std::optional(1.0)
          : naming("CONVLAB_TWIN", [&] { return parse_number(text.substr(colon + 1)); });
  if (!factor || !(*factor >= 1) || *factor > 100)
    throw InputError(fmt::format(
        "CONVLAB_TWIN '{}': expected ALGO or ALGO:FACTOR with a factor from 1 to 100", text));
  const ConvAlgo& algo = naming("CONVLAB_TWIN", [&]() -> const ConvAlgo& {
    return registry.get(DeviceKind::cpu, text.substr(0, colon));
  });
  registry.append(std::make_unique<Twin>(algo, *factor));
}

}  // namespace convlab
