#include "nets/data/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "conv/error.h"
#include "nets/data/transform_image.h"

namespace convlab::nets {
namespace {

// ---- The usual transform ----

PixelStatistics imagenet_statistics() { return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}; }

// Statistics of grey for RGB, and vice versa.
PixelStatistics with_channels(PixelStatistics statistics, std::int64_t channels) {
  for (std::vector<double>* values : {&statistics.mean, &statistics.deviation}) {
    if (std::int64_t(values->size()) == channels) continue;
    double sum = 0;
    for (const double value : *values) sum += value;
    values->assign(channels, sum / double(values->size()));
  }
  return statistics;
}

// ---- Pixels ----

// ITU-R BT.601, in 16-bit fixed point; exact for R = G = B, since the weights sum to 2^16.
Image to_grey(const Image& image) {
  const std::int64_t count = image.h * image.w;
  Image grey{1, image.h, image.w, std::vector<std::uint8_t>(count)};
  const std::uint8_t* const r = image.pixels.data();
  for (std::int64_t i = 0; i < count; ++i)
    grey.pixels[i] =
        std::uint8_t((19595 * r[i] + 38470 * r[i + count] + 7471 * r[i + 2 * count] + 32768) >> 16);
  return grey;
}

struct Range {
  std::int64_t first = 0, count = 0;
};

// The inputs that each output averages along an axis, and their weights. Every output has the same
// number, with zero weights if needed.
struct Taps {
  Range read;                       // by any output
  std::int64_t count = 0;           // for one output
  std::vector<std::int64_t> first;  // relative to read.first; ascending
  std::vector<float> weights;       // `count` per output, with sum 1

  std::int64_t outputs() const { return std::int64_t(first.size()); }
};

// Taps for some outputs of scaling n pixels to m, with a triangle filter as wide as one output
// pixel, or as two input pixels if that is more. Taps beyond the ends are left out. At least one
// output.
Taps triangle_taps(std::int64_t n, std::int64_t m, Range outputs) {
  const double scale = double(n) / double(m), reach = std::max(scale, 1.0);
  Taps taps;
  taps.count = std::min(n, std::int64_t(std::ceil(2 * reach)));
  std::vector<double> weights(taps.count);
  for (std::int64_t i = 0; i < outputs.count; ++i) {
    const double centre = (double(outputs.first + i) + 0.5) * scale;
    taps.first.push_back(
        std::clamp<std::int64_t>(std::int64_t(centre - reach + 0.5), 0, n - taps.count));
    double sum = 0;
    for (std::int64_t k = 0; k < taps.count; ++k) {
      const double distance = std::abs(double(taps.first.back() + k) + 0.5 - centre);
      sum += weights[k] = std::max(0.0, 1 - distance / reach);
    }
    for (const double weight : weights) taps.weights.push_back(float(weight / sum));
  }
  taps.read = {taps.first.front(), taps.first.back() + taps.count - taps.first.front()};
  for (std::int64_t& first : taps.first) first -= taps.read.first;
  return taps;
}

// Averages along rows, each of which has this many pixels and begins `stride` after the one before.
template <class T>
std::vector<float> down(const T* from, std::int64_t stride, std::int64_t width, const Taps& taps) {
  std::vector<float> out(taps.outputs() * width);
  for (std::int64_t i = 0; i < taps.outputs(); ++i)
    for (std::int64_t k = 0; k < taps.count; ++k) {
      const T* const row = from + (taps.first[i] + k) * stride;
      const float weight = taps.weights[i * taps.count + k];
      float* const to = &out[i * width];
      for (std::int64_t x = 0; x < width; ++x) to[x] += weight * float(row[x]);
    }
  return out;
}

// Averages columns.
template <class T>
std::vector<float> across(const T* from, std::int64_t stride, std::int64_t height,
                          const Taps& taps) {
  std::vector<float> out(height * taps.outputs());
  float* to = out.data();
  for (std::int64_t y = 0; y < height; ++y, from += stride)
    for (std::int64_t i = 0; i < taps.outputs(); ++i) {
      const T* const pixels = from + taps.first[i];
      const float* const weights = &taps.weights[i * taps.count];
      float sum = 0;
      for (std::int64_t k = 0; k < taps.count; ++k) sum += weights[k] * float(pixels[k]);
      *to++ = sum;
    }
  return out;
}

// Scales a part of an image to h x w and takes a window of it.
struct Scaling {
  Range rows, columns;  // of the image
  std::int64_t h = 0, w = 0;
  Range out_rows = {}, out_columns = {};
};

// Adding rows vectorises and adding columns does not, so columns are added where there are fewer
// rows.
Image scaled(const Image& image, const Scaling& scaling) {
  Image out{image.c, scaling.out_rows.count, scaling.out_columns.count, {}};
  if (out.h == 0 || out.w == 0) return out;
  const Taps rows = triangle_taps(scaling.rows.count, scaling.h, scaling.out_rows),
             columns = triangle_taps(scaling.columns.count, scaling.w, scaling.out_columns);
  const std::int64_t top = scaling.rows.first + rows.read.first,
                     left = scaling.columns.first + columns.read.first;
  out.pixels.resize(out.c * out.h * out.w);
  for (std::int64_t c = 0; c < image.c; ++c) {
    const std::uint8_t* const from = &image.pixels[(c * image.h + top) * image.w + left];
    const std::vector<float> plane =
        rows.read.count < out.h
            ? down(across(from, image.w, rows.read.count, columns).data(), out.w, out.w, rows)
            : across(down(from, image.w, columns.read.count, rows).data(), columns.read.count,
                     out.h, columns);
    std::transform(plane.begin(), plane.end(), &out.pixels[c * out.h * out.w],
                   [](float value) { return std::uint8_t(std::clamp(value + 0.5f, 0.f, 255.f)); });
  }
  return out;
}

// Szegedy et al. 2015, "Going deeper with convolutions", section 6: area and aspect are drawn until
// they fit; after ten attempts the middle is used, with an aspect as near as possible.
Scaling random_part(const Image& image, Draws& draws) {
  const double h = double(image.h), w = double(image.w);
  constexpr double narrow = 3.0 / 4, wide = 4.0 / 3;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = h * w * draws.uniform(0.08, 1);
    const double aspect = std::exp(draws.uniform(std::log(narrow), std::log(wide)));
    const std::int64_t part_w = std::llround(std::sqrt(area * aspect)),
                       part_h = std::llround(std::sqrt(area / aspect));
    if (part_w < 1 || part_w > image.w || part_h < 1 || part_h > image.h) continue;
    const std::int64_t y = draws.below(image.h - part_h + 1);
    return {.rows = {y, part_h}, .columns = {draws.below(image.w - part_w + 1), part_w}};
  }
  const auto part_w = std::clamp<std::int64_t>(std::llround(h * wide), 1, image.w),
             part_h = std::clamp<std::int64_t>(std::llround(w / narrow), 1, image.h);
  return {.rows = {(image.h - part_h) / 2, part_h}, .columns = {(image.w - part_w) / 2, part_w}};
}

// The start of a crop in an image of this size, which is padded; the crop may still be larger. The
// middle is rounded as in torchvision.
std::int64_t crop_begin(std::int64_t size, std::int64_t crop, const Transform& transform,
                        Draws& draws) {
  const std::int64_t room = size + 2 * transform.pad - crop;
  if (room < 0) return room / 2 - transform.pad;
  const std::int64_t begin =
      transform.random_crop ? draws.below(room + 1) : std::llrint(double(room) / 2);
  return begin - transform.pad;
}

// The part of an image of this size that a crop of this many pixels shows.
Range visible(std::int64_t begin, std::int64_t crop, std::int64_t size) {
  const std::int64_t first = std::clamp<std::int64_t>(begin, 0, size);
  return {first, std::clamp<std::int64_t>(begin + crop, first, size) - first};
}

// Normalises from position (y, x) of the image on, which may lie outside. A channel of
// `frame` is followed by those of the other frames.
template <class T>
void crop(const Image& image, std::int64_t top, std::int64_t left, bool flip,
          const Transform& transform, T* frame) {
  const std::int64_t h = transform.height, w = transform.width;
  // Output columns inside the image.
  const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, w),
                     end = std::clamp<std::int64_t>(image.w - left, begin, w);
  for (std::int64_t c = 0; c < transform.channels; ++c) {
    const bool given = !transform.mean.empty();
    const T factor = T(1 / (255 * (given ? transform.deviation[c] : 1))),
            zero = T(given ? -transform.mean[c] / transform.deviation[c] : 0);
    const std::uint8_t* const plane =
        image.pixels.data() + (image.c == 1 ? 0 : c) * image.h * image.w;
    T* out = frame + c * transform.frames * h * w;
    for (std::int64_t y = 0; y < h; ++y, out += w) {
      const bool inside = y + top >= 0 && y + top < image.h;
      if (!inside || begin > 0 || end < w) std::fill(out, out + w, zero);
      if (!inside) continue;
      const std::uint8_t* const from = plane + (y + top) * image.w;
      if (flip)
        for (std::int64_t x = begin; x < end; ++x)
          out[w - 1 - x] = T(from[left + x]) * factor + zero;
      else
        for (std::int64_t x = begin; x < end; ++x) out[x] = T(from[left + x]) * factor + zero;
    }
  }
}

}  // namespace

Transform usual_transform(const Dataset& dataset, std::int64_t channels, std::int64_t height,
                          std::int64_t width, Split split) {
  const ImageShape images = dataset.shape();
  Transform transform{.channels = channels, .height = height, .width = width};
  if (height == 1 && width == 1 && images.c > 0 && channels == images.c * images.h * images.w) {
    transform = {.channels = images.c, .height = images.h, .width = images.w};
  } else if (height != width || (channels != 1 && channels != 3)) {
    throw InputError(fmt::format(
        "the net's input is {}x{}x{}; images come as 1 or 3 channels and a square{}", channels,
        height, width,
        images.c ? fmt::format(", or all {} numbers in a row", images.c * images.h * images.w)
                 : ""));
  } else if (images.c == 1) {
    const std::int64_t side = std::max(images.h, images.w);
    if (height < side || height > side + side / 4) transform.resize = height;
  } else if (height < 128) {
    transform.resize = height;
    if (split == Split::train) {
      transform.pad = height / 8;
      transform.random_crop = transform.random_flip = true;
    }
  } else if (split == Split::train) {
    transform.random_resized_crop = transform.random_flip = true;
  } else {
    transform.resize = height * 8 / 7;
  }
  PixelStatistics statistics = dataset.statistics();
  if (statistics.mean.empty()) statistics = imagenet_statistics();
  statistics = with_channels(std::move(statistics), transform.channels);
  transform.mean = statistics.mean;
  transform.deviation = statistics.deviation;
  return transform;
}

void validate(const Transform& transform) {
  if ((transform.channels != 1 && transform.channels != 3) || transform.height < 1 ||
      transform.width < 1 || transform.height > largest_image / transform.width)
    throw InputError(fmt::format(
        "images cannot become {}x{}x{}; expected 1 or 3 channels and a height and width from 1 on",
        transform.channels, transform.height, transform.width));
  if (transform.frames < 1 || transform.frames > largest_image / transform.height / transform.width)
    throw InputError(fmt::format("images cannot become clips of {} frames of {}x{}",
                                 transform.frames, transform.height, transform.width));
  constexpr std::int64_t most = 100'000;
  for (const std::int64_t pixels : {transform.resize, transform.pad})
    if (pixels < 0 || pixels > most)
      throw InputError(fmt::format("resizing to {}, padding by {}: expected 0 to {}",
                                   transform.resize, transform.pad, most));
  constexpr double largest = 1e6;  // beyond it, an f32 net would lose the image, or get infinity
  const auto channels = std::size_t(transform.channels);
  const bool none = transform.mean.empty() && transform.deviation.empty();
  if (!none && (transform.mean.size() != channels || transform.deviation.size() != channels))
    throw InputError(fmt::format("{} means and {} deviations for {} channels",
                                 transform.mean.size(), transform.deviation.size(), channels));
  for (const double mean : transform.mean)
    if (!(std::abs(mean) <= largest))
      throw InputError(fmt::format("a mean of {}: expected {} to {}", mean, -largest, largest));
  for (const double deviation : transform.deviation)
    if (!(deviation >= 1 / largest && deviation <= largest))
      throw InputError(
          fmt::format("a deviation of {}: expected {} to {}", deviation, 1 / largest, largest));
}

template <class T>
void transform_image(const Image& original, const Transform& transform, Draws draws, T* out) {
  const Image* image = &original;
  Image grey, resized;
  if (transform.channels == 1 && image->c == 3) image = &(grey = to_grey(*image));
  std::int64_t top = 0, left = 0;
  if (transform.random_resized_crop) {
    Scaling scaling = random_part(*image, draws);
    scaling.h = scaling.out_rows.count = transform.height;
    scaling.w = scaling.out_columns.count = transform.width;
    image = &(resized = scaled(*image, scaling));
  } else {
    const std::int64_t shorter = std::min(image->h, image->w),
                       side = transform.resize > 0 ? transform.resize : shorter,
                       h = image->h * side / shorter, w = image->w * side / shorter;
    top = crop_begin(h, transform.height, transform, draws);
    left = crop_begin(w, transform.width, transform, draws);
    if (side != shorter) {
      // Only the visible part: a line of pixels scaled to a net's height would be huge.
      const Range rows = visible(top, transform.height, h),
                  columns = visible(left, transform.width, w);
      image = &(resized = scaled(*image, {{0, image->h}, {0, image->w}, h, w, rows, columns}));
      top -= rows.first;
      left -= columns.first;
    }
  }
  const bool flip = transform.random_flip && draws.next() >> 63;
  for (std::int64_t frame = 0; frame < transform.frames; ++frame)
    crop(*image, top, left + frame, flip, transform,
         out + frame * transform.height * transform.width);
}

template void transform_image(const Image&, const Transform&, Draws, float*);
template void transform_image(const Image&, const Transform&, Draws, double*);

}  // namespace convlab::nets
