// Events of Chrome's trace format, which ui.perfetto.dev opens. Rows are threads of processes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "autotune/result.h"

namespace convlab::trace {

using Json = nlohmann::ordered_json;

struct Row {
  int process = 1, thread = 0;
};

inline double microseconds(double seconds) { return 1e6 * seconds; }

// `what`: "process_name" or "thread_name".
inline Json name_event(const char* what, Row row, const std::string& name) {
  return {{"ph", "M"},
          {"pid", row.process},
          {"tid", row.thread},
          {"name", what},
          {"args", {{"name", name}}}};
}

inline Json slice(Row row, const std::string& name, const std::string& category, double begin_s,
                  double end_s, Json args) {
  return {{"ph", "X"},
          {"pid", row.process},
          {"tid", row.thread},
          {"name", name},
          {"cat", category},
          {"ts", microseconds(begin_s)},
          {"dur", microseconds(end_s - begin_s)},
          {"args", std::move(args)}};
}

inline std::string render(Json events, const Provenance& provenance) {
  Json fields = Json::object();
  for (const auto& [name, value] : provenance.fields) fields[name] = value;
  const Json trace{{"displayTimeUnit", "ms"},
                   {"otherData", std::move(fields)},
                   {"traceEvents", std::move(events)}};
  return trace.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace convlab::trace
