// `convlab predict` end to end, with weights and logits that PyTorch made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/reports/nets/predict_report.h"
#include "nets/weights/arrays.h"
#include "tests/bench/program/run_program.h"

namespace convlab {

using namespace nets;
namespace {

using nlohmann::json;

const std::filesystem::path data = CONVLAB_PREDICT_DATA;
const std::string weights = data / "lenet.safetensors", a = data / "a.png", b = data / "b.png";

class PredictTest : public testing::Test {
 protected:
  Ran run(const Words& arguments) {
    return Program(directory_, Words{"predict"} + arguments, {}).wait();
  }
  // One line on stderr, before a net is planned; nothing on stdout, exit code 2.
  void expect_refused(const Words& arguments, const std::string& says) {
    convlab::expect_refused([&](const Words& words) { return run(words); }, {{arguments, says}});
  }
  TemporaryDirectory directory_;
};

void expect_pytorchs(const Ran& ran) {
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json expected = json::parse(read_file(data / "logits.json")), got = json::parse(ran.out);
  EXPECT_EQ(got["net"], "lenet:7");
  EXPECT_EQ(got["classes"].size(), 7u);
  ASSERT_EQ(got["images"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const json& image = got["images"][i];
    EXPECT_EQ(image["image"], i == 0 ? a : b);
    ASSERT_EQ(image["logits"].size(), 7u);
    for (std::size_t k = 0; k < 7; ++k)
      EXPECT_NEAR(image["logits"][k].get<double>(), expected[i][k].get<double>(), 1e-5);
    EXPECT_EQ(image["top"].size(), 5u);
    EXPECT_EQ(image["top"][0]["class"], 5);
    EXPECT_EQ(image["top"][0]["name"], "fox");
  }
}

const Words two_images{"lenet", "--weights", weights, a, b, "--format", "json"};

TEST_F(PredictTest, GivesPyTorchsLogits) {
  for (const Words& how : {Words{}, Words{"--batch", "3", "--dtype", "f64"},
                           Words{"--layout", "nhwc", "--algos", "implicit_gemm,im2col"}})
    expect_pytorchs(run(two_images + how));
}

#ifdef CONVLAB_PROGRAM_ON_CPU
TEST_F(PredictTest, GivesThemOnACard) {
  const Words command = Words{"predict"} + two_images + Words{"--batch", "2", "--device", "cuda"};
  expect_pytorchs(Program(directory_, command, {}, CONVLAB_PROGRAM_ON_CPU).wait());
}
#endif

// If the file does not say how to normalise, the flags do.
TEST_F(PredictTest, NormalisesAsFlagsSay) {
  const std::string bare = directory_ / "bare.safetensors";
  ArrayFile file = read_arrays(weights);
  const std::string mean = file.metadata.at("mean"), deviation = file.metadata.at("deviation");
  file.metadata.erase("mean");
  file.metadata.erase("deviation");
  write_arrays(bare, file);
  const Words command{"lenet", "--weights", bare, a, b, "--format", "json"};
  expect_pytorchs(run(command + Words{"--mean", mean, "--deviation", deviation}));
  const json got = json::parse(run(command).out), expected = json::parse(run(two_images).out);
  EXPECT_NE(got["images"][0]["logits"], expected["images"][0]["logits"]);
  expect_refused(command + Words{"--mean", "1,2"},
                 "--mean: 2 numbers, but images have 1 channel here: expected one");
  expect_refused(command + Words{"--deviation", "0"}, "a deviation of 0");
  expect_refused(command + Words{"--deviation", "1e-320"}, "expected 1e-06 to 1000000");
  expect_refused(command + Words{"--mean", "1e38"}, "expected -1000000 to 1000000");
  expect_refused(command + Words{"--mean", "half"}, "--mean: 'half' is no number");
}

TEST(PredictReport, AnInterruptedOneSaysSo) {
  Predictions some{.net = "lenet",
                   .weights = "w.npz",
                   .classes = {},
                   .images = {{"a.png", {1, 2}}},
                   .provenance = {}};
  EXPECT_EQ(json::parse(render(some, Format::json))["complete"], true);
  some.complete = false;
  EXPECT_EQ(json::parse(render(some, Format::json))["complete"], false);
  for (const Format format : {Format::table, Format::csv, Format::md})
    EXPECT_NE(render(some, format).find("Stopped early"), std::string::npos);
}

TEST_F(PredictTest, ShowsTheFiveMostLikely) {
  const Ran table = run({"lenet", "--weights", weights, a, b});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("fox"), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find("eel"), std::string::npos) << table.out;  // the least likely
  write_file(directory_ / "names.txt",
             "\xef\xbb\xbf"
             "k0\r\nk1\nk2\nk3\nk4\nk5\nk6\n\n");
  const Ran csv = run(
      {"lenet", "--weights", weights, "--classes", directory_ / "names.txt", a, "--format", "csv"});
  EXPECT_NE(csv.out.find("\nimage,rank,class,name,probability\n" + a + ",1,5,k5,0.5548"),
            std::string::npos)
      << csv.out;
}

TEST_F(PredictTest, RefusesInOneLine) {
  const Words lenet{"lenet", "--weights", weights};
  const std::string text = directory_ / "note.png", names = directory_ / "names.txt";
  write_file(text, "no picture");
  write_file(names, "only one\n");
  expect_refused({"lenet", "--weights", weights}, "no image");
  expect_refused({"--weights", weights, a}, "no net: '" + a + "' is a file");
  expect_refused({"lenet", a}, "no weights");
  expect_refused(lenet + Words{a, text}, text);
  expect_refused(lenet + Words{directory_ / "none.jpg"}, "none.jpg");
  expect_refused(lenet + Words{a, "--classes", names}, "names of 1 classes");
  write_file(names, "k0\nk1\nk2\n\x1b[2Jk3\nk4\nk5\nk6\n");
  expect_refused(lenet + Words{a, "--classes", names}, "'\\x1b[2Jk3' as a class's name");
  const std::string pointer = directory_ / "pointer.safetensors";
  write_file(pointer, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
  expect_refused({"lenet", "--weights", pointer, a}, "a git-lfs pointer (`git lfs pull`");
  expect_refused(lenet + Words{directory_ / "\x1b[2Jnone.jpg"}, "\\x1b[2Jnone.jpg");
  expect_refused({"resnet20", "--weights", weights, a}, "not of resnet20");
  expect_refused({"lenet:10", "--weights", weights, a}, "has 10 outputs");
  expect_refused({"lenet", "--weights", text, a}, ".safetensors or .npz");
}

// For any numbers there is an order, and nothing overflows.
TEST(MostLikely, TakesEveryNumber) {
  const auto likely = most_likely({1000, 1001, -1000}, 2);
  ASSERT_EQ(likely.size(), 2u);
  EXPECT_EQ(likely[0].index, 1);
  EXPECT_NEAR(likely[0].probability, 1 / (1 + std::exp(-1.0)), 1e-12);
  EXPECT_NEAR(likely[1].probability, 1 / (1 + std::exp(1.0)), 1e-12);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(most_likely({nan, 1, nan})[0].index, 1);
  EXPECT_TRUE(most_likely({}).empty());
}

}  // namespace
}  // namespace convlab
