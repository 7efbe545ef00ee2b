// Runs a layer operation in one setting and checks its surroundings: outputs and workspace start as
// NaN and have exactly their size between guards, and padding lanes must be zero afterwards. Values
// on the host are always double, in NCHW order.
//
// The tests are the same for every backend. Each backend's test program links them and returns its
// devices from layer_backend().
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/testbed/verify.h"
#include "conv/device.h"
#include "conv/types/arithmetic_type.h"

namespace convlab {

struct LayerDevice {
  std::string name;
  std::function<std::unique_ptr<Device>(int threads)> make;
};

struct LayerBackend {
  std::vector<LayerDevice> devices;  // the best comes last
  std::vector<Layout> layouts;
  std::string obstacle;      // why there is no device to run on; empty when there is
  bool has_16_bits = false;  // takes tensors of 16-bit types
};
const LayerBackend& layer_backend();

class LayerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!layer_backend().obstacle.empty()) GTEST_SKIP() << layer_backend().obstacle;
  }
};

using Values = std::vector<double>;

// Elements without padding lanes.
inline std::int64_t count(const TensorDesc& t) { return t.n * t.c * t.h * t.w; }

// Random normal values that f32 holds exactly.
Values random_values(std::int64_t count, unsigned seed);

// What a type holds of them, rounded to the nearest.
Values rounded(const Values&, DType);

void expect_near(const Values& got, const Values& expected, double tolerance);

class LayerLab {
 public:
  LayerLab(const LayerDevice&, int threads, DType dtype, Layout layout);
  // On the best device.
  explicit LayerLab(int threads = 1, DType dtype = DType::f32, Layout layout = Layout::nchw)
      : LayerLab(layer_backend().devices.back(), threads, dtype, layout) {}

  // The same with one change.
  LayerLab in_f64() const { return in(DType::f64); }
  LayerLab in(DType dtype) const { return {*made_by_, threads_, dtype, layout_}; }
  LayerLab with_threads(int threads) const { return {*made_by_, threads, dtype_, layout_}; }

  DType dtype() const { return dtype_; }
  const LayerOps& ops() const { return device_->ops(); }
  Stream& stream() const { return *stream_; }
  // For results that are not much larger than 1.
  double tolerance() const { return dtype_ == DType::f64 ? 1e-12 : 5e-6; }
  TensorDesc desc(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return {n, c, h, w, layout_};
  }

  // A tensor, or a plain array with the default shape.
  class Tensor {
   public:
    Tensor(const LayerLab&, DType, const TensorDesc&);                 // NaN
    Tensor(const LayerLab&, DType, const TensorDesc&, const Values&);  // zero in padding lanes
    std::byte* data() { return buffer_.data(); }
    Values values() const;  // fails the test when guards or padding lanes were written

   private:
    const LayerLab& lab_;
    DType dtype_;
    TensorDesc desc_;
    GuardedBuffer buffer_;
  };
  Tensor tensor(const TensorDesc& desc) const { return {*this, dtype_, desc}; }
  Tensor tensor(const TensorDesc& desc, const Values& values) const {
    return {*this, dtype_, desc, values};
  }
  // Of the arithmetic's type.
  Tensor computed(const TensorDesc& desc) const { return {*this, arithmetic_type(dtype_), desc}; }
  Tensor computed(const TensorDesc& desc, const Values& values) const {
    return {*this, arithmetic_type(dtype_), desc, values};
  }
  Tensor array(std::int64_t count) const { return computed({1, count, 1, 1}); }
  Tensor array(const Values& values) const {
    return computed({1, std::int64_t(values.size()), 1, 1}, values);
  }
  GuardedBuffer bytes(std::size_t count) const;  // all ones
  GuardedBuffer bytes(ConstSpan contents) const;
  GuardedBuffer workspace(const TensorDesc& desc) const {
    return bytes(ops().workspace_bytes(dtype_, desc));
  }
  bool intact(const GuardedBuffer& b) const { return b.intact(*device_, *stream_); }

 private:
  const LayerDevice* made_by_;
  int threads_;
  DType dtype_;
  Layout layout_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

// f over the backend's devices, f32 and f64, and its layouts.
void for_each_setting(const std::function<void(const LayerLab&)>& f);

// f(type, a lab of it, the same in f32) over the backend's devices, its 16-bit types and its
// layouts. On inputs that the type holds, an operation's arithmetic is that of f32, which the other
// tests hold against references. So tensors must be f32's, rounded once, and the rest f32's.
void for_each_16_bit_setting(
    const std::function<void(DType, const LayerLab& half, const LayerLab& f32)>& f);

// Checks the gradient that `backward` gives for x. In f64 it is compared with the gradient of
// forward(x) * dy by central differences, in some elements spread over x; in f32 it is compared
// with f64.
using LayerRun = std::function<Values(const LayerLab&, const Values& x)>;
void expect_backward(const LayerLab&, const Values& x, const Values& dy, const LayerRun& forward,
                     const LayerRun& backward);

}  // namespace convlab
