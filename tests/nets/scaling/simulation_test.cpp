// Synchronous SGD as simulated, against the closed forms that hold for it and cases worked by hand.
#include "nets/scaling/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "conv/error.h"

namespace convlab::nets {
namespace {

// Two workers exchange b bytes in b seconds: 2 (2-1) b / 2.
const Network unit{.link = {0, 1}};

WorkerTimes worker_of(const std::vector<LayerTimes>& layers) {
  WorkerTimes worker;
  worker.layers = layers;
  return worker;
}

Simulation simulate_two(const WorkerTimes& worker, Strategy strategy,
                        std::int64_t bucket_bytes = 0) {
  return simulate(worker, {2, strategy, bucket_bytes, unit});
}

std::vector<Task> tasks_of(const Simulation& s, TaskKind kind, std::int64_t iteration) {
  std::vector<Task> tasks;
  for (const Task& task : s.tasks)
    if (task.kind == kind && task.iteration == iteration) tasks.push_back(task);
  return tasks;
}

double sum(const WorkerTimes& worker, std::size_t first, std::size_t end,
           const std::function<double(const LayerTimes&)>& value) {
  double total = 0;
  for (std::size_t i = first; i < end; ++i) total += value(worker.layers[i]);
  return total;
}
double backward_s(const LayerTimes& layer) { return layer.backward_s; }
double exchange_s(const LayerTimes& layer) { return double(layer.gradient_bytes); }  // by `unit`

// Half of the layers have no parameters; times and sizes vary by a factor of 100.
WorkerTimes random_worker(std::mt19937& random) {
  std::uniform_int_distribution<int> count(1, 40), part(1, 100);
  WorkerTimes worker;
  worker.h2d_s = part(random);
  worker.update_s = part(random);
  worker.layers.resize(std::size_t(count(random)));
  for (LayerTimes& layer : worker.layers)
    layer = {"", double(part(random)), double(part(random)),
             part(random) > 50 ? part(random) * part(random) / 20 : 0};
  return worker;
}

// ---- All-reduce ----

TEST(AllReduce, CostsWhatItsStepsCost) {
  const Link link{3, 10};
  EXPECT_DOUBLE_EQ(all_reduce_s({Topology::ring, link}, 4, 400), 6 * (3 + 10));
  EXPECT_DOUBLE_EQ(all_reduce_s({Topology::tree, link}, 4, 400), 4 * (3 + 40));
  EXPECT_DOUBLE_EQ(all_reduce_s({Topology::tree, link}, 5, 400), 6 * (3 + 40));
  EXPECT_DOUBLE_EQ(server_s({Topology::ring, link}, 4, 400), 3 + 120);
  for (const Topology topology : {Topology::ring, Topology::tree, Topology::hierarchical})
    EXPECT_EQ(all_reduce_s({topology, link, 2, link}, 1, 400), 0);
}

// A ring and a binomial tree, message by message: each worker sends and receives one at a time.
TEST(AllReduce, AgreesWithMessages) {
  const Link link{0.25, 8};
  const auto message_s = [&](double bytes) { return link.latency_s + bytes / link.bytes_per_s; };
  for (std::int64_t n = 2; n <= 33; ++n) {
    const double bytes = 5 * double(n);
    std::vector<double> ready(std::size_t(n), 0.0);
    for (std::int64_t step = 0; step < 2 * (n - 1); ++step) {
      std::vector<double> next = ready;
      for (std::size_t i = 0; i < ready.size(); ++i) {
        const std::size_t to = (i + 1) % ready.size();
        next[to] = std::max(next[to], std::max(ready[i], ready[to]) + message_s(bytes / double(n)));
      }
      ready = next;
    }
    EXPECT_NEAR(all_reduce_s({Topology::ring, link}, n, bytes),
                *std::max_element(ready.begin(), ready.end()), 1e-12)
        << n;
    std::int64_t rounds = 0;
    for (std::int64_t reached = 1; reached < n; reached *= 2) ++rounds;
    EXPECT_NEAR(all_reduce_s({Topology::tree, link}, n, bytes),
                2 * double(rounds) * message_s(bytes), 1e-12)
        << n;
  }
}

TEST(AllReduce, AHostSharesItsLink) {
  const Network network{Topology::hierarchical, {3, 10}, 4, {1, 100}};
  // 8 workers on two hosts: 2*3 steps of 100 bytes inside, 2*1 of 200 between.
  EXPECT_DOUBLE_EQ(all_reduce_s(network, 8, 400), 6 * (1 + 1) + 2 * (3 + 20));
  EXPECT_DOUBLE_EQ(all_reduce_s(network, 4, 400), 6 * (1 + 1));
  EXPECT_DOUBLE_EQ(all_reduce_s(network, 2, 400), 2 * (1 + 2));  // half a host
  EXPECT_DOUBLE_EQ(all_reduce_s(network, 9, 400), 6 * (1 + 1) + 4 * (3 + 400.0 / 30));
}

// ---- Closed forms ----

TEST(Simulation, IsTheExactFormForOneChannelWithoutBuckets) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const WorkerTimes worker = random_worker(random);
    const std::size_t layers = worker.layers.size();
    double longest = 0;
    std::size_t from = 0;
    for (std::size_t i = layers; i-- > 0;) {
      const double s = sum(worker, i, layers, backward_s) + sum(worker, 0, i + 1, exchange_s);
      if (s < longest) continue;  // of equal ones the last in backward's order
      longest = s;
      from = i;
    }
    const double forward_s = sum(worker, 0, layers, [](auto& layer) { return layer.forward_s; });
    const Simulation s = simulate_two(worker, Strategy::overlapped);
    EXPECT_NEAR(s.iteration_s, worker.h2d_s + forward_s + longest + worker.update_s,
                1e-9 * s.iteration_s);
    EXPECT_NEAR(s.exposed_s, longest - sum(worker, 0, layers, backward_s), 1e-9 * s.iteration_s);
    EXPECT_NEAR(s.exchange_s, sum(worker, 0, layers, exchange_s), 1e-9 * s.iteration_s);
    if (s.exposed_from) {
      EXPECT_EQ(*s.exposed_from, from) << round;
    } else {
      EXPECT_EQ(s.exposed_s, 0);
    }
  }
}

TEST(Simulation, AfterBackwardTheExchangeIsExposedAsAWhole) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    const WorkerTimes worker = random_worker(random);
    const Simulation after = simulate_two(worker, Strategy::after),
                     overlapped = simulate_two(worker, Strategy::overlapped);
    EXPECT_NEAR(after.exposed_s, after.exchange_s, 1e-9 * after.iteration_s);
    EXPECT_LE(overlapped.iteration_s, after.iteration_s * (1 + 1e-12));
    EXPECT_NEAR(overlapped.exchange_s, after.exchange_s, 1e-9 * after.iteration_s);
    if (!after.exposed_from) continue;
    for (std::size_t i = *after.exposed_from + 1; i < worker.layers.size(); ++i)
      EXPECT_EQ(worker.layers[i].gradient_bytes, 0);
  }
}

// The formulas of Shi and Chu's talk, with batches made beforehand (t_io of 0).
double talk_speedup(std::int64_t workers, const WorkerTimes& w, double backward_and_exchange_s) {
  const std::size_t layers = w.layers.size();
  const double forward_s = sum(w, 0, layers, [](auto& layer) { return layer.forward_s; });
  const double gpu_s = w.h2d_s + forward_s + sum(w, 0, layers, backward_s) + w.update_s;
  return double(workers) * gpu_s / (w.h2d_s + forward_s + backward_and_exchange_s + w.update_s);
}

TEST(Simulation, IsTheTalksFormulaWhereEveryExchangeFitsBehindTheNextBackward) {
  WorkerTimes w = worker_of({{"1", 2, 7, 5}, {"2", 3, 9, 4}, {"3", 4, 11, 9}, {"4", 1, 3, 10}});
  w.h2d_s = 1;
  w.update_s = 2;
  const Simulation s = simulate_two(w, Strategy::overlapped), one = simulate(w, {.network = unit});
  EXPECT_NEAR(2 * one.iteration_s / s.iteration_s,
              talk_speedup(2, w, sum(w, 0, 4, backward_s) + exchange_s(w.layers[0])), 1e-12);
  EXPECT_EQ(s.exposed_from, 0u);
}

// Exposed from layer C = 2 on: sum of t_comm from C to L, of t_b below C, and t_comm(1). This is
// exact where t_b(1) is t_b(L).
TEST(Simulation, IsTheTalksFormulaWhereNoExchangeFitsAndBackwardIsUniform) {
  const WorkerTimes w = worker_of({{"1", 2, 5, 6}, {"2", 3, 5, 8}, {"3", 4, 5, 9}, {"4", 1, 5, 7}});
  const Simulation s = simulate_two(w, Strategy::overlapped), one = simulate(w, {.network = unit});
  EXPECT_NEAR(
      2 * one.iteration_s / s.iteration_s,
      talk_speedup(2, w,
                   sum(w, 1, 4, exchange_s) + sum(w, 0, 1, backward_s) + exchange_s(w.layers[0])),
      1e-12);
  EXPECT_EQ(s.exposed_from, 3u);
}

// ---- Worked by hand ----

TEST(Simulation, TasksAreWhereTheyWouldBeDrawn) {
  WorkerTimes w = worker_of({{"conv", 1, 3, 4}, {"relu", 1, 1, 0}, {"fc", 2, 2, 5}});
  w.io_s = 6;
  w.h2d_s = 1;
  w.update_s = 1;
  const Simulation s = simulate_two(w, Strategy::overlapped);
  // io 0-6, h2d 6-7, forward 7-11, backward fc 11-13, relu 13-14, conv 14-17; all-reduce of fc
  // 13-18, of conv 18-22; update 22-23.
  const std::vector<Task> exchanges = tasks_of(s, TaskKind::all_reduce, 0);
  ASSERT_EQ(exchanges.size(), 2u);
  EXPECT_EQ(exchanges[0].begin_s, 13);
  EXPECT_EQ(exchanges[0].end_s, 18);
  EXPECT_EQ(exchanges[1].begin_s, 18);
  EXPECT_EQ(exchanges[1].end_s, 22);
  EXPECT_EQ(tasks_of(s, TaskKind::update, 0)[0].begin_s, 22);
  EXPECT_EQ(tasks_of(s, TaskKind::io, 1)[0].begin_s, 6);
  EXPECT_EQ(tasks_of(s, TaskKind::io, 2)[0].begin_s, 12);
  EXPECT_EQ(tasks_of(s, TaskKind::h2d, 1)[0].begin_s, 23);
  EXPECT_EQ(s.iteration_s, 17);
  EXPECT_EQ(s.exposed_s, 5);
  EXPECT_EQ(s.exchange_s, 9);
  EXPECT_EQ(s.exposed_from, 2u);
}

// Forward 0-2, backward of b 2-12. Then backward of a has half of its speed, 12-32, and the
// exchange of b a quarter: 5 of 8 s are done at 32, the rest by 35; that of a is alone, 35-43.
TEST(Simulation, WhatGoesOnAtOnceSlowsEachOther) {
  const WorkerTimes w = worker_of({{"a", 1, 10, 8}, {"b", 1, 10, 8}});
  Scenario scenario{2, Strategy::overlapped, 0, unit, {.compute = 0.5, .exchange = 0.25}};
  const Simulation s = simulate(w, scenario);
  EXPECT_DOUBLE_EQ(tasks_of(s, TaskKind::backward, 0)[1].end_s, 32);
  EXPECT_DOUBLE_EQ(tasks_of(s, TaskKind::all_reduce, 0)[0].end_s, 35);
  EXPECT_DOUBLE_EQ(s.iteration_s, 43);
  EXPECT_DOUBLE_EQ(s.exchange_s, 31);
  EXPECT_DOUBLE_EQ(s.exposed_s, 11);
  scenario.strategy = Strategy::after;
  EXPECT_DOUBLE_EQ(simulate(w, scenario).iteration_s, 38);
  for (const double share : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    scenario.contention = {1, share};
    EXPECT_THROW(simulate(w, scenario), InputError) << share;
    scenario.contention = {share, 1};
    EXPECT_THROW(simulate(w, scenario), InputError) << share;
  }
}

TEST(Simulation, ALoaderThatIsSlowerThanTheRestSetsThePace) {
  WorkerTimes w = worker_of({{"fc", 1, 2, 4}});
  for (const double io_s : {3.0, 6.9, 7.1, 40.0}) {
    w.io_s = io_s;
    EXPECT_DOUBLE_EQ(simulate_two(w, Strategy::overlapped).iteration_s, std::max(io_s, 7.0));
  }
  // No further ahead than two batches.
  w.io_s = 1;
  const Simulation s = simulate_two(w, Strategy::overlapped);
  EXPECT_EQ(tasks_of(s, TaskKind::io, 2)[0].begin_s, tasks_of(s, TaskKind::h2d, 0)[0].end_s + 1);
}

TEST(Simulation, BucketsFillInBackwardsOrder) {
  const WorkerTimes w = worker_of(
      {{"a", 1, 1, 10}, {"relu", 1, 1, 0}, {"b", 1, 1, 20}, {"c", 1, 1, 30}, {"d", 1, 1, 40}});
  using Layers = std::vector<std::pair<std::size_t, std::size_t>>;
  const auto buckets = [&](std::int64_t bytes) {
    Layers layers;
    for (const Task& t :
         tasks_of(simulate_two(w, Strategy::overlapped, bytes), TaskKind::all_reduce, 0)) {
      layers.emplace_back(t.first_layer, t.last_layer);
      std::int64_t held = 0;
      for (std::size_t i = t.last_layer; i <= t.first_layer; ++i)
        held += w.layers[i].gradient_bytes;
      EXPECT_EQ(t.bytes, held);
    }
    return layers;
  };
  EXPECT_EQ(buckets(0), (Layers{{4, 4}, {3, 3}, {2, 2}, {0, 0}}));
  EXPECT_EQ(buckets(40), (Layers{{4, 4}, {3, 2}, {0, 0}}));
  EXPECT_EQ(buckets(41), (Layers{{4, 3}, {2, 0}}));
  EXPECT_EQ(buckets(1000), (Layers{{4, 0}}));
  // A bucket leaves when its last gradient is there: here with backward of b.
  const Simulation s = simulate_two(w, Strategy::overlapped, 40);
  EXPECT_EQ(tasks_of(s, TaskKind::all_reduce, 0)[1].begin_s, 5 + 1 + 40);
  EXPECT_EQ(s.exposed_from, 4u);
  EXPECT_EQ(simulate_two(w, Strategy::overlapped, 41).exposed_from, 4u);
}

TEST(Simulation, AServerTakesAndGivesOneBucketAtATime) {
  const WorkerTimes w = worker_of({{"a", 1, 1, 10}, {"b", 1, 1, 10}, {"c", 1, 1, 10}});
  // 3 workers: 20 s a bucket and direction. c 4-24-44, b 44-64-84, a 84-104-124.
  const Simulation s = simulate(w, {3, Strategy::server, 0, unit});
  const std::vector<Task> pushes = tasks_of(s, TaskKind::push, 0),
                          pulls = tasks_of(s, TaskKind::pull, 0);
  ASSERT_EQ(pushes.size(), 3u);
  ASSERT_EQ(pulls.size(), 3u);
  EXPECT_EQ(pushes[0].begin_s, 4);
  EXPECT_EQ(pulls[0].begin_s, 24);
  EXPECT_EQ(pushes[2].begin_s, 84);
  EXPECT_EQ(pulls[2].end_s, 124);
  EXPECT_EQ(s.exchange_s, 120);
  EXPECT_EQ(s.iteration_s, 124);
  EXPECT_EQ(s.exposed_from, 2u);
}

TEST(Simulation, OneWorkerExchangesNothing) {
  std::mt19937 random(3);
  for (const Strategy strategy : all_strategies) {
    const Simulation s = simulate(random_worker(random), {1, strategy, 0, unit});
    EXPECT_EQ(s.exchange_s, 0);
    EXPECT_EQ(s.exposed_s, 0);
    EXPECT_FALSE(s.exposed_from);
    for (const Task& task : s.tasks) EXPECT_NE(task.lane, Lane::network);
  }
}

// Every lane does one thing at a time, and nothing begins before what it needs.
TEST(Simulation, KeepsItsOrder) {
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round)
    for (const Strategy strategy : all_strategies) {
      WorkerTimes worker = random_worker(random);
      worker.io_s = double(std::uniform_int_distribution<int>(0, 5000)(random));
      const Simulation s = simulate(worker, {4, strategy, 100, {.link = {1, 2}}});
      std::map<Lane, double> until;
      for (const Task& task : s.tasks) {
        EXPECT_GE(task.begin_s, until[task.lane]);
        EXPECT_GE(task.end_s, task.begin_s);
        until[task.lane] = task.end_s;
        EXPECT_EQ(task.begin_s, task.awaited ? s.tasks[*task.awaited].end_s : 0);
      }
      for (const Task& bucket : s.tasks) {
        if (bucket.kind != TaskKind::all_reduce && bucket.kind != TaskKind::push) continue;
        for (const Task& task : s.tasks) {
          if (task.iteration != bucket.iteration) continue;
          const bool is_its =
              task.kind == TaskKind::backward &&
              (strategy == Strategy::after ||
               (task.first_layer >= bucket.last_layer && task.first_layer <= bucket.first_layer));
          EXPECT_TRUE(!is_its || bucket.begin_s >= task.end_s);
          EXPECT_TRUE(task.kind != TaskKind::update || task.begin_s >= bucket.end_s);
        }
      }
    }
}

// ---- Choices ----

TEST(BestBucket, IsOneMessageWhereLatencyIsAllAndManyWhereItIsNone) {
  const WorkerTimes w = worker_of({{"a", 1, 100, 1 << 20},
                                   {"b", 1, 100, 1 << 20},
                                   {"c", 1, 100, 1 << 20},
                                   {"d", 1, 100, 1 << 20}});
  Scenario scenario{8, Strategy::overlapped, 0, {.link = {1000, 1e12}}};
  EXPECT_EQ(best_bucket(w, scenario), 4 << 20);
  scenario.network.link = {0, 1 << 17};
  EXPECT_LE(best_bucket(w, scenario), 1 << 20);
  scenario.strategy = Strategy::after;  // without latency buckets change nothing
  EXPECT_EQ(best_bucket(w, scenario), 4 << 20);
}

TEST(BestBucket, IsNoSlowerThanAnyOther) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    WorkerTimes worker = random_worker(random);
    for (LayerTimes& layer : worker.layers) layer.gradient_bytes *= 100000;
    Scenario scenario{8, Strategy::overlapped, 0, {.link = {10, 1e5}}};
    scenario.bucket_bytes = best_bucket(worker, scenario);
    const double best_s = simulate(worker, scenario).iteration_s;
    for (std::int64_t bytes = 0; bytes < 100 << 20; bytes = bytes ? 2 * bytes : 64 << 10) {
      scenario.bucket_bytes = bytes;
      EXPECT_LE(best_s, simulate(worker, scenario).iteration_s * (1 + 1e-8)) << bytes;
    }
  }
}

TEST(HidingBatch, IsTheFirstThatHides) {
  // One image: 9 s in all; the last exchange, always exposed, takes 3 s: 3 <= 5% of 9 b + 3.
  const WorkerTimes w = worker_of({{"a", 2, 2, 3}, {"b", 1, 2, 2}, {"c", 1, 1, 1}});
  const Scenario scenario{2, Strategy::overlapped, 0, unit};
  EXPECT_EQ(hiding_batch(w, scenario, 0), 7);
  for (const Strategy strategy : all_strategies) {
    const Scenario tried{5, strategy, 0, unit};
    const std::optional<std::int64_t> batch = hiding_batch(w, tried, 0);
    ASSERT_TRUE(batch);
    const auto share = [&](std::int64_t images) {
      const Simulation s = simulate(with_batch(w, images), tried);
      return s.exposed_s / s.iteration_s;
    };
    EXPECT_LE(share(*batch), hidden_share);
    EXPECT_GT(share(*batch - 1), hidden_share);
  }
  EXPECT_FALSE(hiding_batch(w, {2, Strategy::after, 0, {.link = {1e9, 1}}}));
  EXPECT_EQ(hiding_batch(w, {1, Strategy::after, 0, unit}), 1);
}

TEST(HidingBatch, ScalesAllButTheUpdate) {
  WorkerTimes w = worker_of({{"a", 2, 4, 3}});
  w.batch = 2;
  w.io_s = 6;
  w.h2d_s = 8;
  w.update_s = 1;
  const WorkerTimes more = with_batch(w, 6);
  EXPECT_EQ(more.batch, 6);
  EXPECT_EQ(more.io_s, 18);
  EXPECT_EQ(more.h2d_s, 24);
  EXPECT_EQ(more.layers[0].forward_s, 6);
  EXPECT_EQ(more.layers[0].backward_s, 12);
  EXPECT_EQ(more.layers[0].gradient_bytes, 3);
  EXPECT_EQ(more.update_s, 1);
}

TEST(Simulation, IsFiniteAtTheLimits) {
  WorkerTimes worker = worker_of({{"a", 1e13, 1e13, std::int64_t{1} << 50}});
  worker.batch = std::int64_t{1} << 40;
  for (const Topology topology : {Topology::ring, Topology::tree, Topology::hierarchical})
    for (const Strategy strategy : all_strategies) {
      const Scenario most{.workers = std::int64_t{1} << 40,
                          .strategy = strategy,
                          .network = {.topology = topology,
                                      .link = {longest_s, 1.0 / 8},
                                      .workers_per_host = 1000,
                                      .inside_host = {longest_s, 1.0 / 8}}};
      EXPECT_TRUE(std::isfinite(simulate(worker, most).iteration_s));
      EXPECT_FALSE(hiding_batch(worker, most));
    }
}

TEST(Simulation, RefusesWhatCannotBe) {
  const WorkerTimes good = worker_of({{"a", 1, 1, 1}});
  const double infinite = std::numeric_limits<double>::infinity();
  const auto refused = [&](const std::function<void(WorkerTimes&, Scenario&)>& spoil) {
    WorkerTimes worker = good;
    Scenario scenario{2, Strategy::overlapped, 0, unit};
    spoil(worker, scenario);
    EXPECT_THROW(simulate(worker, scenario), InputError);
  };
  refused([](WorkerTimes& w, Scenario&) { w.layers.clear(); });
  refused([](WorkerTimes& w, Scenario&) { w.batch = 0; });
  refused([](WorkerTimes& w, Scenario&) { w.update_s = -1; });
  refused([](WorkerTimes& w, Scenario&) { w.io_s = std::nan(""); });
  refused([&](WorkerTimes& w, Scenario&) { w.layers[0].forward_s = infinite; });
  refused([](WorkerTimes& w, Scenario&) { w.layers[0].gradient_bytes = -1; });
  refused([](WorkerTimes&, Scenario& s) { s.workers = 0; });
  refused([](WorkerTimes&, Scenario& s) { s.bucket_bytes = -1; });
  refused([](WorkerTimes&, Scenario& s) { s.network.link.latency_s = -1; });
  refused([](WorkerTimes&, Scenario& s) { s.network.link.latency_s = 1e300; });
  refused([](WorkerTimes&, Scenario& s) { s.network.link.bytes_per_s = 0; });
  refused([](WorkerTimes&, Scenario& s) { s.network.link.bytes_per_s = 1e-300; });
  refused([](WorkerTimes& w, Scenario&) { w.update_s = 1e300; });
  refused([](WorkerTimes&, Scenario& s) {
    s.network.topology = Topology::hierarchical;
    s.network.workers_per_host = 0;
  });
  EXPECT_THROW(parse_strategy("sync"), InputError);
  EXPECT_THROW(parse_topology("star"), InputError);
}

}  // namespace
}  // namespace convlab::nets
