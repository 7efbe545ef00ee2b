// Winograd's first step: V = B^T d B of the input's tiles, by the threads that share them.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_INPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_INPUT_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_INPUT_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_INPUT_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstdint>

#include "kernels_cpu/winograd/fold-inl.h"
#include "kernels_cpu/winograd/tiles-inl.h"
#include "kernels_cpu/winograd/transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// A thread's place among those that share its buffers.
struct Team {
  std::int64_t rank = 0, size = 1;
  Range Share(std::int64_t count) const { return share(count, rank, size); }
  void Barrier() const {
    if (size > 1) {
      hwy::FlushStream();
#pragma omp barrier
    }
  }
};

// The stride of the phases that F(M, R) is for.
constexpr int PhaseStride(int r) { return r == 2 ? 2 : 1; }

// Stores row i of a run's tile t: store(t, i, y) of NestedRun.
template <int T, class Real>
HWY_INLINE auto StoreRows(Real* to, std::int64_t point, bool non_temporal) {
  using D = TagOf<Real>;
  return [=](int t, int i, const VecOf<Real>* y) HWY_ATTR {
    Real* const at = to + t * kBlock + i * T * point;
    if (non_temporal) {
      HWY_UNROLL(8)
      for (int j = 0; j < T; ++j) hn::Stream(y[j], D(), at + j * point);
    } else {
      HWY_UNROLL(8)
      for (int j = 0; j < T; ++j) hn::StoreU(y[j], D(), at + j * point);
    }
  };
}

// V = B^T d B for (channel block, tile) pairs.
template <class Real, class Input, int M, int kStride>
void TransformInput(const Spec& s, const Real* in, Real* v, Range block, Range items) {
  constexpr int T = Input::inputs, kColumns = kRunTiles * M + T - M;
  const Geometry& g = s.geometry;
  const std::int64_t rows = s.buffers.padded_tiles, point = s.buffers.v_point;
  ForEachRun(
      g, block, items,
      [&](std::int64_t b, std::int64_t tile, const TileAt& place, int count) HWY_ATTR {
        const std::int64_t phase = kStride == 1 ? 0 : b / g.phase_blocks();
        const Pixels<T, kColumns, kStride> pixels(g, g.in, g.in_grid, phase, place.y * M - g.pad_h,
                                                  place.x * M - g.pad_w, count * M + T - M);
        const Real* const plane = in + pixels.Plane(g, g.in, place, b - phase * g.phase_blocks());
        for (int part = 0; part < kBlock; part += kLanesOf<Real>) {
          Real* const to = v + (b * rows + tile) * kBlock + part;
          NestedRun<Real, Input, M, kRunTiles>(
              count,
              [&](int c, VecOf<Real>* x) HWY_ATTR {
                if (s.prefetch_input) pixels.template PrefetchColumn<M>(plane + part, c);
                pixels.Load(plane + part, c, x);
              },
              StoreRows<T>(to, point, s.non_temporal_v));
        }
      });
}

// The same of plain x, whose stride folds into channels.
template <class Real, class Input, int M>
void TransformFolded(const Spec& s, const Real* x, Real* v, Range block, Range items) {
  constexpr int T = Input::inputs, kColumns = kRunTiles * M + T - M;
  constexpr int kMost = (kColumns + kLanesOf<Real> - 1) / kLanesOf<Real> * kLanesOf<Real>;
  const Geometry& g = s.geometry;
  const auto fold = g.stride == 4   ? FoldRun<Real, T, kMost, 4>
                    : g.stride == 2 ? FoldRun<Real, T, kMost, 2>
                                    : FoldRun<Real, T, kMost, 1>;
  alignas(64) Real patch[T * kMost * kBlock];
  const std::int64_t rows = s.buffers.padded_tiles, point = s.buffers.v_point;
  ForEachRun(g, block, items,
             [&](std::int64_t b, std::int64_t tile, const TileAt& at, int count) HWY_ATTR {
               fold(*g.fold, x, at.mosaic, b, at.y * M, at.x * M, count * M + T - M, patch);
               for (int part = 0; part < kBlock; part += kLanesOf<Real>) {
                 Real* const to = v + (b * rows + tile) * kBlock + part;
                 NestedRun<Real, Input, M, kRunTiles>(
                     count,
                     [&](int c, VecOf<Real>* column) HWY_ATTR {
                       HWY_UNROLL(8)
                       for (int r = 0; r < T; ++r)
                         column[r] =
                             hn::LoadU(TagOf<Real>(), patch + (r * kMost + c) * kBlock + part);
                     },
                     StoreRows<T>(to, point, s.non_temporal_v));
               }
             });
}

template <class Real, class Input, int M, int R>
auto InputTransform(const Geometry& g) {
  if (g.folds()) return TransformFolded<Real, Input, M>;
  return g.in_grid.phases == 1 ? TransformInput<Real, Input, M, 1>
                               : TransformInput<Real, Input, M, PhaseStride(R)>;
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
