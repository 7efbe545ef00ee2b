// Charts through gnuplot, which is looked for when a chart is wanted: without it there is none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace convlab {

// What gnuplot writes to its standard output for this script: text under `set terminal dumb`, SVG
// under `set terminal svg`. The user's own gnuplot settings are left out. nullopt where gnuplot is
// not installed; `no_gnuplot` says what to do then. Throws EnvironmentError with gnuplot's message
// when the script fails.
std::optional<std::string> gnuplot(const std::string& script);

inline constexpr const char* no_gnuplot =
    "gnuplot is not installed: `apt-get install gnuplot-nox` brings charts";

enum class ChartKind { text, picture };

// Sets the title and the y axis' label. In a terminal both stand above the axis, from the left:
// gnuplot draws no such label there, and no title that is wider than the plot.
std::string chart_titles(std::string_view title, std::string_view y_axis, ChartKind);

// 'text', as a script takes it whatever it contains.
std::string gnuplot_quoted(std::string_view text);

}  // namespace convlab
