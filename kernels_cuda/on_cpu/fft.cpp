// The stand-in for cuFFT: the defining sums, by rows and then by columns, in double.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels_cuda/on_cpu/device.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {
namespace {

using Complex = std::complex<double>;

// exp(2 pi i j / n) for j < n.
std::vector<Complex> roots(std::int64_t n) {
  std::vector<Complex> w;
  for (std::int64_t j = 0; j < n; ++j)
    w.push_back(std::polar(1.0, 2 * std::numbers::pi * double(j) / double(n)));
  return w;
}

// to[k] = sum over j of from[j] * exp(sign 2 pi i j k / n), values `stride` apart, k < outputs.
void dft(const Complex* from, Complex* to, const std::vector<Complex>& w, std::int64_t stride,
         std::int64_t outputs, int sign) {
  const auto n = std::int64_t(w.size());
  for (std::int64_t k = 0; k < outputs; ++k) {
    double real = 0, imag = 0;
    for (std::int64_t j = 0, at = 0; j < n; ++j) {
      const Complex& x = from[j * stride];
      const double c = w[at].real(), s = sign * w[at].imag();
      real += x.real() * c - x.imag() * s;
      imag += x.real() * s + x.imag() * c;
      at += k;
      if (at >= n) at -= n;
    }
    to[k * stride] = {real, imag};
  }
}

template <class T>
class PlainFft2d : public Fft2d {
 public:
  PlainFft2d(std::int64_t h, std::int64_t w, std::int64_t batch)
      : h_(h), w_(w), half_(w / 2 + 1), batch_(batch), along_h_(roots(h)), along_w_(roots(w)) {}

  std::size_t workspace_bytes() const override { return 0; }

  void forward(const void* real, void* complex, Workspace, Stream&) const override {
    const auto* x = static_cast<const T*>(real);
    auto* spectrum = static_cast<std::complex<T>*>(complex);
    std::vector<Complex> image(std::size_t(h_ * w_)), rows(image.size());
    for (std::int64_t i = 0; i < batch_; ++i) {
      std::copy_n(x + i * h_ * w_, h_ * w_, image.begin());
      for (std::int64_t u = 0; u < h_; ++u)
        dft(&image[u * w_], &rows[u * w_], along_w_, 1, half_, -1);
      for (std::int64_t v = 0; v < half_; ++v) dft(&rows[v], &image[v], along_h_, w_, h_, -1);
      for (std::int64_t u = 0; u < h_; ++u)
        for (std::int64_t v = 0; v < half_; ++v)
          spectrum[(i * h_ + u) * half_ + v] = std::complex<T>(image[u * w_ + v]);
    }
  }

  void inverse(void* complex, void* real, Workspace, Stream&) const override {
    auto* spectrum = static_cast<std::complex<T>*>(complex);
    auto* x = static_cast<T*>(real);
    std::vector<Complex> image(std::size_t(h_ * w_)), columns(image.size());
    for (std::int64_t i = 0; i < batch_; ++i) {
      for (std::int64_t u = 0; u < h_; ++u)
        for (std::int64_t v = 0; v < half_; ++v)
          image[u * w_ + v] = Complex(spectrum[(i * h_ + u) * half_ + v]);
      for (std::int64_t v = 0; v < half_; ++v) dft(&image[v], &columns[v], along_h_, w_, h_, 1);
      for (std::int64_t u = 0; u < h_; ++u) {
        // A real row's spectrum is its own mirrored conjugate.
        for (std::int64_t v = half_; v < w_; ++v)
          columns[u * w_ + v] = std::conj(columns[u * w_ + w_ - v]);
        dft(&columns[u * w_], &image[u * w_], along_w_, 1, w_, 1);
        for (std::int64_t v = 0; v < w_; ++v)
          x[(i * h_ + u) * w_ + v] = T(image[u * w_ + v].real());
      }
    }
    // cuFFT may overwrite the spectrum too.
    constexpr T nan = std::numeric_limits<T>::quiet_NaN();
    std::fill_n(spectrum, batch_ * h_ * half_, std::complex<T>(nan, nan));
  }

 private:
  std::int64_t h_, w_, half_, batch_;
  std::vector<Complex> along_h_, along_w_;
};

}  // namespace

std::unique_ptr<Fft2d> make_fft2d(DType dtype, std::int64_t h, std::int64_t w, std::int64_t batch,
                                  Device&) {
  validate_fft2d(dtype, h, w, batch);
  on_cpu::require_library("cufft");
  if (dtype == DType::f64) return std::make_unique<PlainFft2d<double>>(h, w, batch);
  return std::make_unique<PlainFft2d<float>>(h, w, batch);
}

}  // namespace convlab::cuda
