// The caller's limits on error and workspace, where nothing was run under them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autotune/result.h"

namespace convlab {

// Throws InputError for an error that is negative or NaN and for negative bytes.
void validate_limits(std::optional<double> max_error, std::optional<std::int64_t> workspace_max);

// The largest error that was ever measured for an algorithm, by what of its config changes the
// arithmetic (the tile, the math type; block sizes do not).
class KnownErrors {
 public:
  void note(const Candidate&);  // says nothing unless it was run
  // Those that are only predicted become inaccurate where their error elsewhere is above the limit.
  void apply(std::vector<Candidate>&, double max_error) const;

 private:
  std::map<std::string, double> worst_;
};

// Why none of these works, and the smallest limit that would admit one.
std::string why_none(const std::vector<Candidate>&, double max_error,
                     std::optional<std::int64_t> workspace_max);

}  // namespace convlab
