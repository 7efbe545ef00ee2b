// Winograd's products of split.h on emulated tiles.
#include "kernels_cpu/amx/emulated_tiles.h"
#include "kernels_cpu/winograd/split_product-inl.h"

namespace convlab::cpu {

void multiply_split_emulated(const SplitProducts& all, const SplitProduct* items,
                             std::int64_t count) {
  MultiplySplitBy<EmulatedTiles>(all, items, count);
}

}  // namespace convlab::cpu
