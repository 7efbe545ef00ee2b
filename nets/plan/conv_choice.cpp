#include "nets/plan/conv_choice.h"

#include <algorithm>
#include <new>

#include "autotune/race/decide.h"
#include "autotune/race/runner.h"
#include "autotune/tuner.h"
#include "conv/error.h"
#include "conv/types/expected_error.h"
#include "conv/types/math_type.h"
#include "nets/plan/stored_times.h"
#include "nets/run/arena.h"
#include "nets/run/batched_conv.h"
#include "nets/run/half_values.h"

namespace convlab::nets {
namespace {

// The tuning store has rows of plain convolutions: the epilogue costs little.
ConvProblem plain(ConvProblem problem) {
  problem.epilogue = {};
  problem.accumulate = false;
  return with_layouts(problem, {Layout::nchw, Layout::nchw});
}

// A pass over part of the batch; backward_filter adds to its output, except in the first part.
ConvProblem part_of(ConvProblem problem, std::int64_t images) {
  problem.n = images;
  problem.accumulate = problem.pass == Pass::backward_filter;
  return problem;
}

// The parts, largest first, that split a batch evenly into halves, quarters, ... where possible.
std::vector<ConvProblem> parts_of(const ConvProblem& problem, DeviceKind kind) {
  std::vector<ConvProblem> parts;
  if (!may_be_in_parts(problem)) return parts;
  for (std::int64_t most = problem.n / 2; most >= 1; most /= 2) {
    std::int64_t images = most;
    while (problem.n % images != 0) --images;
    if (!parts.empty() && images >= parts.back().n) continue;
    const ConvProblem part = part_of(problem, images);
    if (kind == DeviceKind::cpu || keeps_alignment(part)) parts.push_back(part);
  }
  return parts;
}

}  // namespace

ConvChoices::ConvChoices(const ChooseOptions& options, const AlgoRegistry& registry, Device& device,
                         const Ceilings& ceilings, const Store* store)
    : options_(options),
      device_(device),
      ceilings_(ceilings),
      store_(store),
      algos_(admitted_algos(registry, device.info().kind, options.algos, options.exclude)) {}

bool ConvChoices::tuned(const ConvProblem& problem) { return known(problem).tuned; }

std::optional<ConvChoice> ConvChoices::best(const ConvProblem& problem, Layouts layouts,
                                            const MemoryTerms& terms, bool guess) {
  Known& all = known(problem);
  std::vector<Option*> order;
  for (Option& option : all.options)
    if (Layouts{option.candidate.x_layout, option.candidate.y_layout} == layouts &&
        (guess || !all.tuned || !option.candidate.predicted))
      order.push_back(&option);
  std::stable_sort(order.begin(), order.end(), [&](const Option* a, const Option* b) {
    return cost(*a, problem.pass) < cost(*b, problem.pass);
  });
  std::optional<ConvChoice> best;
  for (Option* option : order) {
    if (best && cost(*option, problem.pass) >= best->cost) break;
    std::optional<ConvChoice> found = choice(problem, *option, terms);
    if (!found) found = in_parts(problem, *option, terms);
    if (found && (!best || found->cost < best->cost)) best = std::move(found);
  }
  return best;
}

std::optional<std::int64_t> ConvChoices::least_workspace(const ConvProblem& problem,
                                                         Layouts layouts) {
  std::int64_t least = unbounded_bytes;
  const auto consider = [&](const ConvProblem& p, Option& option) {
    find_bytes(p, option);
    if (*option.workspace == unbounded_bytes) return;
    const std::int64_t filter = must_pack(p.pass)
                                    ? std::int64_t(padded(std::size_t(*option.packed)))
                                    : std::max<std::int64_t>(0, *option.packed - p.filter_bytes());
    least = std::min(least, *option.workspace + filter);
  };
  const std::vector<ConvProblem> parts = parts_of(problem, device_.info().kind);
  for (Option& option : known(problem).options) {
    if (Layouts{option.candidate.x_layout, option.candidate.y_layout} != layouts) continue;
    consider(problem, option);
    if (parts.empty()) continue;
    if (Option* part = twin(known(parts.back()), option)) consider(parts.back(), *part);
  }
  if (least == unbounded_bytes) return {};
  return least;
}

std::optional<double> ConvChoices::least_ms(const ConvProblem& problem, std::string_view algo) {
  const Known& all = known(problem);
  std::optional<double> least;
  for (const Option& option : all.options) {
    const Candidate& c = option.candidate;
    if (c.algo != algo || math_type(c.config) != MathType::f32 || (all.tuned && c.predicted) ||
        Layouts{c.x_layout, c.y_layout} != Layouts{problem.x_layout, problem.y_layout})
      continue;
    const double ms = cost(option, problem.pass);
    least = std::min(least.value_or(ms), ms);
  }
  return least;
}

ConvChoices::Known& ConvChoices::known(const ConvProblem& asked) {
  const ConvProblem problem = with_layouts(asked, {Layout::nchw, Layout::nchw});
  for (Known& k : known_)
    if (k.problem == problem) return k;
  Known& k = known_.emplace_back();
  k.problem = problem;
  enumerate(k);
  if (store_) recall(k);
  return k;
}

// An activation that the algorithm refuses is left to the step (nets/run/op_conv.cpp).
ConvProblem ConvChoices::taken(const ConvAlgo& algo, ConvProblem problem) const {
  if (problem.epilogue.activation && algo.refuse(problem, device_))
    problem.epilogue.activation.reset();
  return problem;
}

void ConvChoices::enumerate(Known& k) const {
  const double max_error = options_.max_error.value_or(default_max_error(k.problem.dtype));
  for (const ConvAlgo* algo : algos_)
    for (const Layouts& layouts : layout_pairs(k.problem, options_.layout, device_.info())) {
      const ConvProblem problem = taken(*algo, with_layouts(k.problem, layouts));
      // The first part of a batch overwrites its output; the others add to it.
      ConvProblem first = problem;
      first.accumulate = false;
      if (algo->refuse(problem, device_) || algo->refuse(first, device_)) continue;
      for (Config& config : algo->configs(problem, device_)) {
        if (!admits(options_.maths, problem.dtype, config)) continue;
        if (options_.deterministic && !algo->deterministic(problem, config)) continue;
        if (expected_error(config) > max_error) continue;
        Candidate c = predicted_candidate(*algo, problem, std::move(config), options_.cache,
                                          device_, ceilings_);
        const double ms = c.ms;
        k.options.push_back({algo, std::move(c), ms, {}, {}});
      }
    }
}

// Removes candidates that failed or are too inaccurate; measured ones have a known time.
void ConvChoices::recall(Known& k) const {
  std::vector<AlgoRef> algos;
  for (const ConvAlgo* algo : algos_) algos.emplace_back(*algo);
  const StoredTimes stored(*store_, plain(k.problem), algos, options_, must_pack(k.problem.pass),
                           device_.info());
  std::erase_if(k.options, [&](Option& option) {
    if (!stored.recall(option.candidate)) return true;
    k.tuned |= stored.decided() && !option.candidate.predicted;
    return false;
  });
}

// In training weights change, so each step packs them again.
bool ConvChoices::must_pack(Pass pass) const {
  return options_.mode == Mode::training && pass != Pass::backward_filter;
}

double ConvChoices::cost(const Option& option, Pass pass) const {
  return cost_ms(option.candidate, must_pack(pass));
}

// For the actual run, epilogue included; more than any limit if no plan can be made.
void ConvChoices::find_bytes(const ConvProblem& asked, Option& option) {
  if (option.workspace) return;
  ConvProblem problem = taken(
      *option.algo, with_layouts(asked, {option.candidate.x_layout, option.candidate.y_layout}));
  option.workspace = option.packed = 0;
  const auto add = [&] {
    const auto plan = option.algo->plan(problem, option.candidate.config, device_);
    option.workspace = std::max(
        *option.workspace,
        std::int64_t(rounded_weights_bytes(problem, options_.mode) + plan->workspace_bytes()));
    option.packed = std::max(*option.packed, std::int64_t(plan->packed_filter_bytes()));
  };
  try {
    add();
    if (!problem.accumulate) return;
    problem.accumulate = false;
    add();
  } catch (const Error&) {
    option.workspace = unbounded_bytes;
  } catch (const std::bad_alloc&) {
    option.workspace = unbounded_bytes;
  }
}

// Packs the filter permanently or in each run, whichever the terms allow at lower cost.
std::optional<ConvChoice> ConvChoices::choice(const ConvProblem& problem, Option& option,
                                              const MemoryTerms& terms) {
  const Candidate& c = option.candidate;
  ConvChoice kept{{c.algo, c.config, 0, cost(option, problem.pass), !c.predicted}, 0, 0, 0};
  kept.cost = kept.plan.ms;
  if (terms.workspace == unbounded_bytes && terms.ms_per_byte == 0) return kept;
  // The workspace measured without an epilogue is already too large.
  if (!c.predicted && c.workspace_bytes > terms.workspace) return {};
  find_bytes(problem, option);
  if (*option.workspace > terms.workspace) return {};
  kept.workspace = *option.workspace;
  ConvChoice packs = kept;
  packs.workspace = std::int64_t(
      packed_and_workspace(std::size_t(*option.packed), std::size_t(*option.workspace)));
  const bool packs_fits = packs.workspace <= terms.workspace;
  if (must_pack(problem.pass)) return packs_fits ? std::optional(packs) : std::nullopt;
  kept.growth = std::max<std::int64_t>(0, *option.packed - problem.filter_bytes());
  kept.cost += terms.ms_per_byte * double(kept.growth);
  if (kept.growth == 0 || !packs_fits) return kept;
  packs.plan.packs_each_run = true;
  packs.plan.ms = packs.cost = cost_ms(c, true);
  return packs.cost < kept.cost ? packs : kept;
}

ConvChoices::Option* ConvChoices::twin(Known& part, const Option& whole) const {
  const std::string key = candidate_key(whole.candidate);
  for (Option& option : part.options)
    if (candidate_key(option.candidate) == key) return &option;
  return nullptr;
}

// As few parts as fit. If the store knows the whole batch but not the part, the part's prediction
// is scaled by the whole's ratio of measured to predicted time.
std::optional<ConvChoice> ConvChoices::in_parts(const ConvProblem& problem, const Option& whole,
                                                const MemoryTerms& terms) {
  for (const ConvProblem& part : parts_of(problem, device_.info().kind)) {
    Option* const option = twin(known(part), whole);
    if (!option) continue;
    std::optional<ConvChoice> found = choice(part, *option, terms);
    if (!found) continue;
    const double price = found->cost - found->plan.ms;
    const double pack_ms = found->plan.ms - option->candidate.ms;
    const bool measured = !option->candidate.predicted;
    const double correction =
        measured || whole.candidate.predicted ? 1 : whole.candidate.ms / whole.predicted_ms;
    found->plan.images = part.n;
    found->plan.ms = double(problem.n / part.n) * option->candidate.ms * correction + pack_ms;
    found->cost = found->plan.ms + price;
    return found;
  }
  return {};
}

}  // namespace convlab::nets
