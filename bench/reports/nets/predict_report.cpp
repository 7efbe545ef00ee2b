#include "bench/reports/nets/predict_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace convlab {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string render_json(const Predictions& p) {
  Json json{{"convlab_predict", predict_format},
            {"provenance", Json::object()},
            {"net", p.net},
            {"weights", p.weights}};
  for (const auto& [name, value] : p.provenance.fields) json["provenance"][name] = value;
  if (!p.classes.empty()) json["classes"] = p.classes;
  json["images"] = Json::array();
  for (const Prediction& prediction : p.images) {
    Json image{{"image", prediction.image}, {"top", Json::array()}, {"logits", Json::array()}};
    for (const Likely& likely : most_likely(prediction.logits)) {
      Json entry{{"class", likely.index}};
      if (!p.classes.empty()) entry["name"] = p.classes[std::size_t(likely.index)];
      entry["probability"] = number(likely.probability);
      image["top"].push_back(std::move(entry));
    }
    for (const double logit : prediction.logits) image["logits"].push_back(number(logit));
    json["images"].push_back(std::move(image));
  }
  json["complete"] = p.complete;
  // Names of files and classes need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::vector<Likely> most_likely(const std::vector<double>& logits, std::size_t count) {
  // NaN sorts last.
  const auto rank = [&](std::size_t i) {
    return std::isnan(logits[i]) ? -std::numeric_limits<double>::infinity() : logits[i];
  };
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
  if (order.empty()) return {};
  // Relative to the greatest, so that no exponential overflows.
  const double greatest = logits[order.front()];
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - greatest);
  std::vector<Likely> likely;
  for (std::size_t i = 0; i < std::min(count, order.size()); ++i)
    likely.push_back({std::int64_t(order[i]), std::exp(logits[order[i]] - greatest) / sum});
  return likely;
}

std::string render(const Predictions& p, Format format) {
  if (format == Format::json) return render_json(p);
  Report report;
  report.columns = {"image", "rank", "class", "probability"};
  if (!p.classes.empty()) report.columns.insert(report.columns.begin() + 3, "name");
  for (const Prediction& prediction : p.images) {
    std::int64_t rank = 0;
    for (const Likely& likely : most_likely(prediction.logits)) {
      // A person reads an image's name once.
      std::vector<Cell> row{{prediction.image, rank == 0 ? prediction.image : ""},
                            {rank + 1, std::to_string(rank + 1)},
                            likely.index};
      if (!p.classes.empty()) row.push_back(p.classes[std::size_t(likely.index)]);
      row.push_back({likely.probability, fmt::format("{:.4f}", likely.probability)});
      report.rows.push_back(std::move(row));
      ++rank;
    }
  }
  if (!p.complete)
    report.notes.emplace_back("Stopped early: the other images were not classified.");
  report.provenance = p.provenance;
  return render(report, format);
}

}  // namespace convlab
