// How CUDA's algorithms run a recurrent layer and direction. Internal.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "kernels_cuda/vendor.h"
#include "recurrent/layer.h"

namespace convlab::cuda {

// Who multiplies: own_gemm, or cuBLAS if it is there.
enum class Product : std::uint8_t { own, cublas };
inline constexpr std::array<std::string_view, 2> product_names{"own", "cublas"};
Product product_of(const Config&);
// One config for each product that is possible here.
std::vector<Config> product_configs();

// As in problem.h, or packed: w_ih and w_hh transposed, biases as they are.
enum class WeightsForm : std::uint8_t { as_given, transposed };
inline constexpr std::array<std::string_view, 2> weights_forms{"as_given", "transposed"};

// A product a step. batched: all inputs as one product.
class GemmStrategy : public LayerStrategy {
 public:
  GemmStrategy(const RecurrentProblem&, Product, WeightsForm, bool batched);

  std::int64_t scratch_bytes(const LayerSizes&) const override;
  std::int64_t packed_bytes(const LayerSizes&) const override;
  void pack(const LayerSizes&, const void* weights, std::byte* packed, Stream&) const override;
  void forward(const LayerForward&) const override;
  void backward_data(const LayerBackward&) const override;
  void backward_filter(const LayerFilter&) const override;
  void copy_rows(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step,
                 std::int64_t row_bytes, std::int64_t rows, Stream&) const override;

 protected:
  // All steps of a batched layer, from W x of all of them; and back, up to dgates.
  virtual void forward_steps(const LayerForward&, const void* of_x, void* scratch) const;
  virtual void backward_steps(const LayerBackward&) const;

 private:
  void multiply(const LayerRun&, Gemm, const void* a, const void* b, bool accumulate,
                void* c) const;
  void inputs_product(const LayerForward&, std::int64_t first_time, std::int64_t times,
                      void* of_x) const;
  void inputs_gradient(const LayerBackward&, std::int64_t first_time, std::int64_t times) const;
  void step(const LayerForward&, std::int64_t i, const void* of_x, void* of_h) const;
  void backward_step(const LayerBackward&, std::int64_t i) const;
  // Adds, or stores, dU of these steps' dgates and the hidden states before them.
  void recurrent_filter(const LayerFilter&, const void* dgates, std::int64_t rows,
                        const void* before, std::int64_t before_step, bool accumulate) const;

  Pass pass_;
  DType dtype_;
  bool recompute_;
  Product product_;
  WeightsForm form_;
  bool batched_;
};

// Rows and columns of products are counted in int.
std::optional<Refusal> refuse_sizes(const RecurrentProblem&);

// The work of the passes. `resident`: U is read once.
WorkEstimate recurrent_work(const RecurrentProblem&, const DeviceInfo&, WeightsForm, bool batched,
                            bool resident);

}  // namespace convlab::cuda
