// Bytes on a device. A span never owns.
#pragma once

#include <cstddef>
#include <span>

namespace convlab {

using Span = std::span<std::byte>;
using ConstSpan = std::span<const std::byte>;
using Workspace = Span;  // scratch for one run, contents undefined before and after

}  // namespace convlab
