// Winograd's products of split.h on AMX.
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/amx/terms.h"
#include "kernels_cpu/winograd/split.h"

// All that these define is compiled for AMX. Everything that they include stands above.
// clang-format off
#include "kernels_cpu/amx/amx_target.h"
HWY_PUSH_ATTRIBUTES(CONVLAB_AMX_TARGET)
#include "kernels_cpu/amx/amx_tiles.h"
#include "kernels_cpu/winograd/split_product-inl.h"
// clang-format on

namespace convlab::cpu {

void multiply_split_amx(const SplitProducts& all, const SplitProduct* items, std::int64_t count) {
  MultiplySplitBy<AmxTiles>(all, items, count);
}

}  // namespace convlab::cpu
HWY_POP_ATTRIBUTES
