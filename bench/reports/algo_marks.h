// An algorithm's colour and mark, the same in every chart: bench/reports/algo_marks.json has the
// table, for the page's script and for bench/studies too.
#pragma once

#include <string>
#include <string_view>

#include "bench/reports/gnuplot.h"

namespace convlab {

// Embedded by CMake. The CPU's algorithms differ in mark, and in colour unless they are of one
// family; cuDNN's have the same nine colours, with open marks. Every colour has a contrast of 3 and
// more against the page's light and dark backgrounds; the nine keep a CIEDE2000 distance of 10 in
// normal and in colour-blind sight. What the table does not list is grey.
extern const std::string algo_marks_json;

// The clauses of gnuplot's `plot` that draw this algorithm's points: in a terminal a letter, and
// lines, where there are any, dotted.
std::string algo_mark(std::string_view algo, ChartKind);

}  // namespace convlab
