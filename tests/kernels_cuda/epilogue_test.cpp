// The epilogue shared by all of our kernels: each of its parts, in every type, by single elements
// and by 16 bytes.
#include "kernels_cuda/epilogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace convlab::cuda {
namespace {

constexpr int elements = 32;

// A thread stores `size` contiguous elements, of one channel (step 0) or of `size` channels (step
// 1).
template <class T, int size>
__global__ void store_sums(OutputEpilogue<T> epilogue, const Accumulator<T>* sums, int step) {
  const int first = int(threadIdx.x) * size;
  if (first >= elements) return;
  Accumulator<T> v[size];
  for (int i = 0; i < size; ++i) v[i] = sums[first + i];
  epilogue.add_bias(step * first, step, v);
  epilogue.store(first, v);
}

// Multiples of a quarter between -4 and 4, which every type holds exactly, and their sums.
double value(int i, int salt) { return double((i * 7 + salt * 5) % 33 - 16) / 4; }

template <class T, int size>
void expect_stored(const Epilogue& kinds, bool accumulate, int step) {
  std::vector<Accumulator<T>> sums(elements);
  alignas(16) T out[elements], bias[elements], residual[elements];
  for (int i = 0; i < elements; ++i) {
    sums[std::size_t(i)] = Accumulator<T>(value(i, 0));
    out[i] = narrow<T>(Accumulator<T>(value(i, 1)));
    bias[i] = narrow<T>(Accumulator<T>(value(i, 2)));
    residual[i] = narrow<T>(Accumulator<T>(value(i, 3)));
  }
  ConvArgs args;
  args.out = out;
  args.bias = kinds.bias ? bias : nullptr;
  args.residual = kinds.residual ? residual : nullptr;
  const auto epilogue = output_epilogue<T>(kinds, accumulate, args);
  ASSERT_EQ(on_cpu::launch(store_sums<T, size>, 1, 32, 0, nullptr, epilogue, sums.data(), step),
            cudaSuccess);
  for (int i = 0; i < elements; ++i) {
    double expected = value(i, 0) + (kinds.bias ? value(step * i, 2) : 0) +
                      (kinds.residual ? value(i, 3) : 0) + (accumulate ? value(i, 1) : 0);
    if (kinds.activation) expected = std::max(expected, 0.0);
    EXPECT_EQ(double(widen(out[i])), expected)
        << i << ": bias " << kinds.bias << ", residual " << kinds.residual << ", relu "
        << kinds.activation.has_value() << ", accumulate " << accumulate << ", " << size
        << " elements";
  }
}

template <class T>
void expect_stored() {
  for (const int step : {0, 1}) {
    for (const bool bias : {false, true})
      for (const bool residual : {false, true})
        for (const auto relu :
             {std::optional<ActivationKind>(), std::optional(ActivationKind::relu)}) {
          expect_stored<T, 1>({bias, residual, relu}, false, step);
          expect_stored<T, 16 / int(sizeof(T))>({bias, residual, relu}, false, step);
        }
    expect_stored<T, 1>({}, true, step);
    expect_stored<T, 16 / int(sizeof(T))>({}, true, step);
  }
}

TEST(CudaEpilogue, IsTheProblemsInEveryType) {
  expect_stored<float>();
  expect_stored<double>();
  expect_stored<f16>();
  expect_stored<bf16>();
}

// A part of the output uses the residual and channels at its own offset.
TEST(CudaEpilogue, StartsWhereThePartDoes) {
  float out[8], bias[8], residual[8];
  ConvArgs args;
  args.out = out;
  args.bias = bias;
  args.residual = residual;
  const auto part = output_epilogue<float>({.bias = true, .residual = true}, false, args, 5, 3);
  EXPECT_EQ(part.out, out + 5);
  EXPECT_EQ(part.bias, bias + 3);
  EXPECT_EQ(part.addend, residual + 5);
  EXPECT_EQ(output_epilogue<float>({}, true, args, 5).addend, out + 5);
  EXPECT_EQ(output_epilogue<float>({}, false, args).addend, nullptr);
  EXPECT_EQ(output_epilogue<float>({}, false, args).bias, nullptr);
}

}  // namespace
}  // namespace convlab::cuda
