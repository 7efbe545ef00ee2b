// backward_data of direct_first_layer, into plain NCHW with at most 4 channels.
//
// A stride phase is dx[c][i][j] = sum over (k, tap) of dy[k][i + dh][j + dw] w[k][c][tap]: far too
// few channels to fill a vector, but plenty of pixels. So vectors run along pixels: a register tile
// is all C channels times 8 vectors of pixels, and a step loads 8 vectors of dy for C times as many
// multiply-adds with the C broadcast filter elements. Only the phase's own taps are visited, so
// that the only products with zeros are those between the rows, due to the pitch.
//
// That needs each channel of dy as a plane. A band of its rows is copied into planes, surrounded by
// zeros, and stays in L2 for all phases; a tap is then one distance from pixel to pixel, and a run
// of pixels may cross the end of a row. The copy costs 2 to 3 operations an element, which then
// takes part in R * S * C multiply-adds. The sums of a row of phases stay in L2 until they are
// interleaved into rows of dx.
#include <algorithm>
#include <cstddef>

#include "kernels_cpu/direct/first_layer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/direct/first_layer_data_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// As many as fit in the registers beside C broadcasts and one vector of dy.
template <int kChannels>
constexpr int kPixelVecs = std::min(8, ((kLanes == 16 ? 32 : 16) - kChannels - 1) / kChannels);

// to[channel][pixel] = row[pixel][channel] of one channel block: 4 pixels at a time.
HWY_INLINE void CopyRow(const float* row, std::int64_t pixel_step, std::int64_t pixels,
                        std::int64_t channels, float* to, std::int64_t plane) {
  const hn::CappedTag<float, 4> d4;
  for (std::int64_t first = 0; first < channels; first += kLanes)
    for (std::int64_t pixel = 0; pixel < pixels; pixel += 4) {
      Vec v[4];
      for (std::int64_t i = 0; i < 4; ++i)
        v[i] = hn::LoadU(F32(), row + std::min(pixel + i, pixels - 1) * pixel_step + first);
      alignas(64) float four[4 * kLanes];  // [channel][pixel]
      hn::StoreInterleaved4(v[0], v[1], v[2], v[3], F32(), four);
      const std::int64_t count = std::min<std::int64_t>(4, pixels - pixel);
      const std::int64_t lanes = std::min<std::int64_t>(kLanes, channels - first);
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        float* const at = to + (first + lane) * plane + pixel;
        if (count == 4)
          hn::StoreU(hn::Load(d4, four + 4 * lane), d4, at);
        else
          std::copy_n(four + 4 * lane, count, at);
      }
    }
}

// planes[k][row][column] = dy[k][first_row + row][first_w + column], zero outside.
void CopyBand(const FirstLayerData& d, const float* dy, std::int64_t first_row, std::int64_t rows,
              float* planes) {
  const ConvProblem& p = d.problem;
  const std::int64_t left = std::clamp<std::int64_t>(-d.first_w, 0, d.pitch);
  const std::int64_t right = std::clamp<std::int64_t>(p.q - d.first_w, left, d.pitch);
  for (std::int64_t k = 0; k < p.k; k += kBlock) {
    const std::int64_t channels = std::min<std::int64_t>(kBlock, p.k - k);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* const to = planes + k * d.plane_floats() + row * d.pitch;
      const std::int64_t h = first_row + row;
      const bool inside = h >= 0 && h < p.p;
      for (std::int64_t c = 0; c < channels; ++c) {
        float* const line = to + c * d.plane_floats();
        std::fill(line, line + (inside ? left : d.pitch), 0.f);
        if (inside) std::fill(line + right, line + d.pitch, 0.f);
      }
      if (inside)
        CopyRow(dy + k / kBlock * d.dy.block + (h * p.q + left + d.first_w) * d.dy.pixel,
                d.dy.pixel, right - left, channels, to + left, d.plane_floats());
    }
  }
}

// kVecs vectors of pixels, from dy (the first plane's element that tap distance 0 reads) to
// sums[channel][pixel].
template <int kChannels, int kVecs>
HWY_NOINLINE void PhaseTile(const FirstLayerData& d, const std::ptrdiff_t* tap_at,
                            std::int64_t taps, const float* w, const float* dy, float* sums) {
  Vec sum[kVecs][kChannels];
  HWY_UNROLL(16)
  for (int v = 0; v < kVecs; ++v) {
    HWY_UNROLL(4)
    for (int c = 0; c < kChannels; ++c) sum[v][c] = hn::Zero(F32());
  }
  for (std::int64_t k = 0; k < d.problem.k; ++k, dy += d.plane_floats())
    for (std::int64_t tap = 0; tap < taps; ++tap, w += kChannels) {
      const float* const from = dy + tap_at[tap];
      Vec factor[kChannels];
      HWY_UNROLL(4)
      for (int c = 0; c < kChannels; ++c) factor[c] = hn::Set(F32(), w[c]);
      HWY_UNROLL(16)
      for (int v = 0; v < kVecs; ++v) {
        Vec pixels = hn::LoadU(F32(), from + v * kLanes);  // most cross a cache line
        KeepInRegister(pixels);
        HWY_UNROLL(4)
        for (int c = 0; c < kChannels; ++c) sum[v][c] = hn::MulAdd(factor[c], pixels, sum[v][c]);
      }
    }
  HWY_UNROLL(16)
  for (int v = 0; v < kVecs; ++v) {
    HWY_UNROLL(4)
    for (int c = 0; c < kChannels; ++c)
      hn::StoreU(sum[v][c], F32(), sums + c * d.sums_floats() + v * kLanes);
  }
}

template <int kChannels>
void Phase(const FirstLayerData& d, std::size_t phase, const float* packed, const float* planes,
           std::int64_t rows, float* sums) {
  const PixelGrid& grid = d.grids[phase];
  const std::int64_t pixels = (rows - 1) * d.pitch + grid.w;
  ForEachRowTile<kPixelVecs<kChannels>>(
      ceil_div(pixels, kLanes), [&](auto vecs, std::int64_t first) HWY_ATTR {
        PhaseTile<kChannels, vecs.value>(d, d.tap_at[phase].data(), std::int64_t(grid.taps.size()),
                                         packed + grid.filter, planes + first * kLanes,
                                         sums + first * kLanes);
      });
}

// One row of dx from its phases, `step` apart in `sums`.
void WeaveRow(const float* sums, std::int64_t step, std::int64_t stride, std::int64_t width,
              bool accumulate, float* dx) {
  for (std::int64_t phase = 0; phase < std::min(stride, width); ++phase, sums += step) {
    float* to = dx + phase;
    for (std::int64_t j = 0; j < ceil_div(width - phase, stride); ++j, to += stride)
      *to = accumulate ? *to + sums[j] : sums[j];
  }
}

void Data(const FirstLayerData& d, const DirectOperands& data, std::int64_t thread,
          std::int64_t threads) {
  const ConvProblem& p = d.problem;
  float* const planes = data.workspace + thread * d.thread_floats();
  float* const sums = planes + d.planes_floats();
  const std::int64_t bands = ceil_div(ceil_div(p.h, p.stride_h), d.band);
  const std::int64_t columns = std::min(p.stride_w, p.w);  // phases of a row
  const auto [begin, end] = share(p.n * bands, thread, threads);
  for (std::int64_t band = begin; band < end; ++band) {
    const std::int64_t image = band / bands, first = band % bands * d.band;
    CopyBand(d, data.in + image * d.dy.image, first + d.first_h, d.band + d.span_h, planes);
    for (std::size_t phase = 0; phase < d.grids.size(); phase += std::size_t(columns)) {
      const std::int64_t rows = std::min(d.band, d.grids[phase].h - first);
      if (rows <= 0) continue;
      for (std::int64_t column = 0; column < columns; ++column) {
        float* const to = sums + column * p.c * d.sums_floats();
        const auto run = p.c == 1 ? Phase<1> : p.c == 2 ? Phase<2> : p.c == 3 ? Phase<3> : Phase<4>;
        run(d, phase + std::size_t(column), data.filter, planes, rows, to);
      }
      for (std::int64_t c = 0; c < p.c; ++c)
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t h = (first + row) * p.stride_h + d.grids[phase].first_h;
          WeaveRow(sums + c * d.sums_floats() + row * d.pitch, p.c * d.sums_floats(), p.stride_w,
                   p.w, p.accumulate, data.output.out + p.x_desc().offset(image, c, h, 0));
        }
    }
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Data);

void first_layer_data(const FirstLayerData& d, const DirectOperands& data, std::int64_t thread,
                      std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(Data)(d, data, thread, threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
