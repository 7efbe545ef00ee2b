// `convlab diff` end to end, on result files written here with known differences.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "autotune/store.h"
#include "bench/roofline_data.h"
#include "tests/bench/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// `spread` apart around ms; paired with themselves they make a ratio of exactly the medians'.
std::vector<double> samples(double ms, double spread = 0.01) {
  std::vector<double> values;
  for (int i = -4; i <= 4; ++i) values.push_back(ms * (1 + spread * i / 4));
  return values;
}

json chosen(const std::string& algo, double ms) {
  return {{"algo", algo},   {"config", "tile=4"}, {"layouts", {"nchw", "nchw16c"}}, {"threads", 2},
          {"cache", "hot"}, {"ms", ms},           {"samples_ms", samples(ms)}};
}

json layer(const std::string& name, const json& choice) {
  return {{"layer", name},
          {"problem", "mb1ic64ih9oc" + std::to_string(name.size()) + "oh9kh3ph1"},
          {"pass", "fwd"},
          {"dtype", "f32"},
          {"count", 1},
          {"chosen", choice},
          {"candidates", {{{"threads", 2}, {"cache", "hot"}}}}};
}

json tuning(const std::vector<json>& layers) {
  return {{"convlab_tune", 1},
          {"provenance", {{"cpu", "some cpu"}, {"isa", "avx2"}, {"threads", "2"}}},
          {"layers", layers}};
}

// A net of one timed convolution.
json timed(std::int64_t batch, double ms) {
  return {{"convlab_time", 1},
          {"provenance", {{"cpu", "some cpu"}, {"isa", "avx2"}, {"threads", "2"}}},
          {"net", {{"name", "lenet"}, {"batch", batch}, {"mode", "inference"}, {"dtype", "f32"}}},
          {"steps",
           {{{"layer", "conv1"},
             {"layouts", {"nchw", "nchw"}},
             {"phases", {{"forward", {{"ms", ms}, {"algo", "direct"}, {"config", ""}}}}}}}},
          {"iteration", {{"ms", ms}, {"samples_ms", samples(ms)}}}};
}

// The points of layer("l", ...): the chosen one, and another that is no row.
json roofline(const std::string& algo, double ms) {
  RooflineReport report;
  report.provenance = {{"cpu", "some cpu"}, {"isa", "avx2"}};
  RooflinePoint point;
  point.layer = "l";
  point.problem = "mb1ic64ih9oc1oh9kh3ph1";
  point.pass = "fwd";
  point.dtype = "f32";
  point.cache = "hot";
  point.threads = 2;
  point.algo = "fft";
  point.ms = 9;
  report.points = {point};
  point.chosen = true;
  point.algo = algo;
  point.config = "tile=4";
  point.layouts = "nchw>nchw16c";
  point.ms = ms;
  point.samples_ms = samples(ms);
  report.points.push_back(point);
  return json::parse(to_json(report));
}

class DiffTest : public testing::Test {
 protected:
  Ran diff(const Words& arguments) {
    Words words{"diff"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return Program(directory_, words).wait();
  }
  Ran diff(const json& a, const json& b, const Words& more = {}) {
    Words words{write("a.json", a.dump()), write("b.json", b.dump())};
    words.insert(words.end(), more.begin(), more.end());
    return diff(words);
  }
  std::string write(const std::string& name, const std::string& text) {
    write_file(directory_ / name, text);
    return directory_ / name;
  }
  // what -> verdict
  std::map<std::string, std::string> verdicts(const Ran& ran) {
    std::map<std::string, std::string> found;
    const json file = json::parse(ran.out);
    for (const json& row : file.at("rows")) found[row["what"]] = row["verdict"];
    return found;
  }
  TemporaryDirectory directory_;
};

TEST_F(DiffTest, EachKindOfChange) {
  const json a =
      tuning({layer("s", chosen("direct", 1)), layer("ff", chosen("direct", 1)),
              layer("lll", chosen("direct", 1)), layer("xxxx", chosen("direct", 1)),
              layer("ooooo", chosen("direct", 1)), layer("only a", chosen("direct", 1))});
  const json b = tuning({layer("s", chosen("direct", 1.01)), layer("ff", chosen("direct", 0.9)),
                         layer("lll", chosen("direct", 1.1)),
                         layer("xxxx", chosen("winograd", 0.5)), layer("ooooo", nullptr)});
  const Ran ran = diff(a, b, {"--format", "json"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  const std::map<std::string, std::string> expected{{"s n=1 fwd", "SAME"},
                                                    {"ff n=1 fwd", "FASTER"},
                                                    {"lll n=1 fwd", "SLOWER"},
                                                    {"xxxx n=1 fwd", "FLIPPED"},
                                                    {"ooooo n=1 fwd", "FLIPPED"}};
  EXPECT_EQ(verdicts(ran), expected);
  const json row = json::parse(ran.out)["rows"][2];
  EXPECT_NEAR(row["B/A"].get<double>(), 1.1, 1e-12);
  EXPECT_GT(row["low"].get<double>(), 1.02);
  EXPECT_TRUE(contains(ran.out, "Only in A: only a n=1 fwd.")) << ran.out;
  EXPECT_EQ(ran.err, "");
}

TEST_F(DiffTest, TheThresholdDecidesTheExitCode) {
  const json a = tuning({layer("l", chosen("direct", 1))}),
             b = tuning({layer("l", chosen("direct", 1.05))});
  EXPECT_EQ(diff(a, b).exit_code, 1);
  EXPECT_EQ(diff(a, b, {"--threshold", "4.5%"}).exit_code, 1);
  EXPECT_EQ(diff(a, b, {"--threshold", "6%"}).exit_code, 0);
  EXPECT_EQ(diff(b, a).exit_code, 0);
  const Ran md = diff(a, b, {"--format", "md"});
  EXPECT_TRUE(contains(md.out, "| l n=1 fwd | 1.000 | 1.050 | 1.05 | 1.05 | 1.05 | SLOWER |"))
      << md.out;
}

TEST_F(DiffTest, AChangeInsideTheNoiseIsNone) {
  json a = tuning({layer("l", chosen("direct", 1))}),
       b = tuning({layer("l", chosen("direct", 1.1))});
  a["layers"][0]["chosen"]["samples_ms"] = {1.5, 0.9, 1.0, 0.8, 1.4, 1.0, 1.2};
  b["layers"][0]["chosen"]["samples_ms"] = {0.9, 1.3, 1.1, 1.5, 0.8, 1.6, 1.1};
  const Ran noisy = diff(a, b, {"--format", "json"});
  EXPECT_EQ(noisy.exit_code, 0);
  EXPECT_EQ(verdicts(noisy)["l n=1 fwd"], "SAME") << noisy.out;
  b["layers"][0]["chosen"].erase("samples_ms");
  const Ran blind = diff(a, b, {"--format", "json"});
  EXPECT_EQ(blind.exit_code, 1);
  EXPECT_TRUE(contains(blind.out, "1 rows have too few samples")) << blind.out;
}

TEST_F(DiffTest, NetsCompareWithTheSameNetOnly) {
  const Ran ran = diff(timed(4, 1), timed(4, 2), {"--format", "csv"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_TRUE(contains(ran.out, "\niteration,1,2,2,2,2,SLOWER,,\n")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "conv1 forward,1,2,2,,,SLOWER,direct nchw,\n")) << ran.out;
  const Ran other = diff(timed(4, 1), timed(8, 2));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "batch 8")) << other.err;
  EXPECT_EQ(diff(timed(4, 1), tuning({layer("l", chosen("direct", 1))})).exit_code, 2);
}

TEST_F(DiffTest, RooflinesCompareWithEachOtherAndWithTunings) {
  const Ran ran = diff(roofline("direct", 1), roofline("direct", 2), {"--format", "csv"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.out, "\nl n=1 fwd,1,2,2,2,2,SLOWER,direct tile=4 nchw>nchw16c,\n"))
      << ran.out;
  const Ran mixed = diff(tuning({layer("l", chosen("direct", 1))}), roofline("winograd", 0.5),
                         {"--format", "json"});
  EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_EQ(verdicts(mixed)["l n=1 fwd"], "FLIPPED") << mixed.out;
  // Files of before there were samples in them: only the threshold decides.
  json bare = roofline("direct", 1);
  bare["points"][1].erase("samples_ms");
  const Ran blind = diff(bare, roofline("direct", 1.5));
  EXPECT_EQ(blind.exit_code, 1) << blind.err;
  EXPECT_TRUE(contains(blind.out, "1 rows have too few samples")) << blind.out;
}

TEST_F(DiffTest, StoresCompareByWhoWinsInThem) {
  const auto store = [&](const char* name, double direct_ms, double winograd_ms) {
    Store store(directory_ / name);
    for (const auto& [algo, ms] : {std::pair{"direct", direct_ms}, {"winograd", winograd_ms}}) {
      StoreRow row;
      row.problem = parse_problem("mb1ic16ih8oc16oh8kh3ph1").problem;
      row.fingerprint = "cpu=some cpu; isa=avx2; l1=1";
      row.date = "2026-01-31T23:59:59.999Z";
      row.candidate.algo = algo;
      row.candidate.threads = 2;
      row.candidate.ms = ms;
      row.candidate.samples_ms = samples(ms);
      store.put(row);
    }
    return store.path().string();
  };
  const Ran ran = diff({store("a.db", 1, 2), store("b.db", 1, 0.5), "--format", "json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const json row = json::parse(ran.out)["rows"][0];
  EXPECT_EQ(row["verdict"], "FLIPPED");
  EXPECT_EQ(row["A"], "direct nchw");
  EXPECT_EQ(row["B"], "winograd nchw");
  EXPECT_NEAR(row["B/A"].get<double>(), 0.5, 1e-12);
}

TEST_F(DiffTest, OtherMachinesAndThreadsAreToldApartFromOtherCode) {
  const json a = tuning({layer("l", chosen("direct", 1))});
  json b = a;
  b["provenance"]["cpu"] = "another cpu";
  b["layers"][0]["chosen"]["threads"] = 1;
  const Ran ran = diff(a, b);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_TRUE(contains(ran.err, "Different machines: A some cpu, avx2, B another cpu, avx2."));
  EXPECT_TRUE(contains(ran.err, "Different settings: A 2 threads, hot, B 1 thread, hot."));
}

TEST_F(DiffTest, WhatIsNoResultFileIsRefusedInOneLine) {
  const std::string good = write("good.json", tuning({layer("l", chosen("direct", 1))}).dump());
  json newer = json::parse(read_file(good)), torn = newer, strange = newer, impossible = newer;
  json newer_roofline = roofline("direct", 1), torn_roofline = newer_roofline;
  newer_roofline["convlab_roofline"] = 2;
  torn_roofline["points"][0].erase("ms");
  newer["convlab_tune"] = 2;
  torn["layers"][0]["chosen"].erase("ms");
  strange["layers"][0]["problem"] = "mb1ic64ih99oc64oh99kh3ph1";
  impossible["layers"][0]["problem"] = "mb1ic64ih9oc64oh5kh3ph1";
  const std::vector<std::pair<Words, std::string>> cases{
      {{}, "expected two"},
      {{good}, "expected two"},
      {{good, good, good}, "expected two"},
      {{good, directory_ / "missing.json"}, "missing.json"},
      {{good, write("text", "not json")}, "no JSON"},
      {{good, write("other.json", R"({"rows": []})")}, "other.json: expected a tuning store"},
      {{good, write("newer.json", newer.dump())}, "convlab_tune is of version 2: expected 1"},
      {{good, write("torn.json", torn.dump())}, "'ms' not found"},
      {{good, write("newer_roofline.json", newer_roofline.dump())}, "version 2: expected 1"},
      {{good, write("torn_roofline.json", torn_roofline.dump())}, "'ms' not found"},
      {{good, write("empty.json", tuning({}).dump())}, "no rows"},
      {{good, write("strange.json", strange.dump())}, "no row in common"},
      {{good, write("impossible.json", impossible.dump())}, "impossible.json: row 0: malformed"},
      {{good, write("broken.db", "SQLite format 3\nand then nothing")}, "broken.db"},
      {{good, good, "--threshold", "2"}, "as in 2%"},
      {{good, good, "--threshold", "-2%"}, "as in 2%"},
  };
  for (const auto& [words, says] : cases) {
    const Ran ran = diff(words);
    EXPECT_EQ(ran.exit_code, 2) << says << ran.err;
    EXPECT_TRUE(contains(ran.err, says)) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

}  // namespace
}  // namespace convlab
