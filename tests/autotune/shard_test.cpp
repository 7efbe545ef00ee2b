// A tuning run divided among machines: who gets what, and that the parts make the whole.
#include "autotune/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>

#include "conv/error.h"
#include "tests/autotune/tuner_lab.h"

namespace convlab {
namespace {

TEST(BalancedShards, BalanceCostsAndNotNumbers) {
  EXPECT_EQ(balanced_shards({1, 1, 10, 1, 1}, 2), (std::vector<std::int64_t>{1, 1, 0, 1, 1}));
  EXPECT_EQ(balanced_shards({5, 4, 3, 3, 3}, 2), (std::vector<std::int64_t>{0, 1, 1, 0, 1}));
  EXPECT_EQ(balanced_shards({2, 2, 2}, 3), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(balanced_shards({2, 2, 2}, 1), (std::vector<std::int64_t>{0, 0, 0}));
}

// Graham's bound for lists: no shard has more than the mean and the largest item.
TEST(BalancedShards, NoneHasMuchMoreThanTheOthers) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> costs(std::size_t(std::uniform_int_distribution<int>(1, 60)(random)));
    for (double& cost : costs) cost = std::uniform_real_distribution<double>(0.1, 10)(random);
    const std::int64_t count = std::uniform_int_distribution<std::int64_t>(
        1, std::min<std::int64_t>(8, std::int64_t(costs.size())))(random);
    std::vector<double> loads(std::size_t(count), 0.0);
    const std::vector<std::int64_t> shards = balanced_shards(costs, count);
    for (std::size_t i = 0; i < costs.size(); ++i) loads.at(std::size_t(shards[i])) += costs[i];
    const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / double(count),
                 largest = *std::max_element(costs.begin(), costs.end());
    EXPECT_LE(*std::max_element(loads.begin(), loads.end()), mean + largest);
    EXPECT_GT(*std::min_element(loads.begin(), loads.end()), 0);
  }
}

TEST(TuningCost, CountsCandidatesThatPredictionsDoNotPrune) {
  TuningEntry entry;
  entry.problem = parse_problem("mb1ic4ih6oc8oh6kh3ph1").problem;
  const auto add = [&](double ms) {
    Candidate c;
    c.ms = ms;
    c.predicted = true;
    entry.candidates.push_back(c);
  };
  add(10);
  const double one = tuning_cost_s(entry, 4);
  add(100);
  EXPECT_EQ(tuning_cost_s(entry, 4), one);
  EXPECT_GT(tuning_cost_s(entry, 16), one);
  add(20);
  EXPECT_GT(tuning_cost_s(entry, 4), one);
  TuningEntry large = entry;
  large.problem.set_batch(64);
  EXPECT_GT(tuning_cost_s(large, 4), tuning_cost_s(entry, 4));
  for (Candidate& c : entry.candidates) c.status = Status::refused;
  EXPECT_LT(tuning_cost_s(entry, 4), one);
}

class ShardedTunerTest : public TunerTest {
 protected:
  ShardedTunerTest() {
    options_.layout = Layout::nchw;
    for (const char* text : {small, "mb1ic5ih6oc8oh6kh3ph1"})
      for (const Pass pass : all_passes) add(text, pass);
    add("mb1ic5ih6oc8oh6kh3ph1");  // a second layer of equal size
  }
  ~ShardedTunerTest() override {
    for (const std::filesystem::path& path : stores_) std::filesystem::remove_all(path);
  }

  static std::string key(const LayerResult& layer) {
    return to_text(layer.layer.problem) + " " + std::string(to_string(layer.layer.problem.pass()));
  }
  TuneTable run_shard(std::int64_t index, std::int64_t count, Store* store = nullptr) {
    options_.shard = Shard{index, count};
    TuneTable table = run({"plain", "liar"}, store);
    options_.shard.reset();
    return table;
  }
  Store other_store(const std::string& name) {
    stores_.push_back(store_.path().string() + name);
    return Store(stores_.back());
  }

 private:
  std::vector<std::filesystem::path> stores_;
};

TEST_F(ShardedTunerTest, ShardsMakeTheWholeWithoutOverlap) {
  options_.mode = TuneMode::heuristic;
  std::multiset<std::string> all, parts;
  for (const LayerResult& layer : run({"plain", "liar"}).layers) all.insert(key(layer));
  ASSERT_EQ(all.size(), items_.size());
  std::set<std::string> seen;
  for (std::int64_t i = 1; i <= 4; ++i) {
    const TuneTable table = run_shard(i, 4);
    ASSERT_TRUE(table.shard);
    EXPECT_EQ(table.shard->index, i);
    EXPECT_EQ(table.shard->count, 4);
    EXPECT_EQ(table.shard->of, 6u);
    EXPECT_TRUE(table.complete);
    std::set<std::string> its;
    for (const LayerResult& layer : table.layers) {
      parts.insert(key(layer));
      its.insert(key(layer));
      EXPECT_FALSE(seen.contains(key(layer))) << key(layer);
    }
    EXPECT_EQ(table.shard->problems, its.size());
    seen.insert(its.begin(), its.end());
    const TuneTable again = run_shard(i, 4);  // the same division
    ASSERT_EQ(again.layers.size(), table.layers.size());
    for (std::size_t l = 0; l < table.layers.size(); ++l)
      EXPECT_EQ(key(again.layers[l]), key(table.layers[l]));
  }
  EXPECT_EQ(parts, all);
}

TEST_F(ShardedTunerTest, AnExpensiveProblemIsAloneInItsShard) {
  options_.mode = TuneMode::heuristic;
  add("mb64ic64ih56oc64oh56kh3ph1");
  EXPECT_EQ(run_shard(1, 2).layers.size(), 1u);
  EXPECT_EQ(run_shard(2, 2).shard->problems, 6u);
}

TEST_F(ShardedTunerTest, AfterTheMergeNothingIsMeasured) {
  Store merged = other_store(".merged");
  std::int64_t rows = 0;
  for (std::int64_t i = 1; i <= 3; ++i) {
    Store part = other_store(std::to_string(i));
    run_shard(i, 3, &part);
    const Store::Merged took = merged.merge(part);
    EXPECT_EQ(took.added, part.size());
    EXPECT_EQ(took.replaced + took.kept, 0);
    rows += took.added;
  }
  EXPECT_EQ(merged.size(), rows);
  const std::vector<StoreRow> before = merged.rows();
  const TuneTable whole = run({"plain", "liar"}, &merged);
  EXPECT_EQ(log_.ended_candidates, 0u);
  EXPECT_FALSE(whole.shard);
  EXPECT_TRUE(whole.complete);
  ASSERT_EQ(whole.layers.size(), items_.size());
  for (const LayerResult& layer : whole.layers) EXPECT_EQ(chosen(layer), "plain");
  const std::vector<StoreRow> after = merged.rows();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].date, before[i].date);
}

// A forward row alone in its shard is still part of a training step, which packs filters.
TEST_F(ShardedTunerTest, PackingCountsAsInTheWhole) {
  device_ = make_cpu_device({1, ""});
  make_registry_ = append_cpu_algos;
  options_.mode = TuneMode::heuristic;
  options_.layout.reset();
  const auto order = [](const LayerResult& layer) {
    std::string names;
    for (const Candidate& c : layer.candidates) names += candidate_key(c) + "\n";
    return names;
  };
  items_.clear();
  add("mb1ic512ih7oc512oh7kh3ph1");
  const std::string inference = order(run({}).layers[0]);
  add("mb1ic512ih7oc512oh7kh3ph1", Pass::backward_filter);
  const std::string training = order(run({}).layers[0]);
  ASSERT_NE(inference, training) << "the test shows nothing";
  std::size_t compared = 0;
  for (std::int64_t i = 1; i <= 2; ++i) {
    options_.shard = Shard{i, 2};
    const TuneTable part = run({});
    ASSERT_EQ(part.layers.size(), 1u);
    EXPECT_TRUE(part.shard->training);
    if (part.layers[0].layer.problem.pass() != Pass::forward) continue;
    EXPECT_EQ(order(part.layers[0]), training);
    ++compared;
  }
  EXPECT_EQ(compared, 1u);
}

TEST_F(ShardedTunerTest, RefusesShardsThatAreNone) {
  for (const Shard shard : {Shard{0, 2}, Shard{3, 2}, Shard{1, 0}, Shard{-1, -1}, Shard{1, 7}}) {
    EXPECT_THROW(run_shard(shard.index, shard.count), InputError) << shard.index;
    options_.shard.reset();
  }
  options_.mode = TuneMode::heuristic;
  EXPECT_EQ(run_shard(6, 6).shard->problems, 1u);
}

}  // namespace
}  // namespace convlab
