// One product a step, or one for all inputs, by the own kernel or cuBLAS.
#include <algorithm>

#include "kernels_cuda/cuda.h"
#include "kernels_cuda/device/runtime.h"
#include "kernels_cuda/recurrent/product.h"
#include "kernels_cuda/recurrent/strategies.h"
#include "kernels_cuda/recurrent/units.h"

namespace convlab::cuda {

Product product_of(const Config& config) {
  return config.choice<Product>("product", product_names);
}

std::vector<Config> product_configs() {
  std::vector<Config> configs{Config{{"product", "own"}}};
  if (!missing_cuda_libraries().contains("cublas"))
    configs.push_back(Config{{"product", "cublas"}});
  return configs;
}

std::optional<Refusal> refuse_sizes(const RecurrentProblem& p) {
  constexpr std::int64_t most = std::int64_t(1) << 31;
  const std::int64_t largest = std::max({p.t * p.n, p.gates() * p.h, p.i, p.directions() * p.h});
  if (largest < most) return {};
  return Refusal{Field::size, "products of fewer than 2^31 rows and columns",
                 std::to_string(largest)};
}

GemmStrategy::GemmStrategy(const RecurrentProblem& p, Product product, WeightsForm form,
                           bool batched)
    : pass_(p.pass),
      dtype_(p.dtype),
      recompute_(p.pass == Pass::backward_data && p.recompute && p.saved_values() > 0),
      product_(product),
      form_(form),
      batched_(batched) {}

// Sums of U h of a step, and of W x of one or all.
std::int64_t GemmStrategy::scratch_bytes(const LayerSizes& l) const {
  if (pass_ == Pass::backward_filter || (pass_ == Pass::backward_data && !recompute_)) return 0;
  const std::int64_t of_step = round_up(l.bytes(l.n * l.sums()), 64);
  return of_step + (batched_ ? round_up(l.bytes(l.rows() * l.sums()), 64) : of_step);
}

std::int64_t GemmStrategy::packed_bytes(const LayerSizes& l) const {
  return form_ == WeightsForm::transposed && pass_ != Pass::backward_filter ? l.bytes(l.weights())
                                                                            : 0;
}

void GemmStrategy::pack(const LayerSizes& l, const void* weights, std::byte* packed,
                        Stream& stream) const {
  transpose(l.dtype, weights, l.sums(), l.in, packed, stream);
  transpose(l.dtype, l.at(weights, l.w_hh()), l.sums(), l.h, l.at(packed, l.w_hh()), stream);
  copy_rows(l.at(packed, l.b_ih()), 0, l.at(weights, l.b_ih()), 0, l.bytes(2 * l.sums()), 1,
            stream);
}

void GemmStrategy::copy_rows(std::byte* to, std::int64_t to_step, const std::byte* from,
                             std::int64_t from_step, std::int64_t row_bytes, std::int64_t rows,
                             Stream& stream) const {
  cuda::copy_rows(dtype_, to, to_step, from, from_step, row_bytes, rows, stream);
}

void GemmStrategy::multiply(const LayerRun& l, Gemm g, const void* a, const void* b,
                            bool accumulate, void* c) const {
  g.dtype = l.dtype;
  if (product_ == Product::own)
    own_gemm(g, a, b, accumulate, c, *l.stream);
  else
    gemm(g, 1, a, b, double(accumulate), c, *l.stream);
}

// ---- Forward ----

void GemmStrategy::forward(const LayerForward& l) const {
  std::byte* const of_x = l.scratch + round_up(l.bytes(l.n * l.sums()), 64);
  if (!batched_) {
    for (std::int64_t i = 0; i < l.t; ++i) {
      run_phase(l.phases, 0, *l.stream, [&] { inputs_product(l, l.time(i), 1, of_x); });
      run_phase(l.phases, l.recompute ? 0 : 1, *l.stream, [&] { step(l, i, of_x, l.scratch); });
    }
    return;
  }
  run_phase(l.phases, 0, *l.stream, [&] { inputs_product(l, 0, l.t, of_x); });
  run_phase(l.phases, l.recompute ? 0 : 1, *l.stream, [&] { forward_steps(l, of_x, l.scratch); });
}

void GemmStrategy::forward_steps(const LayerForward& l, const void* of_x, void* scratch) const {
  for (std::int64_t i = 0; i < l.t; ++i)
    step(l, i, l.at(of_x, l.time(i) * l.n * l.sums()), scratch);
}

void GemmStrategy::inputs_product(const LayerForward& l, std::int64_t first_time,
                                  std::int64_t times, void* of_x) const {
  const bool as_given = form_ == WeightsForm::as_given;
  multiply(l,
           {.m = times * l.n,
            .n = l.sums(),
            .k = l.in,
            .transpose_b = as_given,
            .lda = l.in,
            .ldb = as_given ? l.in : l.sums(),
            .ldc = l.sums()},
           l.at(l.inputs, first_time * l.n * l.in), l.weights_at, false, of_x);
}

void GemmStrategy::step(const LayerForward& l, std::int64_t i, const void* of_x, void* of_h) const {
  const bool as_given = form_ == WeightsForm::as_given;
  multiply(l,
           {.m = l.n,
            .n = l.sums(),
            .k = l.h,
            .transpose_b = as_given,
            .lda = l.before_step(i),
            .ldb = as_given ? l.h : l.sums(),
            .ldc = l.sums()},
           l.before(i), l.at(l.weights_at, l.w_hh()), false, of_h);
  run_cells(forward_cells(l, i, of_x, of_h), l.n, *l.stream);
}

// ---- Backward ----

void GemmStrategy::backward_data(const LayerBackward& l) const {
  if (batched_) {
    run_phase(l.phases, 0, *l.stream, [&] { backward_steps(l); });
    run_phase(l.phases, 1, *l.stream, [&] { inputs_gradient(l, 0, l.t); });
    return;
  }
  for (std::int64_t i = l.t - 1; i >= 0; --i) {
    run_phase(l.phases, 0, *l.stream, [&] { backward_step(l, i); });
    run_phase(l.phases, 1, *l.stream, [&] { inputs_gradient(l, l.time(i), 1); });
  }
}

void GemmStrategy::backward_steps(const LayerBackward& l) const {
  for (std::int64_t i = l.t - 1; i >= 0; --i) backward_step(l, i);
}

void GemmStrategy::backward_step(const LayerBackward& l, std::int64_t i) const {
  const bool transposed = form_ == WeightsForm::transposed, gru = l.cell == RecurrentCell::gru;
  run_cells(backward_cells(l, i), l.n, *l.stream);
  multiply(l,
           {.m = l.n,
            .n = l.h,
            .k = l.sums(),
            .transpose_b = transposed,
            .lda = l.sums(),
            .ldb = transposed ? l.sums() : l.h,
            .ldc = l.h},
           l.at(l.recurrent_dgates, l.time(i) * l.n * l.sums()), l.at(l.weights_at, l.w_hh()), gru,
           l.dh);
}

void GemmStrategy::inputs_gradient(const LayerBackward& l, std::int64_t first_time,
                                   std::int64_t times) const {
  if (l.dinputs == nullptr) return;
  const bool transposed = form_ == WeightsForm::transposed;
  multiply(l,
           {.m = times * l.n,
            .n = l.in,
            .k = l.sums(),
            .transpose_b = transposed,
            .lda = l.sums(),
            .ldb = transposed ? l.sums() : l.in,
            .ldc = l.in},
           l.at(l.dgates, first_time * l.n * l.sums()), l.weights_at, l.add_inputs,
           l.at(l.dinputs, first_time * l.n * l.in));
}

// Batched, the states before all steps but the first are hidden states one after the other.
void GemmStrategy::backward_filter(const LayerFilter& l) const {
  run_phase(l.phases, 0, *l.stream, [&] {
    const std::int64_t per_product = batched_ ? l.t : 1;
    for (std::int64_t time = 0; time < l.t; time += per_product)
      multiply(l,
               {.m = l.sums(),
                .n = l.in,
                .k = per_product * l.n,
                .transpose_a = true,
                .lda = l.sums(),
                .ldb = l.in,
                .ldc = l.in},
               l.at(l.dgates, time * l.n * l.sums()), l.at(l.inputs, time * l.n * l.in), time > 0,
               l.dweights);
    const auto dgates_at = [&](std::int64_t time) {
      return l.at(l.recurrent_dgates, time * l.n * l.sums());
    };
    recurrent_filter(l, dgates_at(l.time(0)), l.n, l.h0, l.h, false);
    const std::int64_t steps = batched_ ? l.t - 1 : 1;
    for (std::int64_t i = 1; i < l.t; i += steps) {
      const std::int64_t first = l.reversed ? l.time(i + steps - 1) : l.time(i);
      recurrent_filter(l, dgates_at(first), steps * l.n, l.hidden_at(first + (l.reversed ? 1 : -1)),
                       l.hidden_step, true);
    }
    sum_rows(l.dtype, l.dgates, l.rows(), l.sums(), l.at(l.dweights, l.b_ih()), *l.stream);
    sum_rows(l.dtype, l.recurrent_dgates, l.rows(), l.sums(), l.at(l.dweights, l.b_hh()),
             *l.stream);
  });
}

void GemmStrategy::recurrent_filter(const LayerFilter& l, const void* dgates, std::int64_t rows,
                                    const void* before, std::int64_t before_step,
                                    bool accumulate) const {
  multiply(l,
           {.m = l.sums(),
            .n = l.h,
            .k = rows,
            .transpose_a = true,
            .lda = l.sums(),
            .ldb = before_step,
            .ldc = l.h},
           dgates, before, accumulate, l.at(l.dweights, l.w_hh()));
}

// ---- Work ----

WorkEstimate recurrent_work(const RecurrentProblem& p, const DeviceInfo& card, WeightsForm form,
                            bool batched, bool resident) {
  const double element = double(size_of(p.dtype)), steps = double(p.t);
  const double first_w = p.has_input_product() ? 0 : double(p.input_weights_bytes());
  const double u = double(p.recurrent_bytes()), w = double(p.weights_bytes()) - u - first_w;
  const double recurrent = 2 * double(p.n) * steps * u / element, inputs = p.flops() - recurrent;
  const double data = double(p.x_bytes() + p.y_bytes());
  const double saved = double(p.activations_bytes() + p.dgates_bytes());
  // Weights that fit in L2 are read once.
  const auto read = [&](double bytes, bool once) {
    return once || bytes < double(card.l2_bytes) ? bytes : steps * bytes;
  };
  // Few rows of a batch do not fill a tile.
  const double filled = std::min(1.0, double(p.n) / 64);
  PhaseWork of_inputs{"inputs", inputs, read(w, batched), inputs > 0 ? data : 0,
                      batched ? 0.5 : 0.05 + 0.3 * filled};
  PhaseWork of_steps{"steps", recurrent, read(u, resident), data, 0.02 + 0.3 * filled};
  // A step waits for its kernels, a product and the cells, or for one barrier of all blocks.
  constexpr double kernel_s = 3e-6, barrier_s = 1.5e-6;
  const double all_steps = steps * double(p.layers * p.directions());
  of_steps.waits_s = all_steps * (resident ? barrier_s : 2 * kernel_s);
  const std::int64_t products = p.layers - (p.has_input_product() ? 0 : 1);
  if (!batched) of_inputs.waits_s = all_steps * double(products) / double(p.layers) * kernel_s;
  WorkEstimate work;
  if (p.pass == Pass::forward) {
    of_steps.bytes_written += p.training ? double(p.activations_bytes()) : 0;
    work.phases = {of_inputs, of_steps};
  } else if (p.pass == Pass::backward_data) {
    of_steps.bytes_read += saved;
    if (p.recompute) {
      RecurrentProblem forward = p;
      forward.pass = Pass::forward;
      of_steps.flops += forward.flops();
    }
    work.phases = {of_steps, of_inputs};
  } else {
    work.phases = {{"products", p.flops(), data + saved, double(p.weights_bytes()), 0.4}};
    if (!batched) {
      work.phases[0].bytes_read += 2 * (steps - 1) * (w + u);
      work.phases[0].waits_s = 2 * all_steps * kernel_s;
    }
  }
  if (form == WeightsForm::transposed && p.pass != Pass::backward_filter)
    work.pack = {"pack_weights", 0, double(p.weights_bytes()), double(p.weights_bytes()), 0.5};
  return work;
}

}  // namespace convlab::cuda
