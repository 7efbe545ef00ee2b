#include "bench/reports/nets/net_timing.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <random>
#include <string>

#include "autotune/measure/measure.h"
#include "bench/options/tune_options.h"
#include "bench/reports/nets/cpu_counters.h"
#include "bench/reports/report.h"
#include "conv/error.h"
#include "conv/types/arithmetic_type.h"

namespace convlab {

using namespace nets;
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A line of /proc/self/status in bytes: VmRSS is resident now, VmHWM is the peak. 0: unknown.
std::int64_t resident(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::int64_t kib = 0; word == field + ":" && status >> kib) return kib * 1024;
  return 0;
}

// Resets VmHWM to the memory resident now, so that it excludes planning and making the net.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// A batch on the host, made anew for each iteration: N(0,1) images, random labels or targets.
class Batch {
 public:
  Batch(const Graph& graph, DType dtype, Loss loss, std::uint64_t seed, Device& device)
      : dtype_(arithmetic_type(dtype)), loss_(loss), random_(seed) {
    const Shape in = graph.nodes().front().shape, out = graph.nodes().back().shape;
    images_ = device.allocate_pinned(bytes(in));
    if (loss == Loss::cross_entropy) {
      labels_.resize(std::size_t(in.n));
      classes_ = out.c;
    }
    if (loss == Loss::squared_error) targets_ = device.allocate_pinned(bytes(out));
  }

  void make() {
    fill(images_);
    fill(targets_);
    std::uniform_int_distribution<std::int32_t> label(
        0, std::int32_t(std::max<std::int64_t>(classes_, 1) - 1));
    for (std::int32_t& value : labels_) value = label(random_);
  }

  void copy_to(Net& net) const {
    net.set_input(images_.span());
    if (loss_ == Loss::cross_entropy) net.set_labels(labels_);
    if (loss_ == Loss::squared_error) net.set_targets(targets_.span());
  }

 private:
  std::size_t bytes(const Shape& s) const { return std::size_t(s.elements() * size_of(dtype_)); }
  void fill(const Buffer& buffer) {
    const auto draw = [this]<class T>(std::span<T> values) {
      std::normal_distribution<T> normal;
      for (T& value : values) value = normal(random_);
    };
    if (dtype_ == DType::f64)
      draw(std::span(buffer.as<double>(), buffer.bytes() / sizeof(double)));
    else
      draw(std::span(buffer.as<float>(), buffer.bytes() / sizeof(float)));
  }

  DType dtype_;
  Loss loss_;
  std::mt19937_64 random_;
  Buffer images_, targets_;
  std::vector<std::int32_t> labels_;
  std::int64_t classes_ = 0;
};

class Timer {
 public:
  Timer(Batch& batch, const Graph& graph, const NetPlan& plan, const NetAlgos& algos,
        Device& device, const TimingOptions& options, Progress& progress,
        const std::atomic<bool>& stop)
      : options_(options),
        device_(device),
        progress_(progress),
        stop_(stop),
        training_(plan.mode == Mode::training),
        batch_(batch),
        net_(graph, plan, algos, device, timing_net_options(graph, plan.mode)) {
    start(net_);
    for (std::int64_t i = 1; i < options.streams; ++i) {
      beside_.push_back(
          std::make_unique<Net>(graph, plan, algos, device, timing_net_options(graph, plan.mode)));
      start(*beside_.back());
    }
    if (options.communicator && options.exchange && training_) {
      exchange_ =
          std::make_unique<GradientExchange>(net_, *options.communicator, *options.exchange);
      times_.ranks = options.communicator->size();
      times_.bucket_bytes = exchange_->bucket_bytes();
      times_.exchange_note = exchange_->note();
    }
    times_.streams = options.streams;
    times_.steps.resize(net_.steps().size());
  }

  NetTimes run() {
    try {
      measure();
    } catch (const Interrupted&) {
      times_.interrupted = true;
      if (options_.communicator) options_.communicator->abandon("interrupted");
    } catch (const std::exception& error) {
      if (options_.communicator) options_.communicator->abandon(error.what());
      throw;
    }
    times_.memory = net_.memory();
    for (std::size_t i = 0; i < net_.steps().size(); ++i) {
      times_.memory_during.emplace_back();
      for (const Phase phase : all_phases)
        times_.memory_during[i][std::size_t(phase)] = net_.memory_during(i, phase);
    }
    return std::move(times_);
  }

 private:
  static constexpr double seconds = 5;
  static constexpr std::int64_t least_iterations = 3, traced_iterations = 5;

  void start(Net& net) {
    net.initialise(options_.seed);
    if (!training_) net.freeze();
    net.stop_when(&stop_);
  }

  void measure() {
    progress_.bar(0, 1, "warming up");
    reset_peak();
    const Clock::time_point begin = Clock::now();
    iterate();  // touches every page, packs what is packed once
    const double first_s = seconds_since(begin);
    const std::int64_t count = on_all_ranks(
        options_.iterations > 0
            ? options_.iterations
            : std::max(least_iterations, std::int64_t(seconds / 2 / std::max(first_s, 1e-6))));
    progress_.line(fmt::format(
        "the first iteration took {} ms; measuring {} as they are{}", show_ms(1e3 * first_s), count,
        options_.step_by_step ? fmt::format(", then {} step by step", count) : ""));
    if (options_.warmed_up) options_.warmed_up();
    const std::unique_ptr<CpuCounters> counters = open_counters();
    for (std::int64_t i = 0; i < count; ++i) {
      progress_.bar(std::size_t(i), std::size_t(2 * count), "whole iterations");
      times_.iterations.push_back(iterate());
    }
    if (counters)
      for (const double sum : counters->read()) times_.counts.push_back(sum / double(count));
    times_.finite = !training_ || std::isfinite(net_.loss());
    if (options_.step_by_step) observe(count);
    if (options_.counters && device_.info().kind == DeviceKind::cuda)
      log_kernels(std::min(count, traced_iterations));
  }

  std::int64_t on_all_ranks(std::int64_t count) {
    return options_.communicator ? options_.communicator->all_gather(count).front() : count;
  }

  // Recording slows the kernels down, so it comes after all other timing.
  void log_kernels(std::int64_t count) {
    auto* const device = dynamic_cast<ProfiledDevice*>(&device_);
    if (device == nullptr) return;
    net_.observe(nullptr);
    tracing_ = false;
    try {
      device->start_kernel_log();
      for (std::int64_t i = 0; i < count; ++i) {
        progress_.bar(std::size_t(i), std::size_t(count), "kernels");
        iterate();
      }
      times_.kernels = device->finish_kernel_log();
      times_.kernel_iterations = count;
    } catch (const EnvironmentError& error) {
      times_.no_kernels = error.what();
    }
  }

  // Null if there are no counters.
  std::unique_ptr<CpuCounters> open_counters() {
    if (!options_.counters) return nullptr;
    if (device_.info().kind != DeviceKind::cpu) {
      times_.no_counters = "A card's counters are read by ncu, NVIDIA's own profiler.";
      return nullptr;
    }
    try {
      auto counters = std::make_unique<CpuCounters>(CpuCounters::usual(), device_.info().threads);
      for (const CpuCounters::Event& event : counters->events())
        times_.counter_names.push_back(event.name);
      return counters;
    } catch (const EnvironmentError& error) {
      times_.no_counters = error.what();
      return nullptr;
    }
  }

  void observe(std::int64_t count) {
    beside_.clear();
    origin_ = Clock::now();
    net_.observe([this](const Step& step, Phase phase, double begin_s, double end_s) {
      const auto index = std::size_t(&step - net_.steps().data());
      times_.steps[index][std::size_t(phase)].push_back(1e3 * (end_s - begin_s));
      if (tracing_) times_.step_events.push_back({index, phase, begin_s, end_s});
      if (stop_) throw Interrupted{};
    });
    for (std::int64_t i = 0; i < count; ++i) {
      progress_.bar(std::size_t(count + i), std::size_t(2 * count), "step by step");
      tracing_ = i < traced_iterations;
      iterate();
    }
  }

  IterationTime iterate() {
    IterationTime time;
    time.io = part("t_io", [this] { batch_.make(); });
    time.h2d = part("t_h2d", [this] { on_each([this](Net& net) { batch_.copy_to(net); }); });
    time.forward = part("t_f", [this] { on_each([](Net& net) { net.forward(); }); });
    if (!training_) return time;
    time.backward = part("t_b", [this] { on_each([](Net& net) { net.backward(); }); });
    if (exchange_) {
      time.exposed = part("t_comm", [this] { exchange_->finish(); });
      time.communicated = 1e3 * exchange_->communicated_s();
      if (tracing_) trace_exchange();
    }
    time.update =
        part("t_u", [this] { on_each([](Net& net) { net.update(timing_update_rule()); }); });
    return time;
  }

  void trace_exchange() {
    const auto since_origin = [this](Clock::time_point at) {
      return std::chrono::duration<double>(at - origin_).count();
    };
    const std::vector<Parameter>& parameters = net_.parameters();
    for (const BucketExchange& bucket : exchange_->buckets())
      times_.bucket_events.push_back({parameters[bucket.first].name,
                                      parameters[bucket.end - 1].name, bucket.bytes,
                                      since_origin(bucket.begun), since_origin(bucket.ended)});
  }

  // On a device with queues, each call only queues work.
  template <class Work>
  void on_each(const Work& work) {
    work(net_);
    for (const auto& net : beside_) work(*net);
  }

  template <class Work>
  double part(const char* name, const Work& work) {
    if (stop_) throw Interrupted{};
    const Clock::time_point begin = Clock::now();
    work();
    on_each([](Net& net) { net.stream().synchronize(); });
    const double s = seconds_since(begin);
    if (tracing_) {
      const double begin_s = std::chrono::duration<double>(begin - origin_).count();
      times_.part_events.push_back({name, begin_s, begin_s + s});
    }
    return 1e3 * s;
  }

  TimingOptions options_;
  Device& device_;
  Progress& progress_;
  const std::atomic<bool>& stop_;
  bool training_;
  Batch& batch_;
  Net net_;
  std::vector<std::unique_ptr<Net>> beside_;    // each on its own stream
  std::unique_ptr<GradientExchange> exchange_;  // with several ranks
  NetTimes times_;
  Clock::time_point origin_;
  bool tracing_ = false;
};

std::vector<double> totals(const NetTimes& times) {
  std::vector<double> values;
  for (const IterationTime& time : times.iterations) values.push_back(time.total());
  return values;
}

}  // namespace

double NetTimes::iteration_ms() const { return median(totals(*this)); }

IterationTime NetTimes::typical() const {
  IterationTime typical;
  for (double IterationTime::*const part :
       {&IterationTime::io, &IterationTime::h2d, &IterationTime::forward, &IterationTime::backward,
        &IterationTime::update, &IterationTime::communicated, &IterationTime::exposed}) {
    std::vector<double> values;
    for (const IterationTime& time : iterations) values.push_back(time.*part);
    typical.*part = median(values);
  }
  return typical;
}

double NetTimes::iteration_spread() const {
  const double ms = iteration_ms();
  return ms > 0 ? median_abs_deviation(totals(*this)) / ms : 0;
}

std::string unrest(const NetTimes& times) {
  const double spread = times.iteration_spread();
  if (spread <= 0.1) return "";
  return fmt::format("Iterations spread by {:.0f}%: something else used this machine.",
                     100 * spread);
}

double NetTimes::step_ms(std::size_t step, Phase phase) const {
  return median(steps[step][std::size_t(phase)]);
}

double NetTimes::step_ms(std::size_t step) const {
  double sum = 0;
  for (const Phase phase : all_phases) sum += step_ms(step, phase);
  return sum;
}

double NetTimes::step_mad_ms(std::size_t step) const {
  double sum = 0;
  for (const auto& samples : steps[step]) sum += median_abs_deviation(samples);
  return sum;
}

NetOptions timing_net_options(const Graph& graph, Mode mode) {
  NetOptions options;
  const Shape& y = graph.nodes().back().shape;  // of an image, the scores of its pixels
  options.loss = mode == Mode::inference      ? Loss::none
                 : y.c == 1 || y.pixels() > 1 ? Loss::squared_error
                                              : Loss::cross_entropy;
  return options;
}

// Small steps: training on random labels must not let the weights diverge.
UpdateRule timing_update_rule() {
  return SgdDesc{.rate = 1e-4, .momentum = 0.9, .weight_decay = 1e-4};
}

NetTimes time_net(const Graph& graph, const NetPlan& plan, const NetAlgos& algos, Device& device,
                  const TimingOptions& options, Progress& progress, const std::atomic<bool>& stop) {
  warn_of_other_programs(device.info());
  // Images exist before the net that takes them, and are not counted as its memory.
  Batch batch(graph, plan.dtype, timing_net_options(graph, plan.mode).loss, options.seed, device);
  batch.make();
  const std::int64_t before = resident("VmRSS");
  NetTimes times = Timer(batch, graph, plan, algos, device, options, progress, stop).run();
  times.resident_before = before;
  times.resident_peak = resident("VmHWM");
  return times;
}

}  // namespace convlab
