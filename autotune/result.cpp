#include "autotune/result.h"

#include <fmt/format.h>

#include "conv/text/names.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, 2> cache_names{"hot", "cold"};
constexpr std::array<std::string_view, 6> status_names{"ok",         "refused", "failed",
                                                       "inaccurate", "timeout", "dropped"};
constexpr std::array<std::string_view, 6> verdict_names{"NONE", "WIN",    "TIE",
                                                        "ONLY", "UNSURE", "predicted"};

}  // namespace

std::string_view to_string(CacheMode c) { return cache_names[std::size_t(c)]; }
CacheMode parse_cache_mode(std::string_view t) {
  return CacheMode(index_of_name("cache mode", t, cache_names));
}
std::string_view to_string(Status s) { return status_names[std::size_t(s)]; }
Status parse_status(std::string_view t) { return Status(index_of_name("status", t, status_names)); }
std::string_view to_string(Verdict v) { return verdict_names[std::size_t(v)]; }

std::string candidate_key(const Candidate& c) {
  if (!c.has_layouts) return fmt::format("{} {}", c.algo, c.config.text());
  return fmt::format("{} {} {} {}", c.algo, c.config.text(), to_string(c.x_layout),
                     to_string(c.y_layout));
}

}  // namespace convlab
