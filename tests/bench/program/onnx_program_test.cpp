// ONNX models as targets of the program.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

using nlohmann::json;

const std::string models = CONVLAB_ONNX_DATA;
const std::string operators = models + "/operators.onnx";

using OnnxProgramTest = ProgramTest;

TEST_F(OnnxProgramTest, ConvolutionsOfAModelAreProblems) {
  const Ran list = run({"list", operators, "--dim", "height=43,width=38", "--batch", "1,3",
                        "--pass", "fwd", "--format", "json"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  std::vector<std::string> of_up;
  for (const json& row : rows_of(list.out))
    if (row["layer"] == "up" && row["algo"] == "direct") of_up.push_back(row["problem"]);
  EXPECT_EQ(of_up,
            (std::vector<std::string>{"deconv:g2mb1ic32ih11iw9oc12oh23ow18kh4kw4sh2sw2ph1pw1",
                                      "deconv:g2mb3ic32ih11iw9oc12oh23ow18kh4kw4sh2sw2ph1pw1"}));
}

TEST_F(OnnxProgramTest, AreTunedAndCheckedByNode) {
  const Ran tune = run(
      {"tune", models + "/old.onnx", "--mode", "heuristic", "--pass", "fwd", "--format", "json"});
  ASSERT_EQ(tune.exit_code, 0) << tune.err;
  EXPECT_EQ(json::parse(tune.out)["layers"].size(), 2U);
  const Ran check = run({"check", models + "/unknown.onnx", "--layer", "known", "--algos", "direct",
                         "--pass", "fwd"});
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_TRUE(contains(check.out, ", 0 failed")) << check.out;
  EXPECT_TRUE(contains(check.err, "1 of 2 convolutions have no known shape: 1 by MaxUnpool"))
      << check.err;
}

TEST_F(OnnxProgramTest, BadInputIsOneLineAndExitCode2) {
  const std::vector<BadUsage> cases{
      {{"tune", "nosuch.onnx"}, "nosuch.onnx: cannot be opened"},
      {{"tune", operators}, "expected --dim height=N --dim width=N"},
      {{"tune", operators, "--dim", "height"},
       "--dim: 'height': expected NAME=N, as in height=224"},
      {{"tune", operators, "--dim", "height=0"}, "--dim: "},
      {{"tune", operators, "--dim", "depth=4"},
       "--dim depth: unknown dimension: expected one of N,"},
      {{"tune", "lenet", "--dim", "height=4"}, "--dim: only ONNX models have dimensions by name"},
      {{"tune", models + "/old.onnx", "--layer", "fist"}, "did you mean first?"},
      {{"time", models + "/old.onnx"}, "a model's convolutions are for tune, bench, check, list,"},
  };
  expect_refused([&](const Words& words) { return run(words); }, cases);
}

}  // namespace
}  // namespace convlab
