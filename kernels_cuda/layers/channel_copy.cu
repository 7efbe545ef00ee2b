// Zeros, and channels copied from one tensor into another: runs of memory where both have one
// layout, else a transposition of every image.
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

__global__ void zero_bytes(std::byte* data, std::int64_t bytes) {
  const auto before = std::int64_t((16 - reinterpret_cast<std::uintptr_t>(data) % 16) % 16);
  const std::int64_t head = before < bytes ? before : bytes;
  auto* const words = reinterpret_cast<std::uint32_t*>(data + head);
  const std::int64_t count = (bytes - head) / 4;
  for_each_flat<std::uint32_t>(count, true, [&](auto width, std::int64_t i) {
    store(Pack<std::uint32_t, decltype(width)::value>{}, words + i);
  });
  const std::int64_t tail = head + count * 4;
  if (blockIdx.x != 0) return;
  for (std::int64_t i = threadIdx.x; i < head; i += blockDim.x) data[i] = std::byte{0};
  for (std::int64_t i = tail + threadIdx.x; i < bytes; i += blockDim.x) data[i] = std::byte{0};
}

// ---- Runs of memory ----

// Rows of V elements; pitches in elements.
template <class T, int V>
__global__ void copy_runs(Rows rows, const T* from, std::int64_t from_pitch, T* to,
                          std::int64_t to_pitch) {
  for_each_in_rows(rows, [&](std::int64_t, std::int64_t row, std::int64_t i) {
    store(load<V>(from + row * from_pitch + i * V), to + row * to_pitch + i * V);
  });
}

// ---- Transposition ----

// `count` matrices: to[i][j] = from[j][i] for i < m, j < n. Strides of matrices and pitches of rows
// in elements.
struct Transposition {
  std::int64_t count, m, n;
  std::int64_t from_matrix, from_pitch, to_matrix, to_pitch;
};

constexpr int transpose_tile = 32, transpose_rows = 8;

// A tile goes through shared memory, so that both sides are accessed along their rows. One more
// column puts columns into different banks.
template <class T>
__global__ void __launch_bounds__(transpose_tile* transpose_rows)
    transpose(Transposition t, const T* from, T* to) {
  SHARED(T, tile, [transpose_tile][transpose_tile + 1]);
  const std::int64_t i0 = std::int64_t(blockIdx.x) * transpose_tile;
  const int x = int(threadIdx.x);
  for (std::int64_t matrix = blockIdx.z; matrix < t.count; matrix += gridDim.z)
    for (std::int64_t j0 = std::int64_t(blockIdx.y) * transpose_tile; j0 < t.n;
         j0 += std::int64_t(gridDim.y) * transpose_tile) {
      const T* const source = from + matrix * t.from_matrix;
      for (int y = int(threadIdx.y); y < transpose_tile; y += transpose_rows)
        if (i0 + x < t.m && j0 + y < t.n) tile[y][x] = source[(j0 + y) * t.from_pitch + i0 + x];
      __syncthreads();
      T* const target = to + matrix * t.to_matrix;
      for (int y = int(threadIdx.y); y < transpose_tile; y += transpose_rows)
        if (i0 + y < t.m && j0 + x < t.n) target[(i0 + y) * t.to_pitch + j0 + x] = tile[x][y];
      __syncthreads();
    }
}

// ---- Dispatch ----

// f(T()) for an unsigned integer of this type's width, which is enough to copy elements.
template <class F>
void with_width_of(DType dtype, F f) {
  if (size_of(dtype) == 2) return f(std::uint16_t());
  with_type(dtype, f);
}

template <class T>
void copy(const ChannelCopy& c, const T* from, T* to, int multiprocessors, Stream& stream) {
  const std::int64_t n = c.from.n, pixels = c.from.h * c.from.w;
  const bool from_inner = channels_inner(c.from), to_inner = channels_inner(c.to);
  from += from_inner ? c.from_channel : c.from_channel * pixels;
  to += to_inner ? c.to_channel : c.to_channel * pixels;
  if (from_inner != to_inner) {
    Transposition t{n, pixels, c.channels, c.from.c * pixels, pixels, c.to.c * pixels, c.to.c};
    if (from_inner)
      t = {n, c.channels, pixels, c.from.c * pixels, c.from.c, c.to.c * pixels, pixels};
    constexpr std::int64_t max_y = 65535;
    const dim3 grid(unsigned(ceil_div(t.m, transpose_tile)),
                    unsigned(std::min(ceil_div(t.n, transpose_tile), max_y)),
                    unsigned(std::min(t.count, max_y)));
    return launch(transpose<T>, grid, dim3(transpose_tile, transpose_rows), 0, stream, t, from, to);
  }
  Rows rows{1, n, c.channels * pixels};
  std::int64_t from_pitch = c.from.c * pixels, to_pitch = c.to.c * pixels;
  if (from_inner) rows = {1, n * pixels, c.channels}, from_pitch = c.from.c, to_pitch = c.to.c;
  constexpr int whole = whole_pack<T>;
  const bool packed = aligned(from, to) && rows.inner % whole == 0 && from_pitch % whole == 0 &&
                      to_pitch % whole == 0;
  with_width<T>(packed, [&](auto width) {
    constexpr int v = decltype(width)::value;
    rows.inner /= v;
    const RowLaunch shape = row_launch(rows, multiprocessors);
    launch(copy_runs<T, v>, shape.grid, shape.block, 0, stream, rows, from, from_pitch, to,
           to_pitch);
  });
}

}  // namespace

void CudaLayerOps::zero(Span bytes, Stream& stream) const {
  const auto count = std::int64_t(bytes.size());
  launch(zero_bytes, flat_grid(count / 16, multiprocessors_), flat_block, 0, stream, bytes.data(),
         count);
}

void CudaLayerOps::copy_channels(DType dtype, const ChannelCopy& c, const void* from, void* to,
                                 Stream& stream) const {
  validate(c);
  require_plain(c.from, "copy_channels");
  require_plain(c.to, "copy_channels");
  with_width_of(dtype, [&](auto zero) {
    using T = decltype(zero);
    copy<T>(c, static_cast<const T*>(from), static_cast<T*>(to), multiprocessors_, stream);
  });
}

void CudaLayerOps::convert_layout(DType dtype, const TensorDesc& from_desc, const void* from,
                                  const TensorDesc& to_desc, void* to, Stream& stream) const {
  copy_channels(dtype, {from_desc, to_desc, 0, 0, from_desc.c}, from, to, stream);
}

}  // namespace convlab::cuda
