#include "conv/listed_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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
  for (const ConvProblem& variant : {problem, plain, adding}) {
    if (algo.refuse(variant, device)) continue;
    for (const Config& known : algo.configs(variant, device)) {
      if (known == config) return algo.plan(problem, config, device);
      const std::string text = fmt::format("'{}'", known.text());
      if (std::find(listed.begin(), listed.end(), text) == listed.end()) listed.push_back(text);
    }
  }
  throw InputError(fmt::format("{} has no config '{}' for {} here: expected {}", algo.info().id,
                               config.text(), to_text(problem), fmt::join(listed, " or ")));
}

}  // namespace convlab
