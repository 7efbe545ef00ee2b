// A GEMM a step, of weights where they lie: W x_t and U h_{t-1} forward, U^T and W^T backward, and
// the update of both in backward_filter. This is what a program does that calls a library's GEMM,
// and what the others are measured against.
#include "kernels_cpu/algos.h"
#include "kernels_cpu/recurrent/strategies.h"

namespace convlab::cpu {
namespace {

class Stepwise : public RecurrentAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "stepwise",
                               .version = 1,
                               .summary = "a product a step for the input and one for the state",
                               .libraries = {"openblas"}};
    return info;
  }
  std::optional<Refusal> refuse(const RecurrentProblem&, Device&) const override { return {}; }
  std::vector<Config> configs(const RecurrentProblem&, Device&) const override {
    return {Config{}};
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config&, Device& device) const override {
    return layered_work(p, device.info(), Products::gemms);
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device& device) const override {
    config.require_only({});
    return make_layered_plan(p, make_gemm_strategy(p, device, false));
  }
};

}  // namespace

std::unique_ptr<RecurrentAlgo> make_recurrent_stepwise() { return std::make_unique<Stepwise>(); }

}  // namespace convlab::cpu
