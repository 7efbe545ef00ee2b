#include "nets/data/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <span>
#include <system_error>

#include "conv/error.h"
#include "nets/data/random.h"
#include "nets/data/readers.h"
#include "nets/weights/file_io.h"

namespace convlab::nets {
namespace {

namespace fs = std::filesystem;

constexpr int side = 32;
// Part of the directory's name: raise it when the pictures change.
constexpr int version = 1;

// ---- Shapes, in coordinates where each fills about [-1, 1]^2, y downwards ----

bool in_box(double x, double y, double half_w, double half_h) {
  return std::abs(x) <= half_w && std::abs(y) <= half_h;
}

bool in_star(double x, double y) {
  // Five wedges, each symmetric: one straight edge from a tip to a notch.
  const double radius = std::hypot(x, y), fifth = 2 * std::numbers::pi / 5;
  const double turn = std::atan2(x, -y) + 2 * std::numbers::pi;
  const double angle = std::abs(std::remainder(turn, fifth));
  const double px = radius * std::cos(angle), py = radius * std::sin(angle);
  constexpr double notch = 0.42;
  const double nx = notch * std::cos(fifth / 2), ny = notch * std::sin(fifth / 2);
  return (1.1 - px) * ny - py * (1.1 - nx) >= 0;
}

struct Shape {
  const char* name;
  bool (*contains)(double x, double y);
};

constexpr std::array<Shape, 10> shapes{{
    {"disc", [](double x, double y) { return std::hypot(x, y) <= 0.95; }},
    {"ring",
     [](double x, double y) {
       const double radius = std::hypot(x, y);
       return radius <= 1 && radius >= 0.58;
     }},
    {"square", [](double x, double y) { return in_box(x, y, 0.85, 0.85); }},
    {"frame", [](double x, double y) { return in_box(x, y, 0.9, 0.9) && !in_box(x, y, 0.5, 0.5); }},
    {"triangle", [](double x, double y) { return y <= 0.8 && std::abs(x) <= 0.58 * (y + 0.95); }},
    {"plus", [](double x, double y) { return in_box(x, y, 1, 0.28) || in_box(x, y, 0.28, 1); }},
    {"cross",
     [](double x, double y) {
       const double u = (x + y) * std::numbers::sqrt2 / 2, v = (x - y) * std::numbers::sqrt2 / 2;
       return in_box(u, v, 1.15, 0.28) || in_box(u, v, 0.28, 1.15);
     }},
    {"star", in_star},
    {"columns", [](double x, double y) { return in_box(std::abs(x) - 0.62, y, 0.28, 0.95); }},
    {"rows", [](double x, double y) { return in_box(x, std::abs(y) - 0.62, 0.95, 0.28); }},
}};

using Colour = std::array<double, 3>;

Colour any_colour(Draws& draws) {
  return {draws.uniform(0.05, 0.95), draws.uniform(0.05, 0.95), draws.uniform(0.05, 0.95)};
}

double distance(const Colour& a, const Colour& b) {
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

struct Picture {
  std::array<std::array<std::array<double, side>, side>, 3> pixels{};

  void blend(int y, int x, const Colour& colour, double cover) {
    for (int c = 0; c < 3; ++c) pixels[c][y][x] += cover * (colour[c] - pixels[c][y][x]);
  }

  // A colour gradient across the picture, with waves.
  void background(const Colour& from, const Colour& to, Draws& draws) {
    const double angle = draws.uniform(0, 2 * std::numbers::pi), dx = std::cos(angle) / side,
                 dy = std::sin(angle) / side;
    const double height = draws.uniform(0, 0.08), fx = draws.uniform(-0.8, 0.8),
                 fy = draws.uniform(-0.8, 0.8), phase = draws.uniform(0, 2 * std::numbers::pi);
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x) {
        const double way = 0.5 + dx * (x - side / 2) + dy * (y - side / 2);
        const double wave = height * std::sin(fx * x + fy * y + phase);
        for (int c = 0; c < 3; ++c) pixels[c][y][x] = from[c] + way * (to[c] - from[c]) + wave;
      }
  }

  // A pixel's coverage is the fraction of its 3x3 sample points inside the shape.
  template <class Contains>
  void draw(Contains contains, double centre_x, double centre_y, double radius,
            const Colour& colour) {
    const double reach = 1.5 * radius;
    for (int y = std::max(0, int(centre_y - reach)); y < std::min<double>(side, centre_y + reach);
         ++y)
      for (int x = std::max(0, int(centre_x - reach)); x < std::min<double>(side, centre_x + reach);
           ++x) {
        int inside = 0;
        for (int point = 0; point < 9; ++point)
          inside += contains((x + (point % 3 + 0.5) / 3 - centre_x) / radius,
                             (y + (point / 3 + 0.5) / 3 - centre_y) / radius);
        if (inside) blend(y, x, colour, inside / 9.0);
      }
  }
};

// ---- The files ----

fs::path cache_directory() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value ? value : "";
  };
  fs::path cache = variable("XDG_CACHE_HOME");
  if (!cache.is_absolute()) {  // the XDG specification says to ignore a relative one
    const std::string home = variable("HOME");
    if (home.empty())
      throw EnvironmentError(
          "no place for the synthetic images: neither XDG_CACHE_HOME nor HOME is set");
    cache = fs::path(home) / ".cache";
  }
  return cache / "convlab";
}

std::vector<std::uint8_t> records(std::uint64_t seed, std::int64_t images) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(images * (1 + 3 * side * side));
  for (std::int64_t i = 0; i < images; ++i) {
    const auto label = std::int32_t(i % std::int64_t(shapes.size()));
    const auto picture = draw_shape(label, seed, i);
    bytes.push_back(std::uint8_t(label));
    bytes.insert(bytes.end(), picture.begin(), picture.end());
  }
  return bytes;
}

}  // namespace

std::vector<std::uint8_t> draw_shape(std::int32_t label, std::uint64_t seed, std::int64_t index) {
  Draws draws{seed, std::uint64_t(index)};
  const Colour from = any_colour(draws), to = any_colour(draws);
  Colour colour = any_colour(draws);
  // Lighter, darker or of another hue than the background, so that it is visible on all of it.
  while (distance(colour, from) < 0.45 || distance(colour, to) < 0.45 ||
         distance(colour, {(from[0] + to[0]) / 2, (from[1] + to[1]) / 2, (from[2] + to[2]) / 2}) <
             0.4)
    colour = any_colour(draws);

  Picture picture;
  picture.background(from, to, draws);
  const auto specks = 2 + draws.below(4);
  for (std::int64_t i = 0; i < specks; ++i) {
    const double wide = draws.uniform(0.3, 1);
    const double x = draws.uniform(0, side), y = draws.uniform(0, side);
    picture.draw([wide](double u, double v) { return in_box(u, v, wide, 1); }, x, y,
                 draws.uniform(0.8, 2.2), any_colour(draws));
  }
  const double radius = draws.uniform(5, 10), turn = draws.uniform(-0.26, 0.26);
  const double x = draws.uniform(radius, side - radius), y = draws.uniform(radius, side - radius);
  const double cosine = std::cos(turn), sine = std::sin(turn);
  const auto contains = shapes.at(label).contains;
  picture.draw(
      [&](double u, double v) { return contains(cosine * u + sine * v, cosine * v - sine * u); }, x,
      y, radius, colour);

  std::vector<std::uint8_t> bytes;
  const double noise = draws.uniform(0.01, 0.05);
  for (const auto& plane : picture.pixels)
    for (const auto& row : plane)
      for (const double pixel : row) {
        // Nearly normal: four uniform numbers, scaled to the variance of twelve.
        double sum = -2;
        for (int i = 0; i < 4; ++i) sum += draws.uniform();
        const double value = pixel + noise * std::numbers::sqrt3 * sum;
        bytes.push_back(std::uint8_t(std::clamp(value, 0.0, 1.0) * 255 + 0.5));
      }
  return bytes;
}

fs::path synthetic_directory(std::int64_t images) {
  if (images < 10 || images > 10'000'000)
    throw InputError(fmt::format("synthetic:{}: expected from 10 to 10,000,000 images", images));
  const fs::path cache = cache_directory();
  const fs::path directory = cache / fmt::format("synthetic-v{}-{}", version, images);
  if (fs::exists(directory)) return directory;
  // Everything is drawn before anything is written, since Ctrl-C would leave partial files.
  const auto train = records(1, images);
  const auto test = records(2, std::max(images / 5, std::int64_t(10)));
  // Another process may be doing the same: the first rename wins.
  std::string own = directory.string() + ".tmp.XXXXXX";
  try {
    fs::create_directories(cache);
    if (!::mkdtemp(own.data()))
      throw fs::filesystem_error("", own, std::error_code(errno, std::generic_category()));
    fs::permissions(own,
                    fs::perms::group_exec | fs::perms::group_read | fs::perms::others_exec |
                        fs::perms::others_read,
                    fs::perm_options::add);
    const auto write = [&](const char* name, const auto& contents) {
      const ConstSpan piece = std::as_bytes(std::span(contents));
      replace_file(fs::path(own) / name, {&piece, 1});
    };
    write("data_batch_1.bin", train);
    write("test_batch.bin", test);
    std::string names;
    for (const Shape& shape : shapes) names += fmt::format("{}\n", shape.name);
    write("batches.meta.txt", names);
    std::error_code taken;
    fs::rename(own, directory, taken);
    if (taken && !fs::exists(directory / "data_batch_1.bin"))
      throw fs::filesystem_error("", directory, taken);
    fs::remove_all(own);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(own, ignored);
    const auto* const where = dynamic_cast<const fs::filesystem_error*>(&error);
    throw EnvironmentError(fmt::format(
        "{}; XDG_CACHE_HOME can name another place for the synthetic images",
        where ? fmt::format("cannot write {}: {}", where->path1().string(), where->code().message())
              : error.what()));
  }
  return directory;
}

std::unique_ptr<Dataset> open_synthetic(const std::string& spec, Split split) {
  std::int64_t images = 10'000;
  if (const std::size_t colon = spec.find(':'); colon != spec.npos) {
    const char *const begin = spec.data() + colon + 1, *const end = spec.data() + spec.size();
    const auto [stop, error] = std::from_chars(begin, end, images);
    if (error != std::errc() || stop != end || begin == end)
      throw InputError(fmt::format("'{}': expected synthetic:IMAGES, a number", spec));
  }
  return open_cifar(synthetic_directory(images), split);
}

}  // namespace convlab::nets
