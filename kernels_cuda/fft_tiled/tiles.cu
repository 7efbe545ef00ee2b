// The kernels of fft_tiled.
//
// A real n x n tile takes n/2 threads, each of which holds n complex numbers in registers, twice:
// - rows: two rows are one complex row z = a + ib; of its transform Z, Z[v] + conj(Z[n-v]) is twice
//   a's transform and -i (Z[v] - conj(Z[n-v])) twice b's;
// - columns: n/2 - 1 complex ones; columns 0 and n/2 are real, and together make a complex one.
// They are exchanged through shared memory: [row][column][item] complex, where column 0 holds
// columns 0 and n/2. The inverse runs backwards.
//
// An item is a channel of a tile, and neighbouring threads have neighbouring items. So shared
// memory has no bank conflicts, and spectra and the pixels of NHWC images are read and written in
// whole lines. From NCHW images a block reads rows of one item at a time, and transposes them in
// the same shared memory; it writes them the same way.
#include "kernels_cuda/fft_tiled/codelets.h"
#include "kernels_cuda/fft_tiled/tiles.h"

namespace convlab::cuda {
namespace {

constexpr int threads = 256;

template <int n>
constexpr int items = 2 * threads / n;  // of a block
template <int n>
constexpr int points = int(tile_points(n));
template <int n>
constexpr std::size_t shared_bytes = n* n* items<n> * sizeof(float);
// Leaves registers for n complex numbers and a transform's temporaries.
template <int n>
[[maybe_unused]] constexpr int blocks_per_sm = n == 16 ? 3 : 2;

// Tiles, for kernels.
struct Places {
  Image image;
  int across, per_image, step_h, step_w, start_h, start_w, inset_h, inset_w, rows, cols;

  explicit Places(const Tiles& t)
      : image(t.desc, t.desc.n, t.desc.c),
        across(int(t.across)),
        per_image(int(t.per_image)),
        step_h(int(t.step_h)),
        step_w(int(t.step_w)),
        start_h(int(t.start_h)),
        start_w(int(t.start_w)),
        inset_h(int(t.inset_h)),
        inset_w(int(t.inset_w)),
        rows(int(t.rows)),
        cols(int(t.cols)) {}
};

// One item: a channel of an image, and the pixel that the tile's (0, 0) is.
struct Place {
  int n, c, h, w;
  __device__ Place(const Places& t, int tile, int item) {
    tile += item / t.image.c;
    c = item % t.image.c;
    n = tile / t.per_image;
    h = tile % t.per_image / t.across * t.step_h + t.start_h - t.inset_h;
    w = tile % t.across * t.step_w + t.start_w - t.inset_w;
  }
};

// Whether pixel (y, x) of a tile lies in the tensor and within the tile's rows x cols.
__device__ __forceinline__ bool counts(const Places& t, const Place& at, int y, int x) {
  return unsigned(y - t.inset_h) < unsigned(t.rows) && unsigned(x - t.inset_w) < unsigned(t.cols) &&
         unsigned(at.h + y) < unsigned(t.image.h) && unsigned(at.w + x) < unsigned(t.image.w);
}

// f(item, channel, row, x, offset, counts) for all pixels of a block's items, an NCHW image's row
// by row. All channels of a tile share the computation of their place.
template <int n, class F>
__device__ __forceinline__ void for_rows(const Places& t, int first_tile, int first, int count,
                                         const F& f) {
  const int last = min(first + items<n>, count), x = int(threadIdx.x) % n;
  for (int i = first; i < last;) {
    const Place at(t, first_tile, i);
    const int channels = min(t.image.c - at.c, last - i);
    for (int row = int(threadIdx.x) / n; row < n; row += threads / n) {
      const bool there = counts(t, at, row, x);
      const std::int64_t offset = t.image.offset(at.n, at.c, at.h + row, at.w + x);
#pragma unroll 4
      for (int c = 0; c < channels; ++c)
        f(i - first + c, at.c + c, row, x, offset + std::int64_t(c) * t.image.channel, there);
    }
    i += channels;
  }
}

// The offset of pixel (y, x) of an item in shared memory. A warp accesses 32 pixels of one item, in
// one row or two; or one pixel of 32 items; or two pixels of 16 items, neighbours or two rows
// apart.
template <int n>
__device__ __forceinline__ int staged(int y, int x, int item) {
  if constexpr (n == 16)
    return (y * n + x) * 32 + ((item + y * n + x) & 31);
  else
    return (y * n + (x ^ (y >> 1 & 1))) * 16 + ((item + (x >> 1)) & 15);
}
// The offset of column v of row y.
template <int n>
__device__ __forceinline__ int exchanged(int y, int v, int item) {
  return (y * (n / 2) + v) * items<n> + item;
}

// Stores a number, or a TF32 pair whose small half goes to at + to_small.
__device__ __forceinline__ void store_factor(float* at, std::int64_t to_small, float v) {
  if (to_small == 0) return store_global(at, v);
  unsigned big, small;
  split_tf32(v, big, small);
  store_global(at, __uint_as_float(big));
  store_global(at + to_small, __uint_as_float(small));
}
__device__ __forceinline__ void store_factor(float* at, std::int64_t to_small, float re, float im) {
  if (to_small == 0) return store_global(at, Complex<float>{re, im});
  unsigned big_re, small_re, big_im, small_im;
  split_tf32(re, big_re, small_re);
  split_tf32(im, big_im, small_im);
  store_global(at, Complex<float>{__uint_as_float(big_re), __uint_as_float(big_im)});
  store_global(at + to_small, Complex<float>{__uint_as_float(small_re), __uint_as_float(small_im)});
}

template <ComplexProduct product>
__device__ __forceinline__ void store_point(float* spectra, int points, std::int64_t count,
                                            std::int64_t to_small, std::int64_t at, float re,
                                            float im) {
  if constexpr (product == ComplexProduct::complex) {
    store_factor(spectra + 2 * at, to_small, re, im);
  } else {
    const std::int64_t part = points * count;
    store_factor(spectra + at, to_small, re);
    store_factor(spectra + part + at, to_small, im);
    store_factor(spectra + 2 * part + at, to_small, re + im);
  }
}

template <ComplexProduct product>
__device__ __forceinline__ Complex<float> load_point(const float* spectra, int points,
                                                     std::int64_t count, std::int64_t at) {
  if constexpr (product == ComplexProduct::complex) {
    const float2 v = load_global<float2>(spectra + 2 * at);
    return {v.x, v.y};
  } else {
    const std::int64_t part = points * count;
    const float p1 = load_global<float>(spectra + at), p2 = load_global<float>(spectra + part + at),
                p3 = load_global<float>(spectra + 2 * part + at);
    return {p1 - p2, p3 - p1 - p2};
  }
}

template <int n, bool nhwc, ComplexProduct product>
__global__ void __launch_bounds__(threads, blocks_per_sm<n>)
    transform_kernel(Places t, const float* data, int first_tile, int count, float im_sign,
                     std::int64_t to_small, float* spectra) {
  SHARED_DYN(float, shared);
  Complex<float>* const exchange = reinterpret_cast<Complex<float>*>(shared);
  const int thread = int(threadIdx.x), item = thread % items<n>, pair = thread / items<n>;
  const int first = int(blockIdx.x) * items<n>, mine = first + item, y = 2 * pair;
  Complex<float> z[n];
  if constexpr (nhwc) {
    const Place at(t, first_tile, mine);
    const float* const from = data + t.image.offset(at.n, at.c, at.h + y, at.w);
    const auto load = [&](int dy, int x) {
      return mine < count && counts(t, at, y + dy, x)
                 ? load_global<float>(from + dy * t.image.row + std::int64_t(x) * t.image.column)
                 : 0.f;
    };
#pragma unroll
    for (int x = 0; x < n; ++x) z[x] = {load(0, x), load(1, x)};
  } else {
    for_rows<n>(t, first_tile, first, count,
                [&](int i, int, int row, int x, std::int64_t offset, bool there) {
                  cp_async<4>(shared + staged<n>(row, x, i), there ? data + offset : data,
                              there ? 4 : 0);
                });
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < n; ++i)
      z[i] = {load_shared<float>(shared + staged<n>(y, i, item)),
              load_shared<float>(shared + staged<n>(y + 1, i, item))};
    __syncthreads();
  }

  forward_transform(z);
  store_shared(exchange + exchanged<n>(y, 0, item),
               Complex<float>{z[0].re + z[0].re, z[n / 2].re + z[n / 2].re});
  store_shared(exchange + exchanged<n>(y + 1, 0, item),
               Complex<float>{z[0].im + z[0].im, z[n / 2].im + z[n / 2].im});
#pragma unroll
  for (int v = 1; v < n / 2; ++v) {
    const Complex<float> p = z[v], q = z[n - v];
    store_shared(exchange + exchanged<n>(y, v, item), Complex<float>{p.re + q.re, p.im - q.im});
    store_shared(exchange + exchanged<n>(y + 1, v, item), Complex<float>{p.im + q.im, q.re - p.re});
  }
  __syncthreads();
  if (mine >= count) return;

#pragma unroll
  for (int i = 0; i < n; ++i)
    z[i] = load_shared<Complex<float>>(exchange + exchanged<n>(i, pair, item));
  forward_transform(z);
  const auto store = [&](int point, float re, float im) {
    store_point<product>(spectra, points<n>, count, to_small, std::int64_t(point) * count + mine,
                         re, im_sign * im);
  };
  if (pair > 0) {
#pragma unroll
    for (int u = 0; u < n; ++u) store((pair - 1) * n + u, z[u].re, z[u].im);
  } else {
    constexpr int column_0 = n * (n / 2 - 1), column_half = column_0 + n / 2 + 1;
#pragma unroll
    for (int u = 0; u <= n / 2; ++u) {
      const Complex<float> p = z[u], q = z[(n - u) % n];
      store(column_0 + u, 0.5f * (p.re + q.re), 0.5f * (p.im - q.im));
      store(column_half + u, 0.5f * (p.im + q.im), 0.5f * (q.re - p.re));
    }
  }
}

template <int n, bool nhwc, ComplexProduct product>
__global__ void __launch_bounds__(threads, blocks_per_sm<n>)
    invert_kernel(const float* spectra, Places t, int first_tile, int count, float scale,
                  OutputEpilogue<float> epilogue) {
  SHARED_DYN(float, shared);
  Complex<float>* const exchange = reinterpret_cast<Complex<float>*>(shared);
  const int thread = int(threadIdx.x), item = thread % items<n>, pair = thread / items<n>;
  const int first = int(blockIdx.x) * items<n>, mine = first + item, y = 2 * pair;
  const auto load = [&](int point) {
    return mine < count
               ? load_point<product>(spectra, points<n>, count, std::int64_t(point) * count + mine)
               : Complex<float>{0, 0};
  };
  Complex<float> z[n];
  if (pair > 0) {
#pragma unroll
    for (int u = 0; u < n; ++u) z[u] = load((pair - 1) * n + u);
  } else {
    constexpr int column_0 = n * (n / 2 - 1), column_half = column_0 + n / 2 + 1;
#pragma unroll
    for (int u = 0; u <= n / 2; ++u) {
      const Complex<float> p = load(column_0 + u), q = load(column_half + u);
      if (0 < u && u < n / 2) z[n - u] = {p.re + q.im, q.re - p.im};
      z[u] = {p.re - q.im, p.im + q.re};
    }
  }
  inverse_transform(z);
#pragma unroll
  for (int i = 0; i < n; ++i) store_shared(exchange + exchanged<n>(i, pair, item), z[i]);
  __syncthreads();

  {
    const auto p = load_shared<Complex<float>>(exchange + exchanged<n>(y, 0, item));
    const auto q = load_shared<Complex<float>>(exchange + exchanged<n>(y + 1, 0, item));
    z[0] = {p.re, q.re};
    z[n / 2] = {p.im, q.im};
  }
#pragma unroll
  for (int v = 1; v < n / 2; ++v) {
    const auto p = load_shared<Complex<float>>(exchange + exchanged<n>(y, v, item));
    const auto q = load_shared<Complex<float>>(exchange + exchanged<n>(y + 1, v, item));
    z[v] = {p.re - q.im, p.im + q.re};
    z[n - v] = {p.re + q.im, q.re - p.im};
  }
  inverse_transform(z);

  __syncthreads();
#pragma unroll
  for (int x = 0; x < n; ++x) {
    store_shared(shared + staged<n>(y, x, item), z[x].re);
    store_shared(shared + staged<n>(y + 1, x, item), z[x].im);
  }
  __syncthreads();
  if constexpr (nhwc) {
    if (mine >= count) return;
    const Place at(t, first_tile, mine);
#pragma unroll 4
    for (int p = pair; p < n * n; p += n / 2)
      if (counts(t, at, p / n, p % n))
        epilogue.store(t.image.offset(at.n, at.c, at.h + p / n, at.w + p % n), at.c,
                       scale * load_shared<float>(shared + staged<n>(p / n, p % n, item)));
  } else {
    for_rows<n>(t, first_tile, first, count,
                [&](int i, int c, int row, int x, std::int64_t offset, bool there) {
                  if (there)
                    epilogue.store(offset, c,
                                   scale * load_shared<float>(shared + staged<n>(row, x, i)));
                });
  }
}

// f(n, nhwc, product) with the run-time values as constants.
template <class F>
void specialised(const Spectra& s, Layout layout, const F& f) {
  using std::bool_constant, std::integral_constant;
  const auto with_product = [&](auto n, auto nhwc) {
    if (s.product == ComplexProduct::gauss)
      f(n, nhwc, integral_constant<ComplexProduct, ComplexProduct::gauss>());
    else
      f(n, nhwc, integral_constant<ComplexProduct, ComplexProduct::complex>());
  };
  const auto with_layout = [&](auto n) {
    if (layout == Layout::nhwc)
      with_product(n, bool_constant<true>());
    else
      with_product(n, bool_constant<false>());
  };
  if (s.tile == 16)
    with_layout(integral_constant<int, 16>());
  else
    with_layout(integral_constant<int, 32>());
}

}  // namespace

std::int64_t tile_shared_bytes(std::int64_t tile) {
  return std::int64_t(tile == 16 ? shared_bytes<16> : shared_bytes<32>);
}

void transform_tiles(const Tiles& tiles, const float* data, bool conjugate, const Spectra& spectra,
                     Stream& stream) {
  specialised(spectra, tiles.desc.layout, [&](auto n, auto nhwc, auto product) {
    const std::int64_t count = spectra.tiles * tiles.desc.c;
    launch(transform_kernel<n, nhwc, product>, unsigned(ceil_div(count, items<n>)), threads,
           shared_bytes<n>, stream, Places(tiles), data, int(spectra.first), int(count),
           conjugate ? -1.f : 1.f,
           spectra.tf32_pairs ? count * spectrum_floats(spectra.tile, spectra.product) : 0,
           spectra.data);
  });
}

void invert_tiles(const Spectra& spectra, const Tiles& tiles, float scale,
                  const OutputEpilogue<float>& epilogue, Stream& stream) {
  specialised(spectra, tiles.desc.layout, [&](auto n, auto nhwc, auto product) {
    const std::int64_t count = spectra.tiles * tiles.desc.c;
    launch(invert_kernel<n, nhwc, product>, unsigned(ceil_div(count, items<n>)), threads,
           shared_bytes<n>, stream, spectra.data, Places(tiles), int(spectra.first), int(count),
           scale, epilogue);
  });
}

}  // namespace convlab::cuda
