// Channel shuffle: a transposition of the channels as a matrix of groups by channels of a group.
// Planes of one channel are copied. Channels side by side are interleaved by vectors for two
// groups, and its inverse, else one by one.
#include <cstring>

#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/channel_shuffle.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/half/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// to[2 i] = from[i], to[2 i + 1] = from[half + i]
template <class T>
void InterleaveHalves(const T* from, std::int64_t half, T* to) {
  const VectorTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  std::int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes)
    hn::StoreInterleaved2(hn::LoadU(d, from + i), hn::LoadU(d, from + half + i), d, to + 2 * i);
  for (; i < half; ++i) to[2 * i] = from[i], to[2 * i + 1] = from[half + i];
}

// to[i] = from[2 i], to[half + i] = from[2 i + 1]
template <class T>
void SplitHalves(const T* from, std::int64_t half, T* to) {
  const VectorTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  std::int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    VectorOf<T> even, odd;
    hn::LoadInterleaved2(d, from + 2 * i, even, odd);
    hn::StoreU(even, d, to + i);
    hn::StoreU(odd, d, to + half + i);
  }
  for (; i < half; ++i) to[i] = from[2 * i], to[half + i] = from[2 * i + 1];
}

// The pixels [begin, end) of an image, of whose channels several lie side by side.
template <class T>
void ShufflePixels(const ShuffleJob& job, const Planes& planes, std::int64_t image,
                   std::int64_t begin, std::int64_t end) {
  const T* const from = static_cast<const T*>(job.from);
  T* const to = static_cast<T*>(job.to);
  const std::int64_t each = planes.channels / job.groups;
  const bool one_block = planes.blocks == 1;
  for (std::int64_t pixel = begin; pixel < end; ++pixel) {
    const auto at = [&](std::int64_t channel) { return planes.offset(image, channel, pixel); };
    if (one_block && job.groups == 2)
      InterleaveHalves(from + at(0), each, to + at(0));
    else if (one_block && each == 2)
      SplitHalves(from + at(0), job.groups, to + at(0));
    else
      for (std::int64_t g = 0; g < job.groups; ++g)
        for (std::int64_t i = 0; i < each; ++i) to[at(i * job.groups + g)] = from[at(g * each + i)];
    for (std::int64_t c = planes.channels; c < planes.padded_channels(); ++c) to[at(c)] = 0;
  }
}

// Dispatches by the element's width: that is enough to move elements.
void Shuffle(const ShuffleJob& job, const Planes& planes, std::int64_t image, std::int64_t begin,
             std::int64_t end) {
  const auto run = [&](auto zero) {
    ShufflePixels<decltype(zero)>(job, planes, image, begin, end);
  };
  if (size_of(job.dtype) == 2) return run(std::uint16_t());
  with_type(job.dtype, run);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(Shuffle);

void copy_planes(const ShuffleJob& job, const Planes& planes, int threads) {
  const std::int64_t each = planes.channels / job.groups;
  const auto bytes = std::size_t(planes.pixels * size_of(job.dtype));
#pragma omp parallel for collapse(2) num_threads(threads) \
    schedule(static) if (planes.elements() > serial_elements)
  for (std::int64_t n = 0; n < planes.images; ++n)
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      const std::int64_t target = c % each * job.groups + c / each;
      std::memcpy(
          static_cast<std::byte*>(job.to) + planes.offset(n, target, 0) * size_of(job.dtype),
          static_cast<const std::byte*>(job.from) + planes.offset(n, c, 0) * size_of(job.dtype),
          bytes);
    }
}

}  // namespace

void CpuLayerOps::shuffle_channels(DType dtype, const TensorDesc& desc, std::int64_t groups,
                                   const void* from, void* to, Stream&) const {
  validate_groups(desc, groups);
  const ShuffleJob job{dtype, desc, groups, from, to};
  const Planes planes(desc);
  if (planes.lanes == 1) return copy_planes(job, planes, threads_);
  constexpr std::int64_t run = 64;
#pragma omp parallel for collapse(2) num_threads(threads_) \
    schedule(static) if (planes.elements() > serial_elements)
  for (std::int64_t n = 0; n < planes.images; ++n)
    for (std::int64_t p = 0; p < planes.pixels; p += run)
      HWY_DYNAMIC_DISPATCH(Shuffle)(job, planes, n, p, std::min(p + run, planes.pixels));
}

}  // namespace convlab::cpu
#endif
