#include "nets/train/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "conv/error.h"

namespace convlab::nets {
namespace {

template <class T>
Scores score_of(std::span<const T> values, std::span<const std::int32_t> labels) {
  Scores sum;
  if (labels.empty() || values.size() % labels.size() != 0)
    throw InputError(
        fmt::format("score: {} scores cannot belong to {} labels", values.size(), labels.size()));
  const std::size_t classes = values.size() / labels.size();
  for (std::size_t n = 0; n < labels.size(); ++n) {
    if (labels[n] == no_label) continue;
    if (labels[n] < 0 || std::size_t(labels[n]) >= classes)
      throw InputError(fmt::format("score: label {} of image {}: expected a class from 0 to {}",
                                   labels[n], n, classes - 1));
    const std::span<const T> scores = values.subspan(n * classes, classes);
    const auto label = std::size_t(labels[n]);
    ++sum.images;
    if (!std::all_of(scores.begin(), scores.end(), [](T s) { return std::isfinite(s); })) {
      sum.loss += std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const double highest = double(*std::max_element(scores.begin(), scores.end()));
    double exponentials = 0;
    std::size_t ahead = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      exponentials += std::exp(double(scores[c]) - highest);
      ahead += scores[c] > scores[label] || (scores[c] == scores[label] && c < label);
    }
    sum.loss += std::log(exponentials) + highest - double(scores[label]);
    sum.top1 += ahead < 1;
    sum.top5 += ahead < 5;
  }
  return sum;
}

}  // namespace

Scores& Scores::operator+=(const Scores& other) {
  images += other.images;
  top1 += other.top1;
  top5 += other.top5;
  loss += other.loss;
  return *this;
}

Scores score(ConstSpan output, DType dtype, std::span<const std::int32_t> labels) {
  validate(dtype, "score");
  const auto as = [&]<class T>(T) {
    return std::span(reinterpret_cast<const T*>(output.data()), output.size() / sizeof(T));
  };
  return dtype == DType::f64 ? score_of(as(double()), labels) : score_of(as(float()), labels);
}

std::optional<Scores> evaluate(Net& net, DataLoader& loader, const std::function<bool()>& go_on) {
  const Shape& out = net.graph().nodes().back().shape;
  std::vector<std::byte> output(std::size_t(out.elements() * size_of(net.value_type())));
  Scores sum;
  loader.start(0);
  while (const Batch* batch = loader.next()) {
    net.set_input(batch->input);
    net.forward();
    net.read_output(output);
    sum += score(output, net.value_type(), batch->labels);
    if (go_on && !go_on()) return std::nullopt;
  }
  return sum;
}

void copy_parameters(Net& from, Net& to) {
  const auto& ours = from.parameters();
  const auto& theirs = to.parameters();
  const auto same = [](const Parameter& a, const Parameter& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  if (!std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), same) ||
      from.value_type() != to.value_type())
    throw InputError(fmt::format("net {} cannot take the parameters of net {}", to.graph().name(),
                                 from.graph().name()));
  std::vector<std::byte> host;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    host.resize(std::size_t(ours[i].count * size_of(from.value_type())));
    from.read(ours[i].value, host);
    to.write(theirs[i].value, host);
  }
  to.parameters_changed();
}

}  // namespace convlab::nets
