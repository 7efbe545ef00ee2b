#include "tests/conv/layer_ops/layer_lab.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "conv/types/element_type.h"
#include "tests/problems.h"

namespace convlab {
namespace {

double dot(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

template <class T>
Values read(const TensorDesc& t, const std::byte* data) {
  const T* const elements = reinterpret_cast<const T*>(data);
  Values values;
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t c = 0; c < t.padded_c(); ++c)
      for (std::int64_t h = 0; h < t.h; ++h)
        for (std::int64_t w = 0; w < t.w; ++w) {
          const double value = double(elements[t.offset(n, c, h, w)]);
          if (c < t.c)
            values.push_back(value);
          else if (value != 0)
            ADD_FAILURE() << "padding lane " << c << " of pixel " << h << "," << w << " is "
                          << value;
        }
  return values;
}

template <class T>
std::vector<std::byte> in_memory(const TensorDesc& t, const Values& values) {
  std::vector<T> elements(static_cast<std::size_t>(t.elements()), T(0));
  auto value = values.begin();
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t c = 0; c < t.c; ++c)
      for (std::int64_t h = 0; h < t.h; ++h)
        for (std::int64_t w = 0; w < t.w; ++w)
          elements[static_cast<std::size_t>(t.offset(n, c, h, w))] = T(*value++);
  const auto bytes = std::as_bytes(std::span(elements));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Values random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values(static_cast<std::size_t>(count));
  for (double& v : values) v = double(normal(random));
  return values;
}

Values rounded(const Values& values, DType dtype) {
  Values result = values;
  with_element_type(dtype, [&](auto zero) {
    for (double& v : result) v = double(decltype(zero)(v));
  });
  return result;
}

void expect_near(const Values& got, const Values& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance) << "element " << i << " of " << got.size();
}

LayerLab::LayerLab(const LayerDevice& made_by, int threads, DType dtype, Layout layout)
    : made_by_(&made_by),
      threads_(threads),
      dtype_(dtype),
      layout_(layout),
      device_(made_by.make(threads)),
      stream_(device_->make_stream()) {}

LayerLab::Tensor::Tensor(const LayerLab& lab, DType dtype, const TensorDesc& desc)
    : lab_(lab),
      dtype_(dtype),
      desc_(desc),
      buffer_(lab.bytes(static_cast<std::size_t>(desc.elements() * size_of(dtype)))) {}

LayerLab::Tensor::Tensor(const LayerLab& lab, DType dtype, const TensorDesc& desc,
                         const Values& values)
    : lab_(lab), dtype_(dtype), desc_(desc) {
  EXPECT_EQ(values.size(), static_cast<std::size_t>(desc.n * desc.c * desc.h * desc.w));
  buffer_ = lab.bytes(with_element_type(
      dtype_, [&](auto zero) { return in_memory<decltype(zero)>(desc, values); }));
}

Values LayerLab::Tensor::values() const {
  EXPECT_TRUE(lab_.intact(buffer_)) << "written outside";
  std::vector<std::byte> memory(buffer_.span().size());
  lab_.device_->copy_to_host(memory, buffer_.data(), *lab_.stream_);
  lab_.stream_->synchronize();
  return with_element_type(dtype_,
                           [&](auto zero) { return read<decltype(zero)>(desc_, memory.data()); });
}

GuardedBuffer LayerLab::bytes(std::size_t count) const {
  return bytes(std::vector<std::byte>(count, std::byte{0xff}));  // as floats: NaN
}

GuardedBuffer LayerLab::bytes(ConstSpan contents) const {
  GuardedBuffer buffer(contents.size(), *device_, *stream_);
  if (!contents.empty()) device_->copy_to_device(buffer.data(), contents, *stream_);
  stream_->synchronize();
  return buffer;
}

void for_each_setting(const std::function<void(const LayerLab&)>& f) {
  for (const LayerDevice& device : layer_backend().devices)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Layout layout : layer_backend().layouts) {
        SCOPED_TRACE(fmt::format("{} {} {}", device.name, to_string(dtype), to_string(layout)));
        f(LayerLab(device, 3, dtype, layout));
        if (testing::Test::HasFatalFailure()) break;
      }
}

void for_each_16_bit_setting(
    const std::function<void(DType, const LayerLab& half, const LayerLab& f32)>& f) {
  if (!layer_backend().has_16_bits) return;
  for (const LayerDevice& device : layer_backend().devices)
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const Layout layout : layer_backend().layouts) {
        SCOPED_TRACE(fmt::format("{} {} {}", device.name, to_string(dtype), to_string(layout)));
        const LayerLab half(device, 3, dtype, layout);
        f(dtype, half, half.in(DType::f32));
        if (testing::Test::HasFatalFailure()) break;
      }
}

void expect_backward(const LayerLab& lab, const Values& x, const Values& dy,
                     const LayerRun& forward, const LayerRun& backward) {
  const Values dx = backward(lab, x);
  ASSERT_EQ(dx.size(), x.size());
  if (lab.dtype() == DType::f32) {
    const Values exact = backward(lab.in_f64(), x);
    double greatest = 1;
    for (const double v : exact) greatest = std::max(greatest, std::abs(v));
    return expect_near(dx, exact, 1e-5 * greatest);
  }
  const double step = 1e-5;
  const bool few = reduced() || std::max(x.size(), dy.size()) > 5000;
  const std::size_t checked = few ? 3 : 11;  // each costs two forward runs
  const std::size_t stride = std::max<std::size_t>(1, x.size() / checked);
  for (std::size_t i = 0; i < x.size(); i += stride) {
    Values shifted = x;
    shifted[i] = x[i] + step;
    Values difference = forward(lab, shifted);
    shifted[i] = x[i] - step;
    const Values below = forward(lab, shifted);
    for (std::size_t j = 0; j < below.size(); ++j) difference[j] -= below[j];
    ASSERT_NEAR(dx[i], dot(difference, dy) / (2 * step), 1e-7) << "element " << i;
  }
}

}  // namespace convlab
