#pragma once

#include <cstdint>

namespace convlab::micro {

// The microkernel under every product, on the selected instruction set. Computes C[rows][cols] = A
// B over `depth` `times` times, with A[depth][rows] and B[depth][cols], on the calling thread.
// Writes C last, so that nothing is optimised away.
struct RegisterTile {
  std::int64_t rows, cols;
  void (*run)(const float* a, const float* b, float* c, std::int64_t depth, std::int64_t times);
};
RegisterTile register_tile();

}  // namespace convlab::micro
