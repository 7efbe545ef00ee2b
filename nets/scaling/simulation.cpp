#include "nets/scaling/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "conv/error.h"
#include "conv/text/names.h"

namespace convlab::nets {
namespace {

constexpr std::array<std::string_view, 3> lane_names{"io", "compute", "network"};
constexpr std::array<std::string_view, 8> kind_names{"t_io",       "t_h2d", "fwd",  "bwd",
                                                     "all-reduce", "push",  "pull", "update"};

void require_time(double seconds, const std::string& what) {
  if (!(seconds >= 0 && seconds <= longest_s))
    throw InputError(fmt::format("{} takes {} s: expected 0 to {:.0e}", what, seconds, longest_s));
}

void validate(const Scenario& scenario) {
  validate(scenario.network);
  if (scenario.workers < 1)
    throw InputError(fmt::format("{} workers: expected 1 or more", scenario.workers));
  if (scenario.bucket_bytes < 0)
    throw InputError(
        fmt::format("a bucket of {} bytes: expected 0 or more", scenario.bucket_bytes));
  for (const double share : {scenario.contention.compute, scenario.contention.exchange})
    if (!(share > 0 && share <= 1))
      throw InputError(
          fmt::format("a share of {} of the speed: expected above 0, at most 1", share));
}

struct Bucket {
  std::size_t first_layer = 0, last_layer = 0;  // in backward's order
  std::int64_t bytes = 0;
};

std::vector<Bucket> buckets_of(const WorkerTimes& worker, std::int64_t full_bytes) {
  std::vector<Bucket> buckets;
  bool open = false;
  for (std::size_t i = worker.layers.size(); i-- > 0;) {
    const std::int64_t bytes = worker.layers[i].gradient_bytes;
    if (bytes == 0) continue;
    if (!open) buckets.push_back({i, i, 0});
    Bucket& bucket = buckets.back();
    bucket.last_layer = i;
    bucket.bytes += bytes;
    open = bucket.bytes < full_bytes;
  }
  return buckets;
}

// Every lane runs its tasks in the order in which they are added, one at a time. A task begins when
// the one before it on its lane and those that it comes after have ended.
class Timeline {
 public:
  explicit Timeline(const Contention& contention) : contention_(contention) {}

  std::size_t add(const Task& task, double seconds, const std::vector<std::size_t>& after) {
    LaneState& lane = lanes_[std::size_t(task.lane)];
    lane.tasks.push_back(tasks_.size());
    tasks_.push_back(task);
    works_.push_back({seconds, after});
    return tasks_.size() - 1;
  }

  // From event to event: a task's end, after which others may begin, and lanes change their speed.
  std::vector<Task> run() {
    ended_.resize(tasks_.size());
    double now = 0;
    while (true) {
      for (LaneState& lane : lanes_) begin_next(lane, now);
      for (std::size_t i = 0; i < lanes_.size(); ++i) set_speed(lanes_[i], speed_of(Lane(i)), now);
      LaneState* first = nullptr;
      for (LaneState& lane : lanes_)
        if (lane.runs && (!first || lane.end_s() < first->end_s())) first = &lane;
      if (!first) return std::move(tasks_);
      now = first->end_s();
      tasks_[first->task()].end_s = now;
      ended_[first->task()] = true;
      first->runs = false;
      ++first->next;
    }
  }

 private:
  struct Work {
    double seconds;
    std::vector<std::size_t> after;
  };
  struct LaneState {
    std::vector<std::size_t> tasks;
    std::size_t next = 0;  // of tasks: the one that runs or waits
    bool runs = false;
    double since_s = 0, left_s = 0, speed = 1;  // left_s at since_s, as long as at full speed

    std::size_t task() const { return tasks[next]; }
    double end_s() const { return since_s + left_s / speed; }
  };

  void begin_next(LaneState& lane, double now) {
    if (lane.runs || lane.next == lane.tasks.size()) return;
    const Work& work = works_[lane.task()];
    for (const std::size_t other : work.after)
      if (!ended_[other]) return;
    Task& task = tasks_[lane.task()];
    task.begin_s = now;
    const auto wait_for = [&](std::size_t other) {
      if (!task.awaited || tasks_[other].end_s > tasks_[*task.awaited].end_s) task.awaited = other;
    };
    for (const std::size_t other : work.after) wait_for(other);
    if (lane.next > 0) wait_for(lane.tasks[lane.next - 1]);
    lane.runs = true;
    lane.since_s = now;
    lane.left_s = work.seconds;
    lane.speed = 1;
  }

  double speed_of(Lane lane) const {
    const auto runs = [&](Lane other) { return lanes_[std::size_t(other)].runs; };
    if (!runs(Lane::compute) || !runs(Lane::network)) return 1;
    return lane == Lane::compute   ? contention_.compute
           : lane == Lane::network ? contention_.exchange
                                   : 1;
  }
  static void set_speed(LaneState& lane, double speed, double now) {
    if (speed == lane.speed) return;  // nor are times rounded again
    lane.left_s -= (now - lane.since_s) * lane.speed;
    lane.since_s = now;
    lane.speed = speed;
  }

  Contention contention_;
  std::vector<Task> tasks_;
  std::vector<Work> works_;  // by task
  std::vector<bool> ended_;  // by task
  std::array<LaneState, lane_names.size()> lanes_;
};

class Simulator {
 public:
  Simulator(const WorkerTimes& worker, const Scenario& scenario)
      : worker_(worker), scenario_(scenario), timeline_(scenario.contention) {
    if (scenario.workers > 1) buckets_ = buckets_of(worker, scenario.bucket_bytes);
  }

  Simulation run() {
    constexpr std::int64_t iterations = 3;
    for (std::int64_t i = 0; i < iterations; ++i) iterate(i);
    Simulation s;
    s.tasks = timeline_.run();
    s.iteration_s =
        s.tasks[copies_[iterations - 1]].begin_s - s.tasks[copies_[iterations - 2]].begin_s;
    s.exposed_s = s.tasks[update_].begin_s - s.tasks[backward_.front()].end_s;
    s.exposed_from = exposed_from(s.tasks);
    for (const std::size_t exchange : exchanges_)
      s.exchange_s += s.tasks[exchange].end_s - s.tasks[exchange].begin_s;
    return s;
  }

 private:
  // The loader makes two batches ahead of the one that is computed (LoaderOptions::prefetch).
  static constexpr std::size_t prefetch = 2;

  void iterate(std::int64_t iteration) {
    const auto task = [&](Lane lane, TaskKind kind, std::size_t first = 0, std::size_t last = 0) {
      return Task{.lane = lane,
                  .kind = kind,
                  .iteration = iteration,
                  .first_layer = first,
                  .last_layer = last};
    };
    const auto compute = [&](TaskKind kind, double seconds, std::size_t layer,
                             const std::vector<std::size_t>& after = {}) {
      return timeline_.add(task(Lane::compute, kind, layer, layer), seconds, after);
    };
    const std::vector<std::size_t> free = copies_.size() < prefetch
                                              ? std::vector<std::size_t>{}
                                              : std::vector{copies_[copies_.size() - prefetch]};
    const std::size_t made = timeline_.add(task(Lane::io, TaskKind::io), worker_.io_s, free);
    copies_.push_back(compute(TaskKind::h2d, worker_.h2d_s, 0, {made}));
    const std::size_t layers = worker_.layers.size();
    for (std::size_t i = 0; i < layers; ++i)
      compute(TaskKind::forward, worker_.layers[i].forward_s, i);
    backward_.resize(layers);
    for (std::size_t i = layers; i-- > 0;)
      backward_[i] = compute(TaskKind::backward, worker_.layers[i].backward_s, i);

    std::vector<std::size_t> done{backward_[0]};
    exchanges_.clear();
    for (const Bucket& bucket : buckets_) {
      const bool waits = scenario_.strategy == Strategy::after;
      std::size_t ready = backward_[waits ? 0 : bucket.last_layer];
      const auto exchange = [&](TaskKind kind, double seconds) {
        Task t = task(Lane::network, kind, bucket.first_layer, bucket.last_layer);
        t.bytes = bucket.bytes;
        ready = timeline_.add(t, seconds, {ready});
        exchanges_.push_back(ready);
      };
      const auto bytes = double(bucket.bytes);
      if (scenario_.strategy == Strategy::server) {
        const double seconds = server_s(scenario_.network, scenario_.workers, bytes);
        exchange(TaskKind::push, seconds);
        exchange(TaskKind::pull, seconds);
      } else {
        exchange(TaskKind::all_reduce, all_reduce_s(scenario_.network, scenario_.workers, bytes));
      }
      done = {backward_[0], ready};
    }
    update_ = compute(TaskKind::update, worker_.update_s, 0, done);
  }

  // Follows what the update waited for back to an exchange that waited for backward.
  std::optional<std::size_t> exposed_from(const std::vector<Task>& tasks) const {
    std::optional<std::size_t> from;
    for (std::optional<std::size_t> i = tasks[update_].awaited;
         i && tasks[*i].lane == Lane::network; i = tasks[*i].awaited)
      from = tasks[*i].first_layer;
    return from;
  }

  const WorkerTimes& worker_;
  const Scenario& scenario_;
  std::vector<Bucket> buckets_;
  Timeline timeline_;
  std::vector<std::size_t> copies_;                // tasks, by iteration
  std::vector<std::size_t> backward_, exchanges_;  // of the last iteration: by layer, in order
  std::size_t update_ = 0;                         // of the last iteration
};

}  // namespace

void validate(const WorkerTimes& worker) {
  if (worker.batch < 1)
    throw InputError(fmt::format("a batch of {}: expected 1 or more", worker.batch));
  if (worker.layers.empty()) throw InputError("a worker without layers: expected one or more");
  require_time(worker.io_s, "t_io");
  require_time(worker.h2d_s, "t_h2d");
  require_time(worker.update_s, "t_u");
  for (const LayerTimes& layer : worker.layers) {
    require_time(layer.forward_s, layer.name + " forward");
    require_time(layer.backward_s, layer.name + " backward");
    if (layer.gradient_bytes < 0)
      throw InputError(fmt::format("{} has {} bytes of gradients: expected 0 or more", layer.name,
                                   layer.gradient_bytes));
  }
}

WorkerTimes with_batch(const WorkerTimes& worker, std::int64_t batch) {
  WorkerTimes scaled = worker;
  const double factor = double(batch) / double(worker.batch);
  scaled.batch = batch;
  scaled.io_s *= factor;
  scaled.h2d_s *= factor;
  for (LayerTimes& layer : scaled.layers) {
    layer.forward_s *= factor;
    layer.backward_s *= factor;
  }
  return scaled;
}

std::string_view to_string(Lane lane) { return lane_names[std::size_t(lane)]; }
std::string_view to_string(TaskKind kind) { return kind_names[std::size_t(kind)]; }

Simulation simulate(const WorkerTimes& worker, const Scenario& scenario) {
  validate(worker);
  validate(scenario);
  return Simulator(worker, scenario).run();
}

std::int64_t best_bucket(const WorkerTimes& worker, const Scenario& scenario) {
  std::int64_t all = 0;
  for (const LayerTimes& layer : worker.layers) all += layer.gradient_bytes;
  std::vector<std::int64_t> sizes{all};
  constexpr std::int64_t least = 64 << 10;
  for (std::int64_t size = least; size < all; size *= 2) sizes.push_back(size);
  sizes.push_back(0);
  std::int64_t best = all;
  double best_s = 0;
  for (const std::int64_t size : sizes) {
    Scenario tried = scenario;
    tried.bucket_bytes = size;
    const double s = simulate(worker, tried).iteration_s;
    // Of equal ones the first: all in one.
    constexpr double rounding = 1e-9;
    if (size == all || s < best_s * (1 - rounding)) {
      best = size;
      best_s = s;
    }
  }
  return best;
}

std::optional<std::int64_t> hiding_batch(const WorkerTimes& worker, const Scenario& scenario,
                                         std::optional<std::int64_t> bucket_bytes) {
  const auto hides = [&](std::int64_t batch) {
    const WorkerTimes scaled = with_batch(worker, batch);
    Scenario tried = scenario;
    tried.bucket_bytes = bucket_bytes ? *bucket_bytes : best_bucket(scaled, scenario);
    const Simulation s = simulate(scaled, tried);
    return s.exposed_s <= hidden_share * s.iteration_s;
  };
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::int64_t hidden = 1;
  while (!hides(hidden))
    if ((hidden *= 2) > most) return {};
  for (std::int64_t exposed = hidden / 2; hidden - exposed > 1;) {
    const std::int64_t middle = exposed + (hidden - exposed) / 2;
    (hides(middle) ? hidden : exposed) = middle;
  }
  return hidden;
}

}  // namespace convlab::nets
