// Updates of weights: every array read once and written once.
#include <cmath>

#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

template <class T>
struct Sgd {
  T rate, momentum, decay;
  bool nesterov;
};

template <class T>
__global__ void sgd(Sgd<T> s, std::int64_t count, bool packed, const T* dw, T* w, T* velocity) {
  for_each_flat<T>(count, packed, [&](auto width, std::int64_t i) {
    constexpr int n = decltype(width)::value;
    const auto gradient = load<n>(dw + i);
    auto weight = load<n>(w + i), v = weight;
    if (velocity != nullptr) v = load<n>(velocity + i);
    for (int k = 0; k < n; ++k) {
      T step = s.decay * weight.v[k] + gradient.v[k];
      if (velocity != nullptr) {
        v.v[k] = s.momentum * v.v[k] + step;
        step = s.nesterov ? s.momentum * v.v[k] + step : v.v[k];
      }
      weight.v[k] -= s.rate * step;
    }
    if (velocity != nullptr) store(v, velocity + i);
    store(weight, w + i);
  });
}

// The averages' bias corrections are factors of the rate and of the root.
template <class T>
struct Adam {
  T rate, beta1, rest1, beta2, rest2, root, epsilon, decay, shrink;
};

template <class T>
__global__ void adam(Adam<T> a, std::int64_t count, bool packed, const T* dw, T* w, T* mean,
                     T* square) {
  for_each_flat<T>(count, packed, [&](auto width, std::int64_t i) {
    constexpr int n = decltype(width)::value;
    const auto gradient = load<n>(dw + i);
    auto weight = load<n>(w + i), m = load<n>(mean + i), v = load<n>(square + i);
    for (int k = 0; k < n; ++k) {
      const T g = a.decay * weight.v[k] + gradient.v[k];
      m.v[k] = a.beta1 * m.v[k] + a.rest1 * g;
      v.v[k] = a.beta2 * v.v[k] + a.rest2 * (g * g);
      const T step = m.v[k] / (std::sqrt(v.v[k]) * a.root + a.epsilon);
      weight.v[k] = a.shrink * weight.v[k] - a.rate * step;
    }
    store(m, mean + i);
    store(v, square + i);
    store(weight, w + i);
  });
}

}  // namespace

void CudaLayerOps::sgd_update(DType dtype, const SgdDesc& desc, std::int64_t count, const void* dw,
                              void* w, void* velocity, Stream& stream) const {
  validate(dtype, "sgd_update");
  validate(desc, velocity);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* const v = desc.momentum == 0 ? nullptr : static_cast<T*>(velocity);
    launch(sgd<T>, flat_grid(count / whole_pack<T>, multiprocessors_), flat_block, 0, stream,
           Sgd<T>{T(desc.rate), T(desc.momentum), T(desc.weight_decay), desc.nesterov}, count,
           aligned(dw, w, v), static_cast<const T*>(dw), static_cast<T*>(w), v);
  });
}

void CudaLayerOps::adam_update(DType dtype, const AdamDesc& desc, std::int64_t count,
                               const void* dw, void* w, void* mean, void* square,
                               Stream& stream) const {
  validate(dtype, "adam_update");
  validate(desc);
  const double unbias1 = 1 / (1 - std::pow(desc.beta1, double(desc.step)));
  const double unbias2 = 1 / (1 - std::pow(desc.beta2, double(desc.step)));
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const Adam<T> a{.rate = T(desc.rate * unbias1),
                    .beta1 = T(desc.beta1),
                    .rest1 = T(1 - desc.beta1),
                    .beta2 = T(desc.beta2),
                    .rest2 = T(1 - desc.beta2),
                    .root = T(std::sqrt(unbias2)),
                    .epsilon = T(desc.epsilon),
                    .decay = T(desc.decoupled ? 0 : desc.weight_decay),
                    .shrink = T(desc.decoupled ? 1 - desc.rate * desc.weight_decay : 1)};
    launch(adam<T>, flat_grid(count / whole_pack<T>, multiprocessors_), flat_block, 0, stream, a,
           count, aligned(dw, w, mean, square), static_cast<const T*>(dw), static_cast<T*>(w),
           static_cast<T*>(mean), static_cast<T*>(square));
  });
}

}  // namespace convlab::cuda
