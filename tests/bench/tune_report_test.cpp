#include "bench/reports/tune_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/options/options.h"
#include "bench/options/targets.h"
#include "bench/reports/tune_cells.h"
#include "conv/error.h"
#include "nets/zoo/zoo.h"
#include "tests/bench/program/run_program.h"

namespace convlab {

using namespace nets;
namespace {

constexpr const char* sizes = "mb1ic16ih8oc16oh8kh3ph1";

Candidate candidate(const std::string& algo, double ms, Status status = Status::ok) {
  Candidate c;
  c.algo = algo;
  c.config = Config{{"tile", 4}};
  c.x_layout = Layout::nchw;
  c.y_layout = Layout::nchw16c;
  c.threads = 2;
  c.status = status;
  if (status != Status::ok) c.reason = "because, \"so\"";
  c.ms = ms;
  c.mad_ms = ms / 100;
  c.pack_ms = 0.5;
  c.convert_ms = 0.25;
  c.eff_gflops = 100;
  c.exec_gflops = 50;
  c.rel_error = 1e-7;
  c.workspace_bytes = 4096;
  c.packed_filter_bytes = 1024;
  return c;
}

// A first layer forward and backward_data, and a backward_filter for which nothing works.
TuneTable sample() {
  TuneTable table;
  table.provenance.fields = {{"cpu", "a \"cpu\""}, {"date", "today"}};
  LayerResult layer;
  layer.layer = parse_problem(std::string(sizes) + "n\"conv1*3\"");
  layer.first_layer = true;
  layer.candidates = {candidate("fast", 1.5), candidate("slow", 3),
                      candidate("wrong", 0, Status::inaccurate)};
  layer.candidates[2].rel_error = std::numeric_limits<double>::infinity();
  layer.chosen = 0;
  layer.verdict = Verdict::win;
  layer.ratio = {1.9, 2.0, 2.1};
  table.layers.push_back(layer);
  layer.layer.problem.set_pass(Pass::backward_data);
  table.layers.push_back(layer);
  layer.layer.problem.set_pass(Pass::backward_filter);
  layer.first_layer = false;
  layer.candidates = {candidate("no", 0, Status::refused)};
  layer.chosen.reset();
  layer.verdict = Verdict::none;
  layer.ratio = {};
  table.layers.push_back(layer);
  return table;
}

// oneDNN's backward_data does backward_filter's products too: alone it compares with nothing.
TEST(TuneReport, APeerThatDoesBothBackwardPassesIsComparedOverBoth) {
  Algos algos;
  append_all_algos(algos);
  if (!algos.recurrent.find(DeviceKind::cpu, "onednn.rnn")) GTEST_SKIP() << "built without oneDNN";
  TuneTable table;
  LayerResult data;
  data.layer = parse_recurrent_problem("rnn:t4mb1dhc16");
  data.layer.problem.set_pass(Pass::backward_data);
  data.candidates = {candidate("persistent", 2), candidate("onednn.rnn", 9)};
  for (Candidate& c : data.candidates) c.has_layouts = false;
  data.candidates[0].exec_gflops = data.candidates[0].eff_gflops;
  data.candidates[1].exec_gflops = 2 * data.candidates[1].eff_gflops;
  data.chosen = 0;
  data.verdict = Verdict::win;
  LayerResult filter = data;
  filter.layer.problem.set_pass(Pass::backward_filter);
  filter.candidates = {candidate("stepwise", 1)};
  filter.candidates[0].pack_ms = 0;
  table.layers = {data, filter};
  const std::string text = render(table, Format::table);
  EXPECT_EQ(text.find("× onednn"), std::string::npos) << text;
  EXPECT_NE(text.find("bwd_d and bwd_w: persistent + stepwise"), std::string::npos) << text;
  EXPECT_NE(text.find("3.500 ms, onednn.rnn"), std::string::npos) << text;
  EXPECT_NE(text.find("WIN      onednn.rnn+bwd_w"), std::string::npos) << text;
  EXPECT_EQ(text.find("nchw"), std::string::npos) << text;
  table.layers[0].candidates[1].status = Status::dropped;
  const std::string candidates = render_candidates(table, Format::table, true);
  EXPECT_NE(candidates.find("bwd_w's products are in its time"), std::string::npos) << candidates;

  table.layers[0].candidates[1].exec_gflops = table.layers[0].candidates[1].eff_gflops;
  EXPECT_NE(render(table, Format::table).find("× onednn"), std::string::npos);
}

TEST(TuneReport, JsonIsWhatScriptsRelyOn) {
  const auto json = nlohmann::json::parse(render(sample(), Format::json));
  EXPECT_EQ(json["provenance"]["cpu"], "a \"cpu\"");
  ASSERT_EQ(json["layers"].size(), 3u);
  const auto& first = json["layers"][0];
  EXPECT_EQ(first["layer"], "conv1");
  EXPECT_EQ(first["problem"], sizes);
  EXPECT_EQ(first["pass"], "fwd");
  EXPECT_EQ(first["count"], 3);
  EXPECT_EQ(first["verdict"], "WIN");
  EXPECT_EQ(first["ratio"], nlohmann::json({1.9, 2.0, 2.1}));
  const auto& chosen = first["chosen"];
  EXPECT_EQ(chosen["algo"], "fast");
  EXPECT_EQ(chosen["config"], "tile=4");
  EXPECT_EQ(chosen["layouts"], nlohmann::json({"nchw", "nchw16c"}));
  EXPECT_EQ(chosen["threads"], 2);
  EXPECT_EQ(chosen["cache"], "hot");
  EXPECT_EQ(chosen["ms"], 1.5);
  EXPECT_EQ(chosen["mad_ms"], 0.015);
  EXPECT_EQ(chosen["pack_ms"], 0.5);
  EXPECT_EQ(chosen["convert_ms"], 0.25);
  EXPECT_EQ(chosen["eff_gflops"], 100);
  EXPECT_EQ(chosen["exec_gflops"], 50);
  EXPECT_EQ(chosen["rel_error"], 1e-7);
  EXPECT_EQ(chosen["workspace_bytes"], 4096);
  EXPECT_EQ(chosen["packed_filter_bytes"], 1024);
  ASSERT_EQ(first["candidates"].size(), 3u);
  EXPECT_EQ(first["candidates"][0]["status"], "ok");
  EXPECT_EQ(first["candidates"][2]["status"], "inaccurate");
  EXPECT_EQ(first["candidates"][2]["reason"], "because, \"so\"");
  EXPECT_TRUE(first["candidates"][2]["rel_error"].is_null());
  EXPECT_TRUE(json["layers"][2]["chosen"].is_null());
  EXPECT_EQ(json["layers"][2]["verdict"], "NONE");
}

TEST(TuneReport, TotalsLeaveOutTheFirstLayersBackwardData) {
  const auto totals = nlohmann::json::parse(render(sample(), Format::json))["totals"];
  EXPECT_EQ(totals["fwd"]["ms"], 4.5);
  EXPECT_EQ(totals["bwd_d"]["ms"], 0);
  EXPECT_EQ(totals["all"]["ms"], 4.5);
  EXPECT_EQ(totals["all"]["layers_without"], 1);
  EXPECT_EQ(totals["complete"], true);
  EXPECT_NE(render(sample(), Format::table).find("first layer's bwd_d"), std::string::npos);
}

TEST(TuneReport, TableNamesTheChosenAndTheRunnerUp) {
  const std::string text = render(sample(), Format::table);
  EXPECT_NE(text.find("conv1  fwd    3  fast tile=4  1.500  WIN      slow 2.00 [1.90 2.10]\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("Stopped early"), std::string::npos);
  const std::string wide = render(sample(), Format::table, true);
  EXPECT_NE(wide.find("slow 2.00 [1.90 2.10]"), std::string::npos);
  EXPECT_NE(wide.find("nchw>nchw16c"), std::string::npos);
  EXPECT_NE(render(sample(), Format::md).find("nchw>nchw16c"), std::string::npos);
}

TEST(TuneReport, ARowWithoutAnAlgorithmSaysWhy) {
  TuneTable table = sample();
  table.layers[2].reason = "fft would do with --workspace-max 12345";
  for (const Format format : {Format::table, Format::md, Format::csv, Format::json})
    EXPECT_NE(render(table, format).find("fft would do with --workspace-max 12345"),
              std::string::npos);
  EXPECT_EQ(exit_code(table), 0);
  table.layers.erase(table.layers.begin(), table.layers.begin() + 2);
  EXPECT_EQ(exit_code(table), 1);
}

// The same with a choice that was never measured.
TuneTable predicted_sample() {
  TuneTable table = sample();
  for (LayerResult& layer : table.layers) {
    for (Candidate& c : layer.candidates) {
      c.predicted = true;
      c.rel_error = 0;
      c.workspace_bytes = c.packed_filter_bytes = 0;
    }
    if (layer.chosen) layer.verdict = Verdict::predicted;
  }
  return table;
}

TEST(TuneReport, PredictionsAreNeverDressedAsMeasurements) {
  const TuneTable table = predicted_sample();
  for (const bool wide : {false, true}) {
    const std::string text = render(table, Format::table, wide);
    EXPECT_NE(text.find(" ~1.500 "), std::string::npos) << text;
    EXPECT_NE(text.find(" predicted "), std::string::npos) << text;
    EXPECT_NE(text.find(" ~2.00"), std::string::npos) << text;
    EXPECT_NE(text.find("total fwd    ~4.500 ms"), std::string::npos) << text;
    for (const char* lie : {"WIN", "[1.90", "0 B", "0.0e+00"})
      EXPECT_EQ(text.find(lie), std::string::npos) << text;
    EXPECT_EQ(text.find("not measured") != std::string::npos, wide) << text;
    EXPECT_EQ(render_candidates(table, Format::table, wide).find("0.0e+00"), std::string::npos);
  }
  const std::string md = render(table, Format::md);
  EXPECT_NE(md.find("| ~1.500 |"), std::string::npos) << md;
  EXPECT_NE(md.find("| not measured |  | predicted |"), std::string::npos) << md;
  EXPECT_NE(render(table, Format::csv).find(",1.5,,,,100,50,,,,predicted,,2,,slow,\n"),
            std::string::npos)
      << render(table, Format::csv);
  const auto json = nlohmann::json::parse(render(table, Format::json));
  const auto& layer = json["layers"][0];
  EXPECT_EQ(layer["verdict"], "predicted");
  EXPECT_EQ(layer["ratio"], nlohmann::json({nullptr, 2, nullptr}));
  EXPECT_EQ(layer["chosen"]["predicted"], true);
  EXPECT_EQ(layer["chosen"]["ms"], 1.5);
  for (const char* field :
       {"mad_ms", "pack_ms", "convert_ms", "rel_error", "workspace_bytes", "packed_filter_bytes"})
    EXPECT_TRUE(layer["chosen"][field].is_null()) << field;
  EXPECT_EQ(json["totals"]["fwd"]["predicted"], 1);
  const std::string hpp = render(table, Format::hpp);
  EXPECT_NE(hpp.find("true, 1.5, -1, -1, -1}"), std::string::npos) << hpp;
}

// Other programs disturbed every sample, so the time is a prediction and the row is UNSURE.
TEST(TuneReport, RowsThatWereDisturbedAllAlongAreUnsure) {
  TuneTable table = predicted_sample();
  for (LayerResult& layer : table.layers)
    if (layer.chosen) layer.verdict = Verdict::unsure;
  const std::string text = render(table, Format::table);
  EXPECT_NE(text.find(" ~1.500 "), std::string::npos) << text;
  EXPECT_NE(text.find(" UNSURE "), std::string::npos) << text;
  const auto json = nlohmann::json::parse(render(table, Format::json));
  EXPECT_EQ(json["layers"][0]["verdict"], "UNSURE");
  EXPECT_EQ(json["layers"][0]["chosen"]["predicted"], true);
}

TEST(TuneReport, EqualRowsAreOneInTablesAndApartInFiles) {
  TuneTable table = sample();
  LayerResult again = table.layers[0];
  again.layer.name = "conv9";
  again.layer.count = 2;
  table.layers.push_back(again);
  const std::string text = render(table, Format::table);
  EXPECT_NE(text.find("conv1  fwd    5  "), std::string::npos) << text;
  EXPECT_EQ(text.find("conv9"), std::string::npos) << text;
  EXPECT_NE(text.find("total fwd    7.500 ms"), std::string::npos) << text;
  EXPECT_EQ(render(table, Format::md).find("conv9"), std::string::npos);
  EXPECT_EQ(render_candidates(table, Format::table).find("conv9"), std::string::npos);
  EXPECT_NE(render(table, Format::csv).find("conv9"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(render(table, Format::json))["layers"].size(), 4u);
  // The first layer's bwd_d is left out of totals, so it equals no other row.
  table.layers.back() = table.layers[1];
  table.layers.back().first_layer = false;
  EXPECT_NE(render(table, Format::table).find("total bwd_d  4.500 ms"), std::string::npos);
}

// conv1 forward, won by our own algorithm; its bwd_w, won by a vendor's; and a third row in which
// the vendor's was not measured.
TuneTable contested() {
  TuneTable table = sample();
  table.layers.resize(2);
  table.layers[1].layer.problem.set_pass(Pass::backward_filter);
  for (LayerResult& layer : table.layers) layer.layer.count = 1;
  table.layers[0].candidates = {candidate("direct", 2), candidate("fft", 3),
                                candidate("onednn.direct", 8, Status::dropped)};
  table.layers[1].candidates = {candidate("onednn.direct", 4), candidate("direct", 8)};
  table.layers.push_back(table.layers[0]);
  table.layers[2].layer.problem.set_batch(2);
  table.layers[2].candidates[2].predicted = true;
  return table;
}

TEST(TuneReport, PeersStandBesideTheChosen) {
  Algos algos;
  append_all_algos(algos);
  if (!algos.conv.find(DeviceKind::cpu, "onednn.direct")) GTEST_SKIP() << "built without oneDNN";
  const std::string text = render(contested(), Format::table);
  EXPECT_NE(text.find("× onednn"), std::string::npos) << text;
  // Packing the filter counts, as in the choice: 8.5 over 2.5.
  EXPECT_NE(text.find("direct tile=4         2.000      3.40  WIN "), std::string::npos) << text;
  EXPECT_NE(text.find("onednn.direct tile=4  4.000      1.00  WIN "), std::string::npos) << text;
  EXPECT_NE(text.find("direct tile=4         2.000            WIN "), std::string::npos) << text;
  EXPECT_NE(text.find("best of all 6.500 ms, own alone 10.500, onednn alone 12.500, with packing, "
                      "over 2 of 3 rows\n"),
            std::string::npos)
      << text;
  const auto sums = nlohmann::json::parse(render(contested(), Format::json))["totals"]["contest"];
  EXPECT_EQ(sums, nlohmann::json::parse(
                      R"({"rows":2,"of":3,"best_ms":6.5,"own_ms":10.5,"peer_ms":12.5})"));
  EXPECT_EQ(render(sample(), Format::table).find("×"), std::string::npos);  // no vendor's algorithm
}

TEST(TuneReport, UnsureRowsAreCountedInTheLastNote) {
  TuneTable table = sample();
  EXPECT_EQ(unsure_note(table, true), "");
  table.layers[0].verdict = Verdict::unsure;
  table.disturbances.others = 0.412;
  table.disturbances.processors = 2;
  EXPECT_EQ(unsure_note(table, true),
            "1 of 3 rows is UNSURE: other programs used 41% of 2 cores; run it again when they are "
            "idle");
  const std::string text = render(table, Format::table);
  EXPECT_NE(text.find("  1.500  UNSURE   slow"), std::string::npos) << text;
  EXPECT_NE(text.find(unsure_note(table, true)), std::string::npos) << text;
  table.disturbances.others = 0.04;
  EXPECT_EQ(unsure_note(table, true),
            "1 of 3 rows is UNSURE: too close to tell so far; the same command goes on from here");
  EXPECT_EQ(unsure_note(table, false), "1 of 3 rows is UNSURE: too close to tell so far");
}

// A prediction may lack a ratio, and one row takes the singular.
TEST(TuneReport, NextBestWithoutARatioIsANameOnly) {
  TuneTable table = predicted_sample();
  table.layers.resize(1);
  table.layers[0].ratio = {};
  EXPECT_EQ(show_next_best(table.layers[0], false), "slow");
  table.layers[0].verdict = Verdict::unsure;
  for (Candidate& c : table.layers[0].candidates) c.predicted = false;
  EXPECT_TRUE(unsure_note(table, false).starts_with("1 of 1 row is UNSURE: "));
}

// Long names, long configs, intervals, every verdict, packing, and batches.
TuneTable zoo_table(const std::string& net, const std::vector<std::int64_t>& batches) {
  CommonOptions options;
  options.targets = {net};
  options.batches = batches;
  DeviceInfo device;
  device.memory_bytes = std::int64_t(1) << 50;
  TuneTable table;
  table.provenance.fields = {{"cpu", "some cpu"}, {"threads", "128"}};
  table.disturbances.others = 0.41;
  table.complete = false;
  table.remaining_gain = 1234.5;
  std::size_t i = 0;
  for (const TuneItem& item : resolve_targets(options, device)) {
    LayerResult layer;
    layer.layer = item.layer;
    layer.first_layer = item.first_layer;
    Candidate best = candidate("implicit_gemm", i % 2 == 0 ? 0.123 : 1234.5);
    best.config = Config::parse("tile=4,schedule=private,block=49,stores=nontemporal");
    Candidate next = candidate("onednn.winograd", 1.2 * best.ms);
    Candidate no = candidate("fft_tiled", 0, Status::refused);
    no.reason = "needs a workspace of 123.4 MiB, above the limit of 64.0 MiB, as it always did";
    layer.candidates = {best, next, no};
    layer.chosen = 0;
    layer.verdict = i % 5 == 0 ? Verdict::unsure : Verdict::win;
    layer.ratio = {1.18, 1.2, 1.23};
    if (i % 7 == 3) layer.candidates[0].predicted = layer.candidates[1].predicted = true;
    if (i % 7 == 5) {
      layer.chosen.reset();
      layer.candidates = {no};
      layer.verdict = Verdict::none;
      layer.reason =
          "no algorithm is within the limits: winograd would do with --max-error 3.1e-06";
    }
    ++i;
    table.layers.push_back(std::move(layer));
  }
  return table;
}

TEST(TuneReport, TablesOfEveryNetFitATerminal) {
  for (std::string net : net_names()) {
    if (net.find(':') != net.npos) continue;  // no convolutions
    for (const std::vector<std::int64_t>& batches :
         {std::vector<std::int64_t>{1}, std::vector<std::int64_t>{1, 256}}) {
      const TuneTable table = zoo_table(net, batches);
      for (const std::string& text :
           {render(table, Format::table), render_candidates(table, Format::table)}) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);)
          EXPECT_LE(
              std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }),
              100)
              << net << "\n"
              << line;
      }
      const std::string text = render(table, Format::table);
      EXPECT_NE(text.find("[1.18 1.23]\n"), std::string::npos) << text;
      EXPECT_NE(text.find("no algorithm is"), std::string::npos) << text;
    }
  }
}

TEST(TuneReport, AnUnfinishedTableSaysSo) {
  TuneTable table = sample();
  table.complete = false;
  table.remaining_gain = 0.75;
  for (const Format format : {Format::table, Format::md, Format::csv})
    EXPECT_NE(
        render(table, format).find("Stopped early: untried candidates may save another 0.750"),
        std::string::npos);
  const auto totals = nlohmann::json::parse(render(table, Format::json))["totals"];
  EXPECT_EQ(totals["complete"], false);
  EXPECT_EQ(totals["remaining_gain_ms"], 0.75);
}

TEST(TuneReport, EveryCsvRowHasEveryColumn) {
  std::istringstream lines(render(sample(), Format::csv));
  std::ptrdiff_t columns = 0, rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const auto commas = std::count(line.begin(), line.end(), ',');
    if (rows++ == 0) columns = commas;
    EXPECT_EQ(commas, columns) << line;
  }
  EXPECT_EQ(rows, 4);  // with the names
}

TEST(TuneReport, CandidatesStandOneARow) {
  const std::string text = render_candidates(sample(), Format::csv);
  EXPECT_NE(text.find(std::string("\nconv1,") + sizes + ",fwd,,fast,tile=4,nchw>nchw16c,ok,0,1.5,"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("inaccurate"), std::string::npos);
  EXPECT_NE(text.find("\"because, \"\"so\"\"\""), std::string::npos);
}

TEST(TuneReport, CandidatesInFilesSayWhatWasPredicted) {
  const std::string csv = render_candidates(predicted_sample(), Format::csv);
  EXPECT_NE(csv.find(",status,predicted,ms,"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",ok,1,1.5,"), std::string::npos) << csv;
  const std::string table = render_candidates(predicted_sample(), Format::table, true);
  EXPECT_NE(table.find("~100.0        ~50.0 "), std::string::npos) << table;
}

// conv1 at two batches.
TuneTable two_batches() {
  TuneTable table = sample();
  table.layers.resize(1);
  table.layers.push_back(table.layers[0]);
  table.layers[1].layer.problem.set_batch(2);
  return table;
}

TEST(TuneReport, BatchesAreToldApartAndNotAddedUp) {
  for (const bool wide : {false, true}) {
    const std::string text = render_candidates(two_batches(), Format::table, wide);
    EXPECT_NE(text.find("batch  "), std::string::npos) << text;
    EXPECT_NE(
        text.find(
            "conv1 n=1 fwd: WIN: fast tile=4 nchw>nchw16c; next best slow, 2.00x [1.90 2.10]\n"
            "conv1 n=2 fwd: "),
        std::string::npos)
        << text;
  }
  const std::string text = render(two_batches(), Format::table);
  EXPECT_NE(text.find("total fwd   n=1  4.500 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("total fwd   n=2  4.500 ms"), std::string::npos) << text;
  EXPECT_EQ(text.find("total all"), std::string::npos) << text;  // one pass: the same line

  const auto totals = nlohmann::json::parse(render(two_batches(), Format::json))["totals"];
  EXPECT_EQ(totals["all"]["ms"], 9.0);
  EXPECT_EQ(totals["by_batch"].size(), 2u) << totals;
  for (const char* batch : {"1", "2"})
    for (const char* pass : {"fwd", "all"})
      EXPECT_EQ(totals["by_batch"][batch][pass]["ms"], 4.5) << totals;
  EXPECT_FALSE(
      nlohmann::json::parse(render(sample(), Format::json))["totals"].contains("by_batch"));
}

TEST(TuneReport, RowsThatDifferInLayoutsAloneShowThem) {
  TuneTable table = sample();
  table.layers.resize(1);
  EXPECT_EQ(render_candidates(table, Format::table).find("  tile=4 nchw"), std::string::npos);
  table.layers[0].candidates[1].algo = "fast";
  table.layers[0].candidates[1].x_layout = Layout::nchw16c;
  const std::string text = render_candidates(table, Format::table);
  EXPECT_NE(text.find(" tile=4 nchw>nchw16c\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" tile=4 nchw16c\n"), std::string::npos) << text;
  EXPECT_NE(text.find("; next best fast nchw16c, 2.00x"), std::string::npos) << text;
}

TEST(TuneReport, NothingOfResnet18IsCutShort) {
  TuneTable table = zoo_table("resnet18", {1});
  std::erase_if(table.layers, [](const LayerResult& layer) { return !layer.chosen; });
  for (LayerResult& layer : table.layers) {
    Candidate peer = candidate("onednn.direct", 34.5);
    layer.candidates = {candidate("implicit_gemm", 12.345), candidate("implicit_gemm", 23.4), peer};
    layer.verdict = Verdict::win;
  }
  const std::string text = render(table, Format::table);
  EXPECT_NE(text.find("layer2.0.downsample.0"), std::string::npos) << text;
  EXPECT_NE(text.find("implicit_gemm 1.20 [1.18 1.23]\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("…"), std::string::npos) << text;
}

TEST(TuneReport, TheHeaderCompilesAndFinds) {
  const TemporaryDirectory directory;
  TuneTable empty = sample();
  empty.layers.clear();
  // The same sizes and pass three times: inference, training, and with gates computed again.
  TuneTable tuned = sample();
  for (const char* algo : {"inference", "training", "again"}) {
    LayerResult& layer = tuned.layers.emplace_back(tuned.layers.front());
    layer.layer = parse_recurrent_problem("gru:t4mb1dhc16");
    layer.layer.problem.set_pass(Pass::forward, algo != std::string("inference"));
    if (algo == std::string("again")) layer.layer.problem.set_recompute();
    layer.candidates.front().algo = algo;
  }
  write_file(directory / "tuned.hpp", render(tuned, Format::hpp));
  write_file(directory / "empty.hpp", render(empty, Format::hpp));
  write_file(directory / "use.cpp", fmt::format(R"(#include "tuned.hpp"
constexpr auto find = [](auto... rest) {{ return convlab_tuned::find("{}", rest...); }};
static_assert(find("fwd")->algo == "fast");
static_assert(find("fwd")->ms == 1.5 && !find("fwd")->predicted);
static_assert(find("fwd")->y_layout == "nchw16c");
static_assert(find("bwd_w") == nullptr);
static_assert(find("fwd", "f64") == nullptr);
constexpr std::string_view gru = "gru:l1t4mb1sic16slc16dhc16dic16";
static_assert(convlab_tuned::find(gru, "fwd")->algo == "inference");
static_assert(convlab_tuned::find(gru, "fwd", "f32", "training")->algo == "training");
static_assert(convlab_tuned::find(gru, "fwd", "f32", "training+recompute")->algo == "again");
static_assert(convlab_tuned::find(gru, "fwd", "f32", "recompute") == nullptr);
static_assert(convlab_tuned::provenance[0].value == "a \"cpu\"");
)",
                                                sizes));
  write_file(directory / "use_empty.cpp", R"(#include "empty.hpp"
static_assert(convlab_tuned::find("mb1ic1ih1oc1oh1kh1", "fwd") == nullptr);
)");
  for (const char* file : {"use.cpp", "use_empty.cpp"}) {
    const std::string command = std::string(CONVLAB_TEST_COMPILER) +
                                " -std=c++20 -Wall -Wextra -Werror -fsyntax-only " +
                                (directory / file).string();
    EXPECT_EQ(std::system(command.c_str()), 0) << render(tuned, Format::hpp);
  }
}

}  // namespace
}  // namespace convlab
