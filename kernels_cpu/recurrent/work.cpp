#include <algorithm>

#include "kernels_cpu/algos.h"
#include "kernels_cpu/recurrent/strategies.h"

namespace convlab::cpu {
namespace {

// A product of few rows is bound by its other factor: reading an element of it costs as much as
// the multiply-adds of so many rows.
double efficiency_of(double rows, double of_many_rows, double rows_per_read) {
  return of_many_rows * rows / (rows + rows_per_read);
}

// Packed panels stream from L2 into a register tile. A GEMM packs its factor at each call, and the
// next call does not find it.
double panels_efficiency(double rows) { return efficiency_of(rows, 0.8, 1.4); }
double gemm_efficiency(double rows) { return efficiency_of(rows, 0.5, 3); }

// Seconds. A barrier is two moves of a cache line between cores; a parallel region wakes its
// threads and joins them; a GEMM does so and divides its work anew.
struct Waits {
  double barrier, region, gemm;
};
Waits waits_of(const DeviceInfo& device) {
  return device.threads > 1 ? Waits{3e-7, 1.1e-6, 1.5e-6} : Waits{0, 1e-7, 3e-7};
}

}  // namespace

double bytes_over_steps(double bytes, const RecurrentProblem& p, const DeviceInfo& device) {
  const double at_a_time = bytes / double(p.layers * p.directions());
  const bool resident = at_a_time < double(device.l2_bytes) * double(device.threads);
  return resident ? bytes : double(p.t) * bytes;
}

WorkEstimate layered_work(const RecurrentProblem& p, const DeviceInfo& device, Products products) {
  const double elements = double(size_of(p.dtype)), rows = double(p.n);
  const double steps = double(p.t * p.layers * p.directions()), u = double(p.recurrent_bytes()),
               biases = double(p.layers * p.directions() * p.gates() * p.h) * 2 * elements;
  const double first_w = p.has_input_product() ? 0 : double(p.input_weights_bytes());
  const double w = double(p.weights_bytes()) - u - biases - first_w;
  const double recurrent = 2.0 * rows * double(p.t) * u / elements;
  const double inputs = p.flops() - recurrent, data = double(p.x_bytes() + p.y_bytes());
  const double saved = double(p.activations_bytes() + p.dgates_bytes());
  const auto read = [&](double bytes) { return bytes_over_steps(bytes, p, device); };
  const Waits waits = waits_of(device);
  const bool stepwise = products == Products::gemms;
  const bool packed = products == Products::panels || products == Products::resident_panels;

  if (p.pass == Pass::backward_filter) {
    // The depth of a product is all steps, or one.
    const double depth = stepwise ? rows : rows * double(p.t);
    PhaseWork all{"products", p.flops(), data + saved, double(p.weights_bytes()),
                  stepwise ? efficiency_of(depth, 0.6, 8) : efficiency_of(depth, 0.85, 24)};
    if (stepwise) {
      all.bytes_read += read(w + u) - (w + u);
      all.bytes_written += read(w + u) - (w + u);
      all.waits_s = 2 * steps * waits.gemm;
    }
    return {{all}};
  }

  PhaseWork of_inputs{"inputs", inputs, stepwise ? read(w) : w, inputs > 0 ? data : 0, 0.88};
  if (stepwise) {
    of_inputs.efficiency = gemm_efficiency(rows);
    const std::int64_t products = p.layers - (p.has_input_product() ? 0 : 1);
    of_inputs.waits_s = steps * double(products) / double(p.layers) * waits.gemm;
  }
  PhaseWork of_steps{"steps", recurrent, read(u), data,
                     packed ? panels_efficiency(rows) : gemm_efficiency(rows)};
  of_steps.waits_s = steps * (products == Products::resident_panels ? waits.barrier
                              : products == Products::panels        ? waits.region
                                                                    : waits.gemm + waits.region);
  WorkEstimate work;
  if (p.pass == Pass::forward) {
    of_steps.bytes_written += p.training ? double(p.activations_bytes()) : 0;
    work.phases = {of_inputs, of_steps};
  } else {
    of_steps.bytes_read += saved;
    if (p.recompute) {
      RecurrentProblem forward = p;
      forward.pass = Pass::forward;
      of_steps.flops += forward.flops();
      of_steps.bytes_read += read(u) + w + first_w;
      of_steps.waits_s *= 2;
    }
    work.phases = {of_steps, of_inputs};
  }
  if (packed)
    work.pack = {"pack_weights", 0, double(p.weights_bytes()), double(p.weights_bytes()),
                 packing_efficiency};
  return work;
}

}  // namespace convlab::cpu
