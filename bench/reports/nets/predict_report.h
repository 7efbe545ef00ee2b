// A net's classification of images, as tables.
#pragma once

#include <string>
#include <vector>

#include "bench/reports/report.h"

namespace convlab {

// The version of `convlab_predict` that is written.
inline constexpr int predict_format = 1;

struct Prediction {
  std::string image;           // its file
  std::vector<double> logits;  // the net's output, before the softmax
};

struct Predictions {
  std::string net, weights;
  std::vector<std::string> classes;  // empty: classes have numbers only
  std::vector<Prediction> images;
  Provenance provenance;
  bool complete = true;  // else interrupted before the last image
};

struct Likely {
  std::int64_t index = 0;  // of the class
  double probability = 0;  // by softmax
};
// The most likely first.
std::vector<Likely> most_likely(const std::vector<double>& logits, std::size_t count = 5);

// One row for each image and each of its five most likely classes. json: {"provenance", "net",
// "weights", "classes", "images": [{"image", "top": [{"class", "name", "probability"}], "logits"}],
// "complete"}; names only if they are known.
std::string render(const Predictions&, Format);

}  // namespace convlab
