// The epilogue of every CPU kernel that writes y or a blocked dx. Internal.
#pragma once

#include <cstdint>
#include <optional>

#include "conv/algo.h"
#include "conv/math/activated.h"
#include "conv/math/relu.h"
#include "kernels_cpu/layers/activate.h"

namespace convlab::cpu {

// out = activation(sum + bias[channel] + addend). The addend is the residual, or the output itself
// if the problem accumulates: no problem has both (conv/problem.h). Only the last slice of a depth
// accumulates through an activation (kernels_cpu/slices/slices.h).
// simd/epilogue-inl.h has it for vectors.
template <class T>
struct OutputEpilogue {
  T* out = nullptr;
  const T* bias = nullptr;    // by channel, or null
  const T* addend = nullptr;  // like out, or null
  std::optional<ActivationKind> activation = {};
  bool non_temporal = false;  // vectors bypass the caches; `out` is aligned for that

  // Whether kernels of vectors leave the activation to a pass over what they have just stored and
  // is still in L1. ReLU and ReLU6 take an instruction or two in registers. The others would make
  // each kernel longer by a function for each accumulator, and GCC 12 would keep some accumulators
  // in memory throughout.
  bool activates_stored() const {
    return activation && *activation != ActivationKind::relu &&
           *activation != ActivationKind::relu6;
  }

  // For one part of a sum whose partial sums are kept in the output.
  OutputEpilogue part(bool first, bool last) const {
    return {out, first ? bias : nullptr, first ? addend : out, last ? activation : std::nullopt,
            last && non_temporal};
  }
  // Where the output goes on `elements` further, and its channels `channels` further.
  OutputEpilogue at(std::int64_t elements, std::int64_t channels) const {
    return {out + elements, bias == nullptr ? nullptr : bias + channels,
            addend == nullptr ? nullptr : addend + elements, activation, non_temporal};
  }
  // With a padded copy of the biases, where there are any.
  OutputEpilogue with_biases(const T* padded) const {
    return {out, bias == nullptr ? nullptr : padded, addend, activation, non_temporal};
  }

  void store(std::int64_t at, std::int64_t channel, T sum) const {
    if (bias != nullptr) sum += bias[channel];
    if (addend != nullptr) sum += addend[at];
    out[at] = activation ? activated(*activation, sum) : sum;
  }
  // A line of elements that are `step` apart: element i is the sum sum_of(i), of channel_of(i).
  // Activations other than ReLU follow in a second pass, so that they do not slow the first.
  template <class SumOf, class ChannelOf>
  void store_line(std::int64_t at, std::int64_t step, std::int64_t count, const SumOf& sum_of,
                  const ChannelOf& channel_of) const {
    const bool rectifies = activation == ActivationKind::relu;
    for (std::int64_t i = 0; i < count; ++i) {
      T sum = sum_of(i);
      if (bias != nullptr) sum += bias[channel_of(i)];
      if (addend != nullptr) sum += addend[at + i * step];
      out[at + i * step] = rectifies ? relu(sum) : sum;
    }
    if (!activation || rectifies) return;
    T* const line = out + at;
    if (step == 1) return activate(*activation, line, count);
    for (std::int64_t i = 0; i < count; ++i)
      line[i * step] = activated(*activation, line[i * step]);
  }
};

// The epilogue of a problem.
template <class T>
OutputEpilogue<T> output_epilogue(const ConvProblem& p, const ConvArgs& args,
                                  bool non_temporal = false) {
  T* const out = static_cast<T*>(args.out);
  OutputEpilogue<T> e{out, p.epilogue.bias ? static_cast<const T*>(args.bias) : nullptr,
                      p.epilogue.residual ? static_cast<const T*>(args.residual)
                      : p.accumulate      ? out
                                          : nullptr,
                      p.epilogue.activation, non_temporal};
  e.non_temporal &= !e.activates_stored();  // the pass reads what was stored
  return e;
}

}  // namespace convlab::cpu
