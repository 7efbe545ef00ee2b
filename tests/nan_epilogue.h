// A NaN in an operand must reach every output that depends on it, through bias, residual and ReLU.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "autotune/testbed/verify.h"
#include "conv/algo.h"
#include "conv/types/half.h"

namespace convlab {

inline bool is_nan(DType dtype, const std::byte* element) {
  const auto as = [element]<class T>(T) { return *reinterpret_cast<const T*>(element); };
  switch (dtype) {
    case DType::f32:
      return std::isnan(as(float()));
    case DType::f64:
      return std::isnan(as(double()));
    case DType::f16:
      return std::isnan(double(Float16::from_bits(as(std::uint16_t()))));
    case DType::bf16:
      break;
  }
  return std::isnan(double(BFloat16::from_bits(as(std::uint16_t()))));
}

// Returns what was lost and where, or empty. Forward, with the whole epilogue. The NaN has its sign
// bit set, like those that x86 generates. Algorithms that mix elements may spread a NaN in x or w.
inline std::string lost_nan(const ConvAlgo& algo, const ConvProblem& p, const Config& config,
                            Device& device) {
  const auto stream = device.make_stream();
  const ReferenceCase reference(p, 7, DataKind::small_integers);
  const std::vector<std::byte> nan(std::size_t(size_of(p.dtype)), std::byte{0xFF});
  struct Case {
    const char* name;
    std::int64_t plain, memory;  // the element's position
    std::span<const double> ReferenceInput::*values;
    const void* ConvArgs::*pointer;
  };
  const std::int64_t k = p.k / 2, w = k * (p.filter_elements() / p.k);
  const TensorDesc y = p.y_desc();
  for (const Case& c : {Case{"x", 0, 0, &ReferenceInput::x, &ConvArgs::x},
                        Case{"w", w, w, &ReferenceInput::w, &ConvArgs::w},
                        Case{"bias", k, k, &ReferenceInput::bias, &ConvArgs::bias},
                        Case{"residual", k * p.p * p.q, y.offset(0, k, 0, 0),
                             &ReferenceInput::residual, &ConvArgs::residual}}) {
    ReferenceInput input = reference.input();
    std::vector<double> values((input.*c.values).begin(), (input.*c.values).end());
    values[std::size_t(c.plain)] = std::numeric_limits<double>::quiet_NaN();
    input.*c.values = values;
    const std::vector<double> expected = reference_of(p, input, all_outputs(p));

    Operands operands(reference, p, device, *stream);
    auto* const operand = static_cast<const std::byte*>(operands.args().*c.pointer);
    device.copy_to_device(const_cast<std::byte*>(operand) + std::size_t(c.memory) * nan.size(), nan,
                          *stream);
    GuardedBuffer workspace;
    Trial trial(algo, config, operands, workspace, device, *stream);
    trial.pack();
    trial.run();
    std::vector<std::byte> out(std::size_t(p.output_bytes()));
    device.copy_to_host(out, static_cast<std::byte*>(operands.args().out), *stream);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::int64_t at = std::int64_t(i), plane = p.p * p.q;
      const std::int64_t to =
          y.offset(at / (p.k * plane), at / plane % p.k, at / p.q % p.p, at % p.q);
      if (std::isnan(expected[i]) && !is_nan(p.dtype, &out[std::size_t(to) * nan.size()]))
        return fmt::format("a NaN in {} does not reach output {}", c.name, i);
    }
  }
  return "";
}

}  // namespace convlab
