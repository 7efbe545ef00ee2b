// bench/studies/study.py rnn: on runs with known times, and with micro_recurrent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/bench/study_test.h"

namespace convlab {
namespace {

const std::vector<int> batches{1, 4, 16, 31, 32, 33};

// One candidate of N = 1, 4, 16, 31, 32, 33: its GFLOP/s.
struct Curve {
  std::string algo, config, pass;
  std::vector<double> rates;
  double pack_ms = 0;
  double spread = 0;  // of the times about their median
  double input_share = 0.5;
};

// In the format of `micro_recurrent --json`, of a batch's position. The second turn is slower by
// 4%, and has as many times as the first turn lacks. The median of all times is the first turn's,
// but of the peer the second's. y takes N MiB, the workspace of `persistent` half as many.
std::string case_of(const Curve& c, std::size_t at, int turn) {
  const bool peer = c.algo.starts_with("onednn.");
  const int n = batches[at];
  const double gflop = 0.1 * n, ms = 1e3 * gflop / c.rates[at] * (turn == 2 ? 1.04 : 1);
  const std::string three = fmt::format("{}, {}, {}", ms * (1 - c.spread), ms, ms * (1 + c.spread));
  return fmt::format(
      R"({{"problem": "rnn:l1t64mb{}sic512slc512dhc512dic512", "pass": "{}", "algo": "{}", )"
      R"("config": "{}", "recompute": false, "ms": [{}], "pack_ms": {}, "exec_GFLOP": {}, {})"
      R"("workspace_bytes": {}, "packed_weights_bytes": {}, "activations_bytes": 0, )"
      R"("y_bytes": {}}})",
      n, c.pass, c.algo, c.config, (turn == 1) == peer ? fmt::to_string(ms) : three, c.pack_ms,
      gflop,
      turn == 1 ? fmt::format(R"("phase_shares": {{"inputs": {}, "steps": {}}}, )", c.input_share,
                              1 - c.input_share)
                : "",
      c.algo == "persistent" ? n << 19 : 0, c.pack_ms > 0 ? 1 : 0, n << 20);
}

std::string log_of(const std::vector<Curve>& curves) {
  std::string runs;
  for (const int turn : {1, 2})
    for (std::size_t at = 0; at < batches.size(); ++at) {
      std::string cases;
      for (const Curve& c : curves) cases += (cases.empty() ? "" : ", ") + case_of(c, at, turn);
      runs +=
          fmt::format(R"({{"name": "rnn:l1t64mb{}dhc512, turn {}", "machine": {{"cpu": "some"}}, )"
                      R"("date": "today", "cases": [{}]}})"
                      "\n",
                      batches[at], turn, cases);
    }
  return runs;
}

class RnnStudyTest : public StudyTest {
 protected:
  static constexpr const char* of_log =
      "rnn --only none --hidden 512 --batches 33,1,4,16,31,32 --rounds 2";
};

// N = 33 is slow for a product a step; for batched_input with transposed weights, too, but within
// noise. Packing takes 1 ms.
TEST_F(RnnStudyTest, TellsWhatHolds) {
  const auto half = [](std::vector<double> rates) {
    for (double& rate : rates) rate /= 2;
    return rates;
  };
  const std::vector<double> stepwise{10, 36, 100, 120, 150, 90}, given{20, 60, 120, 140, 160, 150},
      transposed{25, 75, 120, 140, 160, 150}, persistent{40, 130, 150, 150, 155, 150},
      peer{20, 65, 120, 140, 145, 140};
  std::vector<Curve> curves;
  for (const char* const pass : {"fwd", "bwd_d"}) {
    const bool forward = pass == std::string("fwd");
    curves.push_back({"stepwise", "", pass, forward ? stepwise : half(stepwise)});
    curves.push_back({"batched_input", "weights=transposed", pass, transposed, 1, 0.15, 0.25});
    curves.push_back({"batched_input", "weights=as_given", pass, forward ? given : half(given)});
    curves.push_back({"persistent", "", pass, persistent, 1});
    curves.push_back({"onednn.rnn", "", pass, peer, 1});
  }
  write_file(log(), log_of(curves));
  const std::string out = study(of_log);
  expect(out, "\nH = 512, forward:\n\n| N | stepwise | batched_input weights=transposed | ");
  expect(out, "| 33 | 90 | 147 | 150 | 150 | 135 |\n");
  expect(out, "| 33 | 45 | 147 | 75 | 150 | 135 |\n");
  expect(out, "| stepwise | fwd | 32 |\n");
  expect(out, "| persistent | fwd | 16 |\n");
  expect(out, "| stepwise | fwd | 33 (32: 0.60) |\n");
  expect(out, "| batched_input weights=as_given | fwd | 33 (32: 0.94) |\n");
  expect(out, "| batched_input weights=transposed | fwd | none |\n");
  expect(out, "| persistent | fwd | none |\n");
  expect(out, "| 32 | stepwise | fwd | 1.25, 1.67 |\n");
  expect(out, "| fwd | stepwise | 1 | 4.00 |\n");
  expect(out, "| fwd | batched_input | 4 | 1.73 |\n");
  expect(out, "| fwd | onednn.rnn | 1 | 2.00 |\n");  // of medians over all turns 2.08
  expect(out, "| bwd_d | stepwise | 1 | 8.00 |\n");
  expect(out, "| 1 | 0.50 | 0.50 |\n");
  expect(out, "| 1 | 1.25 (1.00) | 2.50 (2.01) |\n");
  expect(out, "| 1 | 50 | 25 |\n");

  expect(
      out,
      "is not monotonic in the batch: **confirmed**. The largest loss is N = 33's, which reaches "
      "0.60 of N = 32's GFLOP/s (");
  expect(out, "as one pay: **confirmed**; forward is 1.07 to 2.50 times as fast.");
  expect(out, "than noise: **confirmed**. Their GFLOP/s are 1.25 to 1.67 times the neighbours'.");
  expect(out, "NN and TN differ: **confirmed**; backward_data has 0.50 times forward's GFLOP/s.");
  expect(out, "the transpose counted: **confirmed**; it makes that pass ");
  expect(out,
         "N = 4 for 1, takes 1.11 times as long. At N = 1 the steps of `batched_input` read U "
         "at 33 GB/s.");
  expect(out,
         "twofold: **confirmed**. `persistent` is 3.61 to 8.00 times as fast as a product a step, "
         "and 1.60 to 1.73 times as fast as `batched_input`.");
  expect(out, "fast enough: **confirmed**. ");
  expect(out, "H = 512: N = 16 instead of 32, 24.0 instead of 32.0 MiB");
  expect(out, "- cpu: some\n");
  expect_plot("rnn-512.svg", "persistent is fastest in 9 of 12 races");
}

// Every strategy has 10 GFLOP/s at every batch.
TEST_F(RnnStudyTest, TellsWhatDoesNotHold) {
  std::vector<Curve> curves;
  for (const char* const pass : {"fwd", "bwd_d"})
    for (const auto& [algo, config, pack_ms] : {std::tuple{"stepwise", "", 0.0},
                                                {"batched_input", "transpose=1", 1.0},
                                                {"batched_input", "transpose=0", 0.0},
                                                {"persistent", "", 1.0}})
      curves.push_back({algo, config, pass, std::vector<double>(batches.size(), 10), pack_ms});
  write_file(log(), log_of(curves));
  const std::string out = study(of_log);
  for (const char* const what :
       {"is not monotonic in the batch", "All input products as one pay",
        "with 60% of the time or more", "by more than noise", "NN and TN differ",
        "bound by reading the weights", "at least twofold", "smaller batches are fast enough"})
    expect(out, what + std::string(": **refuted**"));
  EXPECT_FALSE(contains(out, "confirmed")) << out;
  EXPECT_FALSE(contains(out, "onednn")) << out;
}

// The recurrent products dominate at N up to 16 only.
TEST_F(RnnStudyTest, TellsWhereSomethingHolds) {
  std::string runs;
  for (std::size_t at = 0; at < batches.size(); ++at)
    runs += fmt::format(
        R"({{"name": "rnn:l1t64mb{}dhc512, turn 1", "machine": {{"cpu": "some"}}, "cases": [{}, {}]}})"
        "\n",
        batches[at], case_of({"stepwise", "", "fwd", {1, 2, 3, 4, 5, 6}}, at, 1),
        case_of({"batched_input", "", "fwd", {2, 3, 4, 5, 6, 7}, 0, 0, at < 3 ? 0.3 : 0.45}, at,
                1));
  write_file(log(), runs);
  const std::string out = study(of_log);
  expect(out,
         "time or more: **confirmed in part**, for H = 512 at N = 1 to 16; they take 55 to 70%");
  EXPECT_FALSE(contains(out, "ersistent weights multiply")) << out;
}

TEST_F(RnnStudyTest, MakesEachRunOnceInTurns) {
  write_file(directory_ / "told",
             R"({"context": {"cpu": "some", "date": "today"}, "benchmarks": [)" +
                 case_of({"stepwise", "", "fwd", {1}}, 0, 1) + "]}");
  const std::string program = directory_ / "recurrent", calls = directory_ / "calls";
  write_script(program, fmt::format("echo \"$@\" >>'{}'\ncat '{}'\n", calls,
                                    (directory_ / "told").string()));
  const std::string arguments = fmt::format(
      "rnn --small --recurrent '{}' --steps 3 --hidden 32 --batches 65,2 --rounds 2", program);
  const std::string out = study(arguments);
  expect(out, "Vanilla RNN, T = 3, ");
  expect(out, "| 2 | 1 |\n| 65 | 1 |\n");
  const std::string turn = "--json --pass=fwd,bwd_d --min-time=0.001 ", called = read_file(calls);
  expect(called, "--json --memory --pass=fwd,bwd_d rnn:l4t16mb64dhc32 rnn:l4t32mb64dhc32 ");
  expect(called, " lstm:l4t512mb64dhc32\n--json --memory --pass=fwd,bwd_d --recompute rnn:l4");
  EXPECT_TRUE(called.ends_with(turn + "--phases rnn:l1t3mb2dhc32\n" + turn +
                               "--phases rnn:l1t3mb65dhc32\n" + turn +
                               "--phases rnn:l1t3mb2dhc32\n" + turn + "rnn:l1t3mb65dhc32\n"))
      << called;
  EXPECT_EQ(study(arguments), out);
  EXPECT_EQ(read_file(calls), called);
  // What was tried counts for no study.
  EXPECT_EQ(study("rnn --only none --steps 3 --hidden 32 --batches 65,2"), "");
}

#ifdef CONVLAB_MICRO_RECURRENT
TEST_F(RnnStudyTest, RunsTheProgram) {
  const Words small{"rnn", "--small", "--recurrent", CONVLAB_MICRO_RECURRENT, "--log", log()};
  const Ran ran = run(small + Words{"--hidden", "32", "--batches", "1,2", "--rounds", "1"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* const part :
       {"\nH = 32, forward:\n", "\nH = 32, backward_data:\n", "\n| persistent | bwd_d | ",
        "\n| lstm | stepwise, recomputing | ", "\n## What holds here\n\n- "})
    expect(ran.out, part);
  for (const char* const field : {"phase_shares", "packed_weights_bytes", "exec_GFLOP"})
    expect(read_file(log()), field);
}

TEST_F(RnnStudyTest, TheProgramRefusesBadFlagsInOneLine) {
  for (const auto& [word, says] :
       {std::pair{"--rounds=0", "--rounds=0: expected a whole number above 0"},
        {"--min-time=x", "--min-time=x: expected a number above 0"},
        {"--pass=", "unknown pass '': expected one of fwd, bwd_d, bwd_w"},
        {"--foo", "unknown flag '--foo': expected a problem"},
        {"foo", "malformed problem 'foo'"}}) {
    const Ran ran = Program(directory_, {word}, {}, CONVLAB_MICRO_RECURRENT).wait();
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_TRUE(ran.err.starts_with(std::string("micro_recurrent: ") + says)) << ran.err;
    EXPECT_EQ(lines(ran.err), 1) << ran.err;
  }
}
#endif

}  // namespace
}  // namespace convlab
