// The seam to cuBLAS and cuFFT. On the CPU plain stand-ins implement it (on_cpu/gemm.cpp,
// on_cpu/fft.cpp), so that whole algorithms run end to end without a card.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "conv/algo.h"
#include "conv/device.h"
#include "conv/types/layout.h"
#include "conv/types/math_type.h"

namespace convlab::cuda {

// The math types for f32 of our kernels for a card, and those that cuBLAS and cuDNN offer.
inline constexpr std::array<std::string_view, 3> card_math_types{
    math_type_names[0], math_type_names[1], math_type_names[2]};
inline constexpr std::array<std::string_view, 2> library_math_types{math_type_names[0],
                                                                    math_type_names[1]};

// Row-major: C[i] = alpha * op(A[i]) op(B[i]) + beta * C[i] for i < batch, where op(A) is m x k,
// op(B) is k x n and C is m x n. Leading dimensions count elements of a stored row; strides count
// elements from one matrix of the batch to the next, and may be 0 for A and B.
struct Gemm {
  DType dtype = DType::f32;
  bool complex = false;           // interleaved pairs of dtype; sizes and strides count pairs
  MathType math = MathType::f32;  // of f32 operands; 16-bit types are accumulated in f32
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool conjugate_a = false, conjugate_b = false;  // with its transpose only
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
};
// alpha and beta are real. Queued on the stream. Throws InputError for products that cuBLAS lacks:
// tf32x3, and complex ones of 16-bit types.
void gemm(const Gemm&, double alpha, const void* a, const void* b, double beta, void* c, Stream&);

// Real transforms of `batch` contiguous h x w images to h x (w / 2 + 1) interleaved complex values
// and back, unscaled. Neither direction works in place; the inverse destroys its input. f32 or f64.
// Made once, used by one stream at a time (it locks).
class Fft2d {
 public:
  virtual ~Fft2d() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual void forward(const void* real, void* complex, Workspace, Stream&) const = 0;
  virtual void inverse(void* complex, void* real, Workspace, Stream&) const = 0;
};
std::unique_ptr<Fft2d> make_fft2d(DType, std::int64_t h, std::int64_t w, std::int64_t batch,
                                  Device&);

// Refuses, with the remedy, if a library that the algorithm names cannot be loaded.
std::optional<Refusal> refuse_missing_libraries(const AlgoInfo&);

// The checks of both implementations.
void validate(const Gemm&);
void validate_fft2d(DType, std::int64_t h, std::int64_t w, std::int64_t batch);

}  // namespace convlab::cuda
