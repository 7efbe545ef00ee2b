// How winograd.cpp's configs become a geometry and a spec. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/device.h"
#include "kernels_cpu/winograd/winograd.h"

namespace convlab::cpu {

// Of the filter that is transformed, which has stride 1; in one dimension.
std::int64_t winograd_taps(const ConvProblem&);
std::vector<std::int64_t> winograd_tile_sizes(const ConvProblem&);

// Of one group.
WinogradGeometry winograd_geometry(const ConvProblem&, std::int64_t tile);

// For one team, whose threads are the device's.
WinogradSpec winograd_spec(const WinogradGeometry&, WinogradSchedule, MathType,
                           std::int64_t block_tiles, const DeviceInfo&);

// How many tiles to transform at a time: by default, and where L3 limits the products.
std::int64_t winograd_block(const WinogradGeometry&, WinogradSchedule, MathType, const DeviceInfo&);
std::int64_t winograd_large_block(const WinogradSpec&, const DeviceInfo&);

// The most that backward_filter's workspace may take: twice as much as x, dy and dw, where that is
// enough, or a core's L2, below which nothing is worth saving.
std::int64_t winograd_most_workspace(const WinogradGeometry&, const DeviceInfo&);

}  // namespace convlab::cpu
