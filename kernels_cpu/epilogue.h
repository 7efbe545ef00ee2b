// The epilogue of every CPU kernel that writes a convolution's output. Internal.
#pragma once

#include <cstdint>

#include "conv/algo.h"
#include "conv/math/relu.h"

namespace convlab::cpu {

// out = relu(sum + bias[channel] + addend). The addend is the residual, or the output itself if the
// problem accumulates: no problem has both, or accumulates through a ReLU (conv/problem.h).
// simd/epilogue-inl.h has it for vectors.
template <class T>
struct OutputEpilogue {
  T* out = nullptr;
  const T* bias = nullptr;    // by channel, or null
  const T* addend = nullptr;  // like out, or null
  bool relu = false;
  bool non_temporal = false;  // stores of vectors, to which `out` is then aligned

  // Of one part of a sum that is made in parts in the output.
  OutputEpilogue part(bool first, bool last) const {
    return {out, first ? bias : nullptr, first ? addend : out, last && relu, last && non_temporal};
  }
  // Of the tensor that begins `elements` further on, with its own biases.
  OutputEpilogue from(std::int64_t elements, const T* biases) const {
    return {out + elements, bias == nullptr ? nullptr : biases,
            addend == nullptr ? nullptr : addend + elements, relu, non_temporal};
  }

  void store(std::int64_t at, std::int64_t channel, T sum) const {
    if (bias != nullptr) sum += bias[channel];
    if (addend != nullptr) sum += addend[at];
    out[at] = relu ? convlab::relu(sum) : sum;
  }
};

// Of a problem; `non_temporal` as above.
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
