// Labels of images: classes, from 0 on.
#pragma once

#include <cstdint>
#include <limits>

namespace convlab::nets {

// Of an image that counts for nothing: one that only fills up a batch.
inline constexpr std::int32_t no_label = std::numeric_limits<std::int32_t>::min();

}  // namespace convlab::nets
