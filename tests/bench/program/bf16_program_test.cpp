// Nets of bf16 by the program.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "nets/plan/plan.h"
#include "nets/weights/arrays.h"
#include "tests/bench/program/run_program.h"

namespace convlab {

using namespace nets;
namespace {

using nlohmann::json;

const std::filesystem::path data = CONVLAB_PREDICT_DATA;

class Bf16Program : public testing::Test {
 protected:
  Ran run(const Words& words) {
    return Program(directory_, words, {{"XDG_CACHE_HOME", directory_.path() / "cache"}}).wait();
  }
  std::string file(const std::string& name) const { return directory_ / name; }
  TemporaryDirectory directory_;
};

TEST_F(Bf16Program, TimesAndPlansInItsType) {
  const auto time = [&](const Words& more) {
    const Ran ran = run(Words{"time", "resnet20", "--iterations", "1", "--format", "json"} + more);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.exit_code == 0 ? json::parse(ran.out) : json();
  };
  const json training = time({"--batch", "2", "--dtype", "bf16"}), f32 = time({"--batch", "2"});
  EXPECT_EQ(training["net"]["dtype"], "bf16");
  EXPECT_LT(training["memory"]["activations"].get<double>(),
            0.6 * f32["memory"]["activations"].get<double>());
  const std::string plan = file("plan.json");
  const Ran planned = run({"plan", "resnet20", "--dtype", "bf16", "--forward-only", "--format",
                           "json", "--output", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(json::parse(read_file(plan))["dtype"], "bf16");
  EXPECT_EQ(time({"--plan", plan})["net"]["dtype"], "bf16");
}

// What they say otherwise, PyTorch computed in f32.
TEST_F(Bf16Program, PredictsWhatF32Does) {
  const json expected = json::parse(read_file(data / "logits.json"));
  const Ran ran = run({"predict", "lenet", "--weights", data / "lenet.safetensors", data / "a.png",
                       data / "b.png", "--format", "json", "--dtype", "bf16"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json got = json::parse(ran.out);
  for (std::size_t i = 0; i < 2; ++i) {
    double error = 0, norm = 0;
    for (std::size_t k = 0; k < 7; ++k) {
      const double e = expected[i][k].get<double>();
      error += std::pow(got["images"][i]["logits"][k].get<double>() - e, 2);
      norm += e * e;
    }
    EXPECT_GT(error, 0) << "rounded";
    EXPECT_LT(std::sqrt(error / norm), 0.02);
  }
}

// A checkpoint's weights are f32.
TEST_F(Bf16Program, TrainsAndResumes) {
  const std::string checkpoint = file("c.safetensors"), straight = file("s.safetensors");
  const Words train{"train",           "lenet",   "--data", "synthetic:320",
                    "--deterministic", "--dtype", "bf16"};
  ASSERT_EQ(run(train + Words{"--epochs", "2", "--checkpoint", straight}).exit_code, 0);
  const Ran begun = run(train + Words{"--epochs", "1", "--checkpoint", checkpoint});
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  const ArrayFile weights = read_arrays(checkpoint);
  EXPECT_EQ(weights.metadata.at("dtype"), "bf16");
  for (const auto& [name, array] : weights.arrays) EXPECT_EQ(array.type, ElementType::f32) << name;
  const Ran more = run({"train", "--resume", checkpoint, "--epochs", "2"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  const ArrayFile resumed = read_arrays(checkpoint), once = read_arrays(straight);
  ASSERT_EQ(resumed.arrays.size(), once.arrays.size());
  for (const auto& [name, array] : once.arrays)
    EXPECT_EQ(resumed.at(name).bytes, array.bytes) << name;
}

TEST_F(Bf16Program, WhatIsNotCarriedIsRefusedInOneLine) {
  const auto runs = [&](const Words& words) { return run(words); };
  expect_refused(runs, {{{"time", "rnn:28-16-10:lstm", "--dtype", "bf16"},
                         "layer rnn: recurrent layers run in f32 or f64, not bf16"},
                        {{"train", "rnn:32-16-10", "--data", "synthetic:320", "--dtype", "bf16"},
                         "recurrent layers run in f32 or f64"},
                        {{"predict", "lenet", "--weights", data / "lenet.safetensors",
                          data / "a.png", "--dtype", "f16"},
                         "--dtype: 'f16': nets run in f32, f64 or bf16"},
                        {{"train", "lenet", "--data", "synthetic:320", "--dtype", "f16"},
                         "--dtype: 'f16': nets run in f32, f64 or bf16"},
                        {{"plan", "lenet", "--dtype", "bf16", "--math", "bf16x3"},
                         "--math: chooses how products of f32 are formed, not of bf16"}});
  for (const char* verb : {"time", "plan", "train", "predict"}) {
    const Ran help = run({verb, "--help"});
    EXPECT_TRUE(contains(help.out, "bf16, which stores activations in bf16")) << help.out;
  }
}

}  // namespace
}  // namespace convlab
