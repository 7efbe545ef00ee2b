#include "autotune/enumeration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "autotune/candidates.h"
#include "conv/error.h"
#include "conv/text/bytes.h"
#include "conv/text/names.h"
#include "conv/types/math_type.h"

namespace convlab {
namespace {

// The least memory of any candidate: all tensors once on the device, and in double for the
// reference.
void require_memory(const Problem& problem, const DeviceInfo& device) {
  const double needed =
      problem.elements() * double(sizeof(double) + std::size_t(size_of(problem.dtype())));
  const double there = double(device.memory_bytes);
  if (there > 0 && needed > there)
    throw InputError(fmt::format("{} needs {} of memory, there are {}: use a smaller batch",
                                 to_text(problem), show_bytes(std::int64_t(needed)),
                                 show_bytes(std::int64_t(there))));
}

struct RefusedLayouts {
  Layouts layouts;
  Refusal refusal;
};

// For an algorithm that takes the problem in no layout, picks one reason. If layouts are refused
// for different reasons, it picks the one that is not about the layout, which a right layout would
// not remove.
const RefusedLayouts& best_refusal(const std::vector<RefusedLayouts>& refused) {
  for (const RefusedLayouts& r : refused)
    if (r.refusal.field != Field::layout) return r;
  return refused.front();
}

}  // namespace

std::vector<TuningEntry> entries_of(const std::vector<TuneItem>& items, const DeviceInfo& device) {
  const bool training = std::any_of(items.begin(), items.end(), [](const TuneItem& item) {
    return item.layer.pass() != Pass::forward;
  });
  std::vector<TuningEntry> entries;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const LayerProblem& layer = items[i].layer;
    const Problem problem = layer.problem.with_layouts({Layout::nchw, Layout::nchw});
    validate(problem);
    require_memory(problem, device);
    auto entry = std::find_if(entries.begin(), entries.end(),
                              [&](const TuningEntry& e) { return e.problem == problem; });
    if (entry == entries.end()) {
      entries.emplace_back();
      entry = entries.end() - 1;
      entry->problem = problem;
      entry->count_packing = training && problem.pass() != Pass::backward_filter;
    }
    entry->items.push_back(i);
    if (!(items[i].first_layer && layer.pass() == Pass::backward_data)) entry->count += layer.count;
  }
  return entries;
}

std::vector<Layouts> Enumeration::layouts_of(const Problem& problem) const {
  if (!problem.has_layouts()) return {Layouts{}};
  return layout_pairs(*problem.conv(), options_.layout, device_.info());
}

void Enumeration::fill(TuningEntry& entry, bool quick) const {
  entry.candidates.clear();
  entry.predictions.clear();
  entry.unlisted = false;
  for (const AlgoRef& algo : algos_) {
    if (!algo.is_for(entry.problem)) continue;
    if (quick && algo.is_slow_to_list()) {
      entry.unlisted = true;
      continue;
    }
    std::vector<RefusedLayouts> refused;
    bool taken = false;
    for (const Layouts& layouts : layouts_of(entry.problem)) {
      const Problem problem = entry.problem.with_layouts(layouts);
      if (std::optional<Refusal> refusal = algo.refuse(problem, device_)) {
        refused.push_back({layouts, *std::move(refusal)});
        continue;
      }
      taken = true;
      for (Config& config : algo.configs(problem, device_))
        add(entry, algo, problem, std::move(config));
    }
    if (taken || refused.empty()) continue;
    const auto& [layouts, refusal] = best_refusal(refused);
    Candidate c =
        new_candidate(algo, entry.problem.with_layouts(layouts), options_.cache, device_.info());
    c.status = Status::refused;
    c.reason = refusal.reason();
    entry.candidates.push_back(std::move(c));
  }
}

void Enumeration::add_known(TuningEntry& entry, const AlgoRef& algo,
                            const std::vector<Candidate>& known) const {
  for (const Layouts& layouts : layouts_of(entry.problem))
    for (const Candidate& c : known)
      if (was_timed(c) && Layouts(c.x_layout, c.y_layout) == layouts)
        add(entry, algo, entry.problem.with_layouts(layouts), c.config);
}

void Enumeration::add(TuningEntry& entry, const AlgoRef& algo, const Problem& problem,
                      Config config) const {
  Candidate c;
  const auto leave_out = [&](std::string why) {
    c = new_candidate(algo, problem, options_.cache, device_.info());
    c.config = std::move(config);
    c.status = Status::refused;
    c.reason = std::move(why);
  };
  if (!admits(options_.maths, problem.dtype(), config)) {
    leave_out(fmt::format("forms products by {}: not among those of --math",
                          math_type_names[std::size_t(math_type(config))]));
  } else if (options_.deterministic && !algo.deterministic(problem, config)) {
    leave_out("results may differ from run to run");
  } else {
    c = predicted_candidate(algo, problem, std::move(config), options_.cache, device_, ceilings_);
    WorkEstimate work = algo.work(problem, c.config, device_);
    for (PhaseWork& phase : work.phases) phase.efficiency = std::max(phase.efficiency, 1.0);
    entry.predictions[candidate_key(c)] = {
        c.ms, predict_ms(work, problem, options_.cache, device_.info(), ceilings_)};
    set_rates(c, problem, algo, device_);
  }
  entry.candidates.push_back(std::move(c));
}

bool Enumeration::takes(const AlgoRef& algo, const Problem& problem) const {
  if (!algo.is_for(problem)) return false;
  for (const Layouts& layouts : layouts_of(problem))
    if (!algo.refuse(problem.with_layouts(layouts), device_)) return true;
  return false;
}

bool Enumeration::any_taken(const std::vector<TuningEntry>& entries) {
  for (const TuningEntry& entry : entries)
    for (const Candidate& c : entry.candidates)
      if (c.status != Status::refused) return true;
  return false;
}

void Enumeration::require_taken(const std::vector<TuningEntry>& entries) const {
  if (any_taken(entries)) return;
  std::vector<std::string_view> others;
  for (const DType dtype : all_dtypes) {
    const bool taken = std::any_of(entries.begin(), entries.end(), [&](const TuningEntry& entry) {
      Problem problem = entry.problem;
      problem.set_dtype(dtype);
      return std::any_of(algos_.begin(), algos_.end(),
                         [&](const AlgoRef& algo) { return takes(algo, problem); });
    });
    if (taken && dtype == entries.front().problem.dtype()) return;  // refused for what was asked
    if (taken) others.push_back(to_string(dtype));
  }
  if (others.empty()) return;
  throw InputError(fmt::format(
      "no algorithm takes {} in {} on {}: expected {}", to_text(entries.front().problem),
      to_string(entries.front().problem.dtype()), device_.info().name, fmt::join(others, " or ")));
}

}  // namespace convlab
