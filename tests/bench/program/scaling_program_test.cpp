// `convlab scaling` and `convlab tune --shard` end to end, on small nets and problems.
#include <fmt/format.h>

#include <csignal>

#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

using nlohmann::json;

class ScalingProgramTest : public ProgramTest {
 protected:
  Ran scaling(const Words& more) {
    return run(Words{"scaling", "lenet", "--batch", "4", "--iterations", "2"} + more);
  }
};

TEST_F(ScalingProgramTest, MeasuresAWorkerAndSimulatesMany) {
  const Ran ran = scaling({"--workers", "1,2,8", "--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json file = json::parse(ran.out);
  EXPECT_EQ(file["convlab_scaling"], 1);
  EXPECT_EQ(file["net"]["batch"], 4);
  ASSERT_EQ(file["points"].size(), 9u);
  for (const char* part : {"t_h2d", "t_f", "t_b", "t_u"})
    EXPECT_GT(file["worker"][part], 0) << part;
  EXPECT_EQ(file["worker"]["t_io"], 0);
  EXPECT_TRUE(file["provenance"].contains("cpu"));
  for (const json& point : file["points"]) {
    const double workers = point["workers"], efficiency = point["efficiency"];
    EXPECT_GT(efficiency, 0);
    EXPECT_LE(efficiency, 1 + 1e-9);
    EXPECT_NEAR(point["speedup"].get<double>(), workers * efficiency, 1e-9 * workers);
    EXPECT_EQ(point["exposed_from"].is_null(), workers == 1) << point;
  }
  EXPECT_TRUE(contains(ran.err, "convlab tune lenet --batch 4")) << ran.err;
}

TEST_F(ScalingProgramTest, PrintsEveryFormatChartsAndATimeline) {
  const std::string trace = directory_ / "trace.json", svg = directory_ / "chart.svg",
                    csv = directory_ / "points.csv";
  const Ran table = scaling({"--trace", trace, "--workers", "1:4:*2", "--exchange", "after"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* part : {"workers", "exposed from", "gradients", "t_io is left out", "cpu "})
    EXPECT_TRUE(contains(table.out, part)) << part << table.out;
  EXPECT_FALSE(contains(table.out, "server")) << table.out;
  EXPECT_TRUE(contains(table.out, "efficiency in %") || contains(table.out, "No chart"));
  EXPECT_TRUE(contains(read_file(trace), "after: rank 3 of 4"));
  EXPECT_EQ(scaling({"--output", csv}).exit_code, 0);
  EXPECT_TRUE(contains(read_file(csv), "\nworkers,exchange,bucket_bytes,"));
  EXPECT_TRUE(contains(read_file(csv), "\n64,server,"));
  const Ran md = scaling({"--format", "md", "--workers", "2", "--svg", svg});
  if (md.exit_code == 3) return;  // no gnuplot
  EXPECT_TRUE(md.out.starts_with("| workers |")) << md.out;
  EXPECT_TRUE(contains(read_file(svg), "<svg"));
}

TEST_F(ScalingProgramTest, TakesTimesOfAnotherMachine) {
  const std::string times = directory_ / "there.json";
  ASSERT_EQ(
      run({"time", "lenet", "--batch", "4", "--iterations", "2", "--output", times}).exit_code, 0);
  const Words two{"--workers", "2", "--format", "json"};
  const Ran ran = run(Words{"scaling", "--times", times} + two);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json file = json::parse(ran.out), there = json::parse(read_file(times));
  EXPECT_NEAR(file["worker"]["t_b"].get<double>(), there["iteration"]["t_b"].get<double>(), 1e-9);
  EXPECT_EQ(file["provenance"]["cpu"], there["provenance"]["cpu"]);
  EXPECT_EQ(file["provenance"]["times"], times);
  EXPECT_EQ(run(Words{"scaling", "lenet", "--times", times} + two).exit_code, 0);
  const std::string before = read_file(times);
  expect_refused([&](const Words& words) { return run(words); },
                 {{{"scaling", "resnet18", "--times", times}, "has the times of lenet"},
                  {{"scaling", "--times", times, "--batch", "8"}, "drop --batch"},
                  {{"scaling", "--times", times, "--data", "synthetic"}, "drop --data"},
                  {{"scaling", "--times", times, "--output", times}, "is --times as well"},
                  {{"scaling", "--times", directory_ / "none.json"}, "none.json"}});
  EXPECT_EQ(read_file(times), before);
}

TEST_F(ScalingProgramTest, ALoaderGivesTheTimeOfABatch) {
  const std::map<std::string, std::string> cache{{"XDG_CACHE_HOME", directory_ / "cache"}};
  const Ran ran = run({"scaling", "resnet20", "--batch", "8", "--iterations", "1", "--data",
                       "synthetic:100", "--workers", "2", "--format", "json"},
                      cache);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_GT(json::parse(ran.out)["worker"]["t_io"], 0);
}

TEST_F(ScalingProgramTest, BadUsageIsOneLine) {
  expect_refused(
      [&](const Words& words) { return run(Words{"scaling"} + words); },
      {{{}, "scaling: no net: expected one, as in `convlab scaling resnet18`"},
       {{"nosuch"}, "unknown net 'nosuch'"},
       {{tiny}, "is no net"},
       {{"lenet", "--workers", "0"}, "--workers: '0'"},
       {{"lenet", "--workers", "1:4:2"}, "--workers: '1:4:2': expected LOW:HIGH:*FACTOR"},
       {{"lenet", "--workers", "2,1:4"}, "--workers: '2' stands twice"},
       {{"lenet", "--exchange", "sync"}, "expected one of overlapped, after, server"},
       {{"lenet", "--exchange", "after,after"}, "--exchange: 'after' stands twice"},
       {{"lenet", "--topology", "star"}, "expected one of ring, tree, hierarchical"},
       {{"lenet", "--latency", "25"}, "--latency: '25': expected a time with its unit"},
       {{"lenet", "--bandwidth", "10Gb"}, "--bandwidth: '10Gb': expected bits or bytes a second"},
       {{"lenet", "--bucket", "x"}, "--bucket: 'x'"},
       {{"lenet", "--data-threads", "1"}, "--data-threads is about the loader of --data: drop it"},
       {{"lenet", "--workers-per-host", "4"},
        "--workers-per-host is about --topology hierarchical"},
       {{"lenet", "--topology", "hierarchical", "--workers-per-host", "0"},
        "--workers-per-host: '0'"},
       {{"lenet", "--data", directory_ / "none"}, "--data: "},
       {{"lenet", "--svg", "x.png"}, "--svg: 'x.png': expected a name that ends in .svg"},
       {{"lenet", "--format", "hpp"}, "--format: 'hpp'"},
       {{"lenet", "--forward-only"}, "unknown flag '--forward-only'"}});
}

TEST_F(ScalingProgramTest, CtrlCEndsTheMeasurement) {
  Program program(directory_, {"scaling", "resnet20", "--batch", "8", "--iterations", "1000000"});
  program.wait_until_said("the first iteration");
  program.signal_group(SIGINT);
  const Ran ran = program.wait();
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(contains(ran.err, "interrupted before there was anything to print")) << ran.err;
}

// ---- tune --shard ----

class ShardProgramTest : public ProgramTest {
 protected:
  // One candidate a row, so that no verdict depends on times.
  Ran tune_shard(const Words& more, const std::map<std::string, std::string>& environment = {}) {
    return run(Words{"tune", tiny, strided, "--layout", "nchw", "--threads", "1", "--algos",
                     "direct_plain"} +
                   more,
               environment);
  }
  std::string db(const std::string& name) const { return directory_ / (name + ".db"); }
  json store(const std::string& name) {
    const Ran ran = run({"db", "export", "--db", db(name)});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return json::parse(ran.out)["rows"];
  }
};

TEST_F(ShardProgramTest, PartsMergeIntoAWholeThatNeedsNoMore) {
  std::size_t rows = 0;
  for (const std::string i : {"1", "2", "3"}) {
    const Ran ran = tune_shard({"--shard", i + "/3", "--db", db(i), "--format", "json"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const json part = json::parse(ran.out);
    EXPECT_EQ(part["shard"], (json{{"index", std::stoi(i)},
                                   {"count", 3},
                                   {"problems", part["layers"].size()},
                                   {"of", 6}}));
    rows += part["layers"].size();
    const Ran merged = run({"db", "merge", db(i), "--db", db("all")});
    EXPECT_EQ(merged.exit_code, 0) << merged.err;
    EXPECT_TRUE(contains(merged.out, "0 replaced by newer ones, 0 kept")) << merged.out;
  }
  EXPECT_EQ(rows, 6u);
  const json before = store("all");
  ASSERT_EQ(before.size(), 6u);
  const Ran whole = tune_shard({"--db", db("all"), "--format", "json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_TRUE(contains(whole.err, "resuming: 6 candidates are known")) << whole.err;
  const json table = json::parse(whole.out);
  EXPECT_EQ(table["layers"].size(), 6u);
  EXPECT_FALSE(table.contains("shard"));
  EXPECT_EQ(store("all"), before);
  EXPECT_EQ(run({"db", "verify", "--db", db("all")}).exit_code, 0);
}

TEST_F(ShardProgramTest, AnotherMachinesPartIsKeyedApart) {
  const std::map<std::string, std::string> other{{"CONVLAB_MACHINE", "l2=262144,l3=0"}};
  ASSERT_EQ(tune_shard({"--shard", "1/2", "--db", db("1")}).exit_code, 0);
  ASSERT_EQ(tune_shard({"--shard", "2/2", "--db", db("2")}, other).exit_code, 0);
  for (const std::string i : {"1", "2"})
    ASSERT_EQ(run({"db", "merge", db(i), "--db", db("all")}).exit_code, 0);
  const std::size_t mine = store("1").size();
  const Ran whole = tune_shard({"--db", db("all")});
  EXPECT_TRUE(contains(whole.err, fmt::format("resuming: {} candidates are known", mine)))
      << whole.err;
  EXPECT_EQ(store("all").size(), 6 + store("2").size());  // the other machine's rows stay
}

TEST_F(ShardProgramTest, EveryFormatSaysThatItIsAPart) {
  const std::string note = "Shard 1/2: 3 of 6 problems and passes, a part of the table";
  for (const char* format : {"table", "csv", "md", "hpp"}) {
    const Ran ran = tune_shard({"--shard", "1/2", "--format", format});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(contains(ran.out, note)) << ran.out;
  }
  EXPECT_FALSE(contains(tune_shard({}).out, "Shard"));
}

TEST_F(ShardProgramTest, BadShardsAreOneLine) {
  const std::string expected = "expected I/N with I from 1 to N, as in 1/4 for the first of four";
  std::vector<BadUsage> usages{{{"--shard", "1/7"}, "at most 6 shards"}};
  for (const char* text : {"0/2", "3/2", "2", "a/b", "1/0", "1/2/3"})
    usages.push_back({{"--shard", text}, fmt::format("--shard: '{}': {}", text, expected)});
  expect_refused([&](const Words& words) { return tune_shard(words); }, usages);
}

}  // namespace
}  // namespace convlab
