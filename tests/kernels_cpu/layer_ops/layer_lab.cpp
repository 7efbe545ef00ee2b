#include "tests/kernels_cpu/layer_ops/layer_lab.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

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
void write(const TensorDesc& t, const Values& values, std::byte* data) {
  T* const elements = reinterpret_cast<T*>(data);
  std::fill_n(elements, t.elements(), T(0));
  auto value = values.begin();
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t c = 0; c < t.c; ++c)
      for (std::int64_t h = 0; h < t.h; ++h)
        for (std::int64_t w = 0; w < t.w; ++w) elements[t.offset(n, c, h, w)] = T(*value++);
}

}  // namespace

Values random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values(static_cast<std::size_t>(count));
  for (double& v : values) v = double(normal(random));
  return values;
}

void expect_near(const Values& got, const Values& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance) << "element " << i << " of " << got.size();
}

LayerLab::LayerLab(std::string isa, int threads, DType dtype, Layout layout)
    : isa_(std::move(isa)),
      threads_(threads),
      dtype_(dtype),
      layout_(layout),
      device_(make_cpu_device({threads, isa_})),
      stream_(device_->make_stream()) {}

LayerLab::Tensor::Tensor(const LayerLab& lab, const TensorDesc& desc)
    : lab_(lab),
      desc_(desc),
      buffer_(lab.bytes(static_cast<std::size_t>(desc.elements() * size_of(lab.dtype_)))) {}

LayerLab::Tensor::Tensor(const LayerLab& lab, const TensorDesc& desc, const Values& values)
    : Tensor(lab, desc) {
  EXPECT_EQ(values.size(), static_cast<std::size_t>(desc.n * desc.c * desc.h * desc.w));
  if (lab.dtype_ == DType::f32)
    write<float>(desc, values, buffer_.data());
  else
    write<double>(desc, values, buffer_.data());
}

Values LayerLab::Tensor::values() const {
  EXPECT_TRUE(lab_.intact(buffer_)) << "written outside";
  return lab_.dtype_ == DType::f32 ? read<float>(desc_, buffer_.data())
                                   : read<double>(desc_, buffer_.data());
}

GuardedBuffer LayerLab::bytes(std::size_t count) const {
  GuardedBuffer buffer(count, *device_, *stream_);
  std::memset(buffer.data(), 0xff, count);  // as floats: NaN
  return buffer;
}

void for_each_setting(const std::function<void(const LayerLab&)>& f) {
  for (const std::string& isa : supported_isas())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Layout layout : all_layouts) {
        SCOPED_TRACE(fmt::format("{} {} {}", isa, to_string(dtype), to_string(layout)));
        f(LayerLab(isa, 3, dtype, layout));
        if (testing::Test::HasFatalFailure()) break;
      }
  make_cpu_device();  // the best instruction set again
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
  const std::size_t checked = x.size() > 5000 ? 3 : 23;  // each costs two forward runs
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
