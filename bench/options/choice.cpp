#include "bench/options/choice.h"

#include <fmt/format.h>

namespace convlab {

std::string show_layout(const Candidate& c, Layout layout) {
  return std::string(c.has_layouts ? to_string(layout) : "");
}

std::string show_layouts(const Candidate& c) {
  if (!c.has_layouts) return "";
  std::string text(to_string(c.x_layout));
  if (c.y_layout != c.x_layout) text += fmt::format(">{}", to_string(c.y_layout));
  return text;
}

std::string show_choice(const Candidate& c) {
  std::string text = c.algo;
  for (const std::string& part : {c.config.text(), show_layouts(c)})
    if (!part.empty()) text += " " + part;
  return text;
}

bool stands_for(const std::string& name, const std::string& algo) {
  return algo == name || algo.starts_with(name + ".");
}

}  // namespace convlab
