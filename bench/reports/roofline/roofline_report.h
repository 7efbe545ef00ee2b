// A roofline report as tables and charts.
#pragma once

#include <optional>
#include <string>

#include "bench/reports/report.h"
#include "bench/reports/roofline/roofline_data.h"

namespace convlab {

Report roofline_table(const RooflineReport&);
// Where and how high: one row a roof, each with its ISA.
void add_roofs(Report&, const std::string& isa, const std::vector<Roof>&);

// What the report shows, in a line: who is chosen most often, and how much time the
// roofs would save.
std::string roofline_headline(const RooflineReport&);

// Points under the roofs, one panel a pass; nothing where gnuplot is missing.
std::optional<std::string> roofline_svg(const RooflineReport&);
std::optional<std::string> roofline_chart(const RooflineReport&);  // for a terminal

// One self-contained page. Both throw EnvironmentError where the chart library was not there at
// build time.
std::string roofline_html(const RooflineReport&);
void require_chart_library();

}  // namespace convlab
