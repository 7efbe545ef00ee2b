// The device's GEMM on weights where they lie: one product a step, or one for all inputs.
#include <omp.h>

#include <cstring>

#include "kernels_cpu/gemm/panels.h"
#include "kernels_cpu/layers/layer_work.h"
#include "kernels_cpu/recurrent/cells.h"
#include "kernels_cpu/recurrent/strategies.h"

namespace convlab::cpu {
namespace {

class GemmStrategy : public HostStrategy {
 public:
  GemmStrategy(const RecurrentProblem& p, Device& device, bool batched)
      : pass_(p.pass),
        recompute_(p.pass == Pass::backward_data && p.recompute && p.saved_values() > 0),
        ops_(device.ops()),
        threads_(device.info().threads),
        batched_(batched) {}

  // h_{t-1} as the GEMM takes it, without gaps; of forward also the sums of U h, and those of W x.
  std::int64_t scratch_bytes(const LayerSizes& l) const override {
    if (pass_ == Pass::backward_data && !recompute_) return 0;
    const std::int64_t before = round_up(l.bytes(l.n * l.h), 64);
    return pass_ == Pass::backward_filter
               ? before
               : before + sums_bytes(l, l.n) +
                     sums_bytes(l, batched_ || recompute_ ? l.rows() : l.n);
  }

  void forward(const LayerForward& l) const override {
    const Scratch scratch(l);
    const bool at_once = batched_ || l.recompute;
    if (at_once) {
      const PhaseScope phase(l.phases, 0);
      gemm(l, {.m = l.rows(), .n = l.sums(), .k = l.in, .transpose_b = true}, l.inputs,
           l.weights_at, scratch.of_x);
    }
    for (std::int64_t i = 0; i < l.t; ++i) {
      const std::int64_t t = l.time(i);
      void* const of_x = at_once ? l.at(scratch.of_x, t * l.n * l.sums()) : scratch.of_x;
      if (!at_once) {
        const PhaseScope phase(l.phases, 0);
        gemm(l, {.m = l.n, .n = l.sums(), .k = l.in, .transpose_b = true},
             l.at(l.inputs, t * l.n * l.in), l.weights_at, of_x);
      }
      const PhaseScope phase(l.phases, l.recompute ? 0 : 1);
      gemm(l, {.m = l.n, .n = l.sums(), .k = l.h, .transpose_b = true}, without_gaps(l, i, scratch),
           l.at(l.weights_at, l.w_hh()), scratch.of_h);
      run_all(l, forward_cells(l, i, of_x, scratch.of_h));
    }
  }

  void backward_data(const LayerBackward& l) const override {
    const bool gru = l.cell == RecurrentCell::gru;
    for (std::int64_t i = l.t - 1; i >= 0; --i) {
      const std::int64_t t = l.time(i), sums_at = t * l.n * l.sums();
      void* const dgates = l.at(l.dgates, sums_at);
      void* const recurrent = gru ? l.at(l.recurrent_dgates, sums_at) : dgates;
      {
        const PhaseScope phase(l.phases, 0);
        run_all(l, backward_cells(l, i));
        gemm(l, {.m = l.n, .n = l.h, .k = l.sums(), .accumulate = gru}, recurrent,
             l.at(l.weights_at, l.w_hh()), l.dh);
      }
      if (!batched_ && l.dinputs != nullptr) {
        const PhaseScope phase(l.phases, 1);
        gemm(l, {.m = l.n, .n = l.in, .k = l.sums(), .accumulate = l.add_inputs}, dgates,
             l.weights_at, l.at(l.dinputs, t * l.n * l.in));
      }
    }
    if (batched_ && l.dinputs != nullptr) {
      const PhaseScope phase(l.phases, 1);
      gemm(l, {.m = l.rows(), .n = l.in, .k = l.sums(), .accumulate = l.add_inputs}, l.dgates,
           l.weights_at, l.dinputs);
    }
  }

  void backward_filter(const LayerFilter& l) const override {
    const PhaseScope phase(l.phases, 0);
    const Scratch scratch(l);
    for (std::int64_t i = 0; i < l.t; ++i) {
      const std::int64_t t = l.time(i), sums_at = t * l.n * l.sums();
      const bool add = i > 0;
      gemm(l, {.m = l.sums(), .n = l.in, .k = l.n, .transpose_a = true, .accumulate = add},
           l.at(l.dgates, sums_at), l.at(l.inputs, t * l.n * l.in), l.dweights);
      gemm(l, {.m = l.sums(), .n = l.h, .k = l.n, .transpose_a = true, .accumulate = add},
           l.at(l.recurrent_dgates, sums_at), without_gaps(l, i, scratch),
           l.at(l.dweights, l.w_hh()));
    }
    for (const auto& [from, to] : {std::pair{l.dgates, l.b_ih()}, {l.recurrent_dgates, l.b_hh()}})
      sum_rows(l.dtype, from, l.rows(), l.sums(), {0, l.sums()}, l.at(l.dweights, to));
  }

 private:
  struct Scratch {
    std::byte *before, *of_h, *of_x;
    explicit Scratch(const LayerRun& l)
        : before(l.scratch),
          of_h(before + round_up(l.bytes(l.n * l.h), 64)),
          of_x(of_h + sums_bytes(l, l.n)) {}
  };
  static std::int64_t sums_bytes(const LayerSizes& l, std::int64_t rows) {
    return round_up(l.bytes(rows * l.sums()), 64);
  }

  void gemm(const LayerRun& l, const GemmDesc& desc, const void* a, const void* b, void* c) const {
    ops_.gemm(l.dtype, desc, a, b, c, *l.stream);
  }

  static const void* without_gaps(const LayerRun& l, std::int64_t i, const Scratch& scratch) {
    const auto* const before = static_cast<const std::byte*>(l.before(i));
    if (l.before_step(i) == l.h) return before;
    for (std::int64_t n = 0; n < l.n; ++n)
      std::memcpy(l.at(scratch.before, n * l.h), l.at(before, n * l.before_step(i)),
                  std::size_t(l.bytes(l.h)));
    return scratch.before;
  }

  template <class Cells>
  void run_all(const LayerSizes& l, const Cells& cells) const {
    constexpr std::int64_t line = 16;  // units that no two threads share
#pragma omp parallel num_threads(threads_) if (8 * l.n * l.sums() > serial_elements)
    {
      const Range lines = share(ceil_div(l.h, line), omp_get_thread_num(), omp_get_num_threads());
      run_cells(cells, {0, l.n},
                {std::min(l.h, lines.begin * line), std::min(l.h, lines.end * line)});
    }
  }

  Pass pass_;
  bool recompute_;
  const LayerOps& ops_;
  int threads_;
  bool batched_;
};

}  // namespace

std::unique_ptr<LayerStrategy> make_gemm_strategy(const RecurrentProblem& p, Device& device,
                                                  bool batched) {
  return std::make_unique<GemmStrategy>(p, device, batched);
}

}  // namespace convlab::cpu
