// Updates of weights: every array read once and written once.
#include <cmath>

#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/optimizer.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

template <class T>
void Sgd(const SgdDesc& sgd, std::int64_t count, const T* dw, T* w, T* velocity) {
  const VectorTag<T> d;
  const auto rate = hn::Set(d, T(-sgd.rate)), momentum = hn::Set(d, T(sgd.momentum)),
             decay = hn::Set(d, T(sgd.weight_decay));
  ForEachVector<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
    const auto weight = at.Load(w + i);
    auto step = hn::MulAdd(decay, weight, at.Load(dw + i));
    if (velocity != nullptr) {
      const auto v = hn::MulAdd(momentum, at.Load(velocity + i), step);
      at.Store(v, velocity + i);
      step = sgd.nesterov ? hn::MulAdd(momentum, v, step) : v;
    }
    at.Store(hn::MulAdd(rate, step, weight), w + i);
  });
}

template <class T>
void Adam(const AdamDesc& adam, std::int64_t count, const T* dw, T* w, T* mean, T* square) {
  const VectorTag<T> d;
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, T(value)); };
  const double unbias1 = 1 / (1 - std::pow(adam.beta1, double(adam.step)));
  const double unbias2 = 1 / (1 - std::pow(adam.beta2, double(adam.step)));
  const auto shrink = set(adam.decoupled ? 1 - adam.rate * adam.weight_decay : 1);
  const auto decay = set(adam.decoupled ? 0 : adam.weight_decay);
  const auto beta1 = set(adam.beta1), rest1 = set(1 - adam.beta1);
  const auto beta2 = set(adam.beta2), rest2 = set(1 - adam.beta2);
  const auto rate = set(-adam.rate * unbias1), root = set(std::sqrt(unbias2)),
             epsilon = set(adam.epsilon);
  ForEachVector<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
    const auto weight = at.Load(w + i);
    const auto g = hn::MulAdd(decay, weight, at.Load(dw + i));
    const auto m = hn::MulAdd(beta1, at.Load(mean + i), hn::Mul(rest1, g));
    const auto v = hn::MulAdd(beta2, at.Load(square + i), hn::Mul(rest2, hn::Mul(g, g)));
    const auto step = hn::Div(m, hn::MulAdd(hn::Sqrt(v), root, epsilon));
    at.Store(m, mean + i);
    at.Store(v, square + i);
    at.Store(hn::MulAdd(rate, step, hn::Mul(shrink, weight)), w + i);
  });
}

template <class T>
T* From(void* data, std::int64_t begin) {
  return data == nullptr ? nullptr : static_cast<T*>(data) + begin;
}

void SgdChunk(DType dtype, const SgdDesc& sgd, const void* dw, void* w, void* velocity,
              std::int64_t begin, std::int64_t end) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    Sgd<T>(sgd, end - begin, static_cast<const T*>(dw) + begin, From<T>(w, begin),
           From<T>(velocity, begin));
  });
}

void AdamChunk(DType dtype, const AdamDesc& adam, const void* dw, void* w, void* mean, void* square,
               std::int64_t begin, std::int64_t end) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    Adam<T>(adam, end - begin, static_cast<const T*>(dw) + begin, From<T>(w, begin),
            From<T>(mean, begin), From<T>(square, begin));
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(SgdChunk);
HWY_EXPORT(AdamChunk);

void CpuLayerOps::sgd_update(DType dtype, const SgdDesc& sgd, std::int64_t count, const void* dw,
                             void* w, void* velocity, Stream&) const {
  validate(dtype, "sgd_update");
  validate(sgd, velocity);
  parallel_chunks(count, threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(SgdChunk)
    (dtype, sgd, dw, w, sgd.momentum == 0 ? nullptr : velocity, begin, end);
  });
}

void CpuLayerOps::adam_update(DType dtype, const AdamDesc& adam, std::int64_t count, const void* dw,
                              void* w, void* mean, void* square, Stream&) const {
  validate(dtype, "adam_update");
  validate(adam);
  parallel_chunks(count, threads_, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(AdamChunk)(dtype, adam, dw, w, mean, square, begin, end);
  });
}

}  // namespace convlab::cpu
#endif
