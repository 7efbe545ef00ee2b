// Labels of images: classes, starting at 0.
#pragma once

#include <cstdint>
#include <limits>

namespace convlab::nets {

// The label of an image that is ignored because it only fills up a batch.
inline constexpr std::int32_t no_label = std::numeric_limits<std::int32_t>::min();

}  // namespace convlab::nets
