#include "bench/tune_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/bench/run_program.h"

namespace convlab {
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
  layer.layer.problem.pass = Pass::backward_data;
  table.layers.push_back(layer);
  layer.layer.problem.pass = Pass::backward_filter;
  layer.first_layer = false;
  layer.candidates = {candidate("no", 0, Status::refused)};
  layer.chosen.reset();
  layer.verdict = Verdict::none;
  layer.ratio = {};
  table.layers.push_back(layer);
  return table;
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
  EXPECT_NE(text.find("fast"), std::string::npos);
  EXPECT_NE(text.find("slow 2.00x [1.90 2.10]"), std::string::npos);
  EXPECT_NE(text.find("nchw>nchw16c"), std::string::npos);
  EXPECT_EQ(text.find("Stopped early"), std::string::npos);
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

TEST(TuneReport, TimesThatSpreadFarAreNotPassedOffAsGood) {
  TuneTable table = sample();
  EXPECT_EQ(render(table, Format::table).find("Times spread"), std::string::npos);
  for (LayerResult& layer : table.layers)
    for (Candidate& c : layer.candidates) c.mad_ms = 0.25 * c.ms;
  EXPECT_NE(render(table, Format::table).find("Times spread by 25%"), std::string::npos);
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
  EXPECT_NE(text.find("\nconv1,fwd,fast,tile=4,nchw>nchw16c,ok,1.5,"), std::string::npos) << text;
  EXPECT_NE(text.find("inaccurate"), std::string::npos);
  EXPECT_NE(text.find("\"because, \"\"so\"\"\""), std::string::npos);
}

TEST(TuneReport, TheHeaderCompilesAndFinds) {
  const TemporaryDirectory directory;
  TuneTable empty = sample();
  empty.layers.clear();
  write_file(directory / "tuned.hpp", render(sample(), Format::hpp));
  write_file(directory / "empty.hpp", render(empty, Format::hpp));
  write_file(directory / "use.cpp", fmt::format(R"(#include "tuned.hpp"
constexpr auto find = [](auto... rest) {{ return convlab_tuned::find("{}", rest...); }};
static_assert(find("fwd")->algo == "fast");
static_assert(find("fwd")->ms == 1.5);
static_assert(find("fwd")->y_layout == "nchw16c");
static_assert(find("bwd_w") == nullptr);
static_assert(find("fwd", "f64") == nullptr);
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
    EXPECT_EQ(std::system(command.c_str()), 0) << render(sample(), Format::hpp);
  }
}

}  // namespace
}  // namespace convlab
