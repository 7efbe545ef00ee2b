#include "kernels_cpu/half/convert.h"

#include <algorithm>
#include <cstddef>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/half/units.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/half/convert.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/half/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

template <class From, class To>
void Copy(const From* from, To* to, std::int64_t count) {
  ForEachStored<float>(
      count, [&](auto at, std::int64_t i) HWY_ATTR { at.Store(at.Load(from + i), to + i); });
}

void WidenAll(DType half, const std::uint16_t* from, float* to, std::int64_t count) {
  half == DType::f16 ? Copy(reinterpret_cast<const StoredF16*>(from), to, count)
                     : Copy(reinterpret_cast<const StoredBf16*>(from), to, count);
}

void RoundAll(DType half, const float* from, std::uint16_t* to, std::int64_t count, bool by_unit) {
  std::int64_t done = 0;
#if HWY_TARGET == HWY_AVX3
  if (by_unit && half == DType::bf16) done = round_bf16_by_unit(from, to, count);
#else
  (void)by_unit;
#endif
  half == DType::f16 ? Copy(from + done, reinterpret_cast<StoredF16*>(to + done), count - done)
                     : Copy(from + done, reinterpret_cast<StoredBf16*>(to + done), count - done);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(WidenAll);
HWY_EXPORT(RoundAll);

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
  HWY_DYNAMIC_DISPATCH(WidenAll)(half, static_cast<const std::uint16_t*>(from), to, count);
}

void round(DType half, const float* from, void* to, std::int64_t count, bool by_unit) {
  HWY_DYNAMIC_DISPATCH(RoundAll)(half, from, static_cast<std::uint16_t*>(to), count, by_unit);
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
