// Logs of other libraries as targets: --from FILE.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

using nlohmann::json;

std::string log_line(const std::string& pass, const std::string& sizes, const std::string& time,
                     const std::string& attributes = "", const std::string& type = "f32") {
  return "onednn_verbose,exec,cpu,convolution,jit:avx2," + pass + ",src_" + type +
         "::blocked:abcd:f0 wei_" + type + "::blocked:Acdb8a:f0 bia_undef::undef::f0 dst_" + type +
         "::blocked:aBcd8b:f0," + attributes + ",alg:convolution_direct," + sizes + "," + time +
         "\n";
}

// `tiny` three times, once with an epilogue, and a strided one backward; a post-op that is skipped.
std::string small_log() {
  const std::string first = "mb1_ic16oc16_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1";
  return "step 1\nonednn_verbose,info,oneDNN v2.6.3 (commit N/A)\n" +
         log_line("forward_training", first, "1000") + log_line("forward_training", first, "500") +
         log_line("forward_training", first, "250", "attr-post-ops:eltwise_relu ") +
         log_line("forward_training", first, "250", "attr-post-ops:eltwise_abs ") +
         log_line("backward_data", "mb1_ic16oc16_ih8oh4kh3sh2dh0ph1_iw8ow4kw3sw2dw0pw1", "125");
}

class LogProgramTest : public ProgramTest {
 protected:
  LogProgramTest() { write_file(path(), small_log()); }
  std::string path() const { return (directory_ / "net.log").string(); }
  Words few(const std::string& verb) const {
    return {verb, "--from", path(), "--algos", "im2col,direct", "--threads", "1"};
  }
};

TEST_F(LogProgramTest, TuneComparesWithTheLog) {
  const Ran ran = run(few("tune") + Words{"--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.err, path() + ": oneDNN v2.6.3, 4 runs of 3 convolutions and passes, "
                                         "1875.0 ms"))
      << ran.err;
  const std::string skipped = "1, first in line 6: the post-ops eltwise_abs";
  EXPECT_TRUE(contains(ran.err, ": skipped " + skipped)) << ran.err;
  const json table = json::parse(ran.out);
  EXPECT_EQ(table["provenance"]["log_skipped"], skipped);
  ASSERT_EQ(table["layers"].size(), 3u);
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const json& row = table["layers"][i];
    EXPECT_EQ(row["pass"], i < 2 ? "fwd" : "bwd_d");
    EXPECT_EQ(row["problem"], i < 2 ? tiny : strided);
    EXPECT_EQ(row["count"], i == 0 ? 2 : 1);
    EXPECT_EQ(row["log_ms"], i == 0 ? 1500 : i == 1 ? 250 : 125);
    EXPECT_EQ(row.value("epilogue", ""), i == 1 ? "relu" : "");
    const double ms = row["chosen"]["ms"].get<double>() * row["count"].get<double>();
    EXPECT_NEAR(row["convlab_ms"].get<double>(), ms, 1e-9 * ms);
    sum += ms;
  }
  const json& totals = table["totals"]["log"];
  EXPECT_EQ(totals["log_ms"], 1875);
  EXPECT_EQ(totals["rows"], 3);
  EXPECT_NEAR(totals["convlab_ms"].get<double>(), sum, 1e-9 * sum);
  EXPECT_NEAR(totals["ratio"].get<double>(), 1875 / sum, 1e-6 * 1875 / sum);

  // The same rows are known now, and a table has them too.
  const Ran shown = run(few("tune") + Words{"--budget", "1ms"});
  EXPECT_TRUE(contains(shown.out, "log_ms convlab_ms")) << shown.out;
  EXPECT_TRUE(contains(shown.out, "log 1875.0 ms, convlab ")) << shown.out;
  EXPECT_TRUE(contains(shown.out, "×\n")) << shown.out;
  EXPECT_TRUE(contains(shown.out, std::string(tiny) + " +relu ")) << shown.out;
  const Ran csv = run(few("tune") + Words{"--budget", "1ms", "--format", "csv"});
  EXPECT_TRUE(contains(csv.out, ",log_ms,convlab_ms\n")) << csv.out;
  EXPECT_TRUE(contains(csv.out, ",1500,")) << csv.out;
  const Ran wide = run(few("tune") + Words{"--budget", "1ms", "--format", "md"});
  EXPECT_TRUE(contains(wide.out, "log_ms | convlab_ms | verdict")) << wide.out;
}

TEST_F(LogProgramTest, PassesAndTypesAreKept) {
  const auto list = [&](const Words& more) {
    return run(Words{"list", "--from", path(), "--format", "problems"} + more);
  };
  EXPECT_TRUE(contains(list({"--pass", "bwd_d"}).out, std::string("\n") + strided + "  #"));
  EXPECT_FALSE(contains(list({"--pass", "bwd_d"}).out, tiny));
  const Ran none = list({"--dtype", "f64"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_TRUE(contains(none.err, "expected some of fwd, bwd_d; f32")) << none.err;
}

TEST_F(LogProgramTest, TheListOfProblemsIsAnAtFile) {
  const std::string file = (directory_ / "net.txt").string();
  const Ran ran = run({"list", "--from", path(), "--format", "problems", "--output", file});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string text = read_file(file);
  EXPECT_TRUE(contains(text, std::string(tiny) + "n\"*3\"  # fwd f32 x3 relu, 1750.0 ms\n"))
      << text;
  EXPECT_TRUE(contains(text, std::string(strided) + "  # bwd_d f32 x1, 125.0 ms\n")) << text;
  EXPECT_TRUE(contains(text, "# passes and types: fwd, bwd_d; f32\n")) << text;
  EXPECT_TRUE(contains(text, "# log_skipped: 1, first in line 6")) << text;
  const Ran again = run({"list", "@" + file, "--format", "problems"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(contains(again.out, std::string(tiny) + "n\"*3\"  # fwd f32 x3 bwd_d f32 x3"))
      << again.out;
  EXPECT_EQ(run({"list", "@" + file}).exit_code, 0);
  // A net's names are kept.
  const Ran net = run({"list", "lenet", "--format", "problems", "--pass", "fwd"});
  EXPECT_TRUE(contains(net.out, "n\"c1\"  # fwd f32 x1\n")) << net.out;
}

TEST_F(LogProgramTest, BenchCheckAndListTakeIt) {
  const Ran bench = run(few("bench") + Words{"--mode", "heuristic"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_TRUE(contains(bench.out, "2 runs in the log 1500.0 ms, here ~")) << bench.out;
  EXPECT_TRUE(contains(bench.out, "log 1875.0 ms, convlab ~")) << bench.out;
  const Ran check = run(few("check") + Words{"--format", "json"});
  EXPECT_EQ(check.exit_code, 0) << check.err;
  const json table = json::parse(check.out);
  EXPECT_TRUE(contains(table["provenance"]["log"], "oneDNN v2.6.3, 4 runs"));
  bool with_epilogue = false;
  for (const json& row : table["rows"]) {
    if (row["layer"] != std::string(tiny) + " +relu") continue;
    with_epilogue = true;
    EXPECT_TRUE(contains(row["repeat"], "convlab check --from " + path())) << row["repeat"];
  }
  EXPECT_TRUE(with_epilogue);
  const Ran list = run({"list", "--from", path(), "--format", "csv"});
  EXPECT_TRUE(contains(list.out, "\n# log: ")) << list.out;
}

TEST_F(LogProgramTest, StdinIsALogToo) {
  EXPECT_EQ(run({"list", "--from", "-", "--format", "problems"}).exit_code, 2);  // empty here
}

TEST_F(LogProgramTest, SweepVariesTheProblemOfALog) {
  const std::string one = (directory_ / "one.log").string();
  write_file(one, log_line("backward_data", tiny, "1"));
  const Words sweep{"sweep", "-a", "n=1,2", "--algos", "im2col", "--mode", "heuristic"};
  const Ran ran = run(sweep + Words{"--from", one, "--format", "csv"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "\nbwd_d,2,")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "\n# log: " + one + ", oneDNN, 1 run of")) << ran.out;
  EXPECT_FALSE(contains(ran.out, "\nfwd,")) << ran.out;
  const Ran several = run(sweep + Words{"--from", path()});
  EXPECT_EQ(several.exit_code, 2);
  EXPECT_TRUE(contains(several.err, "expected one problem")) << several.err;
}

// A comparison of two runs tells rows apart that differ in their epilogue only.
TEST_F(LogProgramTest, DiffTellsEpiloguesApart) {
  const std::string file = (directory_ / "a.json").string();
  ASSERT_EQ(
      run(few("bench") + Words{"--pass", "fwd", "--mode", "heuristic", "--output", file}).exit_code,
      0);
  const Ran ran = run({"diff", file, file, "--format", "csv"});
  EXPECT_TRUE(contains(ran.out, std::string(tiny) + " fwd +relu,")) << ran.out << ran.err;
}

TEST_F(LogProgramTest, WhatIsNoLogIsRefused) {
  const std::string text = (directory_ / "text").string(), skipped = (directory_ / "s8").string();
  write_file(text, "no log\n");
  write_file(skipped, log_line("forward_training", tiny, "1", "", "s8"));
  const auto refused = [&](const Words& words) { return run(words); };
  expect_refused(
      refused,
      {{{"tune", "--from", text}, "is not a log that convlab reads: expected oneDNN's"},
       {{"tune", "--from", (directory_ / "none").string()}, "cannot read"},
       {{"bench", "--from", path(), tiny}, "expected TARGETs or a log"},
       {{"tune", "--from", path(), "--batch", "2"}, "--batch: a log's problems have their own"},
       {{"tune", "--from", path(), "--layer", "x"}, "--layer: a log names no layers"},
       {{"check", "--from", path(), "--recompute"}, "--recompute: a log holds convolutions"},
       {{"list", "--format", "problems"}, "list: no target"},
       {{"tune", tiny, "--format", "problems"}, "expected one of table"}});
  const Ran s8 = run({"check", "--from", skipped});
  EXPECT_EQ(s8.exit_code, 2);
  EXPECT_TRUE(contains(s8.err, "skipped 1, first in line 1: the types s8, s8, s8")) << s8.err;
  EXPECT_EQ(lines(s8.err), 1) << s8.err;
}

}  // namespace
}  // namespace convlab
