// A roofline report as tables and charts.
#pragma once

#include <optional>
#include <string>

#include "bench/reports/report.h"
#include "bench/reports/roofline/roofline_data.h"

namespace convlab {

Report roofline_table(const RooflineReport&);
// One row per roof: its level and height, with its ISA.
void add_roofs(Report&, const std::string& isa, const std::vector<Roof>&);

// The report in one line: the algorithm chosen most often, and how much time reaching the roofs
// would save.
std::string roofline_headline(const RooflineReport&);

// Points under the roofs, one panel per pass; nullopt without gnuplot.
std::optional<std::string> roofline_svg(const RooflineReport&);
std::optional<std::string> roofline_chart(const RooflineReport&);  // for a terminal

// One self-contained page. Both functions throw EnvironmentError if the chart library was missing
// at build time.
std::string roofline_html(const RooflineReport&);
void require_chart_library();

}  // namespace convlab
