// The register-tile micro-kernel under every product on the CPU: C[rows][cols] += A B, where the C
// tile stays in registers, B is read a vector at a time, and each element of A is broadcast.
//
// With kRows x kVecs accumulators one step of depth loads kVecs vectors and kRows broadcasts for
// kRows * kVecs multiply-adds. 14 x 2 fills the 32 registers of AVX-512 (28 + 2 + 1) and 6 x 2 the
// 16 of AVX2 (12 + 2 + 1); both have more independent chains than the latency of a multiply-add
// times two units (8 to 10), and more multiply-adds than loads. Van Zee & van de Geijn 2015 (BLIS)
// has the general argument.
//
// Blocked activations hold the channels of one pixel in one cache line, so depth comes in groups:
//   A(i, g * kGroup + c) = a.data[g * a.group_stride + i * a.row_stride + c]
//   B(d, v)              = b.data[d * b.depth_stride + v * b.vec_stride], one vector.
// Rows are pixels and kGroup the channel block; or rows are channels (row_stride 1), depth runs
// over pixels and kGroup is 1. Everything is inlined: strides that are constants at the call become
// displacements.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_GEMM_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_GEMM_GEMM_KERNEL_INL_H_
#undef CONVLAB_KERNELS_CPU_GEMM_GEMM_KERNEL_INL_H_
#else
#define CONVLAB_KERNELS_CPU_GEMM_GEMM_KERNEL_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of the full tile.
constexpr int kTileRows = kLanes == 16 ? 14 : 6;

// The types of a product: of A and B in memory, of the sums in registers, and of C in memory.
template <class InT, class AccT = InT, class OutT = AccT>
struct Elements {
  using In = InT;
  using Acc = AccT;
  using Out = OutT;
};
// Half a channel block: the rows of backward_filter's tiles, which never cross a block's end.
constexpr int kHalfBlock = kBlock / 2;

// The prefetch distance in groups of A: about memory's latency.
constexpr int kPrefetchGroups = kLanes == 16 ? 2 : 16;
// The eight steps of a group are straight-line code with AVX2: each load then advances by a
// constant stride from group to group, which the hardware prefetcher follows. AVX-512's groups are
// twice as deep and its tiles larger; they loop.
constexpr bool kStraight = kLanes == 8;

// GCC 12 would otherwise read a vector from memory again for each use.
template <class V>
HWY_INLINE void KeepInRegister(V& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
  asm("" : "+v"(v.raw));
#endif
  (void)v;
}

// In straight-line code GCC 12 would reuse the register of a factor's last use for the accumulator,
// and move accumulators between registers.
template <class V>
HWY_INLINE void UsedUpToHere(const V& factor) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
  if constexpr (kStraight) asm volatile("" : : "v"(factor.raw));
#endif
  (void)factor;
}

// It would also compute each row's offset for each step in advance, more than there are registers.
template <class T>
HWY_INLINE void HideOrigin(T*& p) {
  asm("" : "+r"(p));
}

template <class T>
struct PanelAOf {
  const T* data;
  std::ptrdiff_t row_stride, group_stride;  // in elements
};

template <class T>
struct PanelBOf {
  const T* data;
  std::ptrdiff_t depth_stride = kTileColsOf<T>, vec_stride = kLanesOf<T>;  // in elements
};
using PanelA = PanelAOf<float>;
using PanelB = PanelBOf<float>;

// Prefetches data that is read soon after: step c prefetches data + c * step.
template <class T>
struct PrefetchToL1Of {
  const T* data;
  std::ptrdiff_t step;  // in elements
  HWY_INLINE void Step(std::int64_t c) const { hwy::Prefetch(data + c * step); }
};
template <class T>
struct PrefetchToL2Of {
  const T* data;
  std::ptrdiff_t step;
  HWY_INLINE void Step(std::int64_t c) const { __builtin_prefetch(data + c * step, 0, 2); }
};
using PrefetchToL1 = PrefetchToL1Of<float>;
using PrefetchToL2 = PrefetchToL2Of<float>;
// kRows groups of neighbours, a line or two a step.
template <class T, int kGroup, int kRows>
struct PrefetchRows {
  static constexpr int kStep = (kRows > 16 ? 2 : 1) * kGroup;  // elements
  const T* data;
  HWY_INLINE void Step(std::int64_t c) const {
    if (c * kStep % kLineOf<T> == 0)
      for (int i = 0; i < kStep; i += kLineOf<T>) hwy::Prefetch(data + c * kStep + i);
  }
};
// Likewise, and kStep elements a step into L2.
template <class T, class OfRows, int kStep>
struct PrefetchBoth {
  OfRows rows;
  const T* other;
  HWY_INLINE void Step(std::int64_t c) const {
    rows.Step(c);
    for (int i = 0; i < kStep; i += kLineOf<T>) __builtin_prefetch(other + c * kStep + i, 0, 2);
  }
};
struct NoPrefetch {
  HWY_INLINE void Step(std::int64_t) const {}
};

template <class E, int kRows, int kVecs>
struct TileOf {
  using In = typename E::In;
  using Acc = typename E::Acc;
  using Out = typename E::Out;
  using D = TagOf<Acc>;
  using Vec = hn::Vec<D>;
  using PanelA = PanelAOf<In>;
  using PanelB = PanelBOf<In>;
  static_assert(std::is_same_v<In, Acc> && std::is_same_v<Acc, Out>,
                "loads and stores do not convert yet");

  Vec v[kRows][kVecs];

  HWY_INLINE void SetZero() {
    HWY_UNROLL(32)
    for (int i = 0; i < kRows; ++i) {
      HWY_UNROLL(32)
      for (int j = 0; j < kVecs; ++j) v[i][j] = hn::Zero(D());
    }
  }

  // tile += A B over groups * kGroup steps of depth, in rows [kBegin, kEnd) of the tile.
  template <int kGroup, int kBegin = 0, int kEnd = kRows, class Prefetch = NoPrefetch>
  HWY_INLINE void MultiplyAdd(PanelA a, PanelB b, std::int64_t groups,
                              const Prefetch& prefetch = {}) {
    if (kGroup > 1 && a.row_stride == kGroup)
      MultiplyAddGroups<kGroup, kBegin, kEnd>(a.data, Neighbours<kGroup>(), a.group_stride, b,
                                              groups, prefetch);
    else
      MultiplyAddGroups<kGroup, kBegin, kEnd>(a.data, EvenRows{a.row_stride}, a.group_stride, b,
                                              groups, prefetch);
  }

  // The same where group g of A starts at a[g] and has `depth` steps.
  HWY_INLINE void MultiplyAdd(const In* const* a, std::ptrdiff_t row_stride, PanelB b,
                              std::int64_t groups, std::int64_t depth) {
    for (std::int64_t g = 0; g < groups; ++g)
      MultiplyAddSteps(a[g], EvenRows{row_stride}, 1, b, depth);
  }

  // The same in rows [kBegin, kEnd) that are neighbours, prefetching those kPrefetchGroups later: a
  // has that many entries more. Unless `other` is null, each group also prefetches kStep elements a
  // step from there on, `other_step` further each time.
  template <int kGroup, int kBegin = 0, int kEnd = kRows,
            int kStep = PrefetchRows<In, kGroup, kRows>::kStep>
  HWY_INLINE void MultiplyAddPrefetching(const In* const* a, PanelB b, std::int64_t groups,
                                         const In* other = nullptr, std::ptrdiff_t other_step = 0) {
    using OfRows = PrefetchRows<In, kGroup, kRows>;
    const auto prefetch = [&](std::int64_t g) { return OfRows{a[g + kPrefetchGroups]}; };
    if (other == nullptr) {
      for (std::int64_t g = 0; g < groups; ++g)
        MultiplyAddGroup<kGroup, kBegin, kEnd>(a[g], Neighbours<kGroup>(), b, prefetch(g));
    } else {
      for (std::int64_t g = 0; g < groups; ++g, other += other_step)
        MultiplyAddGroup<kGroup, kBegin, kEnd>(a[g], Neighbours<kGroup>(), b,
                                               PrefetchBoth<In, OfRows, kStep>{prefetch(g), other});
    }
  }

  // One such group, which is the last of a product and may end before its lanes do.
  template <int kGroup, int kBegin = 0, int kEnd = kRows>
  HWY_INLINE void MultiplyAddLast(const In* const* a, PanelB b, std::int64_t depth) {
    MultiplyAddGroup<kGroup, kBegin, kEnd>(
        *a, Neighbours<kGroup>(), b, PrefetchRows<In, kGroup, kRows>{a[kPrefetchGroups]}, depth);
  }

  // One group of neighbours, prefetching the kRows from `next` on. Straight-line code needs none:
  // the hardware prefetcher follows it.
  template <int kGroup>
  HWY_INLINE void MultiplyAddGroupPrefetching(const In* a, PanelB b, const In* next) {
    if constexpr (kStraight)
      MultiplyAddGroup<kGroup>(a, Neighbours<kGroup>(), b);
    else
      MultiplyAddGroup<kGroup>(a, Neighbours<kGroup>(), b, PrefetchRows<In, kGroup, kRows>{next});
  }

  // The same where rows lie at a + row_at[i] instead of evenly spaced.
  template <int kGroup, class Prefetch = NoPrefetch>
  HWY_INLINE void MultiplyAddAt(const In* a, const std::ptrdiff_t* row_at,
                                std::ptrdiff_t group_stride, PanelB b, std::int64_t groups,
                                const Prefetch& prefetch = {}) {
    MultiplyAddGroups<kGroup>(a, row_at, group_stride, b, groups, prefetch);
  }

  // Stores the tile, or adds it to the values there, in rows `pitch` elements apart. Partial sums
  // are combined this way: a part that continued from the sum so far would round each of its
  // products to the size of the whole.
  HWY_INLINE void Put(Out* to, std::ptrdiff_t pitch, bool add) {
    ForEach([&](int i, int j, const Vec& x) HWY_ATTR {
      Out* const at = to + i * pitch + j * kLanesOf<Out>;
      hn::StoreU(add ? hn::Add(x, hn::LoadU(D(), at)) : x, D(), at);
    });
  }

  // f(i, j, vector) for every vector of rows [kBegin, kEnd), in constant order: load, change or
  // store it. f is a lambda marked HWY_ATTR; the vector is passed by reference.
  template <int kBegin = 0, int kEnd = kRows, class F>
  HWY_INLINE void ForEach(F&& f) {
    HWY_UNROLL(32)
    for (int i = kBegin; i < kEnd; ++i) {
      HWY_UNROLL(32)
      for (int j = 0; j < kVecs; ++j) f(i, j, v[i][j]);
    }
  }

 private:
  struct EvenRows {
    std::ptrdiff_t stride;
    HWY_INLINE std::ptrdiff_t operator[](int i) const { return i * stride; }
  };
  template <int kGroup>  // a group each: their offsets are displacements
  struct Neighbours {
    HWY_INLINE constexpr std::ptrdiff_t operator[](int i) const { return i * kGroup; }
  };

  // Groups one after another; those of one step of depth are steps of one group, in one loop that
  // can be unrolled.
  template <int kGroup, int kBegin = 0, int kEnd = kRows, class RowAt, class Prefetch>
  HWY_INLINE void MultiplyAddGroups(const In* a, const RowAt& row_at, std::ptrdiff_t group_stride,
                                    PanelB b, std::int64_t groups, const Prefetch& prefetch) {
    if constexpr (kGroup == 1) {
      MultiplyAddSteps<kBegin, kEnd>(a, row_at, group_stride, b, groups, prefetch);
    } else {
      for (std::int64_t g = 0; g < groups; ++g, a += group_stride) {
        prefetch.Step(g);
        MultiplyAddGroup<kGroup, kBegin, kEnd>(a, row_at, b);
      }
    }
  }

  // One group, or its first `depth` steps unless it is straight-line code; advances b past them.
  template <int kGroup, int kBegin = 0, int kEnd = kRows, class RowAt, class Prefetch = NoPrefetch>
  HWY_INLINE void MultiplyAddGroup(const In* a, const RowAt& row_at, PanelB& b,
                                   const Prefetch& prefetch = {}, std::int64_t depth = kGroup) {
    if constexpr (kStraight) {
      HWY_UNROLL(8)
      for (int c = 0; c < kGroup; ++c, b.data += b.depth_stride) {
        prefetch.Step(c);
        const In* at = a + c;
        if constexpr (!std::is_same_v<RowAt, Neighbours<kGroup>>) HideOrigin(at);
        Step<kBegin, kEnd>(at, row_at, b);
      }
    } else {
      MultiplyAddSteps<kBegin, kEnd>(a, row_at, 1, b, depth, prefetch);
    }
  }

  // As many steps as there are, a_step apart in A; leaves b at the next one.
  template <int kBegin = 0, int kEnd = kRows, class RowAt, class Prefetch = NoPrefetch>
  HWY_INLINE void MultiplyAddSteps(const In* a, const RowAt& row_at, std::ptrdiff_t a_step,
                                   PanelB& b, std::int64_t depth, const Prefetch& prefetch = {}) {
    HWY_UNROLL(4)  // or the loop's own instructions would slow short tiles
    for (std::int64_t c = 0; c < depth; ++c, a += a_step, b.data += b.depth_stride) {
      prefetch.Step(c);
      Step<kBegin, kEnd>(a, row_at, b);
    }
  }

  template <int kBegin, int kEnd, class RowAt>
  HWY_INLINE void Step(const In* a, const RowAt& row_at, const PanelB& b) {
    Vec bv[kVecs];
    HWY_UNROLL(32)
    for (int j = 0; j < kVecs; ++j) bv[j] = hn::LoadU(D(), b.data + j * b.vec_stride);
    HWY_UNROLL(32)
    for (int i = kBegin; i < kEnd; ++i) {
      const Vec av = hn::Set(D(), a[row_at[i]]);
      HWY_UNROLL(32)
      for (int j = 0; j < kVecs; ++j) v[i][j] = hn::MulAdd(av, bv[j], v[i][j]);
      UsedUpToHere(av);
    }
    HWY_UNROLL(32)
    for (int j = 0; j < kVecs; ++j) UsedUpToHere(bv[j]);
  }
};

template <int kRows, int kVecs = kTileVecs>
using Tile = TileOf<Elements<float>, kRows, kVecs>;

// f(std::integral_constant<int, rows>()), for 1 to kMost rows.
template <int kMost = kTileRows, class F>
HWY_INLINE void WithRows(std::int64_t rows, F&& f) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return WithRows<kMost - 1>(rows, f);
  }
  f(std::integral_constant<int, kMost>());
}

// Covers `rows` rows with tiles of at most kRows rows, so that nothing outside is read or computed:
// f(std::integral_constant<int, n>, first). The remainder goes to tiles of half the size each time
// (7, 4, 2, 1): few sizes are instantiated, and if kRows divides a channel block, no tile spans
// two.
template <int kRows, class F>
HWY_INLINE void ForEachRowTile(std::int64_t rows, F&& f, std::int64_t first = 0) {
  for (; rows >= kRows; rows -= kRows, first += kRows)
    f(std::integral_constant<int, kRows>(), first);
  if constexpr (kRows > 1) {
    if (rows > 0) ForEachRowTile<(kRows + 1) / 2>(rows, f, first);
  }
}

// The same with tiles of at most kMost rows. If full tiles have six rows, the last two split the
// remainder evenly: a tile of fewer than four rows is bound by the latency of its multiply-adds,
// and 49 pixels are 8 x 6 + 1.
template <int kMost = kTileRows, class F>
HWY_INLINE void ForEachTile(std::int64_t rows, F&& f, std::int64_t first = 0) {
  if constexpr (kTileRows > 6) {
    ForEachRowTile<kMost>(rows, f, first);
  } else {
    for (; rows >= 2 * kTileRows; rows -= kTileRows, first += kTileRows)
      f(std::integral_constant<int, kTileRows>(), first);
    for (std::int64_t parts = rows > kTileRows ? 2 : 1; rows > 0; --parts) {
      const std::int64_t part = (rows + parts - 1) / parts;
      WithRows(part, [&](auto n) HWY_ATTR { f(n, first); });
      rows -= part, first += part;
    }
  }
}

// The same with the fewest tiles of at most kMost rows, all nearly of one size. That takes code for
// each size, but tiles of few rows would wait for a B that streams past.
template <int kMost, class F>
HWY_INLINE void ForEachEvenRowTile(std::int64_t rows, F&& f) {
  const std::int64_t parts = (rows + kMost - 1) / kMost;
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range own = share(rows, part, parts);
    WithRows<kMost>(own.size(), [&](auto n) HWY_ATTR { f(n, own.begin); });
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
