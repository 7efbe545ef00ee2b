// The caller's limits on error and workspace, applied to candidates that did not run under them.
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

// The largest error ever measured for an algorithm, keyed by the part of its config that changes
// the arithmetic (the tile, the math type; not block sizes).
class KnownErrors {
 public:
  void note(const Candidate&);  // no effect unless it was run
  // Marks predicted candidates inaccurate if their error in another run, or where there was none
  // that which their math is expected to make, is above the limit.
  void apply(std::vector<Candidate>&, double max_error) const;

 private:
  std::map<std::string, double> worst_;
};

// Why none of these is usable, and the smallest limit that would admit one.
std::string why_none(const std::vector<Candidate>&, double max_error,
                     std::optional<std::int64_t> workspace_max);

}  // namespace convlab
