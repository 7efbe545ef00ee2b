#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/reports/gnuplot.h"
#include "bench/reports/sweep_axes.h"
#include "bench/reports/sweep_report.h"
#include "conv/error.h"
#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;
using Values = std::vector<std::string>;

constexpr const char* tiny = "mb1ic16ih8oc16oh8kh3ph1";

TEST(SweepAxes, RangesAndLists) {
  EXPECT_EQ(parse_axis("n=1:20:*3").values, (Values{"1", "3", "9"}));
  EXPECT_EQ(parse_axis("h=7:29:+7").values, (Values{"7", "14", "21", "28"}));
  EXPECT_EQ(parse_axis("threads=2:4").values, (Values{"2", "3", "4"}));
  EXPECT_EQ(parse_axis("c=3,16:64:*2").values, (Values{"3", "16", "32", "64"}));
  EXPECT_EQ(parse_axis("dtype=f64,f32").values, (Values{"f64", "f32"}));
  for (const char* bad : {"n", "batch=1", "n=", "n=1,,2", "n=0", "n=-1", "n=x", "n=4:1", "n=1:8:*1",
                          "n=1:8:2", "n=1:8:+0", "n=1:1000000", "n=1:2:3:4", "n=2,1:3", "dtype=f8",
                          "layout=chwn", "n=99999999999999999999"})
    EXPECT_THROW(parse_axis(bad), InputError) << bad;
}

TEST(SweepAxes, OfARecurrentLayer) {
  const auto points = [](const char* problem, const Values& axes) {
    std::vector<Axis> parsed;
    for (const std::string& axis : axes) parsed.push_back(parse_axis(axis, Swept::recurrent_layer));
    std::vector<std::string> texts;
    for (const SweepPoint& p : sweep_points({{}, parse_layer(problem), 0, "auto"}, parsed))
      texts.push_back(p.layer.text());
    return texts;
  };
  EXPECT_EQ(points("rnn:t2mb1dhc8", {"h=4,5"}),
            (Values{"rnn:l1t2mb1sic4slc4dhc4dic4", "rnn:l1t2mb1sic5slc5dhc5dic5"}));
  EXPECT_EQ(points("rnn:t2mb1slc3dhc8", {"h=4"}), (Values{"rnn:l1t2mb1sic4slc3dhc4dic4"}));
  EXPECT_EQ(points("rnn:t2mb1dhc8", {"i=3", "h=4"}), (Values{"rnn:l1t2mb1sic4slc3dhc4dic4"}));
  EXPECT_EQ(points("gru:t2mb1dhc8:bi", {"l=2", "t=5", "n=7"}),
            (Values{"gru:l2t5mb7sic8slc8dhc8dic8:bi"}));
  for (const char* bad : {"c=1", "k=1", "r=3", "stride=1", "layout=nchw"})
    EXPECT_THROW(parse_axis(bad, Swept::recurrent_layer), InputError) << bad;
  EXPECT_THROW(parse_axis("i=1"), InputError);
}

// The texts of all points.
Values points(const char* problem, const Values& axes) {
  std::vector<Axis> parsed;
  for (const std::string& axis : axes) parsed.push_back(parse_axis(axis));
  Values texts;
  for (const SweepPoint& p : sweep_points({{}, parse_layer(problem), 0, "auto"}, parsed))
    texts.push_back(p.layer.text());
  return texts;
}

TEST(SweepAxes, OfDepth) {
  EXPECT_EQ(points("mb1ic8id9ih7oc4kd3kh3pd1ph1", {"d=4,5"}),
            (Values{"mb1ic8id4ih7iw7oc4od4oh7ow7kd3kh3kw3pd1ph1pw1",
                    "mb1ic8id5ih7iw7oc4od5oh7ow7kd3kh3kw3pd1ph1pw1"}));
  EXPECT_EQ(points("mb1ic8ih7oc4kh3ph1", {"d=1"}), Values{"mb1ic8ih7oc4oh7kh3ph1"});
  // What is equal in depth and height stays so; depth that has its own keeps it.
  EXPECT_EQ(points("mb1ic8id9oc4kd3pd1", {"r=5"}), Values{"mb1ic8id9oc4od9kd5pd2"});
  EXPECT_EQ(points("mb1ic8id9oc4kd3pd1", {"stride=2"}), Values{"mb1ic8id9oc4od5kd3sd2pd1"});
  EXPECT_EQ(points("mb1ic8id9oc4kd3pd1", {"dilation=2"}), Values{"mb1ic8id9oc4od9kd3pd2dd1"});
  EXPECT_EQ(points("mb1ic8id9ih9oc4kd1kh3ph1", {"r=5"}),
            Values{"mb1ic8id9ih9iw9oc4od9oh9ow9kd1kh5kw5pd0ph2pw2"});
  EXPECT_EQ(points("mb1ic8id9ih9oc4kd3kh3pd1ph1dd1", {"dilation=3"}),
            Values{"mb1ic8id9ih9iw9oc4od7oh9ow9kd3kh3kw3pd1ph3pw3dd1dh2dw2"});
  EXPECT_EQ(points("mb1ic8id9ih9oc4kd3kh1pd1", {"t=1,5"}),
            (Values{"mb1ic8id9oc4od9kd1pd0", "mb1ic8id9ih9iw9oc4od9oh9ow9kd5kh1kw1pd2ph0pw0"}));
}

TEST(SweepAxes, OfGroupsAndDilation) {
  EXPECT_EQ(points(tiny, {"g=1,4"}),
            (Values{"mb1ic16ih8oc16oh8kh3ph1", "g4mb1ic16ih8oc16oh8kh3ph1"}));
  EXPECT_THROW(points(tiny, {"g=3"}), InputError);
  EXPECT_EQ(points(tiny, {"dilation=1,2", "r=3,5"}),
            (Values{"mb1ic16ih8oc16oh8kh3ph1", "mb1ic16ih8oc16oh8kh5ph2",
                    "mb1ic16ih8oc16oh8kh3ph2dh1", "mb1ic16ih8oc16oh8kh5ph4dh1"}));
  // A depthwise convolution stays one, also with more filters than channels.
  EXPECT_EQ(points("g8mb1ic8ih8oc16kh3ph1", {"c=4"}), Values{"g4mb1ic4ih8oc8oh8kh3ph1"});
  EXPECT_EQ(points("g8mb1ic8ih8oc16kh3ph1", {"k=32", "c=4"}), Values{"g4mb1ic4ih8oc32oh8kh3ph1"});
  EXPECT_EQ(points("g8mb1ic8ih8oc8kh3ph1", {"c=16", "g=8"}), Values{"g8mb1ic16ih8oc8oh8kh3ph1"});
  EXPECT_EQ(points("g4mb1ic8ih8oc8kh3ph1", {"c=16"}), Values{"g4mb1ic16ih8oc8oh8kh3ph1"});
  EXPECT_EQ(points("mb1ic1ih8oc8kh3ph1", {"c=3"}), Values{"mb1ic3ih8oc8oh8kh3ph1"});
}

// Of one row, and not of square filters and images.
// The reason why the points of these axes are refused.
std::string misfit(const char* problem, const Values& axes) {
  try {
    points(problem, axes);
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

TEST(SweepAxes, SaysWhatDoesNotFit) {
  EXPECT_EQ(misfit("mb1ic8ih9oc4oh7kh3ph0", {"n=1,2", "dilation=1,5"}),
            "n=1 dilation=5: oh would be below 1: a filter that spans 11 does not fit into ih 9 "
            "with padding 0");
  EXPECT_EQ(
      misfit("mb1ic8iw9oc4ow7kw3pw0", {"w=2"}),
      "w=2: ow would be below 1: a filter that spans 3 does not fit into iw 2 with padding 0");
  EXPECT_EQ(
      misfit("mb1ic8id9oc4kd3pd0", {"d=1"}),
      "d=1: od would be below 1: a filter that spans 3 does not fit into id 1 with padding 0");
  EXPECT_EQ(misfit("deconv:mb1ic8ih4oc4oh4kh3ph1", {"r=1", "h=2"}), "none");
  EXPECT_EQ(misfit("deconv:mb1ic8ih4oc4oh5kh4ph1", {"h=1", "r=2"}),
            "h=1 r=2: oh would be below 1: padding of 1 leaves nothing of the 2 that ih 1 gives");
  // A later axis makes room.
  EXPECT_EQ(misfit("mb1ic8ih9oc4oh7kh3ph0", {"h=2", "r=1"}), "none");
}

TEST(SweepAxes, OfWidthAlone) {
  constexpr const char *row = "mb1ic8iw20oc8kw3pw1", *causal = "mb1ic8iw20oc8ow20kw4pw3";
  EXPECT_EQ(points(row, {"w=9", "s=5"}), Values{"mb1ic8ih1iw9oc8oh1ow9kh1kw5ph0pw2"});
  EXPECT_EQ(points(row, {"dilation=2", "stride=3"}),
            Values{"mb1ic8ih1iw20oc8oh1ow7kh1kw3sh1sw3ph0pw2dh0dw1"});
  EXPECT_EQ(points(causal, {"w=9", "s=2"}), Values{"mb1ic8ih1iw9oc8oh1ow9kh1kw2ph0pw1"});
  EXPECT_EQ(points(causal, {"dilation=2"}), Values{"mb1ic8ih1iw20oc8oh1ow20kh1kw4ph0pw6dh0dw1"});
  EXPECT_EQ(points("mb1ic8ih8iw9oc8oh8ow9kh3ph1", {"w=4"}),
            Values{"mb1ic8ih8iw4oc8oh8ow4kh3kw3ph1pw1"});
  EXPECT_THROW(points(row, {"h=2"}), InputError);
  EXPECT_THROW(points(row, {"r=5"}), InputError);
}

TEST(SweepAxes, OfATransposedConvolution) {
  constexpr const char* up = "deconv:mb1ic16ih4oc8oh8kh3sh2ph1";  // with output padding
  EXPECT_EQ(points(up, {"h=5", "r=5"}), Values{"deconv:mb1ic16ih5oc8oh10kh5sh2ph2"});
  EXPECT_EQ(points(up, {"c=4", "k=3"}), Values{"deconv:mb1ic4ih4oc3oh8kh3sh2ph1"});
  EXPECT_EQ(points("deconv:mb1ic16ih4oc8kh2sh2", {"stride=4"}),
            Values{"deconv:mb1ic16ih4oc8oh14kh2sh4ph0"});
  EXPECT_EQ(points("deconv:g8mb1ic8ih4oc8kh2sh2", {"c=4"}),
            Values{"deconv:g4mb1ic4ih4oc4oh8kh2sh2ph0"});
  EXPECT_EQ(points("deconv:mb1ic8id2ih4oc8kd2kh2sd2sh2", {"d=3"}),
            Values{"deconv:mb1ic8id3ih4iw4oc8od6oh8ow8kd2kh2kw2sd2sh2sw2pd0ph0pw0"});
}

TEST(SweepAxes, PaddingThatKeepsTheSizeGoesOnDoingSo) {
  EXPECT_EQ(points(tiny, {"r=1,5"}),
            (Values{"mb1ic16ih8oc16oh8kh1ph0", "mb1ic16ih8oc16oh8kh5ph2"}));
  EXPECT_EQ(points("mb1ic16ih8oc16oh6kh3ph0", {"r=3,5"}),
            (Values{"mb1ic16ih8oc16oh6kh3ph0", "mb1ic16ih8oc16oh4kh5ph0"}));
  EXPECT_EQ(points(tiny, {"h=4,9", "stride=1,2"}),
            (Values{"mb1ic16ih4oc16oh4kh3ph1", "mb1ic16ih4oc16oh2kh3sh2ph1",
                    "mb1ic16ih9oc16oh9kh3ph1", "mb1ic16ih9oc16oh5kh3sh2ph1"}));
  EXPECT_THROW(points("mb1ic16ih8oc16oh6kh3ph0", {"h=2"}), InputError);  // no output remains
  EXPECT_THROW(points(tiny, {"n=1", "n=2"}), InputError);
  EXPECT_THROW(points("mb1ic16ih8iw9oc16oh8ow9kh3ph1", {"h=4"}), InputError);
  EXPECT_THROW(points(tiny, {"n=1:100", "c=1:100"}), InputError);
}

Candidate candidate(const std::string& algo, double ms) {
  Candidate c;
  c.algo = algo;
  c.ms = ms;
  c.eff_gflops = 1 / ms;
  return c;
}

// direct wins at n=1 by 2x, is tied at 2, and loses at 4 by 3x.
Sweep sample() {
  Sweep s;
  s.base = parse_layer(tiny);
  s.axes = {parse_axis("n=1,2,4,8")};
  s.points = sweep_points({{}, s.base, 0, "auto"}, s.axes);
  s.passes = {Pass::forward};
  const auto layer = [](Candidate best, Candidate other, Verdict verdict) {
    LayerResult result;
    result.candidates = {std::move(best), std::move(other)};
    result.chosen = 0;
    result.verdict = verdict;
    result.ratio = {1, result.candidates[1].ms / result.candidates[0].ms, 3};
    return result;
  };
  s.layers = {layer(candidate("direct", 1), candidate("fft", 2), Verdict::win),
              layer(candidate("fft", 2), candidate("direct", 2.01), Verdict::tie),
              layer(candidate("fft", 3), candidate("direct", 9), Verdict::win),
              {}};
  s.complete = false;
  return s;
}

TEST(SweepReport, CrossoversAndRegret) {
  const json file = json::parse(render(sample(), Format::json));
  EXPECT_EQ(file["convlab_sweep"], 1);
  EXPECT_EQ(file["layers"].size(), 3u);  // the last was not reached
  const json crossovers{
      {{"pass", "fwd"}, {"from", {{"n", 1}}}, {"to", {{"n", 2}}}, {"algo", "direct"}},
      {{"pass", "fwd"}, {"from", {{"n", 4}}}, {"to", {{"n", 4}}}, {"algo", "fft"}}};
  EXPECT_EQ(file["crossovers"], crossovers);
  double at_1 = 0;
  for (const json& r : file["regrets"])
    if (r["tuned_at"]["n"] == 4 && r["used_at"]["n"] == 1) at_1 = r["ratio"];
  EXPECT_EQ(at_1, 2);
  const std::string text = render(sample(), Format::table);
  EXPECT_TRUE(contains(text, "the plan tuned at n=1 (direct) costs 3.00x at n=4, where fft wins"))
      << text;
  EXPECT_TRUE(contains(text, "Stopped early")) << text;
  const std::string csv = render(sample(), Format::csv);
  EXPECT_TRUE(contains(csv, "fwd,4,mb4ic16ih8oc16oh8kh3ph1,,direct,")) << csv;
}

TEST(SweepReport, TablesFitATerminalUnlessWide) {
  Sweep s = sample();
  s.axes = {parse_axis("n=1:24"), parse_axis("dtype=f32,f64"), parse_axis("layout=nchw,nhwc")};
  s.points = sweep_points({{}, s.base, 0, "auto"}, s.axes);
  LayerResult one = s.layers.front();
  one.candidates[0].algo = "implicit_gemm";
  one.candidates[0].config = Config::parse("tile=4,schedule=private,block=49,stores=nontemporal");
  one.candidates[1].algo = "onednn.winograd";
  s.layers.assign(s.points.size(), one);
  const auto widest = [](const Sweep& sweep) {
    std::istringstream lines(render(sweep, Format::table));
    std::size_t widest = 0;
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
    return widest;
  };
  EXPECT_LE(widest(s), 100u) << render(s, Format::table);
  EXPECT_TRUE(contains(render(s, Format::table), "onednn.winograd 2.00 [1.00 3.00]"));
  EXPECT_TRUE(contains(render(s, Format::table), "at the other values: --wide"));
  s.wide = true;
  EXPECT_GT(widest(s), 100u);
  EXPECT_TRUE(
      contains(render(s, Format::table), "tile=4,schedule=private,block=49,stores=nontemporal"));
}

TEST(SweepReport, PredictionsAreNeverDressedAsMeasurements) {
  Sweep s = sample();
  s.predicted = true;
  for (LayerResult& layer : s.layers) {
    for (Candidate& c : layer.candidates) c.predicted = true;
    layer.verdict = Verdict::predicted;
  }
  const std::string text = render(s, Format::table);
  EXPECT_TRUE(contains(text, " ~1.000  predicted  fft ~2.00\n")) << text;
  EXPECT_TRUE(
      contains(text, "fwd, as predicted: the plan tuned at n=1 (direct) costs ~3.00x at n=4"))
      << text;
  EXPECT_FALSE(contains(text, "WIN")) << text;
  const json file = json::parse(render(s, Format::json));
  EXPECT_EQ(file["layers"][0]["verdict"], "predicted");
  EXPECT_TRUE(file["layers"][0]["chosen"]["rel_error"].is_null());
  const std::string csv = render(s, Format::csv);
  EXPECT_TRUE(contains(csv, "direct,,nchw,nchw,ok,1,1,1,,,1,0,,\n")) << csv;
}

TEST(SweepReport, ChartsHaveEveryAlgorithm) {
  const auto svg = gnuplot(svg_chart_script(sample())),
             text = gnuplot(text_chart_script(sample(), 80));
  if (!svg) GTEST_SKIP() << no_gnuplot;
  for (const char* algo : {"direct", "fft"}) {
    EXPECT_TRUE(contains(*svg, algo)) << *svg;
    EXPECT_TRUE(contains(*text, algo)) << *text;
  }
  EXPECT_TRUE(
      contains(*svg, "fwd: direct wins up to n=2, fft from 4; 1 of 4 values have no result"))
      << *svg;
  EXPECT_TRUE(contains(*text, "\n  fwd: direct wins up to n=2, fft from 4; 1 of 4 values "))
      << *text;
  EXPECT_TRUE(contains(*text, "\n  eff GFLOP/s ")) << *text;
  EXPECT_TRUE(contains(*text, "+..D..+")) << *text;
}

TEST(SweepReport, SaysNoMoreThanWasMeasured) {
  Sweep s = sample();
  for (std::size_t i : {1, 2}) s.layers[i] = {};
  EXPECT_TRUE(contains(svg_chart_script(s),
                       "fwd: direct wins where there is a result; 3 of 4 values have no result"));
  EXPECT_TRUE(contains(render(s, Format::table), "fwd: too few results to compare plans along n."));
  s = sample();
  s.layers[0].verdict = Verdict::unsure;
  EXPECT_TRUE(contains(render(s, Format::table), "1 of 3 rows is UNSURE: too close to tell"));
  EXPECT_TRUE(contains(svg_chart_script(s), "; 1 of 3 UNSURE"));
  // direct cannot run at 2 and 4.
  for (std::size_t i : {1, 2}) s.layers[i].candidates.pop_back();
  for (std::size_t i : {1, 2}) s.layers[i].candidates[0].ms = 2;
  s.layers[0].candidates[1].ms = 1;
  EXPECT_TRUE(contains(render(s, Format::table), "as far as it was measured there."));
}

class SweepTest : public testing::Test {
 protected:
  Ran sweep(const Words& more) {
    Words words{"sweep", tiny, "--pass", "fwd", "--threads", "1", "--algos", "im2col"};
    words.insert(words.end(), more.begin(), more.end());
    return Program(directory_, words).wait();
  }
  TemporaryDirectory directory_;
};

TEST_F(SweepTest, MeasuresEveryPointOnceAndAgreesWithItself) {
  // A single candidate a point, because noise between several may trigger another race.
  const Words flags{"-a", "n=1,2", "-a", "dtype=f32,f64", "--layout", "nchw", "--format", "json"};
  const Ran first = sweep(flags);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const json file = json::parse(first.out);
  ASSERT_EQ(file["layers"].size(), 4u);
  for (const json& layer : file["layers"]) EXPECT_EQ(layer["chosen"]["algo"], "im2col");
  EXPECT_TRUE(contains(first.err, "[4/4]")) << first.err;

  const Ran again = sweep(flags);
  EXPECT_TRUE(contains(again.err, "resuming")) << again.err;
  EXPECT_EQ(json::parse(again.out)["layers"], file["layers"]);

  // Noise makes the intervals wide, which leaves rows open. They are the same nevertheless.
  const std::string a = directory_ / "a.json";
  write_file(a, first.out);
  const Ran diff = Program(directory_, {"diff", a, a, "--format", "json"}).wait();
  ASSERT_EQ(diff.exit_code, 0) << diff.err;
  const json rows = json::parse(diff.out)["rows"];
  EXPECT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    EXPECT_EQ(row["verdict"], "SAME") << row;
    EXPECT_EQ(row["B/A"], 1) << row;
  }
}

TEST_F(SweepTest, TableAndPicture) {
  const std::string picture = directory_ / "chart.svg";
  const Ran ran = sweep({"-a", "r=1,3", "--mode", "heuristic", "--svg", picture});
  if (ran.exit_code == 3 && contains(ran.err, no_gnuplot)) GTEST_SKIP() << no_gnuplot;
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "1 .. 3  im2col")) << ran.out;
  EXPECT_TRUE(contains(read_file(picture), "<svg"));
}

TEST_F(SweepTest, CtrlCKeepsWhatIsDone) {
  const auto start = [&] {
    std::filesystem::remove(directory_ / "tune.db");
    return Program(directory_,
                   {"sweep", tiny, "-a", "n=1:60", "--pass", "fwd", "--algos", "im2col"});
  };
  const Ran ran = interrupted(start, "[2/60]", SIGINT);
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  EXPECT_TRUE(contains(ran.out, "Stopped early")) << ran.out;
  // From ten points on, the column is one wider.
  EXPECT_TRUE(contains(ran.out, "fwd   2  im2col") || contains(ran.out, "fwd   2   im2col"))
      << ran.out;
}

TEST_F(SweepTest, BadInputIsOneLineAndExitCode2) {
  const std::vector<BadUsage> cases{
      {{}, "nothing to vary"},
      {{"-a", "n"}, "NAME=VALUES"},
      {{"-a", "batch=1"}, "expected one of n, c, "},
      {{"-a", "n=1:8:2"}, "LOW:HIGH"},
      {{"-a", "n=4:1"}, "expected the lower value first, as in 1:4"},
      {{"-a", "n=1:8:*1"}, "expected a FACTOR of 2 or more"},
      {{"-a", "n=1:100000:+1"}, "expected a larger step, or a factor as in 1:100000:*2"},
      {{"-a", "n=1,2", "--batch", "4"}, "both set the batch: drop one"},
      {{"-a", "n=1", tiny}, "expected one problem"},
      {{"-a", "n=1", "--batch", "1,2"}, "-a n="},
      {{"-a", "n=1:1000000000:*1000"}, "GiB"},
      {{"-a", "n=1", "--svg", directory_ / "missing/chart.svg"}, "missing/chart.svg"},
  };
  expect_refused([&](const Words& words) { return sweep(words); }, cases);
}

}  // namespace
}  // namespace convlab
