// What a recurrent step does besides its products. Internal; unit_kernels.h is for kernels.
#pragma once

#include "recurrent/layer.h"

namespace convlab::cuda {

// All units of so many rows.
void run_cells(const CellForward&, std::int64_t rows, Stream&);
void run_cells(const CellBackward&, std::int64_t rows, Stream&);

// to[column] = sum over rows of from[row][column].
void sum_rows(DType, const void* from, std::int64_t rows, std::int64_t columns, void* to, Stream&);

// to[column][row] = from[row][column].
void transpose(DType, const void* from, std::int64_t rows, std::int64_t columns, void* to, Stream&);

// As LayerStrategy has it; steps and bytes are whole elements.
void copy_rows(DType, std::byte* to, std::int64_t to_step, const std::byte* from,
               std::int64_t from_step, std::int64_t row_bytes, std::int64_t rows, Stream&);

}  // namespace convlab::cuda
