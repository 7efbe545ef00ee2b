// The epilogue of every CPU kernel that writes y or a blocked dx. Internal.
#pragma once

#include <cstdint>

#include "conv/algo.h"
#include "conv/math/relu.h"

namespace convlab::cpu {

// out = relu(sum + bias[channel] + addend). The addend is the residual, or the output itself if the
// problem accumulates: no problem has both (conv/problem.h). Only the last slice of a depth
// accumulates through a ReLU (kernels_cpu/slices/slices.h).
// simd/epilogue-inl.h has it for vectors.
template <class T>
struct OutputEpilogue {
  T* out = nullptr;
  const T* bias = nullptr;    // by channel, or null
  const T* addend = nullptr;  // like out, or null
  bool relu = false;
  bool non_temporal = false;  // vectors bypass the caches; `out` is aligned for that

  // For one part of a sum whose partial sums are kept in the output.
  OutputEpilogue part(bool first, bool last) const {
    return {out, first ? bias : nullptr, first ? addend : out, last && relu, last && non_temporal};
  }
  // Where the output goes on `elements` further, and its channels `channels` further.
  OutputEpilogue at(std::int64_t elements, std::int64_t channels) const {
    return {out + elements, bias == nullptr ? nullptr : bias + channels,
            addend == nullptr ? nullptr : addend + elements, relu, non_temporal};
  }
  // With a padded copy of the biases, where there are any.
  OutputEpilogue with_biases(const T* padded) const {
    return {out, bias == nullptr ? nullptr : padded, addend, relu, non_temporal};
  }

  void store(std::int64_t at, std::int64_t channel, T sum) const {
    if (bias != nullptr) sum += bias[channel];
    if (addend != nullptr) sum += addend[at];
    out[at] = relu ? convlab::relu(sum) : sum;
  }
};

// The epilogue of a problem.
template <class T>
OutputEpilogue<T> output_epilogue(const ConvProblem& p, const ConvArgs& args,
                                  bool non_temporal = false) {
  T* const out = static_cast<T*>(args.out);
  return {out, p.epilogue.bias ? static_cast<const T*>(args.bias) : nullptr,
          p.epilogue.residual ? static_cast<const T*>(args.residual)
          : p.accumulate      ? out
                              : nullptr,
          p.epilogue.relu, non_temporal};
}

}  // namespace convlab::cpu
