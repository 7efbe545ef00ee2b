// The epilogue of each of our kernels that writes a convolution's output. Internal.
#pragma once

#include <cstdint>

#include "conv/algo.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

// Neighbours in memory that one access moves.
template <class T, int size_>
struct alignas(size_ * sizeof(T)) Vector {
  static constexpr int size = size_;
  T at[size];
};

// out = relu(sum + bias[channel] + addend). The addend is the residual, or the output itself if the
// problem accumulates: no problem has both, or accumulates through a ReLU (conv/problem.h).
template <class T>
struct OutputEpilogue {
  T* out = nullptr;
  const T* bias = nullptr;    // by channel, or null
  const T* addend = nullptr;  // like out, or null
  bool relu = false;

  __device__ __forceinline__ Accumulator<T> bias_of(int channel) const {
    return bias ? widen(bias[channel]) : Accumulator<T>(0);
  }
  // For sums of channels that are `step` apart.
  template <int size>
  __device__ __forceinline__ void add_bias(int channel, int step,
                                           Accumulator<T> (&sums)[size]) const {
    if (bias)
#pragma unroll
      for (int i = 0; i < size; ++i) sums[i] += widen(bias[channel + i * step]);
  }

  // Stores neighbours in memory in one access. The caller has added the bias, so that it can read
  // one bias for all outputs of a channel. `offset` is a multiple of `size`.
  template <int size>
  __device__ __forceinline__ void store(std::int64_t offset, Accumulator<T> (&sums)[size]) const {
    using Elements = Vector<T, size>;
    if (addend) {
      const Elements more = *reinterpret_cast<const Elements*>(addend + offset);
#pragma unroll
      for (int i = 0; i < size; ++i) sums[i] += widen(more.at[i]);
    }
    Elements result;
#pragma unroll
    for (int i = 0; i < size; ++i) result.at[i] = narrow<T>(relu ? cuda::relu(sums[i]) : sums[i]);
    store_global(out + offset, result);
  }
  __device__ __forceinline__ void store(std::int64_t offset, int channel,
                                        Accumulator<T> sum) const {
    Accumulator<T> sums[1]{sum};
    add_bias(channel, 0, sums);
    store(offset, sums);
  }
};

// For a part of the output that starts `offset` elements and `channel` channels in.
template <class T>
OutputEpilogue<T> output_epilogue(const Epilogue& epilogue, bool accumulate, const ConvArgs& args,
                                  std::int64_t offset = 0, std::int64_t channel = 0) {
  OutputEpilogue<T> e;
  e.out = static_cast<T*>(args.out) + offset;
  if (epilogue.bias) e.bias = static_cast<const T*>(args.bias) + channel;
  if (epilogue.residual) e.addend = static_cast<const T*>(args.residual) + offset;
  if (accumulate) e.addend = e.out;
  e.relu = epilogue.activation.has_value();  // refuse_all_but_relu
  return e;
}

}  // namespace convlab::cuda
