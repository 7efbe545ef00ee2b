#include "conv/types/layout.h"

#include "conv/text/names.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, 4> dtype_names{"f32", "f64", "f16", "bf16"};
constexpr std::array<std::string_view, 4> layout_names{"nchw", "nhwc", "nchw8c", "nchw16c"};

}  // namespace

std::string_view to_string(DType t) { return dtype_names[std::size_t(t)]; }
DType parse_dtype(std::string_view text) {
  return DType(index_of_name("data type", text, dtype_names));
}

std::string_view to_string(Layout l) { return layout_names[std::size_t(l)]; }
Layout parse_layout(std::string_view text) {
  return Layout(index_of_name("layout", text, layout_names));
}

}  // namespace convlab
