// What a recurrent step does besides its products, by vectors. Internal.
#pragma once

#include <cstdint>

#include "kernels_cpu/device/range.h"
#include "recurrent/layer.h"

namespace convlab::cpu {

void run_cells(const CellForward&, Range rows, Range units);

void run_cells(const CellBackward&, Range rows, Range units);

// to[column] = sum over rows of from[row][column], rows `step` apart.
void sum_rows(DType, const void* from, std::int64_t rows, std::int64_t step, Range columns,
              void* to);

}  // namespace convlab::cpu
