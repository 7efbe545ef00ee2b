// W x of all steps as one product, then a recurrent product a step (Appleyard et al. 2016,
// arXiv:1604.01946).
//
// transpose=1: weights are first packed into panels of columns as the register tile reads them,
// which transposes them in forward; steps go through own kernels, a parallel region each.
// transpose=0: the device's GEMM reads them where they lie, transposed in forward.
// backward_filter is one product over all steps in either case.
#include <fmt/format.h>

#include "conv/error.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/recurrent/layer.h"

namespace convlab::cpu {
namespace {

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
    return {Config{{"transpose", 1}}, Config{{"transpose", 0}}};
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config& config,
                    Device& device) const override {
    return layered_work(p, device.info(), packs(p, config), false);
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device& device) const override {
    if (p.pass == Pass::backward_filter)
      config.require_only({});
    else
      config.require_only({"transpose"});
    return make_layered_plan(p, p.pass == Pass::backward_filter || packs(p, config)
                                    ? make_panel_strategy(p, device.info(), false)
                                    : make_gemm_strategy(p, device, true));
  }

 private:
  static bool packs(const RecurrentProblem& p, const Config& config) {
    if (p.pass == Pass::backward_filter) return false;
    const std::int64_t transpose = config.get("transpose");
    if (transpose != 0 && transpose != 1)
      throw InputError(fmt::format("batched_input: transpose is {}: expected 0 or 1", transpose));
    return transpose == 1;
  }
};

}  // namespace

std::unique_ptr<RecurrentAlgo> make_recurrent_batched_input() {
  return std::make_unique<BatchedInput>();
}

}  // namespace convlab::cpu
