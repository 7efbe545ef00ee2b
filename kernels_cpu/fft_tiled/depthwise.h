// The products of depthwise.cpp. Internal.
#pragma once

#include <cstdint>

namespace convlab::cpu {

// Spectra of one channel block, [point][re, im][lane].
// product = x conj(w); `product` may be x.
void depthwise_product(const float* x, const float* w, std::int64_t points, float* product);
// sums += x conj(dy)
void depthwise_add_product(const float* x, const float* dy, std::int64_t points, float* sums);

}  // namespace convlab::cpu
