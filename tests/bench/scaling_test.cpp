// Simulated scaling on the command line and in its reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/options/network_options.h"
#include "bench/options/ranges.h"
#include "bench/options/tune_options.h"
#include "bench/reports/nets/scaling_report.h"
#include "bench/reports/nets/worker_times.h"
#include "conv/error.h"
#include "nets/steps.h"
#include "nets/zoo/zoo.h"
#include "tests/bench/program/run_program.h"

namespace convlab {

using namespace nets;
namespace {

using nlohmann::json;

template <class Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(NetworkOptions, TakeUnits) {
  for (const auto& [text, seconds] : std::map<std::string, double>{{"0", 0},
                                                                   {"800ns", 8e-7},
                                                                   {"25us", 25e-6},
                                                                   {"2.5µs", 2.5e-6},
                                                                   {"1.5ms", 1.5e-3},
                                                                   {"0s", 0},
                                                                   {"1e-3s", 1e-3}})
    EXPECT_DOUBLE_EQ(parse_latency(text), seconds) << text;
  for (const auto& [text, bytes] : std::map<std::string, double>{{"10Gbit", 1.25e9},
                                                                 {"10gbit/s", 1.25e9},
                                                                 {"100Mbit", 1.25e7},
                                                                 {"8bit", 1},
                                                                 {"1.25GB", 1.25e9},
                                                                 {"3kB/s", 3e3},
                                                                 {"7B", 7},
                                                                 {"0.1Tbit", 1.25e10}})
    EXPECT_DOUBLE_EQ(parse_bandwidth(text), bytes) << text;
  for (const char* text : {"", "25", "us", "-1us", "25 us", "25m", "infs", "nans", "1e400us"})
    EXPECT_NE(message_of([&] { parse_latency(text); }), "") << text;
  for (const char* text : {"", "10", "10Gb", "10G", "0Gbit", "-1Gbit", "Gbit", "10gb", "10Xbit",
                           "10Gbit/min", "infbit", "1kkbit"})
    EXPECT_NE(message_of([&] { parse_bandwidth(text); }), "") << text;
  EXPECT_EQ(show_bandwidth(1.25e9), "10 Gbit/s");
  EXPECT_EQ(show_bandwidth(12.5), "100 bit/s");
  EXPECT_EQ(show_latency(25e-6), "25 us");
  EXPECT_EQ(show_latency(8e-7), "800 ns");
}

TEST(Ranges, AreLists) {
  EXPECT_EQ(parse_ranges("1,2:8:*2,16"), (std::vector<std::int64_t>{1, 2, 4, 8, 16}));
  EXPECT_NE(message_of([] { parse_ranges("1,1:3"); }), "");
  EXPECT_NE(message_of([] { parse_ranges("1,,3"); }), "");
}

TEST(TuneShard, IsAPartOfSome) {
  EXPECT_EQ(parse_shard("2/4").index, 2);
  EXPECT_EQ(parse_shard("2/4").count, 4);
  for (const char* text : {"", "2", "/", "2/", "/4", "0/4", "5/4", "1/0", "1/4/4", "a/4", "1 /4",
                           "-1/4", "1/99999999999999999999"})
    EXPECT_NE(message_of([&] { parse_shard(text); }), "") << text;
}

// Times of a net that takes 2 ms forward and 4 backward in each step.
NetTimes times_of(const Graph& graph) {
  NetTimes times;
  times.iterations.assign(3, {.io = 9, .h2d = 1, .forward = 30, .backward = 50, .update = 7});
  times.iterations.push_back({.io = 90, .h2d = 10, .forward = 300, .backward = 500, .update = 70});
  times.steps.resize(steps_of(graph, Mode::training).size());
  for (auto& phases : times.steps) phases = {{{2, 2}, {1, 1}, {3, 3}, {1, 1}}};
  return times;
}

TEST(WorkerTimes, AddUpToUndisturbedIterationsAndToTheNetsParameters) {
  for (const char* net : {"resnet20", "lenet", "googlenet"})
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Graph graph = make_net(net, 4);
      const WorkerTimes worker = worker_times(graph, dtype, times_of(graph));
      double forward = 0, backward = 0;
      std::int64_t bytes = 0;
      for (const LayerTimes& layer : worker.layers) {
        forward += layer.forward_s;
        backward += layer.backward_s;
        bytes += layer.gradient_bytes;
      }
      EXPECT_EQ(worker.batch, 4);
      EXPECT_NEAR(forward, 30e-3, 1e-12);
      EXPECT_NEAR(backward, 50e-3, 1e-12);
      EXPECT_NEAR(worker.layers[0].forward_s, 30e-3 / double(worker.layers.size()), 1e-12);
      EXPECT_EQ(worker.h2d_s, 1e-3);
      EXPECT_EQ(worker.update_s, 7e-3);
      EXPECT_EQ(worker.io_s, 0);
      EXPECT_EQ(bytes, graph.parameters() * size_of(dtype)) << net;
    }
}

// ---- Files of `convlab time` ----

class TimedWorkerFile : public testing::Test {
 protected:
  static json file() {
    json file{
        {"convlab_time", 1},
        {"provenance", {{"cpu", "a CPU"}, {"command", "convlab time lenet"}}},
        {"net",
         {{"name", "lenet"}, {"batch", 2}, {"streams", 1}, {"mode", "training"}, {"dtype", "f32"}}},
        {"iteration", {{"t_io", 9}, {"t_h2d", 1}, {"t_f", 30}, {"t_b", 50}, {"t_u", 7}}},
        {"steps", json::array()},
        {"complete", true}};
    const Graph graph = make_net("lenet", 2);
    for (const Step& step : steps_of(graph, Mode::training))
      file["steps"].push_back({{"layer", graph.nodes()[step.node].name},
                               {"phases",
                                {{"fwd", {{"ms", 2}}},
                                 {"bwd_d", {{"ms", 1}}},
                                 {"bwd_w", {{"ms", 3}}},
                                 {"update", {{"ms", 1}}}}}});
    return file;
  }
  TimedWorker read(const json& file) {
    write_file(directory_ / "time.json", file.dump());
    return read_timed_worker(directory_ / "time.json");
  }
  void expect_refused(const json& file, const std::string& says) {
    const std::string message = message_of([&] { read(file); });
    EXPECT_TRUE(contains(message, "time.json")) << says;
    EXPECT_TRUE(contains(message, says)) << message;
    EXPECT_FALSE(contains(message, "\n")) << message;
  }
  TemporaryDirectory directory_;
};

TEST_F(TimedWorkerFile, IsWhatWouldBeMeasured) {
  const Graph graph = make_net("lenet", 2);
  const WorkerTimes here = worker_times(graph, DType::f32, times_of(graph));
  const TimedWorker there = read(file());
  EXPECT_EQ(there.net, "lenet");
  ASSERT_EQ(there.worker.layers.size(), here.layers.size());
  for (std::size_t i = 0; i < here.layers.size(); ++i) {
    EXPECT_EQ(there.worker.layers[i].name, here.layers[i].name);
    EXPECT_DOUBLE_EQ(there.worker.layers[i].forward_s, here.layers[i].forward_s);
    EXPECT_DOUBLE_EQ(there.worker.layers[i].backward_s, here.layers[i].backward_s);
    EXPECT_EQ(there.worker.layers[i].gradient_bytes, here.layers[i].gradient_bytes);
  }
  EXPECT_EQ(there.worker.batch, 2);
  EXPECT_EQ(there.worker.update_s, here.update_s);
}

TEST_F(TimedWorkerFile, RefusesOthers) {
  const auto spoiled = [](const std::function<void(json&)>& spoil) {
    json file = TimedWorkerFile::file();
    spoil(file);
    return file;
  };
  expect_refused({{"convlab_tune", 1}}, "convlab time NET --format json");
  expect_refused(json::array(), "convlab time NET --format json");
  expect_refused(spoiled([](json& f) { f["convlab_time"] = 2; }), "of version 2: expected 1");
  expect_refused(spoiled([](json& f) { f["net"]["mode"] = "inference"; }), "--forward-only");
  expect_refused(spoiled([](json& f) { f["net"]["streams"] = 2; }), "--streams");
  expect_refused(spoiled([](json& f) { f["exchange"] = {{"ranks", 2}}; }), "without mpirun");
  expect_refused(spoiled([](json& f) { f["net"]["name"] = "nosuch"; }), "nosuch");
  expect_refused(spoiled([](json& f) { f["net"]["batch"] = "x"; }), "convlab_time 1");
  expect_refused(spoiled([](json& f) { f["complete"] = false; }), "interrupted");
  expect_refused(spoiled([](json& f) { f["steps"].erase(3); }), "its steps are not those of lenet");
  expect_refused(spoiled([](json& f) { f["steps"][2]["layer"] = "other"; }), "its steps are not");
  expect_refused(spoiled([](json& f) { f["steps"][2]["phases"].erase("bwd_d"); }), "bwd_d");
  expect_refused(spoiled([](json& f) { f["iteration"].erase("t_u"); }), "t_u");
  expect_refused(spoiled([](json& f) { f["iteration"]["t_u"] = -1; }), "t_u");
  expect_refused(spoiled([](json& f) { f["iteration"]["t_f"] = nullptr; }),
                 "iteration/t_f is null: expected a number");
  expect_refused(spoiled([](json& f) { f["steps"][2]["phases"]["bwd_w"]["ms"] = "1"; }),
                 "steps/2/phases/bwd_w/ms is string: expected a number");
  write_file(directory_ / "time.json", "{");
  EXPECT_TRUE(contains(message_of([&] { read_timed_worker(directory_ / "time.json"); }), "JSON"));
}

// ---- Reports ----

ScalingTable table_of(std::vector<std::int64_t> workers) {
  ScalingTable table;
  table.net = "net";
  table.worker.batch = 2;
  table.worker.h2d_s = 1e-3;
  table.worker.update_s = 1e-3;
  table.worker.layers = {
      {"conv", 1e-3, 3e-3, 4000}, {"relu", 1e-3, 1e-3, 0}, {"fc", 2e-3, 2e-3, 5000}};
  table.network.link = {0, 1e6};  // 1000 bytes a ms
  table.strategies.assign(std::begin(all_strategies), std::end(all_strategies));
  for (const std::int64_t n : workers)
    for (const Strategy strategy : table.strategies)
      table.points.push_back(
          scaling_point(table.worker, {n, strategy, 0, table.network}, std::int64_t{0}));
  table.provenance.fields = {{"cpu", "a CPU"}};
  return table;
}

TEST(ScalingReport, JsonHasTheSimulatedFigures) {
  const json file = json::parse(render(table_of({1, 2}), Format::json));
  EXPECT_EQ(file["convlab_scaling"], 1);
  EXPECT_EQ(file["net"], (json{{"name", "net"}, {"batch", 2}, {"dtype", "f32"}}));
  EXPECT_EQ(file["worker"]["gradient_bytes"], 9000);
  EXPECT_EQ(file["worker"]["layers"].size(), 3u);
  EXPECT_EQ(file["network"], (json{{"topology", "ring"},
                                   {"measured", false},
                                   {"latency_s", 0.0},
                                   {"bytes_per_s", 1e6},
                                   {"shares_at_once", {{"compute", 1.0}, {"exchange", 1.0}}}}));
  ASSERT_EQ(file["points"].size(), 6u);
  const json& one = file["points"][0];
  EXPECT_DOUBLE_EQ(one["ms"], 12);  // h2d 1, forward 4, backward 6, update 1
  EXPECT_EQ(one["speedup"], 1);
  EXPECT_TRUE(one["exposed_from"].is_null());
  // As in Simulation.TasksAreWhereTheyWouldBeDrawn: fc 7-12, conv 12-16, backward ends at 11.
  const json& overlapped = file["points"][3];
  EXPECT_EQ(overlapped["exchange"], "overlapped");
  EXPECT_EQ(overlapped["workers"], 2);
  EXPECT_DOUBLE_EQ(overlapped["ms"], 17);
  EXPECT_DOUBLE_EQ(overlapped["images_per_s"], 4 / 17e-3);
  EXPECT_DOUBLE_EQ(overlapped["speedup"], 24.0 / 17);
  EXPECT_DOUBLE_EQ(overlapped["efficiency"], 12.0 / 17);
  EXPECT_DOUBLE_EQ(overlapped["exchange_ms"], 9);
  EXPECT_NEAR(overlapped["exposed_ms"].get<double>(), 5, 1e-12);
  EXPECT_NEAR(overlapped["hidden"].get<double>(), 4.0 / 9, 1e-12);
  EXPECT_EQ(overlapped["exposed_from"], "fc");
  EXPECT_NEAR(file["points"][4]["hidden"].get<double>(), 0, 1e-12);  // after
}

TEST(ScalingReport, CountsMoreImagesThanAnIntegerHolds) {
  ScalingTable table = table_of({std::int64_t{1} << 40});
  table.worker.batch = std::int64_t{1} << 40;
  const json file = json::parse(render(table, Format::json));
  for (const json& point : file["points"])
    EXPECT_DOUBLE_EQ(point["images_per_s"].get<double>() * point["ms"].get<double>(),
                     1e3 * std::pow(2.0, 80));
}

TEST(ScalingReport, CsvHasARowAPointAndTheTableFits) {
  const ScalingTable table = table_of({1, 2, 1024});
  const std::string csv = render(table, Format::csv);
  EXPECT_TRUE(contains(csv,
                       "\nworkers,exchange,bucket_bytes,ms,images_per_s,speedup,efficiency,"
                       "exchange_ms,exposed_ms,hidden,batch,hiding_batch,exposed_from\n"))
      << csv;
  std::istringstream csv_lines(csv);
  std::size_t rows = 0;
  for (std::string line; std::getline(csv_lines, line);) rows += !line.starts_with('#');
  EXPECT_EQ(rows, 1 + table.points.size());
  std::istringstream text(render(table, Format::table));
  for (std::string line; std::getline(text, line) && !line.starts_with("cpu");)
    EXPECT_LE(line.size(), terminal_width) << line;
  // One worker exchanges nothing, however it would.
  EXPECT_EQ(occurrences(render(table, Format::md), "\n| 1 |"), 1);
}

// Two ranks took 20 ms where 17 were predicted.
ScalingTable measured_table() {
  ScalingTable table = table_of({1, 2, 4});
  table.network_measured = true;
  table.contention = {.compute = 0.8, .exchange = 0.55};
  table.points[3].measured = MeasuredExchange{Strategy::overlapped, 0, 20e-3, 10e-3, 8e-3};
  return table;
}

TEST(ScalingReport, MeasuredIterationsStandBesideTheirPrediction) {
  const json file = json::parse(render(measured_table(), Format::json));
  EXPECT_EQ(file["network"]["measured"], true);
  EXPECT_EQ(file["network"]["shares_at_once"], (json{{"compute", 0.8}, {"exchange", 0.55}}));
  EXPECT_FALSE(file["points"][2].contains("measured"));
  const json& measured = file["points"][3]["measured"];
  EXPECT_DOUBLE_EQ(measured["ms"], 20);
  EXPECT_DOUBLE_EQ(measured["ratio"], 17.0 / 20);
  EXPECT_DOUBLE_EQ(measured["exchange_ms"], 10);
  EXPECT_DOUBLE_EQ(measured["exposed_ms"], 8);
  EXPECT_NEAR(measured["hidden"].get<double>(), 0.2, 1e-12);

  const std::string csv = render(measured_table(), Format::csv);
  EXPECT_TRUE(contains(csv,
                       ",exposed_from,measured_ms,ratio,measured_exchange_ms,"
                       "measured_exposed_ms,measured_hidden\n"))
      << csv;
  EXPECT_TRUE(contains(csv, ",fc,20,0.85000")) << csv;
  EXPECT_TRUE(contains(csv, ",fc,,,,,\n")) << csv;  // of four workers nothing was measured

  const std::string text = render(measured_table(), Format::table);
  EXPECT_TRUE(contains(text, "as measured between the ranks")) << text;
  EXPECT_TRUE(contains(text, "at once  compute goes on at 80% of its speed, the exchange at 55%"));
  EXPECT_LT(text.find("20.0"), text.find("speedup")) << text;
  std::istringstream table_lines(text);
  for (std::string line; std::getline(table_lines, line) && !line.starts_with("cpu");)
    EXPECT_LE(line.size(), terminal_width) << line;
  EXPECT_TRUE(contains(render(measured_table(), Format::md), "| 0.85 |"));
}

TEST(ScalingReport, TheChartDrawsEveryStrategy) {
  const std::string script = text_chart_script(table_of({1, 2, 4}), 100);
  for (const Strategy strategy : all_strategies)
    EXPECT_TRUE(contains(script, "title '" + std::string(to_string(strategy)) + "'")) << script;
  EXPECT_TRUE(contains(script, "net, 2 images a worker: 4 workers are worth 2.")) << script;
  EXPECT_TRUE(contains(script, "\n1 2 70.5882 ")) << script;
  EXPECT_TRUE(contains(svg_chart_script(table_of({1, 2})), "set terminal svg"));
}

TEST(ScalingReport, TheTimelineShowsEveryTaskOfTheFirstRanks) {
  const json trace = json::parse(render_trace(table_of({1, 2, 100})));
  std::set<std::string> processes;
  std::map<int, std::map<int, double>> until;  // by process and row
  std::map<std::string, int> slices;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
    if (event["ph"] != "X") continue;
    double& end = until[event["pid"]][event["tid"]];
    EXPECT_GE(event["ts"].get<double>(), end - 1e-6) << event;
    end = event["ts"].get<double>() + event["dur"].get<double>();
    ++slices[event["name"]];
  }
  EXPECT_EQ(processes.size(), 12u);
  EXPECT_TRUE(processes.contains("server: rank 3 of 100"));
  EXPECT_EQ(slices["fc bwd"], 12 * 3);
  EXPECT_EQ(slices["all-reduce conv"], 8 * 3);
  EXPECT_EQ(slices["push fc"], 4 * 3);
  EXPECT_FALSE(slices.contains("t_io"));  // took no time
}

}  // namespace
}  // namespace convlab
