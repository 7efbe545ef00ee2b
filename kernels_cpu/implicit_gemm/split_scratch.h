// The workspace of one thread of a SplitGemm or a SplitFilterGemm. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels_cpu/implicit_gemm/pixel_rows.h"
#include "kernels_cpu/implicit_gemm/split.h"
#include "kernels_cpu/implicit_gemm/split_filter.h"

namespace convlab::cpu {

constexpr int kPairRows = 32;  // rows of two tiles

// Carves a thread's workspace up; with a null base it only measures.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <class T = std::byte>
  T* take(std::int64_t count) {
    std::byte* const p = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += (std::size_t(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(p);
  }
  RowTable take_rows(std::int64_t count) {
    RowTable rows{};
    rows.image = take<std::int64_t>(count);
    rows.out = take<std::int64_t>(count);
    rows.h = take<std::int32_t>(count);
    rows.w = take<std::int32_t>(count);
    rows.pixel = take<std::int32_t>(count);
    return rows;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::size_t bytes_ = 0;
};

struct SplitScratch {
  std::byte* a;  // [tile of rows][step][term]: a tile of 16 rows x 32 bf16
  RowTable rows;
  std::size_t bytes;

  SplitScratch(const SplitGemm& gemm, std::byte* base) {
    const std::int64_t pairs = ceil_div(gemm.pixels.block_rows, kPairRows);
    Carver carver(base);
    a = carver.take(2 * pairs * gemm.chunk_steps * gemm.terms() * tile_bytes);
    rows = carver.take_rows(pairs * kPairRows);
    bytes = carver.bytes();
  }
};

struct SplitFilterScratch {
  std::byte* a;   // dy: [tile of k][step][term]: a tile of 16 k x 32 pixels
  std::byte* b;   // x: [step][term][tile of c]: a tile of 16 pairs of pixels x 16 c
  RowTable rows;  // the pixels of a chunk
  std::size_t bytes;

  SplitFilterScratch(const SplitFilterGemm& gemm, std::byte* base) {
    const std::int64_t step_bytes = gemm.terms() * tile_bytes;
    Carver carver(base);
    a = carver.take(2 * gemm.most_k_pairs() * gemm.chunk_steps * step_bytes);
    b = carver.take(2 * gemm.chunk_steps * step_bytes);
    rows = carver.take_rows(gemm.chunk_steps * tile_depth);
    bytes = carver.bytes();
  }
};

}  // namespace convlab::cpu
