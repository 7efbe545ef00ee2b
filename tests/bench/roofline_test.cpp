// Rooflines and explanations: the model's numbers, the files, and the page in a browser.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "autotune/candidates.h"
#include "bench/reports/algo_marks.h"
#include "bench/reports/explain_data.h"
#include "bench/reports/gnuplot.h"
#include "bench/reports/roofline/roofline_report.h"
#include "conv/error.h"
#include "conv/refusals.h"
#include "conv/types/math_type.h"
#include "kernels_cpu/cpu.h"
#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;

const std::vector<Roof> roofs{
    {"registers", "f32", 2, true, 100e9, 0.01, ""}, {"registers", "f64", 2, true, 50e9, 0.01, ""},
    {"L2", "read", 2, true, 80e9, 0.01, ""},        {"L2", "copy", 2, true, 60e9, 0.01, ""},
    {"L3", "read", 2, true, 40e9, 0.01, ""},        {"memory", "read", 2, true, 10e9, 0.01, ""},
    {"memory", "read", 1, true, 9e9, 0.01, ""}};

class RooflineTest : public testing::Test {
 protected:
  RooflineTest() {
    device_.threads = 2;
    device_.l2_bytes = 1 << 20;
    device_.l3_bytes = 16 << 20;
    candidate_.algo = "direct";
    candidate_.threads = 2;
    candidate_.ms = 1;
  }
  RooflinePoint point(const WorkEstimate& work) {
    return roofline_point(work, problem_, candidate_, device_, roofs);
  }
  // 50 MFLOP over 1 MB by default: 50 FLOPs a byte.
  static WorkEstimate work(double flops = 50e6, double bytes = 1e6) {
    return {{{.name = "product", .flops = flops, .bytes_read = bytes, .bytes_written = 0}}};
  }
  DeviceInfo device_;
  Candidate candidate_;
  ConvProblem problem_ = parse_problem("mb1ic64ih56oc64oh56kh3ph1").problem;  // 1.75 MB
};

TEST_F(RooflineTest, IsThePeakOrTheBandwidthTimesTheIntensity) {
  RooflinePoint p = point(work());
  EXPECT_EQ(p.limit, "f32 peak");
  EXPECT_DOUBLE_EQ(p.attained_gflops, 50);
  EXPECT_DOUBLE_EQ(p.attainable_gflops, 100);
  EXPECT_DOUBLE_EQ(p.percent_of_roof, 50);
  EXPECT_DOUBLE_EQ(p.headroom_ms, 0.5);
  EXPECT_EQ(p.status, "ok");
  ASSERT_EQ(p.levels.size(), 1u);  // all of it fits in the two L2
  EXPECT_EQ(p.levels[0].level, "L2");
  EXPECT_DOUBLE_EQ(p.levels[0].flops_per_byte, 50);

  candidate_.workspace_bytes = 1 << 20;  // no longer fits
  p = point(work(4e6, 2e6));
  ASSERT_EQ(p.levels.size(), 2u);
  EXPECT_EQ(p.limit, "L3");
  EXPECT_DOUBLE_EQ(p.attainable_gflops, 80);  // 2 FLOPs a byte at 40 GB/s

  candidate_.cache = CacheMode::cold;  // every tensor once from memory, repeated reads not counted
  p = point(work(4e6, 200e6));
  ASSERT_EQ(p.levels.size(), 3u);
  EXPECT_DOUBLE_EQ(p.levels[2].bytes,
                   double(problem_.x_bytes() + problem_.y_bytes() + problem_.filter_bytes()));
}

TEST_F(RooflineTest, ThatIsPassedIsAnError) {
  candidate_.ms = 0.45;  // 111 GFLOP/s under a peak of 100
  EXPECT_EQ(point(work()).status, "above roof");
  candidate_.mad_ms = 0.03;  // but within the samples' spread
  EXPECT_EQ(point(work()).status, "ok");
}

TEST_F(RooflineTest, TensorCoresAreNotHeldAgainstThePeakOfOthers) {
  device_.kind = DeviceKind::cuda;
  candidate_.config = Config{{"math", "tf32"}};
  EXPECT_EQ(point(work()).limit, "L2");
}

// 13 x 13 pixels under 3 x 3 taps, padded by 1: 37 of 39 taps in each direction lie in the image.
// Counting all of them put the fastest kernels above the machine's peak.
TEST(ExecutedFlops, LeaveOutThePaddingThatKernelsSkip) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const auto device = make_cpu_device({1, ""});
  ConvProblem p = parse_problem("mb2ic32ih13oc32oh13kh3ph1").problem;
  p.x_layout = p.y_layout = blocked_layout(device->info());
  const double inside = p.flops() * (37.0 / 39) * (37.0 / 39);
  for (const char* id : {"direct", "implicit_gemm", "onednn.direct"})
    for (const Pass pass : all_passes) {
      p.pass = pass;
      const std::vector<const ConvAlgo*> algos = registry.for_device(DeviceKind::cpu);
      const auto algo = std::find_if(algos.begin(), algos.end(),
                                     [&](const ConvAlgo* a) { return a->info().id == id; });
      if (algo == algos.end() || (*algo)->refuse(p, *device)) continue;  // oneDNN may be missing
      // implicit_gemm gathers zeros, and direct copies them into its rows of taps.
      const bool gathers = std::string(id) == "implicit_gemm" && pass != Pass::backward_filter;
      const bool copies = std::string(id) == "direct" && pass == Pass::backward_filter;
      const WorkEstimate work = (*algo)->work(p, (*algo)->configs(p, *device).front(), *device);
      EXPECT_NEAR(work.phases[gathers ? 1 : 0].flops, gathers || copies ? p.flops() : inside,
                  1e-9 * p.flops())
          << id << " " << to_string(pass);
    }
}

RooflineReport sample_report() {
  RooflineReport report;
  report.provenance = {{"convlab", "test"}, {"command", "convlab roofline </script> --html"}};
  report.bytes = "modelled";
  report.roofs = roofs;
  report.notes = {"a note"};
  for (const char* pass : {"fwd", "bwd_w"})
    for (const std::string algo : {"direct", "winograd", "fft"})
      for (const std::string layer : {"conv1", "conv2"})
        for (const int batch : {1, 4}) {
          RooflinePoint p;
          p.layer = layer;
          p.problem = "mb1ic64ih56oc64oh56kh3ph1";
          p.pass = pass;
          p.dtype = "f32";
          p.algo = algo;
          p.layouts = "nchw";
          p.cache = "hot";
          p.batch = batch;
          p.threads = 2;
          p.chosen = algo == "winograd";
          if (p.chosen) p.verdict = layer == "conv1" ? "UNSURE" : "WIN";
          p.status = algo == "fft" && layer == "conv2" ? "above roof" : "ok";
          p.ms = batch * (algo == "fft" ? 0.2 : 0.1);
          p.flops = 5e6 * batch;
          p.rel_error = algo == "direct" ? 1e-7 : 1e-6;
          p.attained_gflops = p.flops / p.ms / 1e6;
          p.attainable_gflops = 100;
          p.percent_of_roof = p.attained_gflops;
          p.limit = "f32 peak";
          p.levels = {{"L2", 1e5, 50, 100}};
          p.phases = {{"transform", 0.03, 1e6, 1e5, 30}, {"other", 0.01, 0, 0, 0}};
          report.points.push_back(p);
        }
  report.curves = {{"conv1", "fwd", "direct", 1, 1, 0.2}, {"conv1", "fwd", "direct", 1, 2, 0.1}};
  return report;
}

TEST(RooflineReports, SurviveTheirJson) {
  const RooflineReport report = sample_report();
  const std::string text = to_json(report);
  EXPECT_EQ(to_json(roofline_from_json(text, "file")), text);
  EXPECT_NE(text.find("\"verdict\": \"UNSURE\""), std::string::npos);
  EXPECT_NE(render(roofline_table(report), Format::table).find(" ok          UNSURE\n"),
            std::string::npos);
  EXPECT_EQ(roofline_from_json(text, "file").provenance, report.provenance);
}

TEST(RooflineReports, OfOtherVersionsAndOtherThingsAreRefused) {
  RooflineReport interrupted = sample_report();
  interrupted.complete = false;
  EXPECT_FALSE(roofline_from_json(to_json(interrupted), "file").complete);
  json other = json::parse(to_json(sample_report()));
  other["convlab_roofline"] = 2;
  json incomplete = json::parse(to_json(sample_report()));
  incomplete["points"][0].erase("ms");
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {other.dump(), "format 2, this program reads 1"},
           {incomplete.dump(), "ms"},
           {"{}", "no roofline report"},
           {"[1]", "no roofline report"},
           {"roof", "not JSON"}}) {
    try {
      roofline_from_json(text, "old.json");
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("old.json"), std::string::npos) << error.what();
    }
  }
}

TEST(RooflineReports, SayWhenTheirRoofsWereMeasuredOnABusyMachine) {
  EXPECT_EQ(noise_warning(roofs), "");
  std::vector<Roof> busy = roofs;
  busy.front().noise = 0.4;
  EXPECT_NE(noise_warning(busy).find("40%"), std::string::npos) << noise_warning(busy);
  busy = roofs;
  busy[5].per_second = 60e9;  // memory faster than L3
  EXPECT_NE(noise_warning(busy).find("L3 looks slower"), std::string::npos) << noise_warning(busy);
}

TEST(Roofs, AreKeptUnlessOtherProgramsDisturbedThem) {
  EXPECT_EQ(why_not_kept(roofs), "");
  std::vector<Roof> disturbed = roofs;
  disturbed[1].disturbed = true;
  EXPECT_EQ(why_not_kept(disturbed),
            "other programs disturbed 1 of 7 roofs: all 7 serve this run, and none is kept");
}

TEST(Roofs, SayThatTheyAreKeptOnceTheyAre) {
  const TemporaryDirectory directory;
  const std::vector<std::string> roofline{"roofline", "--threads", "1"};
  const std::map<std::string, std::string> calm{{"CONVLAB_IGNORE_DISTURBANCES", "1"}};
  const Ran ran = Program(directory, roofline, calm).wait();
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::size_t measuring = ran.err.find("measuring the roofs of"),
                    kept = ran.err.find("kept in");
  ASSERT_NE(measuring, std::string::npos) << ran.err;
  EXPECT_GT(kept, ran.err.find('\n', measuring)) << ran.err;
  ASSERT_NE(kept, std::string::npos) << ran.err;
  EXPECT_EQ(Program(directory, roofline, calm).wait().err.find("measuring"), std::string::npos);
}

TEST(Roofs, ThatAreInterruptedAreNotKept) {
  const TemporaryDirectory directory;
  const auto start = [&] { return Program(directory, {"roofline", "--remeasure"}); };
  const Ran ran = interrupted(start, "measuring the roofs", SIGINT);
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find("convlab: stopped while roofs were measured: those of "),
            std::string::npos)
      << ran.err;
  // Those of the ISAs before may have been complete.
  EXPECT_EQ(occurrences(ran.err, "kept in") + 1, occurrences(ran.err, "measuring the roofs of"))
      << ran.err;
}

TEST(RooflineReports, AreChartsWhereGnuplotIs) {
  const std::optional<std::string> svg = roofline_svg(sample_report());
  if (!svg) GTEST_SKIP() << no_gnuplot;
  EXPECT_NE(svg->find("<svg"), std::string::npos);
  EXPECT_NE(svg->find("winograd"), std::string::npos);
  EXPECT_NE(svg->find("f32 peak 100 GFLOP/s"), std::string::npos);
  EXPECT_LT(svg->find("fwd f32"), svg->find("bwd_w f32"));
  EXPECT_EQ(svg->find("bf16 tiles peak"), std::string::npos);
  RooflineReport tiles = sample_report();
  tiles.roofs.push_back({"registers", std::string(bf16_tiles), 2, true, 800e9, 0, ""});
  tiles.points[0].config = "math=bf16x3";
  EXPECT_NE(roofline_svg(tiles)->find("bf16 tiles peak 800 GFLOP/s"), std::string::npos);
  const std::string text = *roofline_chart(sample_report());
  EXPECT_EQ(text.find(roofline_headline(sample_report()) + "\n"), 0u) << text;
  EXPECT_NE(text.find("fwd f32, 2 threads: winograd is chosen in 4 of 4, at 100% of the roofs"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  executed GFLOP/s "), std::string::npos) << text;
}

TEST(RooflineReports, HaveTheirFindingForAHeadline) {
  RooflineReport report = sample_report();
  EXPECT_EQ(roofline_headline(report),
            "winograd is chosen in 8 of 8 cases; 0 of 2 ms could be saved at the roofs");
  report.points[4].chosen = false;  // one of winograd's
  report.points[9].chosen = true;   // fft's
  report.points[9].count = 3;
  report.points[9].headroom_ms = 0.5;
  EXPECT_EQ(
      roofline_headline(report),
      "winograd is chosen in 7 of 8 cases; 1.5 of 4.3 ms could be saved at the roofs, most in "
      "conv1 fwd");
  for (RooflinePoint& p : report.points) p.chosen = false;
  EXPECT_EQ(roofline_headline(report), "Nothing is chosen yet");
  EXPECT_EQ(roofline_headline({}), "No point was measured");
}

// ---- the page

std::string page_or_skip() try {
  return roofline_html(sample_report());
} catch (const EnvironmentError& error) {
  EXPECT_NE(std::string(error.what()).find("libjs-chart.js"), std::string::npos);
  return "";
}

TEST(RooflinePage, NeedsNoNetworkAndCarriesItsLicence) {
  const std::string page = page_or_skip();
  if (page.empty()) GTEST_SKIP() << "no chart library in this build";
  for (const char* fetches : {" src=", "<link", "@import", "url(", "@data@", "@script@"})
    EXPECT_EQ(page.substr(0, page.find("id=\"data\"")).find(fetches), std::string::npos) << fetches;
  EXPECT_NE(page.find("Permission is hereby granted"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>"), std::string::npos);  // the command's own "<" is escaped
}

TEST(RooflinePage, WorksInABrowser) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "chromium is not installed: `apt-get install chromium`";
  const std::string page = page_or_skip();
  if (page.empty()) GTEST_SKIP() << "no chart library in this build";
  const TemporaryDirectory directory;
  const std::string file = directory / "page.html", dom = directory / "dom",
                    log = directory / "log";
  write_file(file, page);
  const std::string command = fmt::format(
      "timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir='{}' "
      "--enable-logging=stderr --window-size=400,900 --dump-dom 'file://{}#selftest' >'{}' 2>'{}'",
      (directory / "profile").string(), file, dom, log);
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(log);
  EXPECT_EQ(read_file(log).find("CONSOLE"), std::string::npos) << read_file(log);

  const std::string text = read_file(dom), mark = "<output id=\"selftest\" hidden=\"\">";
  const std::size_t at = text.find(mark);
  ASSERT_NE(at, std::string::npos) << text.substr(0, 2000);
  const std::size_t begin = at + mark.size();
  const json result = json::parse(text.substr(begin, text.find("</output>", begin) - begin));
  EXPECT_EQ(result["errors"], json::array());
  EXPECT_EQ(result["points"], 24);
  EXPECT_EQ(result["rows"], 24);
  EXPECT_EQ(result["drawn"], 20);  // not the four above their roof
  EXPECT_EQ(result["layer"]["rows"], 12);
  EXPECT_EQ(result["layer"]["drawn"], 12);
  EXPECT_EQ(result["algo"]["value"], "direct");
  EXPECT_EQ(result["algo"]["rows"], 8);
  EXPECT_EQ(result["batch"]["rows"], 12);
  EXPECT_EQ(result["again"], 20);
  EXPECT_EQ(result["overflow"], 0);  // at 400 pixels
  EXPECT_GT(result["sticky"][0], 0);
  EXPECT_EQ(result["sticky"][1], 0);
  const json marks = json::parse(algo_marks_json);
  for (const char* algo : {"direct", "winograd", "fft"}) {
    const json& mark = marks["marks"][marks["algos"][algo]["mark"].get<std::string>()];
    const json once = {fmt::format("{} {} {}", marks["algos"][algo]["colour"].get<std::string>(),
                                   mark["chart"].get<std::string>(), mark.value("turned", 0))};
    EXPECT_EQ(result["marks"][algo], once) << algo;
  }
  EXPECT_EQ(result["phases"], json({"transform: multiply", "other: other"}));
  EXPECT_NE(text.find("<h1>" + roofline_headline(sample_report()) + "</h1>"), std::string::npos);
  ASSERT_FALSE(result["hover"].empty());
  EXPECT_NE(result["hover"].dump().find("conv1 fwd"), std::string::npos) << result["hover"];
}

// ---- explain

Candidate measured(const std::string& algo, double ms, double rel_error, std::int64_t workspace) {
  Candidate c;
  c.algo = algo;
  c.ms = ms;
  c.rel_error = rel_error;
  c.workspace_bytes = workspace;
  return c;
}

TEST(Explain, NamesTheLimitsThatDecide) {
  LayerResult layer;
  layer.candidates = {measured("winograd", 1, 1e-6, 1 << 20), measured("direct", 2, 1e-7, 0),
                      measured("fft", 3, 2e-7, 0),
                      // Its error is shown as the same.
                      measured("winograd4", 1.5, 9.96e-7, 1 << 20)};
  layer.chosen = 0;
  TuneOptions options;
  std::vector<std::string> says = limits_that_decide(layer, options);
  ASSERT_EQ(says.size(), 3u);
  EXPECT_EQ(says[0], "No limit keeps a faster one out.");
  EXPECT_EQ(says[1], "With --workspace-max below 1.0 MiB it would be direct nchw at 2.000 ms.");
  EXPECT_EQ(says[2], "With --max-error below 1.0e-06 it would be direct nchw at 2.000 ms.");

  Candidate tile6 = measured("winograd6", 0.5, 2e-4, 0),
            greedy = measured("im2col", 0.9, 1e-7, 4096);
  tile6.status = Status::inaccurate;
  greedy.status = Status::refused;
  layer.candidates.push_back(tile6);
  layer.candidates.push_back(greedy);
  options.workspace_max = 2048;
  says = limits_that_decide(layer, options);
  EXPECT_EQ(says[0],
            "--max-error 2.0e-04 instead of 1.0e-04 would admit winograd6 nchw at 0.500 ms.");
  EXPECT_EQ(says[1], "--workspace-max 4096 instead of 2048 would admit im2col nchw at 0.900 ms.");
}

TEST(Explain, FindsTheBatchAtWhichTheWinnerChanges) {
  EXPECT_EQ(winners_by_batch({{1, "winograd", "measured"},
                              {2, "winograd", "measured"},
                              {4, "winograd", "predicted"},
                              {8, "fft", "predicted"}},
                             1),
            "By batch: winograd at 1 to 2 (measured), winograd at 4 (predicted), fft at 8 "
            "(predicted).");
  EXPECT_EQ(winners_by_batch({{3, "fft", "measured"}}, 3),
            "Nothing is known of other batches than 3.");
}

// Made-up times of three algorithms that every device has, and the explanations of the rivals.
class ExplainRivals : public testing::Test {
 protected:
  ExplainRivals() {
    append_cpu_algos(algos_.conv);
    layer_.layer = parse_problem("mb1ic8ih8oc8oh8kh3ph1");
    layer_.candidates = {measured("direct", 1, 1e-7, 0), measured("im2col", 1.005, 1e-7, 0),
                         measured("implicit_gemm", 2, 1e-7, 0)};
    layer_.chosen = 0;
    layer_.ratio = {0.995, 1.005, 1.015};
    for (Candidate& c : layer_.candidates) {
      const Layout layout = c.algo == "im2col" ? Layout::nchw : blocked_layout(device_->info());
      c.x_layout = c.y_layout = layout;
      const Problem problem = as_run(layer_.layer.problem, c);
      c.config = algos_.get(problem, DeviceKind::cpu, c.algo).configs(problem, *device_).front();
      c.process_ms = {0.99 * c.ms, c.ms, 1.01 * c.ms};
    }
  }
  Explanation explained() { return explain(layer_, algos_, *device_, {}); }
  Algos algos_;
  std::unique_ptr<Device> device_ = make_cpu_device({1, ""});
  LayerResult layer_;
};

TEST_F(ExplainRivals, WithinNoiseHaveNoCause) {
  for (const Verdict verdict : {Verdict::tie, Verdict::unsure}) {
    layer_.verdict = verdict;
    layer_.reason = "too few processes";
    const Explanation e = explained();
    EXPECT_EQ(e.candidates[1].why, "within noise of the chosen");
    EXPECT_NE(e.candidates[2].why.find("2.00x the time: "), std::string::npos)
        << e.candidates[2].why;
    EXPECT_NE(e.candidates[0].why.find("1.00x [0.99 1.01]"), std::string::npos)
        << e.candidates[0].why;
  }
  EXPECT_EQ(explained().candidates[0].why.find("undecided"), 0U);
}

TEST_F(ExplainRivals, HaveTheVerdictsOwnRatio) {
  layer_.verdict = Verdict::win;
  layer_.candidates[1].ms = 1.5;
  layer_.ratio = {1.40, 1.47, 1.55};
  const Explanation e = explained();
  EXPECT_EQ(e.candidates[1].ratio, layer_.ratio);
  EXPECT_EQ(e.candidates[1].why.find("1.47x the time: "), 0U) << e.candidates[1].why;
  EXPECT_NE(e.candidates[0].why.find("1.47x [1.40 1.55]"), std::string::npos);
  layer_.verdict = Verdict::predicted;
  layer_.candidates[0].predicted = true;
  EXPECT_EQ(explained().candidates[1].why, "measured; the chosen is only predicted");
}

}  // namespace
}  // namespace convlab
