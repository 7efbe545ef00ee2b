// An algorithm's colour and mark, the same in every chart: bench/reports/algo_marks.json has the
// table, for the page's script and for bench/studies too.
#pragma once

#include <string>
#include <string_view>

#include "bench/reports/gnuplot.h"

namespace convlab {

// Embedded by CMake. The CPU's algorithms differ in mark, and in colour unless they are of one
// family. cuDNN's reuse the same nine colours with open marks. Every colour has a contrast of at
// least 3 against the page's light and dark backgrounds. The nine keep a CIEDE2000 distance of at
// least 10 in normal and in colour-blind vision. No chart has both
// kinds of problems: recurrent layers' algorithms reuse colours and marks of convolutions'.
// Algorithms missing from the table are grey.
extern const std::string algo_marks_json;

// The clauses of gnuplot's `plot` that draw this algorithm's points. In a terminal the mark is a
// letter, and any lines are dotted.
std::string algo_mark(std::string_view algo, ChartKind);

}  // namespace convlab
