// Straight-line code from lambdas.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_UNROLLED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_UNROLLED_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_UNROLLED_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_UNROLLED_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>
#include <utility>

// A lambda of straight-line code: inlined whatever its size.
#undef CONVLAB_INLINE_LAMBDA
#define CONVLAB_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

template <int i>
using Index = std::integral_constant<int, i>;

// f(Index<0>), f(Index<1>), ...: indices are constants at each call, so arrays live in registers.
template <int kCount, class F>
HWY_INLINE void Unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) CONVLAB_INLINE_LAMBDA { (f(Index<i>()), ...); }
  (std::make_integer_sequence<int, kCount>());
}

// The same until f returns false. Whether it never did.
template <int kCount, class F>
HWY_INLINE bool UnrolledWhile(F&& f) {
  return [&]<int... i>(std::integer_sequence<int, i...>) CONVLAB_INLINE_LAMBDA {
    return (f(Index<i>()) && ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

// f(Index<value>) for a value in [1, kMost].
template <int kMost, class F>
HWY_INLINE void WithConstant(std::int64_t value, F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) CONVLAB_INLINE_LAMBDA {
    static_cast<void>(((value == i + 1 ? (f(Index<i + 1>()), true) : false) || ...));
  }
  (std::make_integer_sequence<int, kMost>());
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
