#include "conv/listed_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conv/error.h"

namespace convlab {

std::unique_ptr<ConvPlan> plan_listed(const ConvAlgo& algo, const ConvProblem& problem,
                                      const Config& config, Device& device) {
  if (const auto refusal = algo.refuse(problem, device))
    throw InputError(
        fmt::format("{} refuses {}: {}", algo.info().id, to_text(problem), refusal->reason()));
  ConvProblem plain = problem, adding = problem;
  plain.epilogue = adding.epilogue = {};
  plain.accumulate = false;
  adding.accumulate = true;
  std::vector<std::string> listed;
  std::set<std::string> seen;
  for (const ConvProblem& variant : {problem, plain, adding}) {
    if (algo.refuse(variant, device)) continue;
    for (const Config& known : algo.configs(variant, device)) {
      if (known == config) return algo.plan(problem, config, device);
      std::string text = fmt::format("'{}'", known.text());
      if (seen.insert(text).second) listed.push_back(std::move(text));
    }
  }
  throw InputError(fmt::format("{} has no config '{}' for {} here: expected {}", algo.info().id,
                               config.text(), to_text(problem), fmt::join(listed, " or ")));
}

}  // namespace convlab
