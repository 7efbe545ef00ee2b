#include "autotune/candidates.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/refusals.h"

namespace convlab {
namespace {

bool is_named(const std::vector<std::string>& names, const AlgoInfo& info) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return convlab::is_named(info, name); });
}

}  // namespace

std::vector<Layouts> layout_pairs(const ConvProblem& problem, std::optional<Layout> layout,
                                  const DeviceInfo& device) {
  std::vector<Layouts> pairs;
  if (layout) {
    pairs = {{*layout, *layout}};
  } else {
    pairs = {{Layout::nchw, Layout::nchw}, {Layout::nhwc, Layout::nhwc}};
    const Layout blocked = blocked_layout(device);
    if (device.kind == DeviceKind::cpu) pairs.emplace_back(blocked, blocked);
  }
  if (is_blocked(pairs.back().first) && problem.c < channel_block(pairs.back().first))
    pairs.emplace_back(Layout::nchw, pairs.back().second);
  return pairs;
}

std::vector<const ConvAlgo*> admitted_algos(const AlgoRegistry& registry, DeviceKind kind,
                                            const std::vector<std::string>& algos,
                                            const std::vector<std::string>& exclude) {
  std::vector<AlgoRef> all;
  for (const ConvAlgo* algo : registry.for_device(kind)) all.emplace_back(*algo);
  std::vector<const ConvAlgo*> admitted;
  for (const AlgoRef& algo : admitted_algos(all, algos, exclude)) admitted.push_back(algo.conv());
  return admitted;
}

std::vector<AlgoRef> admitted_algos(const std::vector<AlgoRef>& known,
                                    const std::vector<std::string>& algos,
                                    const std::vector<std::string>& exclude) {
  for (const std::vector<std::string>* names : {&algos, &exclude})
    for (const std::string& name : *names) {
      const auto matches = [&](const AlgoRef& a) { return convlab::is_named(a.info(), name); };
      if (name == "vendor" || std::any_of(known.begin(), known.end(), matches)) continue;
      std::vector<const AlgoInfo*> infos;
      for (const AlgoRef& a : known) infos.push_back(&a.info());
      refuse_unknown_algo(name, infos, true);
    }
  std::vector<AlgoRef> admitted;
  for (const AlgoRef& algo : known)
    if ((algos.empty() || is_named(algos, algo.info())) && !is_named(exclude, algo.info()))
      admitted.push_back(algo);
  return admitted;
}

Candidate new_candidate(const AlgoRef& algo, const Problem& problem, CacheMode cache,
                        const DeviceInfo& device) {
  Candidate c;
  c.algo = algo.info().id;
  c.version = algo.info().version;
  c.has_layouts = problem.has_layouts();
  if (const ConvProblem* const p = problem.conv()) {
    c.x_layout = p->x_layout;
    c.y_layout = p->y_layout;
  }
  c.threads = device.threads;
  c.cache = cache;
  return c;
}

Candidate predicted_candidate(const AlgoRef& algo, const Problem& problem, Config config,
                              CacheMode cache, Device& device, const Ceilings& ceilings) {
  Candidate c = new_candidate(algo, problem, cache, device.info());
  c.config = std::move(config);
  c.deterministic = algo.deterministic(problem, c.config);
  c.predicted = true;
  const auto predict = [&](const WorkEstimate& work) {
    return predict_ms(work, problem, cache, device.info(), ceilings);
  };
  const WorkEstimate work = algo.work(problem, c.config, device);
  c.ms = predict(work);
  if (work.pack.bytes_written > 0) c.pack_ms = predict({.phases = {work.pack}});
  return c;
}

Problem as_run(const Problem& problem, const Candidate& c) {
  return problem.with_layouts({c.x_layout, c.y_layout});
}

void set_rates(Candidate& c, const Problem& problem, const AlgoRef& algo, Device& device) {
  if (c.ms <= 0) return;
  c.eff_gflops = problem.flops() / c.ms / 1e6;
  c.exec_gflops = algo.work(problem, c.config, device).flops() / c.ms / 1e6;
}

bool apply_limits(Candidate& row, double max_error, std::optional<std::int64_t> workspace_max) {
  if (row.status == Status::refused) return false;
  if (row.status == Status::inaccurate) return row.rel_error > max_error;
  if (row.status != Status::ok && row.status != Status::dropped) return true;
  if (!row.predicted && row.rel_error > max_error) {
    row.status = Status::inaccurate;
    row.reason =
        fmt::format("rel_error {:.2e} is above the limit {:.2e}", row.rel_error, max_error);
  } else if (workspace_max && row.workspace_bytes > *workspace_max) {
    row.status = Status::refused;
    row.reason = fmt::format("needs {} bytes of workspace, the limit is {}", row.workspace_bytes,
                             *workspace_max);
  }
  return true;
}

}  // namespace convlab
