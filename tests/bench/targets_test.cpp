#include "bench/options/targets.h"

#include <gtest/gtest.h>

#include "conv/error.h"
#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

DeviceInfo roomy() {
  DeviceInfo info;
  info.memory_bytes = std::int64_t{1} << 40;
  return info;
}

CommonOptions forward(const std::string& target) {
  CommonOptions options;
  options.targets = {target};
  options.passes = {Pass::forward};
  return options;
}

std::string refusal(const CommonOptions& options, const DeviceInfo& info) {
  try {
    resolve_targets(options, info);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Targets, ANetGivesItsLayersInAllPasses) {
  CommonOptions options;
  options.targets = {"resnet18"};
  const std::vector<TuneItem> items = resolve_targets(options, roomy());
  ASSERT_EQ(items.size(), 3 * 11u);
  std::int64_t convolutions = 0;
  for (const TuneItem& item : items)
    if (item.layer.problem.pass() == Pass::forward) convolutions += item.layer.count;
  EXPECT_EQ(convolutions, 20);
  EXPECT_EQ(items[0].layer.name, "conv1");
  EXPECT_EQ(items[0].layer.problem.batch(), 1);
  EXPECT_TRUE(items[0].first_layer);
  EXPECT_EQ(items[1].layer.problem.pass(), Pass::backward_data);
  EXPECT_FALSE(items[3].first_layer);
}

// Its first layer needs backward_data as well: backward_filter reads dgates.
TEST(Targets, ARecurrentNetGivesItsRecurrentLayers) {
  CommonOptions options = forward("rnn:9x20-33-4:gru:bi");
  options.batches = {3};
  const std::string sizes = "gru:l1t20mb3sic33slc9dhc33dic33:bi";
  const std::vector<TuneItem> inference = resolve_targets(options, roomy());
  ASSERT_EQ(inference.size(), 1u);
  EXPECT_EQ(to_text(inference[0].layer.problem), sizes);
  EXPECT_EQ(inference[0].layer.name, "rnn");
  EXPECT_FALSE(inference[0].layer.problem.recurrent()->training);
  options.passes = {all_passes.begin(), all_passes.end()};
  options.layer = "rnn";
  const std::vector<TuneItem> training = resolve_targets(options, roomy());
  ASSERT_EQ(training.size(), 3u);
  for (const TuneItem& item : training) {
    const RecurrentProblem& p = *item.layer.problem.recurrent();
    EXPECT_EQ(to_text(p), sizes);
    EXPECT_EQ(p.training, p.pass == Pass::forward);
    EXPECT_FALSE(item.first_layer);
  }
}

TEST(Targets, ARecurrentLayerTrainsWhereABackwardPassIsAskedFor) {
  CommonOptions options = forward("lstm:t3mb4dhc8nencoder");
  EXPECT_FALSE(resolve_targets(options, roomy()).at(0).layer.problem.recurrent()->training);
  options.passes = {Pass::forward, Pass::backward_data};
  options.batches = {2, 5};
  options.dtype = DType::f64;
  const std::vector<TuneItem> items = resolve_targets(options, roomy());
  ASSERT_EQ(items.size(), 4u);
  EXPECT_TRUE(items[0].layer.problem.recurrent()->training);
  EXPECT_FALSE(items[1].layer.problem.recurrent()->training);
  EXPECT_EQ(items[2].layer.problem.batch(), 5);
  EXPECT_EQ(items[2].layer.problem.dtype(), DType::f64);
  EXPECT_EQ(items[2].layer.name, "encoder");
}

TEST(Targets, ALayoutIsRefusedWhereNothingHasOne) {
  CommonOptions options = forward("lstm:t3mb4dhc8");
  options.layout = "nhwc";
  EXPECT_EQ(refusal(options, roomy()), "--layout: recurrent layers have none: drop it");
  options.targets.push_back("mb3ic16ih8oc16oh8kh3ph1");
  EXPECT_EQ(resolve_targets(options, roomy()).size(), 2u);
}

TEST(Targets, ARecurrentNetIsNoProblem) {
  EXPECT_TRUE(looks_like_problem("rnn:t3dhc8"));
  EXPECT_TRUE(looks_like_problem("rnn:x"));  // a faulty one
  EXPECT_FALSE(looks_like_problem("rnn:28-128x2-10"));
  EXPECT_FALSE(looks_like_problem("rnn"));
}

TEST(Targets, BatchesMultiply) {
  CommonOptions options = forward("resnet18");
  options.batches = {1, 16};
  options.dtype = DType::f64;
  const std::vector<TuneItem> items = resolve_targets(options, roomy());
  ASSERT_EQ(items.size(), 2 * 11u);
  EXPECT_EQ(items.back().layer.problem.batch(), 16);
  EXPECT_EQ(items.back().layer.problem.dtype(), DType::f64);
}

TEST(Targets, AProblemKeepsItsBatchUnlessToldOtherwise) {
  CommonOptions options = forward("mb3ic16ih8oc16oh8kh3ph1n\"a*2\"");
  EXPECT_EQ(resolve_targets(options, roomy()).at(0).layer.problem.batch(), 3);
  EXPECT_EQ(resolve_targets(options, roomy()).at(0).layer.count, 2);
  options.batches = {5, 6};
  const std::vector<TuneItem> items = resolve_targets(options, roomy());
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].layer.problem.batch(), 5);
  EXPECT_EQ(items[1].layer.problem.batch(), 6);
}

TEST(Targets, GroupedProblemsAndNetsWithGAreToldApart) {
  CommonOptions options = forward("g2mb1ic16ih8oc16oh8kh3ph1");
  options.targets.push_back("googlenet");
  const std::vector<TuneItem> items = resolve_targets(options, roomy());
  EXPECT_EQ(items[0].layer.problem.conv()->groups, 2);
  EXPECT_EQ(items[1].layer.problem.conv()->c, 3);
}

TEST(Targets, AFileHasOneProblemALine) {
  const TemporaryDirectory directory;
  write_file(directory / "list", "# two\nmb1ic16ih8oc16oh8kh3ph1\n\nmb1ic32ih8oc16oh8kh1\n");
  CommonOptions options = forward("@" + (directory / "list").string());
  options.passes = {Pass::forward, Pass::backward_filter};
  EXPECT_EQ(resolve_targets(options, roomy()).size(), 4u);
}

TEST(Targets, WhatDoesNotFitInMemoryIsToldWhatItNeeds) {
  CommonOptions options = forward("vgg16");
  options.batches = {1024};
  DeviceInfo info;
  info.memory_bytes = std::int64_t{8} << 30;
  // conv1: input 1024 images of 3 x 224 x 224, which the reference also reads as double, and output
  // 64 x 224 x 224.
  const std::string what = refusal(options, info);
  EXPECT_NE(what.find("needs 14 GiB"), std::string::npos) << what;
  EXPECT_NE(what.find("has 8.0 GiB"), std::string::npos) << what;
  EXPECT_NE(what.find("at most about 586"), std::string::npos) << what;
}

TEST(Targets, RequiredMemoryCountsReferenceAndTensors) {
  // 2 channels of 4 x 4 in and out, 1x1 filter: 32 + 32 + 4 elements.
  ConvProblem p = parse_problem("mb1ic2ih4oc2oh4kh1").problem;
  EXPECT_EQ(required_bytes(p), 68 * (8 + 4));
  p.dtype = DType::f64;
  EXPECT_EQ(required_bytes(p), 68 * (8 + 8));
}

TEST(Targets, BadOnesSayWhatWouldBeRight) {
  EXPECT_NE(refusal(forward("resnet19"), roomy()).find("resnet18"), std::string::npos);
  const std::string malformed = refusal(forward("mb1ic16ih8oc16oh8kh3ph1x7"), roomy());
  EXPECT_NE(malformed.find("character 24"), std::string::npos) << malformed;
  EXPECT_NE(refusal(forward("@/no/such/file"), roomy()).find("/no/such/file"), std::string::npos);
  EXPECT_EQ(refusal(forward("mlp:20-256x5-1"), roomy()),
            "mlp:20-256x5-1 has no convolutions and no recurrent layers: expected a net that has "
            "some");
}

}  // namespace
}  // namespace convlab
