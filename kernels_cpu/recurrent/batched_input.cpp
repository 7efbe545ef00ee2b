// W x of all steps as one product, then a recurrent product a step (Appleyard et al. 2016,
// arXiv:1604.01946).
//
// weights=transposed: they are first packed into panels of columns as the register tile reads them,
// which transposes them in forward; steps go through own kernels, a parallel region each.
// weights=as_given: the device's GEMM reads them where they lie, transposed in forward.
// backward_filter reads no weights: it has no config, and is one product over all steps.
#include <array>
#include <optional>
#include <string_view>

#include "kernels_cpu/algos.h"
#include "kernels_cpu/recurrent/strategies.h"

namespace convlab::cpu {
namespace {

enum class WeightsForm : std::uint8_t { transposed, as_given };
constexpr std::array<std::string_view, 2> weights_forms{"transposed", "as_given"};

class BatchedInput : public RecurrentAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "batched_input",
                               .version = 1,
                               .summary = "all inputs as one product, then a product a step",
                               .libraries = {"openblas"}};
    return info;
  }
  std::optional<Refusal> refuse(const RecurrentProblem&, Device&) const override { return {}; }
  std::vector<Config> configs(const RecurrentProblem& p, Device&) const override {
    if (p.pass == Pass::backward_filter) return {Config{}};
    std::vector<Config> configs;
    for (const std::string_view form : weights_forms)
      configs.push_back(Config{{"weights", std::string(form)}});
    return configs;
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config& config,
                    Device& device) const override {
    return layered_work(
        p, device.info(),
        form_of(p, config) == WeightsForm::as_given ? Products::batched_gemms : Products::panels);
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device& device) const override {
    return make_layered_plan(p, form_of(p, config) == WeightsForm::as_given
                                    ? make_gemm_strategy(p, device, true)
                                    : make_panel_strategy(p, device.info(), false));
  }

 private:
  // None in backward_filter.
  static std::optional<WeightsForm> form_of(const RecurrentProblem& p, const Config& config) {
    if (p.pass == Pass::backward_filter) {
      config.require_only({});
      return {};
    }
    config.require_only({"weights"});
    return config.choice<WeightsForm>("weights", weights_forms);
  }
};

}  // namespace

std::unique_ptr<RecurrentAlgo> make_recurrent_batched_input() {
  return std::make_unique<BatchedInput>();
}

}  // namespace convlab::cpu
