// Memory layouts of activation tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace convlab {

enum class DType : std::uint8_t { f32, f64, f16, bf16 };
inline constexpr std::array all_dtypes{DType::f32, DType::f64, DType::f16, DType::bf16};

constexpr std::int64_t size_of(DType t) { return t == DType::f64 ? 8 : t == DType::f32 ? 4 : 2; }
std::string_view to_string(DType);
DType parse_dtype(std::string_view);  // throws InputError, listing the names it knows

// nchw8c and nchw16c split C into blocks of one vector: index (n, c/B, h, w, c%B). The lanes that
// pad C up to a whole block hold zero, and every writer of a tensor keeps them zero.
//
// Depth stands before the height in every layout: NCDHW, NDHWC, NCDHWc. So a tensor with depth D is
// one of D * H rows to whatever does not look at neighbouring rows.
enum class Layout : std::uint8_t { nchw, nhwc, nchw8c, nchw16c };
inline constexpr std::array all_layouts{Layout::nchw, Layout::nhwc, Layout::nchw8c,
                                        Layout::nchw16c};

constexpr std::int64_t channel_block(Layout l) {
  return l == Layout::nchw16c ? 16 : l == Layout::nchw8c ? 8 : 1;
}
constexpr bool is_blocked(Layout l) { return channel_block(l) > 1; }
std::string_view to_string(Layout);
Layout parse_layout(std::string_view);  // throws InputError

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// Where images and channels lie that are part of a larger tensor, in elements: from one image to
// the next, and from one channel (nchw) or channel block to the next. 0: as in a tensor of its own.
struct Steps {
  std::int64_t image = 0, channel = 0;
  friend constexpr bool operator==(const Steps&, const Steps&) = default;
};

// The shape of one activation tensor together with its layout. A plain value.
struct TensorDesc {
  std::int64_t n = 0, c = 0, h = 0, w = 0;
  Layout layout = Layout::nchw;
  Steps steps = {};

  constexpr std::int64_t padded_c() const { return round_up(c, channel_block(layout)); }
  // Elements in memory, padding lanes included, and without what lies between the images of a view.
  constexpr std::int64_t elements() const { return n * padded_c() * h * w; }
  // Elements from one image to the next.
  constexpr std::int64_t image_step() const {
    return steps.image != 0 ? steps.image : padded_c() * h * w;
  }
  // Elements from one channel, or channel block, to the next; not for nhwc.
  constexpr std::int64_t channel_step() const {
    return steps.channel != 0 ? steps.channel : h * w * channel_block(layout);
  }
  // Position of one element, counted in elements from the start. ci may name a padding lane.
  constexpr std::int64_t offset(std::int64_t ni, std::int64_t ci, std::int64_t hi,
                                std::int64_t wi) const {
    if (layout == Layout::nhwc) return ni * image_step() + (hi * w + wi) * c + ci;
    const std::int64_t b = channel_block(layout);
    return ni * image_step() + ci / b * channel_step() + (hi * w + wi) * b + ci % b;
  }
  friend constexpr bool operator==(const TensorDesc&, const TensorDesc&) = default;
};

}  // namespace convlab
