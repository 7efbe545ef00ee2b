// Dropout whose random bits are a function of the element's place, not of the order of drawing.
//
// Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011):
// ten rounds of two 32 x 32 -> 64 bit products over a 128-bit counter. Counter (NCHW index, draw),
// key seed, first word of the result. Each 32-bit word has its own 64-bit lane. The upper half may
// hold anything: products read lower halves only, and shifts read products only.
#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/dropout.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/half/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

using WordTag = hn::ScalableTag<std::uint64_t>;
using Words = hn::Vec<WordTag>;

HWY_INLINE Words Product(Words word, std::uint32_t factor) {
  const hn::Repartition<std::uint32_t, WordTag> half;
  return hn::MulEven(hn::BitCast(half, word), hn::Set(half, factor));
}

// The first word of Philox4x32-10 for these indices.
HWY_INLINE Words Philox(Words index, std::uint64_t draw, std::uint64_t seed) {
  const WordTag d;
  Words c0 = index, c1 = hn::ShiftRight<32>(index), c2 = hn::Set(d, draw),
        c3 = hn::Set(d, draw >> 32);
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Words product0 = Product(c0, 0xD2511F53), product1 = Product(c2, 0xCD9E8D57);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(d, std::uint64_t{key0}));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(d, std::uint64_t{key1}));
    c1 = product1;
    c3 = product0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c0;
}

// p 2^32
HWY_INLINE std::uint32_t Threshold(const DropoutDesc& dropout) {
  return static_cast<std::uint32_t>(dropout.p * 4294967296.0);
}

// `count` neighbours in memory, whose indices are `step` apart.
template <class S>
void DropRow(const DropoutDesc& dropout, const S* from, S* to, std::int64_t count,
             std::uint64_t index, std::uint64_t step) {
  using T = Computed<S>;
  const WordTag d;
  constexpr std::int64_t run = 64;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const T scale = T(1 / (1 - dropout.p));
  const std::uint32_t threshold = Threshold(dropout);
  HWY_ALIGN std::uint64_t words[run];
  for (std::int64_t i = 0; i < lanes; ++i) words[i] = static_cast<std::uint64_t>(i) * step;
  const Words steps = hn::Load(d, words);
  for (std::int64_t first = 0; first < count; first += run) {
    const std::int64_t part = std::min(run, count - first);
    for (std::int64_t i = 0; i < part; i += lanes) {
      const std::uint64_t at = index + static_cast<std::uint64_t>(first + i) * step;
      hn::Store(Philox(hn::Add(hn::Set(d, at), steps), dropout.draw, dropout.seed), d, words + i);
    }
    for (std::int64_t i = 0; i < part; ++i)
      to[first + i] =
          S(static_cast<std::uint32_t>(words[i]) < threshold ? T(0) : from[first + i] * scale);
  }
}

// Elements [begin, end) in memory order. Every layout has an image in one piece.
template <class S>
void DropImages(const DropoutDesc& dropout, const S* from, S* to, std::int64_t begin,
                std::int64_t end) {
  using T = Computed<S>;
  const std::int64_t size = dropout.x.elements() / dropout.x.n;
  for (std::int64_t first = begin, image = begin / size; first < end; ++image) {
    const std::int64_t last = std::min(end, (image + 1) * size);
    const auto index = static_cast<std::uint64_t>(dropout.first_image + image);
    const std::uint64_t word =
        hn::GetLane(Philox(hn::Set(WordTag(), index), dropout.draw, dropout.seed));
    const bool dropped = static_cast<std::uint32_t>(word) < Threshold(dropout);
    const auto scale = hn::Set(VectorTag<T>(), dropped ? T(0) : T(1 / (1 - dropout.p)));
    ForEachStored<T>(last - first, [&](auto at, std::int64_t i) HWY_ATTR {
      const auto v = hn::Mul(at.Load(from + first + i), scale);
      at.Store(dropped ? hn::Zero(VectorTag<T>()) : v, to + first + i);
    });
    first = last;
  }
}

// Elements [begin, end) in memory order: one row in NCHW, else a row for each pixel's lanes.
template <class S>
void Drop(const DropoutJob& job, std::int64_t begin, std::int64_t end) {
  const Planes planes(job.dropout.x);
  const S* const from = static_cast<const S*>(job.from);
  S* const to = static_cast<S*>(job.to);
  if (job.dropout.whole_images) return DropImages(job.dropout, from, to, begin, end);
  const std::int64_t start = job.dropout.first_image * planes.channels * planes.pixels;
  if (planes.lanes == 1)
    return DropRow(job.dropout, from + begin, to + begin, end - begin,
                   static_cast<std::uint64_t>(start + begin), 1);
  std::int64_t lane = begin % planes.lanes, pixel = begin / planes.lanes % planes.pixels,
               plane = begin / (planes.lanes * planes.pixels);
  for (std::int64_t first = begin, count; first < end; first += count) {
    count = std::min(end - first, planes.lanes - lane);
    const std::int64_t channel = plane % planes.blocks * planes.lanes + lane;
    const std::int64_t index =
        start + (plane / planes.blocks * planes.channels + channel) * planes.pixels + pixel;
    DropRow(job.dropout, from + first, to + first, count, static_cast<std::uint64_t>(index),
            static_cast<std::uint64_t>(planes.pixels));
    lane = 0;
    if (++pixel == planes.pixels) pixel = 0, ++plane;
  }
}

void DropChunk(const DropoutJob& job, std::int64_t begin, std::int64_t end) {
  with_stored_type(job.dtype, [&](auto zero) { Drop<decltype(zero)>(job, begin, end); });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(DropChunk);

void CpuLayerOps::dropout(DType dtype, const DropoutDesc& dropout, const void* from, void* to,
                          Stream&) const {
  validate(dropout);
  const DropoutJob job{dtype, dropout, from, to};
  parallel_chunks(dropout.x.elements(), threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(DropChunk)(job, begin, end);
  });
}

}  // namespace convlab::cpu
#endif
