// Charts through gnuplot, which is looked up when a chart is wanted. Without it there is no chart.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace convlab {

// The standard output of gnuplot for this script: text under `set terminal dumb`, SVG under `set
// terminal svg`. The user's own gnuplot settings are ignored. nullopt if gnuplot is not installed;
// `no_gnuplot` then says what to do. Throws EnvironmentError with gnuplot's message when the script
// fails.
std::optional<std::string> gnuplot(const std::string& script);

inline constexpr const char* no_gnuplot =
    "gnuplot is not installed: `apt-get install gnuplot-nox` brings charts";

// The chart of a script for `set terminal dumb` and an empty line, or a line that says what to
// install.
std::string text_chart(const std::string& script);

enum class ChartKind { text, picture };

// Sets the title and the y axis' label. A terminal shows both above the axis, left-aligned:
// gnuplot's dumb terminal draws no such label there, and no title wider than the plot.
std::string chart_titles(std::string_view title, std::string_view y_axis, ChartKind);

// 'text' quoted for a gnuplot script, whatever it contains.
std::string gnuplot_quoted(std::string_view text);

}  // namespace convlab
