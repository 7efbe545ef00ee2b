// Channels scaled by a gate. One pass: backward reads x and dy once for both gradients.
//
// Vectors run over the lanes of one pixel, or, if a plane is one channel, over its pixels.
#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/gate.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/half/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Products that are summed in one accumulator before it joins the others: rounding errors grow with
// the length of a sum.
constexpr std::int64_t kGateRun = 128;

template <class S>
struct GateRows {
  using T = Computed<S>;
  const S* gate;  // of the first lane
  const S* from;  // of the first pixel, likewise those below
  S* to;
  const S* x;
  S* dgate;
  std::int64_t pitch;  // from pixel to pixel

  // One vector of lanes over all pixels.
  template <class At>
  HWY_INLINE void Lanes(At at, std::int64_t lane, std::int64_t pixels) const {
    const VectorTag<T> d;
    const auto g = at.Load(gate + lane);
    auto total = hn::Zero(d);
    for (std::int64_t first = 0; first < pixels; first += kGateRun) {
      auto sum = hn::Zero(d);
      for (std::int64_t p = first; p < std::min(first + kGateRun, pixels); ++p) {
        const std::int64_t i = p * pitch + lane;
        const auto v = at.Load(from + i);
        if (dgate != nullptr) sum = hn::MulAdd(at.Load(x + i), v, sum);
        if (to != nullptr) at.Store(hn::Mul(v, g), to + i);
      }
      total = hn::Add(total, sum);
    }
    if (dgate != nullptr) at.Store(total, dgate + lane);
  }

  // One channel.
  void Plane(std::int64_t pixels) const {
    const VectorTag<T> d;
    constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(d));
    const auto g = hn::Set(d, T(*gate));
    auto total = hn::Zero(d);
    for (std::int64_t first = 0; first < pixels; first += kGateRun * lanes) {
      auto sum = hn::Zero(d);
      ForEachStored<T>(std::min(kGateRun * lanes, pixels - first),
                       [&](auto at, std::int64_t p) HWY_ATTR {
                         const std::int64_t i = first + p;
                         const auto v = at.Load(from + i);
                         if (dgate != nullptr) sum = hn::MulAdd(at.Load(x + i), v, sum);
                         if (to != nullptr) at.Store(hn::Mul(v, g), to + i);
                       });
      total = hn::Add(total, sum);
    }
    if (dgate != nullptr) *dgate = S(SumLanes<T>(total));
  }
};

template <class S>
void RunGate(const GateJob& job, const GatePiece& piece) {
  const Planes planes(job.desc);
  const std::int64_t channel = piece.block * planes.lanes + piece.lane;
  const std::int64_t at = planes.offset(piece.image, channel, piece.pixel);
  const std::int64_t gate_at = piece.image * planes.padded_channels() + channel;
  const auto moved = [](auto* data, std::int64_t by) {
    return data == nullptr ? nullptr : data + by;
  };
  const GateRows<S> rows{
      static_cast<const S*>(job.gate) + gate_at,  static_cast<const S*>(job.from) + at,
      moved(static_cast<S*>(job.to), at),         moved(static_cast<const S*>(job.x), at),
      moved(static_cast<S*>(job.dgate), gate_at), planes.lanes};
  if (planes.lanes == 1) return rows.Plane(piece.pixels);
  ForEachStored<Computed<S>>(piece.lanes, [&](auto vector, std::int64_t lane)
                                              HWY_ATTR { rows.Lanes(vector, lane, piece.pixels); });
}

void GatePart(const GateJob& job, const GatePiece& piece) {
  with_stored_type(job.dtype, [&](auto zero) { RunGate<decltype(zero)>(job, piece); });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(GatePart);

// `most` pixels at a time.
void run(const GateJob& job, std::int64_t most, int threads) {
  const Planes planes(job.desc);
  const std::int64_t groups = ceil_div(planes.lanes, gate_lanes);
  const auto part = HWY_DYNAMIC_DISPATCH(GatePart);
#pragma omp parallel for collapse(3) num_threads(threads) \
    schedule(static) if (planes.elements() > serial_elements)
  for (std::int64_t image = 0; image < planes.images; ++image)
    for (std::int64_t group = 0; group < planes.blocks * groups; ++group)
      for (std::int64_t pixel = 0; pixel < planes.pixels; pixel += most) {
        const std::int64_t lane = group % groups * gate_lanes;
        part(job, {image, group / groups, lane, std::min(gate_lanes, planes.lanes - lane), pixel,
                   std::min(most, planes.pixels - pixel)});
      }
}

}  // namespace

void CpuLayerOps::gate_forward(DType dtype, const GateDesc& desc, const void* x, const void* gate,
                               void* y, Stream&) const {
  validate(desc);
  const std::int64_t lanes = std::min(gate_lanes, Planes(desc.x).lanes);
  run({dtype, desc.x, gate, x, y}, ceil_div(gate_elements, lanes), threads_);
}

void CpuLayerOps::gate_backward(DType dtype, const GateDesc& desc, const void* x, const void* gate,
                                const void* dy, void* dx, void* dgate, Stream&) const {
  validate(desc);
  run({dtype, desc.x, gate, dy, dx, x, dgate}, desc.x.h * desc.x.w, threads_);
}

}  // namespace convlab::cpu
#endif
