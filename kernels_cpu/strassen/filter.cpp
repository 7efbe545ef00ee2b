// backward_filter of strassen.cpp: dw = A B, where A is dy^T and B is x. A unit, a rectangle of
// dw's quadrants over a part of the pixels:
//   for each block of pairs of pixels:
//     the sums of A's and of B's quadrants; the quadrants themselves only if they lie apart
//     for each of seven products, panel and tile of channels: kHalfBlock x kTileCols += A B
// The products of all pixels go to dw at the end.
#include <algorithm>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/strassen/strassen.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/strassen/filter.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// The factors of the seven products, in the order of strassen.cpp: a quadrant each, or none if the
// factor is a sum of quadrants.
enum Quadrant { kNone = -1, k11, k12, k21, k22 };
struct LeftSums {
  static constexpr Quadrant kQuadrants[7] = {k11, k12, kNone, kNone, k22, kNone, kNone};
  template <class Put>
  static HWY_INLINE void ForEach(Vec a11, Vec a12, Vec a21, Vec a22, const Put& put) {
    const Vec s1 = hn::Add(a21, a22), s2 = hn::Sub(s1, a11);
    put(0, a11);
    put(1, a12);
    put(2, s2);
    put(3, hn::Sub(a11, a21));
    put(4, a22);
    put(5, s1);
    put(6, hn::Sub(a12, s2));
  }
};
struct RightSums {
  static constexpr Quadrant kQuadrants[7] = {k11, k21, kNone, kNone, kNone, kNone, k22};
  template <class Put>
  static HWY_INLINE void ForEach(Vec b11, Vec b12, Vec b21, Vec b22, const Put& put) {
    const Vec t1 = hn::Sub(b12, b11), t2 = hn::Sub(b22, t1);
    put(0, b11);
    put(1, b21);
    put(2, t2);
    put(3, hn::Sub(b22, b12));
    put(4, hn::Sub(b21, t2));
    put(5, t1);
    put(6, b22);
  }
};

// Some channel blocks of one operand, and its sums of a block of pairs, `width` channels side by
// side.
struct Side {
  const float* from;
  std::int64_t plane, groups;
  std::int64_t right, below;  // from quadrant 11 to 12 and to 21
  std::int64_t* at;           // where each pair lies
  float* sums;
  std::int64_t width, step;  // from product to product

  HWY_INLINE std::int64_t Place(int quadrant) const {
    return quadrant % 2 * right + quadrant / 2 * below;
  }
};

// kInPlace: products read the quadrants where they are. Each pair prefetches its own in the next
// plane: all come from memory, and the hardware prefetcher stops at the end of a page.
template <class Sums, bool kInPlace>
void MakeSums(const Side& s, std::int64_t pairs, std::int64_t block) {
  for (std::int64_t g = 0; g < s.groups; ++g) {
    const std::int64_t channel = g * kBlock;
    const std::int64_t next = g + 1 < s.groups ? s.plane : 0;
    float* to = s.sums + channel / s.width * block * s.width + channel % s.width;
    for (std::int64_t i = 0; i < pairs; ++i, to += s.width) {
      const float* const pixel = s.from + g * s.plane + s.at[i];
      for (const Quadrant q : {k11, k12, k21, k22})
        __builtin_prefetch(pixel + next + s.Place(q), 0, 2);
      for (int lane = 0; lane < kBlock; lane += kLanes) {
        const auto load = [&](Quadrant q)
                              HWY_ATTR { return hn::LoadU(F32(), pixel + s.Place(q) + lane); };
        Sums::ForEach(load(k11), load(k12), load(k21), load(k22), [&](int m, Vec v) HWY_ATTR {
          if (!kInPlace || Sums::kQuadrants[m] == kNone)
            hn::StoreU(v, F32(), to + m * s.step + lane);
        });
      }
    }
  }
}

// A panel of the right operand; columns of a block that lies in place are those of two planes.
PanelB PanelOf(const StrassenFilter& f, const Side& b, int m, std::int64_t panel) {
  const Quadrant in_place = f.x_in_place ? RightSums::kQuadrants[m] : kNone;
  if (in_place == kNone) return {b.sums + m * b.step + panel * f.block * kTileCols};
  return {b.from + b.at[0] + b.Place(in_place) + panel * kTileCols / kBlock * b.plane, kBlock,
          kLanes == kBlock ? b.plane : kLanes};
}

// Adds the products of a block to their sums, which have been evicted from L2 since the last block:
// each tile prefetches its own before it begins.
void MultiplySums(const StrassenFilter& f, const Side& a, const Side& b, std::int64_t pairs,
                  bool first, float* products) {
  const std::int64_t channels = a.groups * kBlock;
  for (int m = 0; m < 7; ++m) {
    const Quadrant in_place = f.in_place ? LeftSums::kQuadrants[m] : kNone;
    const float* const rows =
        in_place == kNone ? a.sums + m * a.step : a.from + a.at[0] + a.Place(in_place);
    const std::int64_t group_step = in_place == kNone ? f.block * kBlock : a.plane;
    float* to = products + m * f.product_step();
    for (std::int64_t panel = 0; panel < b.groups * kBlock / kTileCols; ++panel) {
      const PanelB panel_b = PanelOf(f, b, m, panel);
      for (std::int64_t row = 0; row < channels; row += kHalfBlock) {
        for (int i = 0; i < kHalfBlock * kTileCols; i += kLanes) __builtin_prefetch(to + i, 1);
        Tile<kHalfBlock> tile;
        tile.SetZero();
        tile.MultiplyAdd<1>({rows + row / kBlock * group_step + row % kBlock, 1, kBlock}, panel_b,
                            pairs);
        tile.Put(to, kTileCols, !first);
        to += kHalfBlock * kTileCols;
      }
    }
  }
}

struct Rectangle {
  Range groups, panels;
  Rectangle(const StrassenFilter& f, std::int64_t i)
      : groups(share(f.half_groups, i / f.col_splits, f.row_splits)),
        panels(share(f.half_panels, i % f.col_splits, f.col_splits)) {}
};

void RunUnit(const StrassenFilter& f, const StrassenFilterOperands& data, float* products,
             float* workspace, std::int64_t unit) {
  const Rectangle own(f, unit / f.parts);
  auto* const table = reinterpret_cast<std::int64_t*>(workspace + f.a_floats() + f.b_floats());
  const std::int64_t dy_plane = f.dy.h * f.dy.w * kBlock, x_plane = f.x.h * f.x.w * kBlock;
  const std::int64_t dy_image = f.dy.c * f.dy.h * f.dy.w, x_image = f.x.c * f.x.h * f.x.w;
  const std::int64_t panel_groups = kTileCols / kBlock;
  const Side a{.from = data.dy + own.groups.begin * dy_plane,
               .plane = dy_plane,
               .groups = own.groups.size(),
               .right = f.pairs.apart_images * dy_image + f.pairs.apart_pixels * kBlock,
               .below = f.half_groups * dy_plane,
               .at = table,
               .sums = workspace,
               .width = kBlock,
               .step = f.a_step()};
  const Side b{.from = data.x + own.panels.begin * panel_groups * x_plane,
               .plane = x_plane,
               .groups = own.panels.size() * panel_groups,
               .right = f.half_panels * panel_groups * x_plane,
               .below = f.pairs.apart_images * x_image + f.x_at[std::size_t(f.pairs.apart_pixels)],
               .at = table + f.block,
               .sums = workspace + f.a_floats(),
               .width = kTileCols,
               .step = f.b_step()};
  const Range blocks = share(f.blocks(), unit % f.parts, f.parts);
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    const Range pairs = f.pairs_of(block);
    {
      const PhaseScope scope(data.phases, 0);
      std::int64_t n = pairs.begin / f.pairs.pixels, pixel = pairs.begin % f.pairs.pixels;
      for (std::int64_t i = 0; i < pairs.size(); ++i) {
        a.at[i] = n * dy_image + pixel * kBlock;
        b.at[i] = n * x_image + f.x_at[std::size_t(pixel)];
        if (++pixel == f.pairs.pixels) pixel = 0, ++n;
      }
      (f.in_place ? MakeSums<LeftSums, true> : MakeSums<LeftSums, false>)(a, pairs.size(), f.block);
      (f.x_in_place ? MakeSums<RightSums, true> : MakeSums<RightSums, false>)(b, pairs.size(),
                                                                              f.block);
    }
    const PhaseScope scope(data.phases, 1);
    MultiplySums(f, a, b, pairs.size(), block == blocks.begin, products);
  }
}

// The sums of all parts, to some rows of one rectangle of each quadrant of dw.
void PutTogether(const StrassenFilter& f, const float* products, std::int64_t rectangle,
                 std::int64_t share_of, std::int64_t shares, float* dw) {
  const Rectangle own(f, rectangle);
  const std::int64_t channels = own.groups.size() * kBlock;
  const std::int64_t right = f.half_panels * kTileCols, below = f.half_groups * kBlock * f.x.c;
  const Range rows = share(channels, share_of, shares);
  for (std::int64_t row = rows.begin; row < rows.end; ++row)
    for (std::int64_t panel = own.panels.begin; panel < own.panels.end; ++panel)
      for (int lane = 0; lane < kTileCols; lane += kLanes) {
        const float* const from =
            products + ((panel - own.panels.begin) * channels + row) * kTileCols + lane;
        Vec p[7];
        HWY_UNROLL(8)
        for (int m = 0; m < 7; ++m)
          p[m] = PartSums{from + m * f.product_step(), std::size_t(f.set_floats()), f.parts}.LoadAt(
              F32(), 0);
        float* const to = dw + (own.groups.begin * kBlock + row) * f.x.c + panel * kTileCols + lane;
        const auto put = [&](Vec v, float* place) HWY_ATTR {
          hn::StoreU(f.accumulate ? hn::Add(v, hn::LoadU(F32(), place)) : v, F32(), place);
        };
        const Vec u2 = hn::Add(p[0], p[2]), u3 = hn::Add(u2, p[3]);
        put(hn::Add(p[0], p[1]), to);
        put(hn::Add(hn::Add(u2, p[5]), p[6]), to + right);
        put(hn::Add(u3, p[4]), to + below);
        put(hn::Add(u3, p[5]), to + right + below);
      }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(RunUnit);
HWY_EXPORT(PutTogether);

void run_strassen_unit(const StrassenFilter& f, const StrassenFilterOperands& data, float* products,
                       float* workspace, std::int64_t unit) {
  HWY_DYNAMIC_DISPATCH(RunUnit)(f, data, products, workspace, unit);
}

void put_strassen_together(const StrassenFilter& f, const float* products, std::int64_t rectangle,
                           std::int64_t index, std::int64_t shares, float* dw) {
  HWY_DYNAMIC_DISPATCH(PutTogether)(f, products, rectangle, index, shares, dw);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
