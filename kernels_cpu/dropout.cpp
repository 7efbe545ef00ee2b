// Dropout whose random bits are a function of the element's place, not of the order of drawing.
//
// Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011):
// ten rounds of two 32 x 32 -> 64 bit products over a 128-bit counter. Counter (NCHW index, draw),
// key seed, first word of the result. Plain loops over a short run of elements: the compiler makes
// vectors of them.
#include "kernels_cpu/layer_jobs.h"
#include "kernels_cpu/layer_ops.h"
#include "kernels_cpu/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/dropout.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

constexpr std::int64_t kDropoutRun = 16;

// counter[word][i] becomes the random words of element i.
inline void Philox(std::uint32_t counter[4][kDropoutRun], std::uint64_t seed) {
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::int64_t i = 0; i < kDropoutRun; ++i) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0][i];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2][i];
      counter[0][i] = static_cast<std::uint32_t>(product1 >> 32) ^ counter[1][i] ^ key0;
      counter[2][i] = static_cast<std::uint32_t>(product0 >> 32) ^ counter[3][i] ^ key1;
      counter[1][i] = static_cast<std::uint32_t>(product1);
      counter[3][i] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

// Elements [begin, end) in memory order, in runs of one pixel's lanes, or of one channel's pixels.
template <class T>
void Drop(const DropoutJob& job, std::int64_t begin, std::int64_t end) {
  const Planes planes(job.dropout.x);
  const std::int64_t row = planes.lanes == 1 ? planes.pixels : planes.lanes;
  const std::int64_t step = planes.lanes == 1 ? 1 : planes.pixels;  // of the index along a row
  const T* const from = static_cast<const T*>(job.from);
  T* const to = static_cast<T*>(job.to);
  const T scale = T(1 / (1 - job.dropout.p));
  const auto threshold = static_cast<std::uint64_t>(job.dropout.p * 4294967296.0);  // p 2^32
  for (std::int64_t first = begin, count; first < end; first += count) {
    count = std::min({kDropoutRun, end - first, row - first % row});
    const std::int64_t plane = first / (planes.pixels * planes.lanes);
    const std::int64_t pixel = first / planes.lanes % planes.pixels;
    const std::int64_t channel = plane % planes.blocks * planes.lanes + first % planes.lanes;
    const auto index = static_cast<std::uint64_t>(
        (plane / planes.blocks * planes.channels + channel) * planes.pixels + pixel);
    std::uint32_t words[4][kDropoutRun];
    for (std::int64_t i = 0; i < kDropoutRun; ++i) {
      const std::uint64_t at = index + static_cast<std::uint64_t>(i * step);
      words[0][i] = static_cast<std::uint32_t>(at);
      words[1][i] = static_cast<std::uint32_t>(at >> 32);
      words[2][i] = static_cast<std::uint32_t>(job.dropout.draw);
      words[3][i] = static_cast<std::uint32_t>(job.dropout.draw >> 32);
    }
    Philox(words, job.dropout.seed);
    for (std::int64_t i = 0; i < count; ++i)
      to[first + i] = words[0][i] < threshold ? T(0) : from[first + i] * scale;
  }
}

void DropChunk(const DropoutJob& job, std::int64_t begin, std::int64_t end) {
  with_type(job.dtype, [&](auto zero) { Drop<decltype(zero)>(job, begin, end); });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(DropChunk);

void CpuLayerOps::dropout(DType dtype, const DropoutDesc& dropout, const void* from, void* to,
                          Stream&) const {
  require_f32_or_f64(dtype, "dropout");
  if (!(dropout.p >= 0 && dropout.p < 1))
    throw InputError(fmt::format("dropout: probability {} is not in [0, 1)", dropout.p));
  const DropoutJob job{dtype, dropout, from, to};
  parallel_chunks(dropout.x.elements(), threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(DropChunk)(job, begin, end);
  });
}

}  // namespace convlab::cpu
#endif
