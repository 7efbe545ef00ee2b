// `convlab diff` end to end, on result files written here with known differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "autotune/store/store.h"
#include "bench/reports/roofline/roofline_data.h"
#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;

// `spread` apart around ms. Paired with themselves they give exactly the ratio of the medians.
std::vector<double> samples(double ms, double spread = 0.01) {
  std::vector<double> values;
  for (int i = -4; i <= 4; ++i) values.push_back(ms * (1 + spread * i / 4));
  return values;
}

// Five worker processes, 0.1% apart.
json processes(double ms) { return {ms * 0.999, ms * 0.9995, ms, ms * 1.0005, ms * 1.001}; }

json chosen(const std::string& algo, double ms) {
  return {{"algo", algo},
          {"config", "tile=4"},
          {"layouts", {"nchw", "nchw16c"}},
          {"threads", 2},
          {"cache", "hot"},
          {"status", "ok"},
          {"ms", ms},
          {"samples_ms", samples(ms)},
          {"process_ms", processes(ms)}};
}

json layer(const std::string& name, const json& choice) {
  return {{"layer", name},
          {"problem", "mb1ic64ih9oc" + std::to_string(name.size()) + "oh9kh3ph1"},
          {"pass", "fwd"},
          {"dtype", "f32"},
          {"count", 1},
          {"chosen", choice},
          {"verdict", choice.is_null() ? "NONE" : "WIN"},
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

// The points of layer("l", ...): the chosen one, and another that is not a row.
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
  // Row name -> verdict.
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
              layer("yyyyyyy", chosen("direct", 1)), layer("zzzzzzzz", chosen("direct", 1)),
              layer("ooooo", chosen("direct", 1)), layer("w", nullptr)});
  json b =
      tuning({layer("s", chosen("direct", 1.01)), layer("ff", chosen("direct", 0.9)),
              layer("lll", chosen("direct", 1.1)), layer("xxxx", chosen("winograd", 0.5)),
              layer("yyyyyyy", chosen("winograd", 1.5)), layer("zzzzzzzz", chosen("winograd", 1)),
              layer("ooooo", nullptr), layer("w", chosen("direct", 1))});
  b["layers"][0]["verdict"] = "UNSURE";
  const Ran ran = diff(a, b, {"--format", "json"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  const std::map<std::string, std::string> expected{{"s n=1 fwd", "SAME"},
                                                    {"ff n=1 fwd", "FASTER"},
                                                    {"lll n=1 fwd", "SLOWER"},
                                                    {"xxxx n=1 fwd", "FLIPPED faster"},
                                                    {"yyyyyyy n=1 fwd", "FLIPPED slower"},
                                                    {"zzzzzzzz n=1 fwd", "FLIPPED same"},
                                                    {"ooooo n=1 fwd", "FLIPPED slower"}};
  EXPECT_EQ(verdicts(ran), expected);
  const json file = json::parse(ran.out), row = file["rows"][2];
  EXPECT_NEAR(row["B/A"].get<double>(), 1.1, 1e-12);
  EXPECT_GT(row["low"].get<double>(), 1.02);
  EXPECT_EQ(file["rows"][0]["unsure"], "B");
  const json& summary = file["summary"];
  EXPECT_EQ(summary["exit_code"], 1);
  EXPECT_EQ(summary["reasons"], json({"2 slower", "1 without a working algorithm in B"}));
  EXPECT_EQ(summary["counts"]["FLIPPED slower"], 2);
  EXPECT_EQ(summary["counts"]["unsure"], 1);
  EXPECT_EQ(summary["drift"]["removed"], false);
  EXPECT_NEAR(summary["totals"]["B_ms"].get<double>(), 6.01, 1e-9);
  EXPECT_EQ(ran.err, "");
}

TEST_F(DiffTest, ARowThatIsMissingFails) {
  const json both = tuning({layer("s", chosen("direct", 1)), layer("only", chosen("direct", 1))}),
             one = tuning({layer("s", chosen("direct", 1))});
  const Ran ran = diff(both, one, {"--format", "json"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["summary"]["only_A"], json({"only n=1 fwd"}));
  EXPECT_EQ(json::parse(ran.out)["summary"]["reasons"], json({"1 missing in B"}));
  EXPECT_TRUE(contains(ran.out, "Only in A: only n=1 fwd.")) << ran.out;
  const Ran more = diff(one, both);
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_TRUE(contains(more.out, "Only in B: only n=1 fwd.")) << more.out;
}

// Two good runs out of three do not hide either fault.
TEST_F(DiffTest, ARunWithoutARowOrWithNothingThatWorksFails) {
  const auto run = [&](const std::string& name, const json& second) {
    std::vector<json> layers{layer("s", chosen("direct", 1))};
    if (!second.is_string()) layers.push_back(layer("two", second));
    return write(name, tuning(layers).dump());
  };
  const json good = chosen("direct", 1);
  const std::string a1 = run("a1", good), a2 = run("a2", good), b1 = run("b1", good),
                    b2 = run("b2", good), broken = run("broken", nullptr),
                    missing = run("missing", "");
  const auto summary = [&](const Words& before, const Words& after, int exit_code) {
    Words words{"--format", "json", "--before"};
    words.insert(words.end(), before.begin(), before.end());
    words.push_back("--after");
    words.insert(words.end(), after.begin(), after.end());
    const Ran ran = diff(words);
    EXPECT_EQ(ran.exit_code, exit_code) << ran.err;
    return json::parse(ran.out)["summary"];
  };
  const json nothing_works = summary({a1, a2}, {b1, broken, b2}, 1);
  EXPECT_EQ(nothing_works["reasons"], json({"1 without a time in one of B's runs"}));
  EXPECT_EQ(nothing_works["gaps"], json({"Nothing works in B2: two n=1 fwd"}));
  EXPECT_EQ(summary({a1, a2}, {b1, b2, missing}, 1)["gaps"], json({"Missing in B3: two n=1 fwd"}));
  EXPECT_EQ(summary({a1, missing, a2}, {b1, b2}, 0)["gaps"], json({"Missing in A2: two n=1 fwd"}));
}

// Processes of a run cluster, and runs differ. When rows scatter by 5%, a change of 15% in one row
// is chance. When the other rows agree, it is not.
TEST_F(DiffTest, TheScatterOfRowsShowsHowRunsDiffer) {
  const auto side = [&](double scatter, double last) {
    std::vector<json> layers;
    for (int i = 1; i <= 12; ++i)
      layers.push_back(layer(std::string(i, 'r'), chosen("direct", 1 + scatter * (i % 5 - 2) / 2)));
    layers.push_back(layer(std::string(13, 'r'), chosen("direct", last)));
    return tuning(layers);
  };
  const Ran scattered = diff(side(0, 1), side(0.07, 1.15), {"--format", "json"});
  EXPECT_EQ(scattered.exit_code, 0) << scattered.out;
  EXPECT_NEAR(json::parse(scattered.out)["summary"]["run_spread"].get<double>(), 0.037, 0.01);
  Words runs{"--format", "json"};  // three runs per side show it row by row
  for (const char* name : {"a", "b"}) {
    runs.push_back(*name == 'a' ? "--before" : "--after");
    for (const char* number : {"1", "2", "3"})
      runs.push_back(write(std::string(name) + number,
                           side(*name == 'a' ? 0 : 0.07, *name == 'a' ? 1 : 1.15).dump()));
  }
  EXPECT_EQ(json::parse(diff(runs).out)["summary"]["run_spread"], 0);
  const Ran steady = diff(side(0, 1), side(0.001, 1.15), {"--format", "json"});
  EXPECT_EQ(steady.exit_code, 1) << steady.out;
  EXPECT_EQ(json::parse(steady.out)["summary"]["counts"]["SLOWER"], 1);
}

// Without a control, changes in half of the rows look like scatter.
TEST_F(DiffTest, ScatterIsTheControlsWhereThereIsOne) {
  const auto side = [&](double half) {
    std::vector<json> layers;
    for (int i = 1; i <= 8; ++i) {
      layers.push_back(layer(std::string(i, 'r'), chosen("direct", i % 2 ? half : 1)));
      layers.back()["candidates"].push_back(chosen("onednn.direct", 2));
    }
    return tuning(layers);
  };
  const Ran alone = diff(side(1), side(1.5), {"--format", "json"});
  EXPECT_GT(json::parse(alone.out)["summary"]["run_spread"].get<double>(), 0.1);
  const Ran controlled = diff(side(1), side(1.5), {"--control", "onednn", "--format", "json"});
  EXPECT_EQ(controlled.exit_code, 1);
  EXPECT_EQ(json::parse(controlled.out)["summary"]["counts"]["SLOWER"], 4);
}

// 1 + 1 for packing against 2: equal in a training step, different in inference.
TEST_F(DiffTest, PackingCountsAsInTheRace) {
  json packed = chosen("winograd", 1), whole = chosen("direct", 2);
  packed["pack_ms"] = 1;
  packed["process_pack_ms"] = json(std::vector<double>(5, 1));
  whole["pack_ms"] = 0;
  json a = tuning({layer("l", packed), layer("mm", chosen("direct", 1))});
  json b = tuning({layer("l", whole), layer("mm", chosen("direct", 1))});
  EXPECT_EQ(verdicts(diff(a, b, {"--format", "json"}))["l n=1 fwd"], "FLIPPED slower");
  a["layers"][1]["pass"] = b["layers"][1]["pass"] = "bwd_w";
  const Ran ran = diff(a, b, {"--format", "json"});
  EXPECT_EQ(verdicts(ran)["l n=1 fwd"], "FLIPPED same") << ran.out;
  EXPECT_NEAR(json::parse(ran.out)["rows"][0]["A_ms"].get<double>(), 2, 1e-3);
  EXPECT_EQ(ran.err, "");
  const Ran mixed = diff(a, tuning({layer("l", whole)}));
  EXPECT_TRUE(contains(mixed.err, "Different packing: A counted, B left out.")) << mixed.err;
}

TEST_F(DiffTest, AFileIsOneRun) {
  const std::string a = write("a", tuning({layer("s", chosen("direct", 1))}).dump());
  const std::string b = write("b", tuning({layer("s", chosen("direct", 1))}).dump());
  std::filesystem::create_hard_link(a, directory_ / "same");
  for (const std::string& again : {a, std::string(directory_ / "same")}) {
    const Ran ran = diff({"--before", a, again, "--after", b});
    EXPECT_EQ(ran.exit_code, 2) << ran.out;
    EXPECT_TRUE(contains(ran.err, "are one file: expected a file for each run")) << ran.err;
  }
}

TEST_F(DiffTest, TheThresholdDecidesTheExitCode) {
  const json a = tuning({layer("l", chosen("direct", 1))}),
             b = tuning({layer("l", chosen("direct", 1.05))});
  EXPECT_EQ(diff(a, b).exit_code, 1);
  EXPECT_EQ(diff(a, b, {"--threshold", "3.5%"}).exit_code, 1);
  EXPECT_EQ(diff(a, b, {"--threshold", "6%"}).exit_code, 0);
  EXPECT_EQ(diff(b, a).exit_code, 0);
  const Ran md = diff(a, b, {"--format", "md"});
  EXPECT_TRUE(
      contains(md.out, "| l n=1 fwd | 1.000 | 1.050 | 1.05 | [1.05 1.05] | SLOWER | direct |"))
      << md.out;
}

TEST_F(DiffTest, AnIntervalThatMeetsTheThresholdIsNoChange) {
  const json a = tuning({layer("l", chosen("direct", 1))});
  json b = tuning({layer("l", chosen("direct", 1.1))});
  b["layers"][0]["chosen"]["process_ms"] = {1.0, 1.2, 1.1, 1.0, 1.2};
  const Ran ran = diff(a, b, {"--format", "json"});
  EXPECT_EQ(verdicts(ran)["l n=1 fwd"], "SAME");
  EXPECT_EQ(json::parse(ran.out)["summary"]["counts"]["open"], 1);
  for (const Words& words : {Words{}, Words{"--wide"}}) {
    b["layers"][0]["verdict"] = "UNSURE";
    const std::string table = diff(a, b, words).out;
    EXPECT_TRUE(contains(table, " SAME?* ")) << table;
    EXPECT_TRUE(contains(table, " 0 SAME within 2%, 1 SAME?")) << table;
    EXPECT_TRUE(contains(table, "1 of 1 row is open: ")) << table;
  }
  EXPECT_TRUE(contains(diff(a, a).out, " 1 SAME within 2%, 0 FLIPPED"));
  // Samples of one process do not show the spread between processes.
  json bare_a = a, bare_b = b;
  bare_a["layers"][0]["chosen"].erase("process_ms");
  bare_b["layers"][0]["chosen"].erase("process_ms");
  const Ran blind = diff(bare_a, bare_b, {"--format", "json"});
  EXPECT_EQ(blind.exit_code, 0) << blind.err;
  EXPECT_TRUE(contains(blind.out, "1 row has under 3 processes or runs a side")) << blind.out;
  bare_b["layers"][0]["chosen"]["ms"] = 1.5;
  EXPECT_EQ(diff(bare_a, bare_b).exit_code, 1);
}

TEST_F(DiffTest, SeveralRunsASideAreTheSamples) {
  const auto bare = [&](const char* name, double ms) {
    json file = tuning({layer("l", chosen("direct", ms))});
    file["layers"][0]["chosen"].erase("process_ms");
    return write(name, file.dump());
  };
  const std::string a1 = bare("a1", 1), a2 = bare("a2", 1.005), a3 = bare("a3", 0.995),
                    b1 = bare("b1", 1.2), b2 = bare("b2", 1.205), b3 = bare("b3", 1.195);
  const Ran ran = diff({"--before", a1, a2, a3, "--after", b1, b2, b3, "--format", "json"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["summary"]["runs"], json({{"A", 3}, {"B", 3}}));
  EXPECT_EQ(diff({a1, b1}).exit_code, 0);
  EXPECT_EQ(diff({"--before", a1, b2, a3, "--after", b1, a2, b3}).exit_code, 0);
}

TEST_F(DiffTest, APredictionIsNotCompared) {
  const json a = tuning({layer("l", chosen("direct", 1)), layer("xx", chosen("direct", 1))});
  json b = tuning({layer("l", chosen("direct", 9)), layer("xx", chosen("direct", 1))});
  b["layers"][0]["verdict"] = "predicted";
  const Ran ran = diff(a, b, {"--format", "json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(verdicts(ran)["l n=1 fwd"], "not measured");
  EXPECT_EQ(json::parse(ran.out)["summary"]["counts"]["not measured"], 1);
}

TEST_F(DiffTest, DriftOfAllRowsOrOfAControlIsDividedOut) {
  std::vector<json> before, after;
  for (const char* name : {"a", "bb", "ccc", "dddd", "eeeee", "ffffff"}) {
    before.push_back(layer(name, chosen("direct", 1)));
    after.push_back(layer(name, chosen("direct", 1.2)));
    before.back()["candidates"].push_back(chosen("onednn.gemm", 2));
    after.back()["candidates"].push_back(chosen("onednn.gemm", 2));
  }
  const Ran drifted = diff(tuning(before), tuning(after), {"--format", "json"});
  EXPECT_EQ(drifted.exit_code, 0) << drifted.err;
  EXPECT_NEAR(json::parse(drifted.out)["summary"]["drift"]["ratio"].get<double>(), 1.2, 1e-9);
  EXPECT_TRUE(contains(drifted.err, "--control onednn tells")) << drifted.err;
  const Ran controlled =
      diff(tuning(before), tuning(after), {"--format", "json", "--control", "onednn"});
  EXPECT_EQ(controlled.exit_code, 1) << controlled.err;
  EXPECT_EQ(json::parse(controlled.out)["summary"]["drift"]["ratio"], 1);
  const Ran unknown = diff(tuning(before), tuning(after), {"--control", "cudnn"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(contains(unknown.err, "--control cudnn: no candidate")) << unknown.err;
}

TEST_F(DiffTest, NetsCompareWithTheSameNetOnly) {
  const Ran ran = diff(timed(4, 1), timed(4, 2), {"--format", "csv"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_TRUE(contains(ran.out, "\niteration,1,2,2,")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "\nconv1 forward,1,2,2,")) << ran.out;
  EXPECT_TRUE(contains(ran.out, ",SLOWER,,direct nchw,\n")) << ran.out;
  const Ran other = diff(timed(4, 1), timed(8, 2));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "batch 8")) << other.err;
  EXPECT_EQ(diff(timed(4, 1), tuning({layer("l", chosen("direct", 1))})).exit_code, 2);
}

TEST_F(DiffTest, RooflinesCompareWithEachOtherAndWithTunings) {
  const Ran ran = diff(roofline("direct", 1), roofline("direct", 2), {"--format", "csv"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.out, "\nl n=1 fwd,1,2,2,")) << ran.out;
  EXPECT_TRUE(contains(ran.out, ",SLOWER,,direct tile=4 nchw>nchw16c,\n")) << ran.out;
  const Ran mixed = diff(tuning({layer("l", chosen("direct", 1))}), roofline("winograd", 0.5),
                         {"--format", "json"});
  EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_EQ(verdicts(mixed)["l n=1 fwd"], "FLIPPED faster") << mixed.out;
}

class DiffOfStoresTest : public DiffTest {
 protected:
  StoreRow row(const std::string& algo, double ms, Status status = Status::ok) {
    StoreRow row;
    row.problem = parse_problem("mb1ic16ih8oc16oh8kh3ph1").problem;
    row.fingerprint = "cpu=some cpu; isa=avx2; l1=1";
    row.date = "2026-01-31T23:59:59.999Z";
    row.candidate.algo = algo;
    row.candidate.status = status;
    row.candidate.threads = 2;
    row.candidate.ms = ms;
    row.candidate.samples_ms = samples(ms);
    row.candidate.process_ms = processes(ms).get<std::vector<double>>();
    row.candidate.process_pack_ms.assign(row.candidate.process_ms.size(), 0);
    return row;
  }
  std::string store(const char* name, const std::vector<StoreRow>& rows) {
    Store store(directory_ / name);
    for (const StoreRow& row : rows) store.put(row);
    return store.path().string();
  }
};

TEST_F(DiffOfStoresTest, TheWinnersAreCompared) {
  const Ran ran =
      diff({store("a.db", {row("direct", 1), row("winograd", 2)}),
            store("b.db", {row("direct", 1), row("winograd", 0.5)}), "--format", "json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const json file = json::parse(ran.out), pair = file["rows"][0];
  EXPECT_EQ(file["rows"].size(), 1U);
  EXPECT_EQ(pair["verdict"], "FLIPPED faster");
  EXPECT_EQ(pair["A"], "direct nchw");
  EXPECT_EQ(pair["B"], "winograd nchw");
  EXPECT_NEAR(pair["B/A"].get<double>(), 0.5, 1e-12);
}

// A store of one setting and a later one of two: rows of the setting that both hold are compared.
TEST_F(DiffOfStoresTest, RowsOfOneSettingMatchThoseOfAStoreThatHoldsMore) {
  const auto compared = [&](const std::vector<StoreRow>& a, const std::vector<StoreRow>& b) {
    const Ran ran = diff({store("a.db", a), store("b.db", b), "--format", "json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    std::filesystem::remove_all(directory_ / "a.db");
    std::filesystem::remove_all(directory_ / "b.db");
    return ran.exit_code == 0 ? json::parse(ran.out) : json{{"rows", json::array()}};
  };
  const StoreRow before = row("direct", 2), after = row("direct", 1);
  StoreRow one_thread = row("direct", 4), elsewhere = row("direct", 5);
  one_thread.candidate.threads = 1;
  elsewhere.fingerprint = "cpu=another cpu; isa=avx2; l1=1";
  const json threads = compared({before}, {after, one_thread});
  ASSERT_EQ(threads["rows"].size(), 1U) << threads;
  EXPECT_DOUBLE_EQ(threads["rows"][0]["A_ms"].get<double>(), 2);
  EXPECT_DOUBLE_EQ(threads["rows"][0]["B_ms"].get<double>(), 1);
  EXPECT_EQ(threads["summary"]["only_B"].size(), 1U) << threads;
  const json machines = compared({before}, {after, elsewhere});
  ASSERT_EQ(machines["rows"].size(), 1U) << machines;
  EXPECT_DOUBLE_EQ(machines["rows"][0]["B_ms"].get<double>(), 1);
}

TEST_F(DiffOfStoresTest, WithoutACommonSettingTheSettingsAreNamed) {
  StoreRow one = row("direct", 1), four = row("direct", 1);
  one.candidate.threads = 1;
  four.candidate.threads = 4;
  const Ran ran = diff({store("a.db", {row("direct", 1)}), store("b.db", {one, four})});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_TRUE(contains(ran.err, "(2 threads, hot), the other with")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "(1 thread, hot)")) << ran.err;
}

// Each names the libraries it uses in its fingerprint.
TEST_F(DiffOfStoresTest, AlgorithmsOfOtherLibrariesAreRivalsInOneRow) {
  StoreRow onednn = row("onednn.direct", 0.5), blas = row("im2col", 2);
  onednn.fingerprint += "; onednn=2.6.3";
  blas.fingerprint += "; openblas=0.3.21";
  const std::string file = store("a.db", {row("direct", 1), onednn, blas});
  const Ran ran = diff({file, file, "--format", "json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const json rows = json::parse(ran.out)["rows"];
  ASSERT_EQ(rows.size(), 1U) << rows;
  EXPECT_EQ(rows[0]["what"], "mb1ic16ih8oc16oh8kh3ph1 fwd");
  EXPECT_EQ(rows[0]["A"], "onednn.direct nchw");
}

TEST_F(DiffOfStoresTest, DroppedCandidatesWork) {
  StoreRow never_run = row("fft", 0.1, Status::dropped);
  never_run.candidate.predicted = true;
  const std::string a = store("a.db", {row("direct", 1)}),
                    b = store("b.db", {row("direct", 1, Status::dropped),
                                       row("winograd", 2, Status::dropped), never_run,
                                       row("im2col", 0.1, Status::failed)});
  const Ran ran = diff({a, b, "--format", "json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_EQ(json::parse(ran.out)["rows"][0]["verdict"], "SAME") << ran.out;
}

TEST_F(DiffOfStoresTest, TheTableFitsATerminal) {
  const auto wide = [&](const char* algo) {
    std::vector<StoreRow> rows{row(algo, 100.5), row("im2col", 900)};
    for (StoreRow& r : rows) {
      r.problem = parse_problem("g2mb128ic256ih224iw112oc512oh112ow56kh11kw7sh2ph5pw3").problem;
      r.problem.set_pass(Pass::backward_filter);
      r.candidate.config = Config::parse("tile=4,block=128,order=321");
    }
    return rows;
  };
  const std::string a = store("a.db", wide("onednn.direct")),
                    b = store("b.db", wide("implicit_gemm"));
  const Ran ran = diff({a, b});
  std::istringstream lines(ran.out.substr(0, ran.out.find("\nA ")));  // provenance follows
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }),
              100)
        << line;
  EXPECT_TRUE(contains(ran.out, "bwd_w ")) << ran.out;
  EXPECT_TRUE(contains(diff({a, b, "--wide"}).out, "order=321")) << ran.out;
}

// Long names, of 3-D problems, that differ in the middle or near the front.
TEST_F(DiffTest, ShortenedNamesStayDistinct) {
  std::vector<json> layers;
  for (const char* problem : {"mb128ic256id8ih224iw112oc512od8oh224ow112kd3kh3kw3pd1ph1pw1",
                              "mb128ic256id8ih224iw112oc384od8oh224ow112kd3kh3kw3pd1ph1pw1",
                              "mb128ic256id9ih224iw112oc384od9oh224ow112kd3kh3kw3pd1ph1pw1"}) {
    layers.push_back(layer("", chosen("direct", 1)));
    layers.back()["problem"] = problem;
  }
  const Ran ran = diff(tuning(layers), tuning(layers));
  std::set<std::string> names;
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);)
    if (contains(line, "SAME") && contains(line, "…"))
      names.insert(line.substr(0, line.find("  ")));
  EXPECT_EQ(names.size(), 3U) << ran.out;
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

// Every format that this program writes and reads, as currently written.
class EveryFormat : public DiffTest, public testing::WithParamInterface<Words> {};

const Words quick{"mb1ic16ih8oc16oh8kh3ph1",
                  "--pass",
                  "fwd",
                  "--algos",
                  "im2col",
                  "--threads",
                  "1",
                  "--format",
                  "json"};
Words quickly(const char* verb, const Words& more = {}) {
  Words words = quick;
  words.insert(words.begin(), verb);
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, EveryFormat,
    testing::Values(quickly("tune"), quickly("bench"), quickly("sweep", {"-a", "n=1,2"}),
                    quickly("roofline", {"--measure", "--no-phases"}),
                    Words{"time", "lenet", "--forward-only", "--iterations", "2", "--format",
                          "json"},
                    Words{"plan", "lenet", "--forward-only", "--format", "json"},
                    Words{"db", "export"}),
    [](const auto& info) { return info.param[0]; });

TEST_P(EveryFormat, IsReadAgain) {
  const auto run = [&](const Words& words) { return Program(directory_, words).wait(); };
  const std::string verb = GetParam()[0];
  if (verb == "db") {
    ASSERT_EQ(run(quickly("tune")).exit_code, 0);
  }
  const Ran ran = run(GetParam());
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string file = write("result", ran.out);
  const Ran same = diff({file, file});
  // Without a store a plan has only predictions.
  EXPECT_EQ(same.exit_code, verb == "plan" ? 1 : 0) << same.out << same.err;
  EXPECT_TRUE(contains(same.out, verb == "plan" ? "not measured" : "SAME")) << same.out;
  const std::map<std::string, Words> readers{
      {"plan", {"time", "lenet", "--plan", file, "--iterations", "1"}},
      {"roofline", {"roofline", "--from", file}},
      {"db", {"db", "import", file, "--db", directory_ / "other.db"}}};
  if (const auto reader = readers.find(verb); reader != readers.end()) {
    const Ran again = run(reader->second);
    EXPECT_EQ(again.exit_code, 0) << again.err;
  }
}

TEST_F(DiffTest, NothingMeasuredOnBothSidesFails) {
  json predicted = tuning({layer("l", chosen("direct", 1))});
  predicted["layers"][0]["verdict"] = "predicted";
  const Ran ran = diff(predicted, tuning({layer("l", chosen("direct", 1))}));
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.out, "FAILED: no row is measured on both sides.")) << ran.out;
}

TEST_F(DiffTest, WhatIsNoResultFileIsRefusedInOneLine) {
  const std::string good = write("good.json", tuning({layer("l", chosen("direct", 1))}).dump());
  json newer = json::parse(read_file(good)), torn = newer, strange = newer, impossible = newer,
       timeless = newer;
  json newer_roofline = roofline("direct", 1), torn_roofline = newer_roofline;
  newer_roofline["convlab_roofline"] = 2;
  torn_roofline["points"][0].erase("ms");
  newer["convlab_tune"] = 2;
  torn["layers"][0]["chosen"].erase("ms");
  timeless["layers"][0]["chosen"]["process_ms"][1] = 0;
  strange["layers"][0]["problem"] = "mb1ic64ih99oc64oh99kh3ph1";
  impossible["layers"][0]["problem"] = "mb1ic64ih9oc64oh5kh3ph1";
  const std::vector<BadUsage> cases{
      {{}, "0 files: expected"},
      {{good}, "1 file: expected"},
      {{good, good, good}, "3 files: expected BEFORE AFTER"},
      {{good, "--before", good, "--after", good}, "belongs to neither side"},
      {{"--before", good}, "--before without --after"},
      {{good, directory_ / "missing.json"}, "missing.json' (No such file"},
      {{good, directory_.path()}, "' (Is a directory)"},
      {{good, write("text", "not json")}, "not JSON"},
      {{good, write("other.json", R"({"rows": []})")}, "other.json: expected a tuning store"},
      {{good, write("newer.json", newer.dump())}, "convlab_tune is of version 2: expected 1"},
      {{good, write("torn.json", torn.dump())}, "'ms' not found"},
      {{good, write("newer_roofline.json", newer_roofline.dump())}, "version 2: expected 1"},
      {{good, write("torn_roofline.json", torn_roofline.dump())}, "'ms' not found"},
      {{good, write("empty.json", tuning({}).dump())}, "no rows"},
      {{good, write("timeless.json", timeless.dump())}, "l n=1 fwd: 0 ms: expected a time above 0"},
      {{good, write("strange.json", strange.dump())}, "no row in common"},
      {{good, write("impossible.json", impossible.dump())}, "impossible.json: row 0: malformed"},
      {{good, write("broken.db", "SQLite format 3\nand then nothing")}, "broken.db"},
      {{good, good, "--threshold", "2"}, "as in 2%"},
      {{good, good, "--threshold", "-2%"}, "as in 2%"},
  };
  expect_refused([&](const Words& words) { return diff(words); }, cases);
}

}  // namespace
}  // namespace convlab
