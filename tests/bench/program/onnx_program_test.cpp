// ONNX models as targets of the program.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

using nlohmann::json;

const std::string models = CONVLAB_ONNX_DATA;
const std::string operators = models + "/operators.onnx", residual = models + "/residual.onnx";
const std::string image = CONVLAB_PREDICT_DATA "/a.png";

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

TEST_F(OnnxProgramTest, AWholeModelIsANet) {
  const std::string file = directory_ / "plan.json";
  const Ran plan = run({"plan", residual, "--batch", "2", "--forward-only", "--no-audit",
                        "--threads", "1", "--format", "json", "--output", file});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_TRUE(contains(plan.err, "convlab tune " + residual + " --batch 2 --pass fwd")) << plan.err;
  EXPECT_TRUE(contains(plan.err, "Softmax 'softmax' is left out")) << plan.err;
  const Ran time = run({"time", residual, "--plan", file, "--threads", "1", "--iterations", "1",
                        "--format", "json"});
  ASSERT_EQ(time.exit_code, 0) << time.err;
  const json timed = json::parse(time.out);
  EXPECT_EQ(timed["net"]["name"], "residual.onnx");
  EXPECT_EQ(timed["net"]["batch"], 2);
  // A model's batch is open, or what --dim says.
  const Ran training = run({"time", residual, "--dim", "N=3", "--threads", "1", "--iterations", "1",
                            "--format", "json"});
  ASSERT_EQ(training.exit_code, 0) << training.err;
  EXPECT_EQ(json::parse(training.out)["net"]["batch"], 3);
}

// The products over the channels of each pixel are convolutions of the net.
TEST_F(OnnxProgramTest, TuneHasAllConvolutionsOfTheNet) {
  const Ran list = run({"list", models + "/next.onnx", "--pass", "fwd", "--format", "json"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  std::set<std::string> layers;
  for (const json& row : rows_of(list.out)) layers.insert(row["layer"]);
  EXPECT_EQ(layers, (std::set<std::string>{"depthwise0", "down0", "stem", "up0"}));
}

TEST_F(OnnxProgramTest, PredictsWithTheModelsOwnWeights) {
  const Ran own = run({"predict", residual, image, image, "--batch", "2", "--format", "json"});
  ASSERT_EQ(own.exit_code, 0) << own.err;
  const json found = json::parse(own.out);
  EXPECT_EQ(found["net"], "residual.onnx");
  ASSERT_EQ(found["images"].size(), 2U);
  EXPECT_EQ(found["images"][0]["logits"].size(), 5U);
  EXPECT_EQ(found["images"][0]["logits"], found["images"][1]["logits"]);
  EXPECT_TRUE(contains(own.err,
                       "says nothing about its input: images are scaled to 32, cropped to "
                       "32x32 and normalised as for ImageNet"))
      << own.err;
  // --mean and --deviation make another input of the image.
  const Ran other =
      run({"predict", residual, image, "--mean", "0", "--deviation", "1", "--format", "json"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_FALSE(contains(other.err, "says nothing about its input")) << other.err;
  EXPECT_NE(json::parse(other.out)["images"][0]["logits"], found["images"][0]["logits"]);
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
      {{"time", operators, "--dim", "height=43,width=38"},
       "operators.onnx: no layer for: Resize nearest, half_pixel, round_prefer_floor (1: "
       "resize), "},
      {{"time", "nosuch.onnx"}, "nosuch.onnx: cannot be opened"},
      {{"plan", residual, "--dim", "height=4"},
       "--dim height: unknown dimension: expected one of N"},
      {{"plan", "lenet", "--dim", "height=4"}, "--dim: only ONNX models have dimensions by name"},
      {{"predict", residual}, "predict: no image"},
      {{"predict", residual, image, "--weights", "w.npz"}, "has weights of its own: drop one"},
      {{"predict", models + "/cube.onnx", image}, "takes 8 slices of 10x9 pixels, not an image"},
      {{"predict", models + "/next.onnx", image, "--classes", image},
       "as a class's name: expected UTF-8"},
      {{"train", residual, "--data", "synthetic"},
       "is an ONNX model, which has lost what training"},
  };
  expect_refused([&](const Words& words) { return run(words); }, cases);
}

}  // namespace
}  // namespace convlab
