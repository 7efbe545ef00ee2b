#include "kernels_cpu/half/convert.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/half/bits.h"
#include "kernels_cpu/half/units.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/half/convert.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using F16 = hn::Rebind<hwy::float16_t, F32>;
constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));

// Policies: a vector of values, and one.
struct BFloat16Of {
  static HWY_INLINE void Widen(const std::uint16_t* from, float* to) {
    const auto bits = hn::PromoteTo(U32(), hn::LoadU(U16(), from));
    hn::StoreU(hn::BitCast(F32(), hn::ShiftLeft<16>(bits)), F32(), to);
  }
  static HWY_INLINE void Round(const float* from, std::uint16_t* to) {
    const U32 d;
    const auto v = hn::LoadU(F32(), from);
    const auto bits = hn::BitCast(d, v);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto even = hn::Add(hn::Set(d, 0x7fff), hn::And(upper, hn::Set(d, 1)));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, even));
    const auto quiet = hn::Or(upper, hn::Set(d, 0x40));
    const auto kept = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), quiet, rounded);
    hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(I32(), kept)), U16(), to);
  }
  static float WidenOne(std::uint16_t v) { return widen_bf16(v); }
  static std::uint16_t RoundOne(float v) { return round_to_nearest_bf16(v); }
};

struct Float16Of {
#if HWY_TARGET == HWY_EMU128  // has no instruction for them
  static HWY_INLINE void Widen(const std::uint16_t* from, float* to) {
    for (std::int64_t i = 0; i < kLanes; ++i) to[i] = WidenOne(from[i]);
  }
  static HWY_INLINE void Round(const float* from, std::uint16_t* to) {
    for (std::int64_t i = 0; i < kLanes; ++i) to[i] = RoundOne(from[i]);
  }
#else
  static HWY_INLINE void Widen(const std::uint16_t* from, float* to) {
    const auto halves = hn::LoadU(F16(), reinterpret_cast<const hwy::float16_t*>(from));
    hn::StoreU(hn::PromoteTo(F32(), halves), F32(), to);
  }
  static HWY_INLINE void Round(const float* from, std::uint16_t* to) {
    hn::StoreU(hn::DemoteTo(F16(), hn::LoadU(F32(), from)), F16(),
               reinterpret_cast<hwy::float16_t*>(to));
  }
#endif
  static float WidenOne(std::uint16_t v) { return widen_f16(v); }
  static std::uint16_t RoundOne(float v) { return round_to_nearest_f16(v); }
};

template <class Half>
void WidenAll(const std::uint16_t* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Half::Widen(from + i, to + i);
  for (; i < count; ++i) to[i] = Half::WidenOne(from[i]);
}

template <class Half>
void RoundAll(const float* from, std::uint16_t* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Half::Round(from + i, to + i);
  for (; i < count; ++i) to[i] = Half::RoundOne(from[i]);
}

void Widen(DType half, const std::uint16_t* from, float* to, std::int64_t count) {
  half == DType::f16 ? WidenAll<Float16Of>(from, to, count) : WidenAll<BFloat16Of>(from, to, count);
}

void Round(DType half, const float* from, std::uint16_t* to, std::int64_t count, bool by_unit) {
  std::int64_t done = 0;
#if HWY_TARGET == HWY_AVX3
  if (by_unit && half == DType::bf16) done = round_bf16_by_unit(from, to, count);
#else
  (void)by_unit;
#endif
  half == DType::f16 ? RoundAll<Float16Of>(from + done, to + done, count - done)
                     : RoundAll<BFloat16Of>(from + done, to + done, count - done);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(Widen);
HWY_EXPORT(Round);

// f(begin, count) by all threads: pieces of whole cache lines of both types, but for the last.
template <class F>
void in_pieces(std::int64_t count, int threads, PhaseRecorder* recorder, int phase, const F& f) {
  constexpr std::int64_t unit = 32;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t) {
    const PhaseScope scope(recorder, phase);
    const Range own = share(ceil_div(count, unit), t, threads);
    const std::int64_t begin = own.begin * unit, end = std::min(count, own.end * unit);
    if (begin < end) f(begin, end - begin);
  }
}

}  // namespace

void widen(DType half, const void* from, float* to, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(Widen)(half, static_cast<const std::uint16_t*>(from), to, count);
}

void round(DType half, const float* from, void* to, std::int64_t count, bool by_unit) {
  HWY_DYNAMIC_DISPATCH(Round)(half, from, static_cast<std::uint16_t*>(to), count, by_unit);
}

void round(DType half, const float* from, void* to, std::int64_t count) {
  round(half, from, to, count, half_units().avx512_bf16);
}

void widen(DType half, const void* from, float* to, std::int64_t count, int threads,
           PhaseRecorder* recorder, int phase) {
  in_pieces(count, threads, recorder, phase, [&](std::int64_t begin, std::int64_t size) {
    widen(half, static_cast<const std::uint16_t*>(from) + begin, to + begin, size);
  });
}

void round(DType half, const float* from, void* to, std::int64_t count, int threads,
           PhaseRecorder* recorder, int phase) {
  in_pieces(count, threads, recorder, phase, [&](std::int64_t begin, std::int64_t size) {
    round(half, from + begin, static_cast<std::uint16_t*>(to) + begin, size);
  });
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
