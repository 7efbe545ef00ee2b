// The page: a template, filled with its style, its script, the chart library and the report.
#include <array>
#include <string>
#include <string_view>

#include "bench/reports/algo_marks.h"
#include "bench/reports/roofline/roofline_report.h"
#include "conv/error.h"

namespace convlab {

// Embedded by CMake. The library's strings are empty if it was missing at configure time.
extern const std::string roofline_page_html, chart_licence, chart_js;
extern const std::string roofline_page_css, roofline_page_js;

namespace {

// Escapes text between tags.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) c == '<' ? out += "&lt;" : c == '&' ? out += "&amp;" : out += c;
  return out;
}

// Makes JSON safe in a script element: "<" occurs only in strings, and could end the element.
std::string json_in_html(const std::string& json) {
  std::string out;
  for (const char c : json) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

}  // namespace

void require_chart_library() {
  if (chart_js.empty())
    throw EnvironmentError(
        "--html: this build has no chart library: apt-get install libjs-chart.js, then configure "
        "and build again");
}

std::string roofline_html(const RooflineReport& report) {
  require_chart_library();
  const std::string headline = escaped(roofline_headline(report));
  const std::array<std::pair<std::string_view, std::string>, 8> parts{
      {{"@headline@", headline},
       {"@style@", roofline_page_css},
       {"@headline@", headline},
       {"@licence@", escaped(chart_licence)},
       {"@marks@", json_in_html(algo_marks_json)},
       {"@data@", json_in_html(to_json(report))},
       {"@library@", chart_js},
       {"@script@", roofline_page_js}}};
  std::string page;
  std::string_view rest = roofline_page_html;
  for (const auto& part : parts) {  // in the template's order
    const std::size_t at = rest.find(part.first);
    page += rest.substr(0, at);
    page += part.second;
    rest.remove_prefix(at + part.first.size());
  }
  return page += rest;
}

}  // namespace convlab
