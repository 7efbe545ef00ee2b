#include "nets/run/half_values.h"

#include <fmt/format.h>

#include "conv/error.h"
#include "conv/optional/half_ops.h"
#include "conv/types/arithmetic_type.h"
#include "nets/run/arena.h"

namespace convlab::nets {

void require_type(const Graph& graph, DType dtype, Device& device) {
  if (!has_16_bits(dtype)) return;
  if (dtype != DType::bf16)
    throw InputError(fmt::format("net {}: nets run in f32, f64 or bf16, not {}", graph.name(),
                                 to_string(dtype)));
  if (dynamic_cast<const HalfOps*>(&device.ops()) == nullptr)
    throw InputError(
        fmt::format("net {}: nets run in bf16 on the CPU only: expected f32 or f64 on {}",
                    graph.name(), device.info().name));
  for (const Node& node : graph.nodes())
    if (std::holds_alternative<Recurrent>(node.layer))
      throw InputError(fmt::format("net {}, layer {}: recurrent layers run in f32 or f64, not bf16",
                                   graph.name(), node.name));
}

void round_values(const LayerOps& ops, DType half, const void* from, void* to, std::int64_t count,
                  Stream& stream) {
  dynamic_cast<const HalfOps&>(ops).convert_type(DType::f32, from, half, to, count, stream);
}
void widen_values(const LayerOps& ops, DType half, const void* from, void* to, std::int64_t count,
                  Stream& stream) {
  dynamic_cast<const HalfOps&>(ops).convert_type(half, from, DType::f32, to, count, stream);
}

std::size_t rounded_weights_bytes(const ConvProblem& p, Mode mode) {
  if (mode == Mode::inference || !has_16_bits(p.dtype)) return 0;
  const bool has_bias = p.pass == Pass::forward && p.epilogue.bias;
  return padded(std::size_t(p.filter_bytes())) +
         (has_bias ? padded(std::size_t(p.k * size_of(p.dtype))) : 0);
}

}  // namespace convlab::nets
