// The learning rate schedule: a factor on its highest value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convlab::nets {

// Loshchilov & Hutter 2017 (arXiv:1608.03983) for cosine, without restarts; Goyal et al. 2017
// (arXiv:1706.02677) for the linear warm-up. Numbers are epochs, and may have fractions.
struct Schedule {
  enum class Kind : std::uint8_t { constant, cosine, step } kind = Kind::constant;
  std::vector<double> milestones{};  // of step: where the rate is multiplied by `factor`
  double factor = 0.1;
  double warmup = 0;  // rises to the highest rate until here; then follows the schedule

  // The factor at this iteration (from 0, over all epochs) among `iterations`.
  double at(std::int64_t iteration, std::int64_t iterations_per_epoch,
            std::int64_t iterations) const;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// "constant", "cosine", "step:30,60"; then, optionally, ",factor=0.2" (of step) and ",warmup=5".
// Parsing throws InputError for anything else.
Schedule parse_schedule(const std::string&);
std::string to_string(const Schedule&);

}  // namespace convlab::nets
