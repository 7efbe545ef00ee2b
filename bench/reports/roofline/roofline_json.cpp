// A roofline report as JSON and back; the fields are in bench/FORMATS.md.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/json_text.h"
#include "bench/reports/roofline/roofline_data.h"
#include "conv/error.h"

namespace convlab {

using Json = nlohmann::ordered_json;  // of the whole; rows are in the order of their names

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Roof, level, what, threads, measured, per_second, noise, date)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RooflineLevel, level, bytes, flops_per_byte, attainable_gflops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RooflinePhase, name, ms, flops, bytes, percent_of_roof)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RooflineCurve, layer, pass, algo, batch, threads, ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RooflinePoint, layer, problem, pass, dtype, algo, config,
                                   layouts, cache, count, batch, threads, chosen, status, ms,
                                   mad_ms, rel_error, workspace_bytes, flops, attained_gflops,
                                   attainable_gflops, percent_of_roof, headroom_ms, limit, levels,
                                   phases)

std::string to_json(const RooflineReport& report) {
  Json json{{"convlab_roofline", roofline_format}, {"provenance", Json::object()}};
  for (const auto& field : report.provenance) json["provenance"][field.first] = field.second;
  json["bytes"] = report.bytes;
  json["roofs"] = nlohmann::json(report.roofs);
  json["points"] = nlohmann::json(report.points);
  for (std::size_t i = 0; i < report.points.size(); ++i)
    if (!report.points[i].samples_ms.empty())
      json["points"][i]["samples_ms"] = report.points[i].samples_ms;
  for (std::size_t i = 0; i < report.points.size(); ++i)
    if (!report.points[i].verdict.empty()) json["points"][i]["verdict"] = report.points[i].verdict;
  json["curves"] = nlohmann::json(report.curves);
  json["complete"] = report.complete;
  json["notes"] = report.notes;
  // Names come from the user's command line and need not be UTF-8.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RooflineReport roofline_from_json(const std::string& text, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    return InputError(fmt::format(
        "{}: {}: expected what `convlab roofline --format json` writes (convlab_roofline: {})",
        name, why, roofline_format));
  };
  require_json(text, name, "what `convlab roofline --format json` writes");
  const Json json = Json::parse(text);
  if (!json.is_object() || !json.contains("convlab_roofline")) throw refuse("no roofline report");
  if (json["convlab_roofline"] != roofline_format)
    throw refuse(fmt::format("format {}, this program reads {}", json["convlab_roofline"].dump(),
                             roofline_format));
  try {
    RooflineReport report;
    for (const auto& field : json.at("provenance").items())
      report.provenance.emplace_back(field.key(), field.value().get<std::string>());
    json.at("bytes").get_to(report.bytes);
    nlohmann::json(json.at("roofs")).get_to(report.roofs);
    nlohmann::json(json.at("points")).get_to(report.points);
    for (std::size_t i = 0; i < report.points.size(); ++i) {
      report.points[i].samples_ms = json["points"][i].value("samples_ms", std::vector<double>());
      report.points[i].verdict = json["points"][i].value("verdict", "");
    }
    nlohmann::json(json.at("curves")).get_to(report.curves);
    report.complete = json.value("complete", true);
    json.at("notes").get_to(report.notes);
    return report;
  } catch (const Json::exception& error) {
    throw refuse(without_json_tag(error.what()));
  }
}

}  // namespace convlab
