#include "kernels_cuda/recurrent/unit_kernels.h"
#include "kernels_cuda/recurrent/units.h"

namespace convlab::cuda {
namespace {

constexpr int units_block = 128;
constexpr std::int64_t most_in_y = 65535;

template <class T>
__global__ void __launch_bounds__(units_block)
    forward_units(ForwardUnits<T> units, std::int64_t rows) {
  const std::int64_t j = std::int64_t(blockIdx.x) * units_block + threadIdx.x;
  if (j >= units.h) return;
#pragma unroll 1
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T products[4];
#pragma unroll
    for (int g = 0; g < 4; ++g)
      products[g] = g < units.gates ? units.of_h[(row * units.gates + g) * units.h + j] : T(0);
    units.run(row, j, products);
  }
}

template <class T>
__global__ void __launch_bounds__(units_block)
    backward_units(BackwardUnits<T> units, std::int64_t rows) {
  const std::int64_t j = std::int64_t(blockIdx.x) * units_block + threadIdx.x;
  if (j >= units.h) return;
#pragma unroll 1
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) units.run(row, j);
}

dim3 units_grid(std::int64_t h, std::int64_t rows) {
  return dim3(unsigned(ceil_div(h, units_block)), unsigned(std::min(rows, most_in_y)));
}

// The lanes of a warp take neighbouring columns, its warps take turns at the rows.
constexpr int sum_warps = 8;

template <class T>
__global__ void __launch_bounds__(sum_warps * 32)
    sum_columns(const T* from, std::int64_t rows, std::int64_t columns, T* to) {
  SHARED(T, sums, [sum_warps][32]);
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const std::int64_t column = std::int64_t(blockIdx.x) * 32 + lane;
  T sum = T(0);
  if (column < columns)
    for (std::int64_t row = warp; row < rows; row += sum_warps) sum += from[row * columns + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
  for (int i = 1; i < sum_warps; ++i) sum += sums[i][lane];
  to[column] = sum;
}

template <class T>
__global__ void __launch_bounds__(256)
    transpose_tiles(const T* from, std::int64_t rows, std::int64_t columns, T* to) {
  SHARED(T, tile, [32][33]);
  const int x = int(threadIdx.x) % 32, y = int(threadIdx.x) / 32;
  const std::int64_t column0 = std::int64_t(blockIdx.x) * 32;
#pragma unroll 1
  for (std::int64_t row0 = std::int64_t(blockIdx.y) * 32; row0 < rows;
       row0 += std::int64_t(gridDim.y) * 32) {
    for (int i = y; i < 32; i += 8)
      if (row0 + i < rows && column0 + x < columns)
        tile[i][x] = from[(row0 + i) * columns + column0 + x];
    __syncthreads();
    for (int i = y; i < 32; i += 8)
      if (row0 + x < rows && column0 + i < columns)
        to[(column0 + i) * rows + row0 + x] = tile[x][i];
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    copy_elements(T* to, std::int64_t to_step, const T* from, std::int64_t from_step,
                  std::int64_t columns, std::int64_t rows) {
  const std::int64_t column = std::int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (column >= columns) return;
#pragma unroll 1
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    to[row * to_step + column] = from == nullptr ? T(0) : from[row * from_step + column];
}

}  // namespace

void run_cells(const CellForward& cells, std::int64_t rows, Stream& stream) {
  with_type(cells.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(forward_units<T>, units_grid(cells.h, rows), units_block, 0, stream,
           ForwardUnits<T>(cells), rows);
  });
}

void run_cells(const CellBackward& cells, std::int64_t rows, Stream& stream) {
  with_type(cells.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(backward_units<T>, units_grid(cells.h, rows), units_block, 0, stream,
           BackwardUnits<T>(cells), rows);
  });
}

void sum_rows(DType dtype, const void* from, std::int64_t rows, std::int64_t columns, void* to,
              Stream& stream) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(sum_columns<T>, unsigned(ceil_div(columns, 32)), sum_warps * 32, 0, stream,
           static_cast<const T*>(from), rows, columns, static_cast<T*>(to));
  });
}

void transpose(DType dtype, const void* from, std::int64_t rows, std::int64_t columns, void* to,
               Stream& stream) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(transpose_tiles<T>,
           dim3(unsigned(ceil_div(columns, 32)), unsigned(std::min(ceil_div(rows, 32), most_in_y))),
           256, 0, stream, static_cast<const T*>(from), rows, columns, static_cast<T*>(to));
  });
}

void copy_rows(DType dtype, std::byte* to, std::int64_t to_step, const std::byte* from,
               std::int64_t from_step, std::int64_t row_bytes, std::int64_t rows, Stream& stream) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr std::int64_t size = sizeof(T);
    launch(copy_elements<T>,
           dim3(unsigned(ceil_div(row_bytes / size, 256)), unsigned(std::min(rows, most_in_y))),
           256, 0, stream, reinterpret_cast<T*>(to), to_step / size,
           reinterpret_cast<const T*>(from), from_step / size, row_bytes / size, rows);
  });
}

}  // namespace convlab::cuda
