// W x of all steps as one product, then a recurrent product a step (Appleyard et al. 2016,
// arXiv:1604.01946).
//
// weights=transposed: weights are transposed once, so that forward multiplies them as they then
// lie (NN in place of NT), and backward the other way round.
// backward_filter reads no weights: it is one product over all steps.
#include "kernels_cuda/recurrent/algos.h"
#include "kernels_cuda/recurrent/strategies.h"

namespace convlab::cuda {
namespace {

class BatchedInput : public RecurrentAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "batched_input",
                               .version = 1,
                               .device = DeviceKind::cuda,
                               .summary = "all inputs as one product, then a product a step",
                               .libraries = {"cublas"}};
    return info;
  }
  std::optional<Refusal> refuse(const RecurrentProblem& p, Device&) const override {
    return refuse_sizes(p);
  }
  std::vector<Config> configs(const RecurrentProblem& p, Device&) const override {
    if (p.pass == Pass::backward_filter) return product_configs();
    std::vector<Config> configs;
    for (const std::string_view form : weights_forms)
      for (Config config : product_configs()) {
        config.set("weights", std::string(form));
        configs.push_back(config);
      }
    return configs;
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config& config,
                    Device& device) const override {
    return recurrent_work(p, device.info(), form_of(p, config), true, false);
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device&) const override {
    return make_layered_plan(
        p, std::make_unique<GemmStrategy>(p, product_of(config), form_of(p, config), true));
  }

 private:
  static WeightsForm form_of(const RecurrentProblem& p, const Config& config) {
    if (p.pass == Pass::backward_filter) {
      config.require_only({"product"});
      return WeightsForm::as_given;
    }
    config.require_only({"product", "weights"});
    return config.choice<WeightsForm>("weights", weights_forms);
  }
};

}  // namespace

std::unique_ptr<RecurrentAlgo> make_recurrent_batched_input() {
  return std::make_unique<BatchedInput>();
}

}  // namespace convlab::cuda
