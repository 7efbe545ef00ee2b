// A product a step, of weights where they lie: W x_t and U h_{t-1} forward, U^T and W^T backward,
// and the update of both in backward_filter.
#include "kernels_cuda/recurrent/algos.h"
#include "kernels_cuda/recurrent/strategies.h"

namespace convlab::cuda {
namespace {

class Stepwise : public RecurrentAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "stepwise",
                               .version = 1,
                               .device = DeviceKind::cuda,
                               .summary = "a product a step for the input and one for the state",
                               .libraries = {"cublas"}};
    return info;
  }
  std::optional<Refusal> refuse(const RecurrentProblem& p, Device&) const override {
    return refuse_sizes(p);
  }
  std::vector<Config> configs(const RecurrentProblem&, Device&) const override {
    return product_configs();
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config&, Device& device) const override {
    return recurrent_work(p, device.info(), WeightsForm::as_given, false, false);
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device&) const override {
    config.require_only({"product"});
    return make_layered_plan(
        p, std::make_unique<GemmStrategy>(p, product_of(config), WeightsForm::as_given, false));
  }
};

}  // namespace

std::unique_ptr<RecurrentAlgo> make_recurrent_stepwise() { return std::make_unique<Stepwise>(); }

}  // namespace convlab::cuda
