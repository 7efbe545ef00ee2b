#include "bench/reports/algo_marks.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace convlab {
namespace {

const nlohmann::json& table() {
  static const nlohmann::json parsed = nlohmann::json::parse(algo_marks_json);
  return parsed;
}

const nlohmann::json& row(std::string_view algo) {
  for (const char* kind : {"algos", "recurrent"})
    if (const auto found = table()[kind].find(std::string(algo)); found != table()[kind].end())
      return *found;
  return table()["unlisted"];
}

}  // namespace

std::string algo_mark(std::string_view algo, ChartKind kind) {
  const nlohmann::json& mark = row(algo);
  if (kind == ChartKind::text)
    return fmt::format("lt 0 pt {}", gnuplot_quoted(mark["letter"].get<std::string>()));
  return fmt::format("lc rgb {} pt {}", gnuplot_quoted(mark["colour"].get<std::string>()),
                     table()["marks"][mark["mark"].get<std::string>()]["gnuplot"].get<int>());
}

}  // namespace convlab
