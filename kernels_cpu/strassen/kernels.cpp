// The loops of strassen.cpp. A thread owns a range of pairs of pixels:
//   for each block of pairs, for each chunk of depth, for each pair of panels:
//     for each tile of the block: with the first panels, the operands of A into L2;
//       seven products, whose sums are in registers or L1, and four tiles of C
#include <algorithm>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/strassen/strassen.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/strassen/kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/gemm/tile_output-inl.h"
#include "kernels_cpu/simd/zero_between-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// The operands that multiply B's, in the order of the products; pack_sums has B's.
enum Operand { kA11, kA12, kS2, kS3, kA22, kS1, kS4, kOperands };

// Where pairs of pixels lie: the upper one's first channel, in floats.
struct PairTable {
  std::int64_t *in, *out;
};

void FillPairs(const StrassenGemm& gemm, Range pairs, const PairTable& at) {
  const std::int64_t in_image = gemm.in.c * gemm.in.h * gemm.in.w;
  const std::int64_t out_image = gemm.out.c * gemm.out.h * gemm.out.w;
  for (std::int64_t i = 0; i < pairs.size(); ++i) {
    const std::int64_t n = (pairs.begin + i) / gemm.pairs.pixels,
                       pixel = (pairs.begin + i) % gemm.pairs.pixels;
    at.in[i] = n * in_image + gemm.in_at[std::size_t(pixel)];
    at.out[i] = n * out_image + gemm.out_at[std::size_t(pixel)];
  }
}

// Operands of `rows` pairs of pixels, [operand][group][row][kBlock].
void MakeOperands(const StrassenGemm& gemm, const float* in, const std::int64_t* in_at,
                  std::int64_t rows, Range groups, float* to) {
  const F32 d;
  const std::int64_t plane = gemm.in.h * gemm.in.w * kBlock;
  const std::int64_t right = gemm.in_right(), below = gemm.in_below();
  const std::int64_t step = groups.size() * rows * kBlock;
  for (std::int64_t g = groups.begin; g < groups.end; ++g)
    for (std::int64_t i = 0; i < rows; ++i)
      for (int lane = 0; lane < kBlock; lane += kLanes, to += kLanes) {
        const float* const at = in + in_at[i] + g * plane + lane;
        const Vec a11 = hn::LoadU(d, at), a12 = hn::LoadU(d, at + right);
        const Vec a21 = hn::LoadU(d, at + below), a22 = hn::LoadU(d, at + below + right);
        const Vec s1 = hn::Add(a21, a22), s2 = hn::Sub(s1, a11);
        hn::StoreU(a11, d, to + kA11 * step);
        hn::StoreU(a12, d, to + kA12 * step);
        hn::StoreU(a22, d, to + kA22 * step);
        hn::StoreU(s1, d, to + kS1 * step);
        hn::StoreU(s2, d, to + kS2 * step);
        hn::StoreU(hn::Sub(a11, a21), d, to + kS3 * step);
        hn::StoreU(hn::Sub(a12, s2), d, to + kS4 * step);
      }
}

// A quadrant's pixels of the tile that comes next: group g's are prefetched at group g.
struct NextRows {
  const float* in;
  const std::int64_t* in_at;
  std::int64_t rows, plane;
  HWY_INLINE void Step(std::int64_t g) const {
    for (std::int64_t i = 0; i < rows; ++i) hwy::Prefetch(in + in_at[i] + g * plane);
  }
};

// One tile of each quadrant of C.
struct TileJob {
  const float* a;
  std::int64_t groups;
  const float* b;
  std::int64_t b_step;  // from product to product
  TileOutput output;    // of the first quadrant
  const std::int64_t* out_at;
  std::int64_t right, below;  // from there to the others

  HWY_INLINE TileOutput Quadrant(bool is_right, bool is_below) const {
    const std::int64_t at = (is_right ? right : 0) + (is_below ? below : 0);
    const OutputEpilogue<float>& e = output.epilogue;
    return {e.at(at, is_right ? right / output.plane * kBlock : 0), output.plane};
  }
};

template <int kRows, class Prefetch>
HWY_INLINE void Multiply(const TileJob& job, Operand k, Tile<kRows>& tile,
                         const Prefetch& prefetch) {
  tile.template MultiplyAdd<kBlock>(
      {job.a + k * job.groups * kRows * kBlock, kBlock, kRows * kBlock},
      PanelB{job.b + k * job.b_step}, job.groups, prefetch);
}

// next(quadrant of A) prefetches what comes next.
template <int kRows, class Next>
HWY_NOINLINE void RunTile(const TileJob& job, const Next& next) {
  Tile<kRows> tile;
  alignas(64) float u[2][kRows * kTileCols];
  const auto load = [&](const float* from) HWY_ATTR {
    tile.ForEach([&](int i, int j, Vec& v)
                     HWY_ATTR { v = hn::Load(F32(), from + i * kTileCols + j * kLanes); });
  };
  tile.SetZero();
  Multiply(job, kA11, tile, next(0));
  tile.Put(u[0], kTileCols, false);
  Multiply(job, kA12, tile, NoPrefetch());
  job.Quadrant(false, false).Store(tile, job.out_at);
  load(u[0]);
  Multiply(job, kS2, tile, next(1));
  tile.Put(u[0], kTileCols, false);  // U2
  Multiply(job, kS3, tile, NoPrefetch());
  tile.Put(u[1], kTileCols, false);  // U3
  Multiply(job, kA22, tile, next(2));
  job.Quadrant(false, true).Store(tile, job.out_at);
  tile.SetZero();
  Multiply(job, kS1, tile, NoPrefetch());
  tile.Put(u[0], kTileCols, true);  // U2 + S1 T1
  tile.Put(u[1], kTileCols, true);  // C22
  load(u[0]);
  Multiply(job, kS4, tile, next(3));
  job.Quadrant(true, false).Store(tile, job.out_at);
  load(u[1]);
  job.Quadrant(true, true).Store(tile, job.out_at);
}

void RunStrassen(const StrassenGemm& gemm, const StrassenOperands& data, std::byte* workspace,
                 std::int64_t thread) {
  float* const sums = reinterpret_cast<float*>(workspace);
  auto* const table = reinterpret_cast<std::int64_t*>(sums + gemm.sum_floats());
  const PairTable at{table, table + gemm.block};
  const Range own = share(gemm.pairs.count(), thread, gemm.threads);
  const std::int64_t lines = gemm.out.n * ceil_div(gemm.out.h, gemm.out_step_h);
  const std::int64_t blocks = ceil_div(own.size(), gemm.block);
  const std::int64_t chunks = ceil_div(gemm.half_groups, gemm.chunk);
  const std::int64_t plane = gemm.out.h * gemm.out.w * kBlock;
  const std::int64_t in_plane = gemm.in.h * gemm.in.w * kBlock;
  const std::int64_t right = gemm.in_right(), below = gemm.in_below();
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t tiles = ceil_div(own.size(), kTileRows);
    const Range part = share(tiles, i, blocks);
    const Range pairs{own.begin + part.begin * kTileRows,
                      std::min(own.end, own.begin + part.end * kTileRows)};
    FillPairs(gemm, pairs, at);
    // Zeros are stored to memory while the products keep the cores busy.
    if (gemm.zeros_between)
      ZeroBetween(gemm.out, gemm.out_step_h, gemm.out_step_w,
                  share(lines, thread * blocks + i, gemm.threads * blocks), gemm.out.c / kBlock,
                  data.output.out, data.output.non_temporal);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const Range groups = share(gemm.half_groups, chunk, chunks);
      for (std::int64_t panel = 0; panel < gemm.half_panels; ++panel) {
        const std::int64_t first_out = panel * kTileCols / kBlock * plane;
        TileJob job{.a = sums,
                    .groups = groups.size(),
                    .b = data.packed + panel * 7 * gemm.product_floats() +
                         groups.begin * kBlock * kTileCols,
                    .b_step = gemm.product_floats(),
                    .output = {data.output.at(first_out, panel * kTileCols)
                                   .part(chunk == 0, chunk + 1 == chunks),
                               plane},
                    .out_at = at.out,
                    .right = gemm.half_panels * kTileCols / kBlock * plane,
                    .below = gemm.out_below()};
        float* to = sums;
        ForEachTile(pairs.size(), [&](auto rows, std::int64_t first) HWY_ATTR {
          const bool makes = panel == 0;
          if (makes) {
            const PhaseScope scope(data.phases, 0);
            MakeOperands(gemm, data.in, at.in + first, rows, groups, to);
          }
          const PhaseScope scope(data.phases, 1);
          job.a = to;
          job.out_at = at.out + first;
          to += kOperands * groups.size() * rows * kBlock;
          const std::int64_t left = std::min<std::int64_t>(pairs.size() - first - rows, rows);
          const float* const in = data.in + groups.begin * in_plane;
          RunTile<rows.value>(job, [&](int quadrant) {
            return NextRows{in + (quadrant % 2 ? right : 0) + (quadrant / 2 ? below : 0),
                            at.in + first + rows, makes ? left : 0, in_plane};
          });
        });
      }
    }
  }
  if (data.output.non_temporal) hwy::FlushStream();
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(RunStrassen);

void run_strassen(const StrassenGemm& gemm, const StrassenOperands& data, std::byte* workspace,
                  std::int64_t thread) {
  HWY_DYNAMIC_DISPATCH(RunStrassen)(gemm, data, workspace, thread);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
