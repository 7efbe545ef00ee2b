#include "bench/options/choice.h"

#include <fmt/format.h>

namespace convlab {

std::string show_layouts(const Candidate& c) {
  std::string text(to_string(c.x_layout));
  if (c.y_layout != c.x_layout) text += fmt::format(">{}", to_string(c.y_layout));
  return text;
}

std::string show_choice(const Candidate& c) {
  return fmt::format("{} {}{}{}", c.algo, c.config.text(), c.config.values().empty() ? "" : " ",
                     show_layouts(c));
}

bool stands_for(const std::string& name, const std::string& algo) {
  return algo == name || algo.starts_with(name + ".");
}

}  // namespace convlab
