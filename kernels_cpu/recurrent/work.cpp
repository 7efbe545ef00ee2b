#include <algorithm>

#include "kernels_cpu/algos.h"
#include "kernels_cpu/recurrent/strategies.h"

namespace convlab::cpu {

// Few rows of a batch do not fill a tile: their products reach less of the peak.
WorkEstimate layered_work(const RecurrentProblem& p, const DeviceInfo& device, bool packed,
                          bool rereads_inputs) {
  const double elements = double(size_of(p.dtype));
  const double steps = double(p.t), u = double(p.recurrent_bytes()),
               biases = double(p.layers * p.directions() * p.gates() * p.h) * 2 * elements;
  const double w = double(p.weights_bytes()) - u - biases;
  const double recurrent = 2.0 * double(p.n) * steps * u / elements, inputs = p.flops() - recurrent;
  const double caches = double(device.l2_bytes) * double(device.threads);
  // Weights that fit in L2 are read once.
  const auto read = [&](double bytes) { return bytes < caches ? bytes : steps * bytes; };
  const double filled = std::min(1.0, double(p.n) / 8), data = double(p.x_bytes() + p.y_bytes());
  const double saved = double(p.activations_bytes() + p.dgates_bytes());
  PhaseWork of_inputs{"inputs", inputs, rereads_inputs ? read(w) : w, data, 0.7};
  PhaseWork of_steps{"steps", recurrent, read(u), data, 0.1 + 0.5 * filled};
  WorkEstimate work;
  if (p.pass == Pass::forward) {
    of_steps.bytes_written += p.training ? double(p.activations_bytes()) : 0;
    work.phases = {of_inputs, of_steps};
  } else if (p.pass == Pass::backward_data) {
    of_steps.bytes_read += saved;
    if (p.recompute) of_steps.flops += p.flops();
    work.phases = {of_steps, of_inputs};
  } else {
    work.phases = {{"products", p.flops(), data + saved, double(p.weights_bytes()), 0.6}};
    if (rereads_inputs) work.phases[0].bytes_read += 2 * (steps - 1) * (w + u);
  }
  if (packed)
    work.pack = {"pack_weights", 0, double(p.weights_bytes()), double(p.weights_bytes()),
                 packing_efficiency};
  return work;
}

}  // namespace convlab::cpu
