#include "conv/types/activation.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, all_activations.size()> names{
    "relu", "tanh", "sigmoid", "relu6", "hardsigmoid", "hardswish", "silu", "gelu"};

}  // namespace

std::string_view to_string(ActivationKind kind) { return names[std::size_t(kind)]; }

}  // namespace convlab
