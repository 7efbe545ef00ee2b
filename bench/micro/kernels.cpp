// The building blocks of convolutions:
//
//   register_tile         the microkernel under every product, on one thread, operands in L1
//   fft_tile_*            the transforms of tiles of each size, and the product at a point
//   fftw                  whole images, transformed as in `fft`
//   gemm                  the device's own and OpenBLAS, both types, plain and transposed operands
//   read, write, copy     memory by size, all threads
//
//   micro_kernels --benchmark_filter=gemm/ --benchmark_out=gemm.json
//
// gemm/WHOSE/TYPE/OPS/MxNxK is column-major, as BLAS counts: OPS NN, TN or NT say which operand is
// transposed, and N is the batch. `transpose` is an explicit one of M x K, as would be paid to turn
// TN into NN.
#ifdef CONVLAB_HAVE_FFTW
#include <fftw3.h>
#endif
#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/micro/lab.h"
#include "bench/micro/register_tile.h"
#include "kernels_cpu/fft_tiled/tiles.h"

namespace convlab::micro {
namespace {

std::shared_ptr<Buffer> shared_floats(std::int64_t count) {
  return std::make_shared<Buffer>(random_floats(count));
}
template <class T>
std::shared_ptr<Buffer> shared_numbers(std::int64_t count) {
  return std::make_shared<Buffer>(sizeof(T) == sizeof(float) ? random_floats(count)
                                                             : random_doubles(count));
}

// ---- Micro-kernels and transforms, one thread ----

void add_register_tile() {
  for (const std::int64_t depth : {64, 256, 1024})
    add_case(fmt::format("register_tile/{}", depth), [depth] {
      constexpr std::int64_t times = 200;
      const RegisterTile tile = register_tile();
      const auto a = shared_floats(tile.rows * depth), b = shared_floats(tile.cols * depth),
                 c = shared_floats(tile.rows * tile.cols);
      return Work{[=] { tile.run(a->as<float>(), b->as<float>(), c->as<float>(), depth, times); },
                  0,
                  2.0 * double(tile.rows * tile.cols * depth * times),
                  {}};
    });
}

void add_tile_fft(std::int64_t size) {
  constexpr std::int64_t repeats = 64, depth = 64, rows = 14, blocks = 2;
  const std::int64_t block = lab().device->info().vector_bytes >= 64 ? 16 : 8;
  const auto kernels = [size]() -> const cpu::TileKernels& { return cpu::fft_tile_kernels(size); };
  const auto spectrum_stride = 2 * block;
  const auto transform = [=](bool forward) {
    const cpu::TileKernels& k = kernels();
    const auto plane = shared_floats(size * size * block), scratch = shared_floats(k.scratch + 16),
               spectrum = shared_floats(k.points * spectrum_stride);
    const cpu::Window window{size, size, 0, 0, size, size};
    const auto once = [=, &k] {
      if (forward)
        k.forward({plane->as<float>(), window}, nullptr, scratch->as<float>(),
                  {spectrum->as<float>(), spectrum_stride});
      else
        k.inverse({spectrum->as<float>(), spectrum_stride}, scratch->as<float>(),
                  {.out = plane->as<float>()}, window);
    };
    return Work{
        [=] {
          for (std::int64_t i = 0; i < repeats; ++i) once();
        },
        repeats * (size * size * block + k.points * spectrum_stride) * std::int64_t(sizeof(float)),
        0,
        {}};
  };
  add_case(fmt::format("fft_tile_forward/{}", size), [=] { return transform(true); });
  add_case(fmt::format("fft_tile_inverse/{}", size), [=] { return transform(false); });
  add_case(fmt::format("fft_tile_product/{}", size), [=] {
    const std::int64_t number = 2 * block;  // re and im of a channel block
    const auto a = shared_floats(rows * depth / block * number),
               b = shared_floats(depth * blocks * number),
               out = shared_floats(rows * blocks * number);
    const cpu::PointProduct product{.points = 1,
                                    .a_point = 0,
                                    .b_point = 0,
                                    .out_point = 0,
                                    .a = a->as<float>(),
                                    .a_row = depth / block * number,
                                    .a_group = number,
                                    .group = block,
                                    .a_im = block,
                                    .b = b->as<float>(),
                                    .b_depth = blocks * number,
                                    .b_block = number,
                                    .out = out->as<float>(),
                                    .out_row = blocks * number,
                                    .rows = rows,
                                    .depth = depth,
                                    .blocks = blocks,
                                    .accumulate = false};
    const auto run = kernels().product;
    return Work{[=, keep = std::vector{a, b, out}] {
                  for (std::int64_t i = 0; i < repeats; ++i) run(product);
                },
                0,
                8.0 * double(rows * depth * blocks * block * repeats),
                {}};
  });
}

// ---- FFTW ----

#ifdef CONVLAB_HAVE_FFTW
// `planes` real images of size x size, in one plan on one thread.
void add_fftw(int size, int planes) {
  add_case(fmt::format("fftw/r2c/{}x{}x{}", planes, size, size), [=] {
    const int half = size / 2 + 1, dims[] = {size, size};
    const auto in = shared_floats(std::int64_t(planes) * size * size),
               out = shared_floats(2LL * planes * size * half);
    const std::shared_ptr<fftwf_plan_s> plan(
        fftwf_plan_many_dft_r2c(2, dims, planes, in->as<float>(), nullptr, 1, size * size,
                                out->as<fftwf_complex>(), nullptr, 1, size * half, FFTW_MEASURE),
        &fftwf_destroy_plan);
    // 2.5 n log2 n of a real transform, as FFTW's authors count.
    double log2 = 0;
    for (int n = size * size; n > 1; n /= 2) ++log2;
    return Work{
        [=] { fftwf_execute_dft_r2c(plan.get(), in->as<float>(), out->as<fftwf_complex>()); },
        std::int64_t(sizeof(float)) * planes * (size * size + 2 * size * half),
        2.5 * planes * size * size * log2,
        {}};
  });
}
#endif

// ---- GEMM ----

enum class Ops : std::uint8_t { nn, tn, nt };
constexpr const char* ops_names[] = {"NN", "TN", "NT"};

template <class T>
void blas_gemm(Ops ops, int m, int n, int k, const T* a, const T* b, T* c) {
  const auto ta = ops == Ops::tn ? CblasTrans : CblasNoTrans,
             tb = ops == Ops::nt ? CblasTrans : CblasNoTrans;
  const int lda = ops == Ops::tn ? k : m, ldb = ops == Ops::nt ? n : k;
  if constexpr (sizeof(T) == sizeof(float))
    cblas_sgemm(CblasColMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, m);
  else
    cblas_dgemm(CblasColMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, m);
}

// Column-major C = A B is row-major C' = B' A', which is how a device's gemm counts.
template <class T>
void own_gemm(Ops ops, int m, int n, int k, const T* a, const T* b, T* c) {
  const GemmDesc desc{
      .m = n, .n = m, .k = k, .transpose_a = ops == Ops::nt, .transpose_b = ops == Ops::tn};
  lab().ops.gemm(sizeof(T) == sizeof(float) ? DType::f32 : DType::f64, desc, b, a, c,
                 *lab().stream);
}

template <class T>
void add_gemm(Ops ops, int m, int n, int k) {
  const auto add = [=](const char* whose, auto product) {
    const std::string name =
        fmt::format("gemm/{}/{}/{}/{}x{}x{}", whose, sizeof(T) == sizeof(float) ? "f32" : "f64",
                    ops_names[int(ops)], m, n, k);
    add_case(name, [=] {
      const auto a = shared_numbers<T>(std::int64_t(m) * k),
                 b = shared_numbers<T>(std::int64_t(k) * n),
                 c = shared_numbers<T>(std::int64_t(m) * n);
      return Work{[=] {
                    product(ops, m, n, k, a->template as<T>(), b->template as<T>(),
                            c->template as<T>());
                  },
                  0,
                  2.0 * m * n * k,
                  {}};
    });
  };
  add("own", &own_gemm<T>);
  add("openblas", &blas_gemm<T>);
}

template <class T>
void add_transpose(int m, int k) {
  add_case(fmt::format("transpose/{}/{}x{}", sizeof(T) == sizeof(float) ? "f32" : "f64", m, k),
           [=] {
             const auto a = shared_numbers<T>(std::int64_t(m) * k),
                        b = shared_numbers<T>(std::int64_t(m) * k);
             return Work{[=] {
                           if constexpr (sizeof(T) == sizeof(float))
                             cblas_somatcopy(CblasColMajor, CblasTrans, m, k, 1,
                                             a->template as<T>(), m, b->template as<T>(), k);
                           else
                             cblas_domatcopy(CblasColMajor, CblasTrans, m, k, 1,
                                             a->template as<T>(), m, b->template as<T>(), k);
                         },
                         2LL * m * k * std::int64_t(sizeof(T)),
                         0,
                         {}};
           });
}

template <class T>
void add_gemms() {
  for (const int size : {512, 1024, 1760, 2048, 2560}) {
    for (const Ops ops : {Ops::nn, Ops::tn, Ops::nt})
      for (const int n : {1, 2, 4, 7, 8, 16, 31, 32, 48, 64, 96, 128, 192, 256})
        add_gemm<T>(ops, size, n, size);
    add_transpose<T>(size, size);
  }
}

// ---- Memory ----

// f(first byte, bytes) on each thread's part.
template <class F>
void on_parts(std::int64_t bytes, F f) {
#pragma omp parallel
  {
    const std::int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const std::int64_t begin = bytes / 64 * thread / threads * 64,
                       end = bytes / 64 * (thread + 1) / threads * 64;
    f(begin, end - begin);
  }
}

void add_memory(std::int64_t kib) {
  const std::int64_t bytes = kib * 1024, floats = bytes / std::int64_t(sizeof(float));
  add_case(fmt::format("read/{}KiB", kib), [=] {
    const auto from = shared_floats(floats);
    const auto sums = std::make_shared<std::vector<float>>(1024);
    return Work{[=] {
                  on_parts(bytes, [&](std::int64_t begin, std::int64_t count) {
                    const float* const at = from->as<float>() + begin / 4;
                    float sum[64] = {};
                    for (std::int64_t i = 0; i + 64 <= count / 4; i += 64)
                      for (int j = 0; j < 64; ++j) sum[j] += at[i + j];
                    for (int j = 1; j < 64; ++j) sum[0] += sum[j];
                    (*sums)[std::size_t(omp_get_thread_num()) * 16 % 1024] = sum[0];
                  });
                },
                bytes,
                0,
                {}};
  });
  add_case(fmt::format("write/{}KiB", kib), [=] {
    const auto to = shared_floats(floats);
    return Work{[=] {
                  on_parts(bytes, [&](std::int64_t begin, std::int64_t count) {
                    std::memset(to->data() + begin, 1, std::size_t(count));
                  });
                },
                bytes,
                0,
                {}};
  });
  add_case(fmt::format("copy/{}KiB", kib), [=] {
    const auto from = shared_floats(floats / 2), to = shared_floats(floats / 2);
    return Work{[=] {
                  on_parts(bytes / 2, [&](std::int64_t begin, std::int64_t count) {
                    std::memcpy(to->data() + begin, from->data() + begin, std::size_t(count));
                  });
                },
                bytes,
                0,
                {}};
  });
}

void add_all() {
  add_register_tile();
  for (const std::int64_t tile : cpu::fft_tile_sides) add_tile_fft(tile);
#ifdef CONVLAB_HAVE_FFTW
  for (const int size : {16, 32, 64, 128, 256}) add_fftw(size, 64);
#endif
  add_gemms<float>();
  add_gemms<double>();
  for (std::int64_t kib = 32; kib <= 512 * 1024; kib *= 4) add_memory(kib);
}

}  // namespace
}  // namespace convlab::micro

int main(int argc, char** argv) {
  convlab::micro::prepare(argv);
  convlab::micro::add_all();
  return convlab::micro::run_cases(argc, argv);
}
