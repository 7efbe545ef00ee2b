#include "autotune/measure/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "autotune/measure/disturbance.h"
#include "conv/error.h"
#include "conv/optional/ceiling_loops.h"

namespace convlab {
namespace {

// The best work rate (which defines a ceiling), the spread of the samples, and whether other
// programs disturbed nearly all of them.
struct Best {
  double per_second = 0, noise = 0;
  bool disturbed = false;
};

constexpr double sampling_s = 0.05;

void end_if_stopped(const std::atomic<bool>* stop, const DeviceInfo& device) {
  if (stop && *stop)
    throw CeilingsInterrupted(
        fmt::format("stopped while roofs were measured: those of {} are not kept", device.isa));
}

// Takes `total_s` of undisturbed samples. On a busy machine it tries for up to four times as long;
// if there are too few even then, all samples count.
template <class Run>
Best best_of(double work, double total_s, const DeviceInfo& device, const Run& seconds_of_one) {
  constexpr std::size_t least = 5, most = 200;
  constexpr double patience = 4;
  seconds_of_one();
  DisturbanceMeter meter(device);
  std::vector<double> calm, all;
  double calm_s = 0, all_s = 0;
  while (calm.size() < least || (calm_s < total_s && calm.size() < most)) {
    if (all.size() >= least && all_s > patience * total_s) break;
    meter.start();
    const double seconds = seconds_of_one();
    const double lost = meter.stop();
    all.push_back(seconds), all_s += seconds;
    if (lost > most_lost) continue;
    calm.push_back(seconds), calm_s += seconds;
  }
  const bool disturbed = calm.size() < least;
  const std::vector<double>& seconds = disturbed ? all : calm;
  return {work / *std::min_element(seconds.begin(), seconds.end()),
          median_abs_deviation(seconds) / median(seconds), disturbed};
}

// The device restricted to the team: only its threads' disturbances count.
DeviceInfo team_of(DeviceInfo device, int threads) {
  device.threads = threads;
  return device;
}

std::vector<CeilingLoop> loops_of(Device& device, int threads) {
  auto* const its = dynamic_cast<CeilingDevice*>(&device);
  return its ? its->ceiling_loops(threads) : std::vector<CeilingLoop>{};
}

// Predictions divide by both.
void require_peaks(double f32_flops, double bandwidth, const DeviceInfo& device) {
  if (f32_flops > 0 && bandwidth > 0) return;
  throw Error(fmt::format("no ceilings for '{}': expected {}", device.name,
                          device.kind == DeviceKind::cuda
                              ? "peak_f32_flops and peak_bandwidth in its DeviceInfo"
                              : "a CeilingDevice with f32 loops in registers and memory reads"));
}

Roof measure_loop(const CeilingLoop& loop, Device& device, int threads, Stream& stream) {
  // An idle card first has to raise its clocks.
  const double total_s = device.info().kind == DeviceKind::cuda ? 4 * sampling_s : sampling_s;
  double work = 0;
  const Best runs = best_of(1, total_s, team_of(device.info(), threads),
                            [&] { return stream.time([&] { work = loop.enqueue(stream); }, 1); });
  return {loop.level, loop.what, threads,       true, work * runs.per_second,
          runs.noise, "",        runs.disturbed};
}

}  // namespace

Ceilings measure_ceilings(Device& device, const std::atomic<bool>* stop) {
  const DeviceInfo& info = device.info();
  Ceilings c;
  c.threads = info.threads;
  if (info.kind == DeviceKind::cuda) {
    require_peaks(info.peak_f32_flops, info.peak_bandwidth, info);
    c.measured = false;
    c.set_flops(DType::f32, info.peak_f32_flops);
    c.set_flops(DType::f64, info.peak_f64_flops);
    c.l2_bandwidth = c.l3_bandwidth = c.memory_bandwidth = info.peak_bandwidth;
    return c;
  }
  const std::unique_ptr<Stream> stream = device.make_stream();
  for (CeilingLoop& loop : loops_of(device, info.threads)) {
    const auto measured = [&] {
      end_if_stopped(stop, info);
      return measure_loop(loop, device, info.threads, *stream).per_second;
    };
    if (loop.level == "registers") {
      for (const DType dtype : all_dtypes)
        if (loop.what == to_string(dtype)) c.set_flops(dtype, measured());
      if (loop.what == bf16_tiles) c.tile_flops = measured();
    } else if (loop.what == "read") {
      if (loop.level == "L2") c.l2_bandwidth = measured();
      if (loop.level == "L3") c.l3_bandwidth = measured();
      if (loop.level == "memory") c.memory_bandwidth = measured();
    }
    loop.enqueue = nullptr;  // and its operands
  }
  end_if_stopped(stop, info);
  require_peaks(c.flops(DType::f32), c.memory_bandwidth, info);
  if (c.l3_bandwidth == 0) c.l3_bandwidth = c.memory_bandwidth;
  if (c.l2_bandwidth == 0) c.l2_bandwidth = c.l3_bandwidth;
  return c;
}

std::vector<Roof> measure_copies(Device& device, std::int64_t cached_bytes,
                                 std::int64_t uncached_bytes, const std::atomic<bool>* stop) {
  std::vector<Roof> roofs;
  const std::unique_ptr<Stream> stream = device.make_stream();
  const auto add = [&](const char* level, const char* what, double bytes, int runs,
                       const std::function<void()>& enqueue) {
    end_if_stopped(stop, device.info());
    const Best best =
        best_of(bytes, sampling_s, device.info(), [&] { return stream->time(enqueue, runs); });
    roofs.push_back({level, what, device.info().threads, true, best.per_second, best.noise, "",
                     best.disturbed});
  };
  const auto copy_on_device = [&](const char* level, std::int64_t bytes, int runs) {
    const TensorDesc desc{1, 1, std::max<std::int64_t>(bytes / 8 / 1024, 1), 1024, Layout::nchw};
    const std::size_t half = std::size_t(desc.elements()) * sizeof(float);
    const Buffer from = device.allocate(half), to = device.allocate(half);
    device.copy_to_device(from.data(), std::vector<std::byte>(half), *stream);
    stream->synchronize();
    add(level, "copy", 2.0 * double(half), runs, [&] {
      device.ops().convert_layout(DType::f32, desc, from.data(), desc, to.data(), *stream);
    });
  };
  copy_on_device("L2", cached_bytes, 32);
  copy_on_device("memory", uncached_bytes, 1);

  const auto bytes = std::size_t(std::min<std::int64_t>(uncached_bytes, 64 << 20));
  const Buffer there = device.allocate(bytes), pinned = device.allocate_pinned(bytes);
  std::vector<std::byte> pageable(bytes);
  std::fill_n(pinned.data(), bytes, std::byte{1});
  const std::pair<const char*, Span> hosts[] = {{"pinned", pinned.span()}, {"pageable", pageable}};
  for (const auto& host : hosts) {
    add(host.first, "to device", double(bytes), 1,
        [&] { device.copy_to_device(there.data(), host.second, *stream); });
    stream->synchronize();
    end_if_stopped(stop, device.info());
    // Complete on return, so the host's clock is used.
    const Best best = best_of(double(bytes), sampling_s, device.info(), [&] {
      return time_runs([&] { device.copy_to_host(host.second, there.data(), *stream); }, 1);
    });
    roofs.push_back({host.first, "to host", device.info().threads, true, best.per_second,
                     best.noise, "", best.disturbed});
  }
  return roofs;
}

std::vector<Roof> measure_loops(Device& device, int threads, const std::atomic<bool>* stop) {
  const DeviceInfo& info = device.info();
  std::vector<CeilingLoop> loops = loops_of(device, threads);
  if (loops.empty()) {
    require_peaks(info.peak_f32_flops, info.peak_bandwidth, info);
    return {{"registers", "f32", info.threads, false, info.peak_f32_flops, 0, ""},
            {"registers", "f64", info.threads, false, info.peak_f64_flops, 0, ""},
            {"memory", "read", info.threads, false, info.peak_bandwidth, 0, ""}};
  }
  std::vector<Roof> roofs;
  const std::unique_ptr<Stream> stream = device.make_stream();
  for (CeilingLoop& loop : loops) {
    end_if_stopped(stop, info);
    roofs.push_back(measure_loop(loop, device, threads, *stream));
    loop.enqueue = nullptr;  // and its operands
  }
  end_if_stopped(stop, info);
  return roofs;
}

std::vector<Roof> measure_roofs(Device& device, const std::atomic<bool>* stop) {
  const DeviceInfo& info = device.info();
  if (info.kind == DeviceKind::cuda) {
    std::vector<Roof> roofs = measure_loops(device, info.threads, stop);
    for (Roof& roof : measure_copies(device, info.l2_bytes / 4, 512 << 20, stop))
      roofs.push_back(std::move(roof));
    end_if_stopped(stop, device.info());
    return roofs;
  }
  std::vector<Roof> roofs;
  for (int threads = 1;; threads = std::min(2 * threads, info.threads)) {
    for (Roof& roof : measure_loops(device, threads, stop)) roofs.push_back(std::move(roof));
    if (threads == info.threads) return roofs;
  }
}

double peak_of(const std::vector<Roof>& roofs, int threads, std::string_view dtype) {
  for (const Roof& roof : roofs)
    if (roof.threads == threads && roof.level == "registers" && roof.what == dtype)
      return roof.per_second;
  return 0;
}

double bandwidth_of(const std::vector<Roof>& roofs, int threads, std::string_view level) {
  double best = 0;
  for (const Roof& roof : roofs)
    if (roof.threads == threads && roof.level == level) best = std::max(best, roof.per_second);
  return best;
}

const Ceilings& ceilings_of(Device& device, const std::atomic<bool>* stop) {
  static std::mutex mutex;
  static std::map<std::tuple<DeviceKind, int, std::string, int>, Ceilings> known;
  const std::lock_guard lock(mutex);
  const DeviceInfo& info = device.info();
  const std::tuple key(info.kind, info.index, info.isa, info.threads);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, measure_ceilings(device, stop)).first->second;
}

NoiseFloor measure_noise_floor(Device& device) {
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::vector<CeilingLoop> loops = loops_of(device, device.info().threads);
  if (loops.empty()) throw Error("no noise floor: the device offers nothing to time");
  return measure_noise_floor([&] { loops.front().enqueue(*stream); });
}

double predict_ms(const WorkEstimate& work, const Problem& problem, CacheMode cache,
                  const DeviceInfo& device, const Ceilings& ceilings) {
  const auto of_conv = [](const ConvProblem& p) {
    return p.x_bytes() + p.y_bytes() + p.filter_bytes();
  };
  const std::int64_t reread =
      problem.conv() ? of_conv(*problem.conv()) : problem.recurrent()->step_bytes();
  return predict_ms(work, problem.dtype(), double(reread), cache, device, ceilings);
}

double predict_ms(const WorkEstimate& work, DType dtype, double tensor_bytes, CacheMode cache,
                  const DeviceInfo& device, const Ceilings& ceilings) {
  constexpr double loop_start_s = 3e-6;
  const bool in_l3 = cache == CacheMode::hot && tensor_bytes < double(device.l3_bytes) / 2;
  const double bandwidth = in_l3 ? ceilings.l3_bandwidth : ceilings.memory_bandwidth;
  double seconds = 0;
  for (const PhaseWork& phase : work.phases) {
    const double compute = phase.flops / (ceilings.flops(dtype) * phase.efficiency);
    const double move = (phase.bytes_read + phase.bytes_written) / bandwidth;
    seconds += std::max(compute, phase.flops > 0 ? move : move / phase.efficiency) + loop_start_s +
               phase.waits_s;
  }
  return 1e3 * seconds;
}

}  // namespace convlab
