// Transposed convolutions through the program: `deconv:TEXT` shares the convolution's results.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

using nlohmann::json;

// The gradient of the convolution is the layer.
constexpr const char* layer = "deconv:mb1_ic16ih4_oc8oh9_kh3sh2ph1";
constexpr const char* canonical = "deconv:mb1ic16ih4oc8oh9kh3sh2ph1";
constexpr const char* convolution = "mb1ic8ih9oc16oh4kh3sh2ph1";
const std::string note =
    std::string(canonical) + " is the gradient of " + convolution + ": its fwd is that one's bwd_d";

class TransposedProgramTest : public ProgramTest {
 protected:
  json json_of(Words words) {
    const Ran ran = run(std::move(words) + Words{"--format", "json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.exit_code == 0 ? json::parse(ran.out) : json();
  }
};

// The note, which tables break into lines, in one.
bool has_note(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return contains(text, note);
}

// The peer is left out, so that few candidates are raced.
TEST_F(TransposedProgramTest, TuneSharesMeasurementsWithTheConvolution) {
  const Words algos{"--algos", "im2col,direct", "--threads", "1"};
  const json table = json_of(Words{"tune", layer} + algos);
  const std::vector<std::pair<std::string, std::string>> passes{
      {"fwd", "bwd_d"}, {"bwd_d", "fwd"}, {"bwd_w", "bwd_w"}};
  ASSERT_EQ(table["layers"].size(), passes.size());
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const json& row = table["layers"][i];
    EXPECT_EQ(row["problem"], canonical);
    EXPECT_EQ(row["pass"], passes[i].first);
    EXPECT_EQ(row["convolution"]["problem"], convolution);
    EXPECT_EQ(row["convolution"]["pass"], passes[i].second);
    EXPECT_LT(row["chosen"]["rel_error"], 1e-5);
  }
  const Ran rows = run({"db", "show", "--format", "csv"});
  EXPECT_TRUE(contains(rows.out, std::string(convolution) + ",bwd_d,")) << rows.out;
  EXPECT_FALSE(contains(rows.out, "deconv")) << rows.out;

  // The convolution's winners are known already: there is no time to measure any.
  const json known = json_of(Words{"tune", convolution, "--budget", "0.001s"} + algos);
  for (const json& row : known["layers"]) {
    EXPECT_EQ(row["chosen"]["predicted"], false) << row.dump(1);
    EXPECT_LT(row["chosen"]["rel_error"], 1e-5);
  }

  const Ran both = run({"db", "show", layer, "--pass", "fwd", "--format", "csv"});
  EXPECT_TRUE(contains(both.out, ",bwd_d,")) << both.out;
  EXPECT_FALSE(contains(both.out, ",fwd,")) << both.out;
}

TEST_F(TransposedProgramTest, TablesSayWhichPassOfWhichConvolution) {
  for (const Words& verb :
       {Words{"tune", "--mode", "heuristic"}, Words{"tune", "--mode", "heuristic", "--wide"},
        Words{"list"}, Words{"check", "--algos", "im2col"},
        Words{"bench", "--algos", "im2col", "--threads", "1"},
        Words{"explain", "--algos", "im2col", "--threads", "1"}}) {
    const Ran ran = run(verb + Words{layer, "--pass", "fwd"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(has_note(ran.out)) << verb[0] << ran.out;
  }
  const Ran csv = run({"tune", layer, "--mode", "heuristic", "--pass", "fwd", "--format", "csv"});
  EXPECT_TRUE(contains(csv.out, std::string(canonical) + ",fwd,,f32,")) << csv.out;
}

// Its forward is the convolution's bwd_d.
TEST_F(TransposedProgramTest, ReasonsSayThatTheyAreTheConvolutions) {
  for (const Words& verb : {Words{"list"}, Words{"check"}, Words{"bench", "--mode", "heuristic"},
                            Words{"tune", "--mode", "heuristic", "--algos", "winograd_1d"}}) {
    const Words csv{"--pass", "fwd", "--format", verb[0] == "tune" ? "json" : "csv"};
    const Ran ran = run(verb + Words{layer} + csv);
    EXPECT_TRUE(contains(ran.out, "its convolution: needs fwd, has bwd_d")) << verb[0] << ran.out;
    const Ran other = run(verb + Words{convolution} + Words{"--pass", "bwd_d"});
    EXPECT_FALSE(contains(other.out, "its convolution")) << other.out;
  }
}

TEST_F(TransposedProgramTest, CheckPassesEverythingAndRepeatsAsWritten) {
  const Ran ran = run({"check", layer, "deconv:g2mb2ic8ih3iw5oc4kh2sh2"});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_TRUE(contains(ran.out, " 0 failed")) << ran.out;
  const Ran failed = run({"check", layer, "--pass", "bwd_d", "--algos", "im2col", "--max-error",
                          "1e-30", "--format", "csv"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_TRUE(contains(failed.out, std::string("convlab check ") + canonical + " --pass bwd_d"))
      << failed.out;
}

TEST_F(TransposedProgramTest, AFileMayHaveThemBesideConvolutions) {
  write_file(directory_ / "mixed", std::string(layer) + "\n" + convolution + "\n");
  const json table =
      json_of({"tune", "@" + (directory_ / "mixed").string(), "--mode", "heuristic"});
  ASSERT_EQ(table["layers"].size(), 6u);
  EXPECT_EQ(table["layers"][0]["problem"], canonical);
  EXPECT_EQ(table["layers"][3]["problem"], convolution);
  EXPECT_FALSE(table["layers"][3].contains("convolution"));
  // They differ as rows although they are the same problem.
  EXPECT_EQ(table["layers"][0]["chosen"]["ms"], table["layers"][4]["chosen"]["ms"]);
}

TEST_F(TransposedProgramTest, SweepTakesThemAsWritten) {
  const Words words{"sweep", layer, "-a", "h=4,5", "--mode", "heuristic", "--pass", "fwd"};
  const json sweep = json_of(words);
  EXPECT_EQ(sweep["problem"], canonical);
  ASSERT_EQ(sweep["layers"].size(), 2u);
  EXPECT_EQ(sweep["layers"][1]["problem"], "deconv:mb1ic16ih5oc8oh11kh3sh2ph1");
  EXPECT_EQ(sweep["layers"][1]["pass"], "fwd");
  EXPECT_EQ(sweep["layers"][1]["convolution"]["pass"], "bwd_d");
  const Ran table = run(words);
  EXPECT_TRUE(contains(table.out, std::string(" is the gradient of ") + convolution)) << table.out;
}

TEST_F(TransposedProgramTest, BadInputIsOneLineAndExitCode2) {
  const std::vector<BadUsage> cases{
      {{"tune", "deconv:mb1ic16ih4oc8oh12kh3sh2ph1"}, "oh 12 is too large for ih 4"},
      {{"list", "deconv:ic16ih4kh3"}, "oc is missing"},
      {{"sweep", layer, "-a", "g=3"}, "is not a multiple of g 3"}};
  expect_refused([&](const Words& words) { return run(words); }, cases);
}

}  // namespace
}  // namespace convlab
