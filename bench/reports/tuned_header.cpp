// A tuning table as a C++ header of constexpr choices.
#include <fmt/format.h>

#include "bench/reports/tune_cells.h"
#include "bench/reports/tune_report.h"

namespace convlab {
namespace {

std::string cpp_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal += '\\';
    literal += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return literal + "\"";
}

}  // namespace

std::string render_header(const TuneTable& table) {
  std::string text =
      "// Algorithms as `convlab tune` chose them. Written by convlab; do not edit.\n";
  if (const std::string note = shard_note(table); !note.empty()) text += "// " + note + "\n";
  text += R"(#pragma once

#include <cstdint>
#include <string_view>

namespace convlab_tuned {

struct Fact {
  std::string_view name, value;
};

// Where and how the choices were made.
inline constexpr Fact provenance[] = {
)";
  for (const auto& [name, value] : table.provenance.fields)
    text += fmt::format("    {{{}, {}}},\n", cpp_literal(name), cpp_literal(value));
  text += R"(};

struct Choice {
  std::string_view layer, problem, pass, dtype;  // problem in benchdnn's text form
  // Of a recurrent layer: training (its fwd saves what the backward passes read), recompute or
  // training+recompute. Empty: inference, and every convolution.
  std::string_view epilogue;
  std::string_view algo, config, x_layout, y_layout;
  bool predicted;  // never run: ms is a prediction, and the three below are -1
  double ms;
  double rel_error;
  std::int64_t workspace_bytes, packed_filter_bytes;
};

inline constexpr Choice choices[] = {
)";
  bool any = false;
  for (const LayerResult& layer : table.layers) {
    if (!layer.chosen) continue;
    any = true;
    const Problem& p = layer.layer.problem;
    const Candidate& c = chosen_of(layer);
    text += fmt::format(
        "    {{{}, {}, {}, {}, {},\n     {}, {}, {}, {},\n     {}, {}, {}, {}, {}}},\n",
        cpp_literal(layer.layer.name), cpp_literal(to_text(p)), cpp_literal(to_string(p.pass())),
        cpp_literal(to_string(p.dtype())), cpp_literal(extras_of(p)), cpp_literal(c.algo),
        cpp_literal(c.config.text()), cpp_literal(show_layout(c, c.x_layout)),
        cpp_literal(show_layout(c, c.y_layout)), c.predicted, c.ms, c.predicted ? -1 : c.rel_error,
        c.predicted ? -1 : c.workspace_bytes, c.predicted ? -1 : c.packed_filter_bytes);
  }
  if (!any) text += "    {},  // nothing was chosen\n";
  text += R"(};

// Null when the problem was not tuned.
constexpr const Choice* find(std::string_view problem, std::string_view pass,
                             std::string_view dtype = "f32", std::string_view epilogue = "") {
  for (const Choice& c : choices)
    if (c.problem == problem && c.pass == pass && c.dtype == dtype && c.epilogue == epilogue)
      return &c;
  return nullptr;
}

}  // namespace convlab_tuned
)";
  return text;
}

}  // namespace convlab
