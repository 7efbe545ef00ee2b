// Persistent weights (Diamos et al. 2016): each thread keeps its hidden units' rows of U, packed,
// in its own caches over all steps. One team of threads runs them, and a step costs one pass over
// a thread's rows and one spinning barrier. A small batch is bound by the former: two cores read
// 1 MiB (512 x 512 in f32) from their L2s in a few microseconds.
//
// It has no backward_filter: that pass reads no weights, and all dgates and hidden states are known
// before it starts. No step waits for another, and all of them are the depth of one product, whose
// sums stay in registers as it is.
#include "kernels_cpu/algos.h"
#include "kernels_cpu/recurrent/strategies.h"

namespace convlab::cpu {
namespace {

class Persistent : public RecurrentAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{
        .id = "persistent",
        .version = 1,
        .summary = "each thread keeps its rows of the recurrent weights, one barrier a step",
        .libraries = {}};
    return info;
  }
  std::optional<Refusal> refuse(const RecurrentProblem& p, Device&) const override {
    if (p.pass == Pass::backward_filter)
      return Refusal{Field::pass, "fwd or bwd_d",
                     "bwd_w, which does not read the recurrent weights: use batched_input"};
    return {};
  }
  std::vector<Config> configs(const RecurrentProblem&, Device&) const override {
    return {Config{}};
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config&, Device& device) const override {
    return layered_work(p, device.info(), Products::resident_panels);
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device& device) const override {
    config.require_only({});
    return make_layered_plan(p, make_panel_strategy(p, device.info(), true));
  }
};

}  // namespace

std::unique_ptr<RecurrentAlgo> make_recurrent_persistent() {
  return std::make_unique<Persistent>();
}

}  // namespace convlab::cpu
