// The workspace of one thread of a SplitGemm. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels_cpu/implicit_gemm/pixel_rows.h"
#include "kernels_cpu/implicit_gemm/split.h"

namespace convlab::cpu {

constexpr int kPairRows = 32;  // rows of two tiles

// Carves a thread's workspace up; with a null base it only measures.
struct SplitScratch {
  RowTable rows;
  std::byte* a;  // [tile of rows][step][term]: a tile of 16 rows x 32 bf16
  std::size_t bytes;

  SplitScratch(const SplitGemm& gemm, std::byte* base) {
    const std::int64_t pairs = ceil_div(gemm.pixels.block_rows, kPairRows);
    const auto count = std::size_t(pairs * kPairRows);
    std::size_t at = 0;
    const auto take = [&](std::size_t size) {
      std::byte* const p = base == nullptr ? nullptr : base + at;
      at += (size + 63) / 64 * 64;
      return p;
    };
    a = take(std::size_t(2 * pairs * gemm.chunk_steps * gemm.terms() * tile_bytes));
    rows.image = reinterpret_cast<std::int64_t*>(take(count * sizeof(std::int64_t)));
    rows.out = reinterpret_cast<std::int64_t*>(take(count * sizeof(std::int64_t)));
    rows.h = reinterpret_cast<std::int32_t*>(take(count * sizeof(std::int32_t)));
    rows.w = reinterpret_cast<std::int32_t*>(take(count * sizeof(std::int32_t)));
    rows.pixel = reinterpret_cast<std::int32_t*>(take(count * sizeof(std::int32_t)));
    bytes = at;
  }
};

}  // namespace convlab::cpu
