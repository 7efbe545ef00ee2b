// The table of colours and marks is complete, no two algorithms share a mark, and it is readable
// for colour-blind readers.
#include "bench/reports/algo_marks.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "conv/registry.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cuda/cudnn/rules.h"

namespace convlab {
namespace {

using nlohmann::json;
using Rgb = std::array<double, 3>;
using Matrix = std::array<Rgb, 3>;

Rgb times(const Matrix& m, const Rgb& v) {
  Rgb out{};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j) out[i] += m[i][j] * v[j];
  return out;
}

// Linear light.
Rgb parsed(const std::string& colour) {
  Rgb rgb{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    rgb[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return rgb;
}

// WCAG 2.1.
double luminance(const Rgb& c) { return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; }
double contrast(const Rgb& a, const Rgb& b) {
  const double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
  return std::max(x, y) / std::min(x, y);
}

// CIELAB under D65.
Rgb lab(const Rgb& colour) {
  Rgb xyz = times({{{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}}},
                  colour);
  const Rgb white{0.95047, 1, 1.08883};
  for (std::size_t i = 0; i < 3; ++i) {
    const double t = std::max(0.0, xyz[i]) / white[i];
    xyz[i] = t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116;
  }
  return {116 * xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])};
}

// Machado, Oliveira, Fernandes 2009, at full severity, in linear light.
const std::map<std::string, Matrix> sights{{"normal", {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}},
                                           {"protanopia",
                                            {{{0.152286, 1.052583, -0.204868},
                                              {0.114503, 0.786281, 0.099216},
                                              {-0.003882, -0.048116, 1.051998}}}},
                                           {"deuteranopia",
                                            {{{0.367322, 0.860646, -0.227968},
                                              {0.280085, 0.672501, 0.047413},
                                              {-0.011820, 0.042940, 0.968881}}}}};

const json& table() {  // the embedded text must be initialised first
  static const json parsed = json::parse(algo_marks_json);
  return parsed;
}

TEST(AlgoMarks, AreThereForEveryAlgorithm) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  for (const ConvAlgo* algo : registry.for_device(DeviceKind::cpu))
    EXPECT_TRUE(table()["algos"].contains(algo->info().id)) << algo->info().id;
  for (const cuda::CudnnAlgo& algo : cuda::cudnn_algos)
    EXPECT_TRUE(table()["algos"].contains(std::string("cudnn.") + algo.name)) << algo.name;
  EXPECT_NE(algo_mark("direct", ChartKind::picture), algo_mark("nosuch", ChartKind::picture));
  EXPECT_NE(algo_mark("direct", ChartKind::text), algo_mark("nosuch", ChartKind::text));
}

// Marks are unique apart from the colour, which a family shares. cuDNN's borrow the others'
// colours.
TEST(AlgoMarks, AreNeverShared) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const auto family_of = [&](const std::string& id) {
    const ConvAlgo* const algo = registry.find(DeviceKind::cpu, id);
    return algo == nullptr || algo->info().family.empty() ? id : algo->info().family;
  };
  std::map<std::string, std::string> colours;  // and the families that use them
  std::set<std::string> looks, letters, marks;
  for (const auto& [algo, row] : table()["algos"].items()) {
    EXPECT_TRUE(looks.insert(algo_mark(algo, ChartKind::picture)).second) << algo;
    EXPECT_TRUE(letters.insert(algo_mark(algo, ChartKind::text)).second) << algo;
    if (algo.starts_with("cudnn.")) continue;
    const std::string family = family_of(algo);
    EXPECT_EQ(colours.try_emplace(row["colour"], family).first->second, family) << algo;
    EXPECT_TRUE(marks.insert(row["mark"]).second) << algo;
  }
}

TEST(AlgoMarks, RecurrentAlgorithmsDifferAmongThemselves) {
  RecurrentRegistry registry;
  append_cpu_recurrent_algos(registry);
  const json& rows = table()["recurrent"];
  std::set<std::string> colours, letters;
  for (const RecurrentAlgo* algo : registry.for_device(DeviceKind::cpu)) {
    const std::string& id = algo->info().id;
    ASSERT_TRUE(rows.contains(id)) << id;
    EXPECT_TRUE(colours.insert(rows[id]["colour"]).second) << id;
    bool known = false;  // to the tests of convolutions' colours
    for (const auto& [of_conv, row] : table()["algos"].items())
      known |= row["colour"] == rows[id]["colour"];
    EXPECT_TRUE(known) << id;
  }
  for (const auto& [id, row] : rows.items())
    EXPECT_TRUE(letters.insert(algo_mark(id, ChartKind::text)).second) << id;
}

TEST(AlgoMarks, StandOutAndDifferInEverySight) {
  for (const auto& [algo, row] : table()["algos"].items()) {
    const Rgb colour = parsed(row["colour"]);
    for (const char* background : {"#ffffff", "#12161b"})  // the page's
      EXPECT_GE(contrast(colour, parsed(background)), 3) << algo << " on " << background;
    for (const auto& [other, its] : table()["algos"].items()) {
      if (row["colour"] == its["colour"]) continue;
      for (const auto& [sight, matrix] : sights) {
        const Rgb a = lab(times(matrix, colour)), b = lab(times(matrix, parsed(its["colour"])));
        EXPECT_GT(std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]), 15)
            << algo << " and " << other << ", " << sight;
      }
    }
  }
}

}  // namespace
}  // namespace convlab
