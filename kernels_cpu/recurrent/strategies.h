// How the CPU's algorithms run a layer and direction. Internal.
#pragma once

#include <cstring>
#include <memory>

#include "kernels_cpu/recurrent/cells.h"
#include "recurrent/layer.h"

namespace convlab::cpu {

class HostStrategy : public LayerStrategy {
 public:
  void copy_rows(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                 std::int64_t row_bytes, std::int64_t rows, Stream&) const override {
    for (std::int64_t row = 0; row < rows; ++row)
      if (from == nullptr)
        std::memset(to + row * to_step, 0, std::size_t(row_bytes));
      else
        std::memcpy(to + row * to_step, from + row * from_step, std::size_t(row_bytes));
  }
};

// A product a step and nothing packed, by the device's GEMM. batched: all inputs as one product.
std::unique_ptr<LayerStrategy> make_gemm_strategy(const RecurrentProblem&, Device&, bool batched);
// Weights packed into panels. resident: one team of threads for all steps, which spins at a barrier
// after each; else a parallel region a step.
std::unique_ptr<LayerStrategy> make_panel_strategy(const RecurrentProblem&, const DeviceInfo&,
                                                   bool resident);

// What runs a layer's products.
enum class Products : std::uint8_t {
  gemms,            // the device's GEMM, two a step
  batched_gemms,    // the same, but one for all inputs
  panels,           // packed weights, a parallel region a step
  resident_panels,  // packed weights, a barrier a step
};

// Work of the passes as they are split into phases.
WorkEstimate layered_work(const RecurrentProblem&, const DeviceInfo&, Products);

// What steps read of weights of so many bytes in all layers: once if a layer's stay in L2, else at
// each step.
double bytes_over_steps(double bytes, const RecurrentProblem&, const DeviceInfo&);

}  // namespace convlab::cpu
