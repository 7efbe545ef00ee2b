#include "bench/reports/roofline/roofline_data.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "autotune/candidates.h"
#include "autotune/measure/phase_times.h"
#include "autotune/store/store.h"
#include "bench/options/choice.h"
#include "bench/options/tune_options.h"
#include "bench/output.h"
#include "bench/reports/tune_cells.h"
#include "conv/error.h"
#include "conv/text/counted.h"
#include "conv/types/math_type.h"

namespace convlab {
namespace {

// The memory levels that a run's bytes go through: every level up to the one that holds its data.
// The estimate's bytes are those that leave the private caches. Memory traffic is at least every
// tensor once.
using LevelBytes = std::vector<std::pair<std::string, double>>;
LevelBytes level_bytes(const WorkEstimate& work, const ConvProblem& problem, const Candidate& c,
                       const DeviceInfo& device) {
  const double tensors = double(problem.x_bytes() + problem.y_bytes() + problem.filter_bytes());
  const double touched = tensors + double(c.workspace_bytes);
  const bool card = device.kind == DeviceKind::cuda;
  const double private_caches = double(device.l2_bytes) * (card ? 1 : device.threads);
  const bool cold = c.cache == CacheMode::cold;
  LevelBytes bytes{{"L2", work.bytes()}};
  if (!card && (cold || touched > private_caches)) bytes.emplace_back("L3", work.bytes());
  if (cold || touched > double(std::max(device.l2_bytes, device.l3_bytes)))
    bytes.emplace_back("memory", std::min(tensors, work.bytes()));
  return bytes;
}

// Each step reads a recurrent layer's U, of which the levels before this one can keep as much as
// they hold; everything else is moved once. backward_filter is one product over all steps.
LevelBytes level_bytes(const WorkEstimate& work, const RecurrentProblem& problem,
                       const Candidate& c, const DeviceInfo& device) {
  const double steps = problem.pass == Pass::backward_filter ? 0 : double(problem.t - 1);
  const double us = double(problem.layers * problem.directions());
  const double once =
      std::min(Problem(problem).elements() * double(size_of(problem.dtype)), work.bytes());
  const auto beyond = [&](double held) {
    return once + steps * us * std::max(0.0, double(problem.step_bytes()) - held);
  };
  const bool card = device.kind == DeviceKind::cuda, cold = c.cache == CacheMode::cold;
  const double l1 = double(device.l1_bytes) * device.threads;
  const double l2 = double(device.l2_bytes) * (card ? 1 : device.threads);
  const double outermost = std::max(l2, double(device.l3_bytes));
  LevelBytes bytes{{"L2", beyond(l1)}};
  if (!card && (cold || once > l2)) bytes.emplace_back("L3", beyond(l2));
  if (cold || once > outermost) bytes.emplace_back("memory", beyond(outermost));
  return bytes;
}

LevelBytes level_bytes(const WorkEstimate& work, const Problem& problem, const Candidate& c,
                       const DeviceInfo& device) {
  return problem.conv() ? level_bytes(work, *problem.conv(), c, device)
                        : level_bytes(work, *problem.recurrent(), c, device);
}

// A time may lie below the roof's by the spread of both and by changes of the clock frequency.
constexpr double slack = 0.02;

}  // namespace

RooflinePoint roofline_point(const WorkEstimate& work, const Problem& problem, const Candidate& c,
                             const DeviceInfo& device, const std::vector<Roof>& roofs) {
  RooflinePoint p;
  p.problem = to_text(problem);
  p.pass = to_string(problem.pass());
  p.dtype = to_string(problem.dtype());
  p.algo = c.algo;
  p.config = c.config.text();
  p.layouts = show_layouts(c);
  p.cache = to_string(c.cache);
  p.batch = problem.batch();
  p.threads = c.threads;
  p.ms = c.ms;
  p.mad_ms = c.mad_ms;
  p.rel_error = c.rel_error;
  p.workspace_bytes = c.workspace_bytes;
  p.flops = work.flops();
  p.attained_gflops = p.flops / c.ms / 1e6;

  // Tensor cores have no roof here, and f32's does not apply to them.
  const bool tensor_cores = device.kind == DeviceKind::cuda &&
                            (problem.dtype() == DType::f16 || problem.dtype() == DType::bf16 ||
                             math_type(c.config) != MathType::f32);
  // A CPU's matrix unit has one. Other products of 16-bit types are f32's there.
  const bool in_f32 = device.kind == DeviceKind::cpu && size_of(problem.dtype()) == 2;
  const std::string unit = multiplies_bf16(math_type(c.config)) ? std::string(bf16_tiles)
                           : in_f32                             ? std::string(to_string(DType::f32))
                                                                : p.dtype;
  const double peak = tensor_cores ? 0 : peak_of(roofs, c.threads, unit) / 1e9;
  if (peak > 0) {
    p.attainable_gflops = peak;
    p.limit = unit + " peak";
  }
  for (const auto& level : level_bytes(work, problem, c, device)) {
    const double bandwidth = bandwidth_of(roofs, c.threads, level.first) / 1e9;
    if (bandwidth <= 0 || level.second <= 0) continue;
    const double intensity = p.flops / level.second;
    const double under = bandwidth * intensity;
    p.levels.push_back(
        {level.first, level.second, intensity, peak > 0 ? std::min(peak, under) : under});
    if (p.attainable_gflops == 0 || under < p.attainable_gflops) {
      p.attainable_gflops = under;
      p.limit = level.first;
    }
  }
  if (p.attainable_gflops > 0) {
    p.percent_of_roof = 100 * p.attained_gflops / p.attainable_gflops;
    p.headroom_ms = c.ms - p.flops / p.attainable_gflops / 1e6;
  }
  const double allowed = 1 + std::max(slack, 3 * c.mad_ms / c.ms);
  p.status = p.percent_of_roof > 100 * allowed ? "above roof"
             : c.status == Status::dropped     ? "dropped"
                                               : "ok";
  return p;
}

std::vector<RooflinePhase> roofline_phases(const AlgoRef& algo, const Problem& problem,
                                           const Candidate& c, Testbed& testbed, Device& device,
                                           Stream& stream, const std::vector<Roof>& roofs) {
  const WorkEstimate work = algo.work(problem, c.config, device);
  const PhaseTimes times =
      measure_phases(*testbed.plan(algo, c), work.phases.size(), c.cache, device, stream);
  std::vector<RooflinePhase> phases;
  for (std::size_t i = 0; i < work.phases.size(); ++i) {
    const PhaseWork& phase = work.phases[i];
    RooflinePhase& row = phases.emplace_back();
    row.name = phase.name;
    row.ms = times.phase_ms[i];
    row.flops = phase.flops;
    row.bytes = phase.bytes_read + phase.bytes_written;
    if (row.ms <= 0 || (row.flops <= 0 && row.bytes <= 0)) continue;
    // A phase is compared with the roofs of the whole run's levels.
    WorkEstimate alone;
    alone.phases = {phase};
    Candidate its = c;
    its.ms = row.ms;
    if (row.flops > 0) {
      row.percent_of_roof =
          roofline_point(alone, problem, its, device.info(), roofs).percent_of_roof;
      continue;
    }
    double best_ms = 0;
    for (const auto& level : level_bytes(alone, problem, c, device.info()))
      if (const double bandwidth = bandwidth_of(roofs, c.threads, level.first); bandwidth > 0)
        best_ms = std::max(best_ms, 1e3 * level.second / bandwidth);
    row.percent_of_roof = 100 * best_ms / row.ms;
  }
  phases.push_back({"other", times.other_ms, 0, 0, 0});
  return phases;
}

std::vector<RooflinePoint> roofline_points(const LayerResult& layer, const Algos& algos,
                                           Device& device, const std::vector<Roof>& roofs,
                                           bool with_phases) {
  std::vector<RooflinePoint> points;
  std::set<std::string> seen;
  const std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<Testbed> testbed;  // shared by all candidates
  for (std::size_t i = 0; i < layer.candidates.size(); ++i) {
    const Candidate& c = layer.candidates[i];
    if (!was_timed(c) || (i != layer.chosen && seen.contains(c.algo))) continue;
    if (i != layer.chosen && layer.chosen && layer.candidates[*layer.chosen].algo == c.algo)
      continue;
    seen.insert(c.algo);
    const Problem problem = as_run(layer.layer.problem, c);
    const AlgoRef algo = algos.get(problem, device.info().kind, c.algo);
    RooflinePoint point =
        roofline_point(algo.work(problem, c.config, device), problem, c, device.info(), roofs);
    point.layer = show_layer(layer.layer);
    point.problem = layer.layer.text();
    point.pass = to_string(layer.layer.pass());
    point.count = layer.layer.count;
    point.chosen = i == layer.chosen;
    if (point.chosen) {
      point.samples_ms = c.samples_ms;
      point.verdict = to_string(layer.verdict);
    }
    if (with_phases) {
      if (!testbed)
        testbed =
            make_testbed(layer.layer.problem, 1, ReferenceCase::Evaluate::nothing, device, *stream);
      point.phases = roofline_phases(algo, problem, c, *testbed, device, *stream, roofs);
    }
    points.push_back(std::move(point));
  }
  return points;
}

namespace {

// Leaves out roofs of more threads than this device has; a CPU's store may hold such roofs.
std::vector<Roof> stored_roofs(const Store& store, const DeviceInfo& device) {
  std::vector<Roof> roofs = store.roofs(device);
  if (device.kind == DeviceKind::cpu)
    std::erase_if(roofs, [&](const Roof& roof) { return roof.threads > device.threads; });
  return roofs;
}

}  // namespace

std::vector<Roof> find_roofs(Device& device, const std::string& db, bool again) {
  if (!again && Store::exists(db)) {
    const std::vector<Roof> known = stored_roofs(Store(db, Store::Open::existing), device.info());
    const bool for_these_threads = std::any_of(known.begin(), known.end(), [&](const Roof& roof) {
      return roof.threads == device.info().threads;
    });
    if (for_these_threads) return known;
  }
  const std::atomic<bool>& stop = stop_on_interrupt();
  Store store(db);
  Progress().line(fmt::format("measuring the roofs of {}, {}, on {}", device.info().name,
                              device.info().isa, counted(device.info().threads, "thread")));
  warn_of_other_programs(device.info());
  std::vector<Roof> measured = measure_roofs(device, &stop);
  if (const std::string why = why_not_kept(measured); !why.empty()) {
    Progress().line(why);
    return measured;
  }
  try {
    store.record(device.info(), measured);
    measured = stored_roofs(store, device.info());
    Progress().line(fmt::format("the roofs are kept in {}", db));
  } catch (const Error& e) {
    Progress().line(fmt::format("{}: the roofs are not kept", e.what()));
  }
  if (const std::string warning = noise_warning(measured); !warning.empty())
    Progress().line(warning);
  return measured;
}

std::string why_not_kept(const std::vector<Roof>& roofs) {
  const auto disturbed =
      std::count_if(roofs.begin(), roofs.end(), [](const Roof& roof) { return roof.disturbed; });
  if (disturbed == 0) return "";
  return fmt::format(
      "other programs disturbed {} of {} roofs: all {} serve this run, and none is kept", disturbed,
      roofs.size(), roofs.size());
}

std::string noise_warning(const std::vector<Roof>& roofs) {
  double noise = 0;
  for (const Roof& roof : roofs)
    if (roof.level == "registers") noise = std::max(noise, roof.noise);
  std::string sign;
  if (noise >= 0.05) sign = fmt::format("The peaks' samples spread by {:.0f}%", 100 * noise);
  for (const Roof& roof : roofs)
    for (const char* nearer : memory_levels)
      if (const double its = bandwidth_of(roofs, roof.threads, nearer);
          roof.level == "memory" && its > 0 && 1.25 * its < roof.per_second)
        sign = fmt::format("{} looks slower than memory", nearer);
  if (sign.empty()) return "";
  return fmt::format("{}: this machine was busy; `convlab roofline --remeasure` measures again.",
                     sign);
}

std::string counters_obstacle(const DeviceInfo& device) {
  if (device.kind == DeviceKind::cuda) return "the card's counters are not read";
  perf_event_attr event{};
  event.size = sizeof(event);
  event.type = PERF_TYPE_HARDWARE;
  event.config = PERF_COUNT_HW_CACHE_MISSES;
  event.exclude_kernel = 1;
  const long file = syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
  if (file < 0) return fmt::format("perf_event_open for cache misses: {}", std::strerror(errno));
  close(int(file));
  return "cache misses can be counted here, but say nothing of the levels before memory";
}

}  // namespace convlab
