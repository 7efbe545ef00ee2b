// AVX512_BF16's rounding. Highway 1.0.3 has no target with it.
#include <hwy/base.h>

#include "kernels_cpu/half/bits.h"
#include "kernels_cpu/half/convert.h"

#if HWY_ARCH_X86
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace convlab::cpu {

// The instruction makes zeros of subnormals. They are rare: a pair of vectors that has one is
// rounded by its bits.
std::int64_t round_bf16_by_unit(const float* from, std::uint16_t* to, std::int64_t count) {
  constexpr int subnormal = 0x20;
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512 low = _mm512_loadu_ps(from + i), high = _mm512_loadu_ps(from + i + 16);
    const __mmask16 rare =
        _mm512_fpclass_ps_mask(low, subnormal) | _mm512_fpclass_ps_mask(high, subnormal);
    if (HWY_LIKELY(rare == 0))
      _mm512_storeu_si512(to + i, __m512i(_mm512_cvtne2ps_pbh(high, low)));
    else
      for (std::int64_t j = i; j < i + 32; ++j) to[j] = round_to_nearest_bf16(from[j]);
  }
  return i;
}

}  // namespace convlab::cpu
HWY_POP_ATTRIBUTES
#else
namespace convlab::cpu {
std::int64_t round_bf16_by_unit(const float*, std::uint16_t*, std::int64_t) { return 0; }
}  // namespace convlab::cpu
#endif
