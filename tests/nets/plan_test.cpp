#include "nets/plan/plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "conv/error.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

using Json = nlohmann::ordered_json;

// Every field differs from its default.
NetPlan sample() {
  NetPlan plan;
  plan.net = "lenet";
  plan.batch = 16;
  plan.mode = Mode::inference;
  plan.dtype = DType::f64;
  plan.deterministic = true;
  plan.workspace_max = 64 << 20;
  plan.threads = 2;
  plan.machine = "AMD EPYC 9R45, avx512";
  for (const Step& step : steps_of(lenet(16), Mode::inference))
    plan.steps.push_back({.layer = lenet(16).nodes()[step.node].name, .passes = {}});
  plan.steps[1].x_layout = Layout::nhwc;
  plan.steps[1].y_layout = Layout::nchw16c;
  plan.steps[1].passes[0] = PassPlan{"winograd", {{"tile", 4}, {"block", 56}}, 8, 1.25, true};
  plan.steps[1].passes[2] = PassPlan{"direct", {}, 0, 0.1, false};
  plan.steps[1].other_ms = 0.5;
  plan.steps[2].convert_ms = 1.0 / 3;
  return plan;
}

DeviceInfo device() {
  DeviceInfo info;
  info.name = "AMD EPYC 9R45";
  info.isa = "avx512";
  info.threads = 2;
  return info;
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return "";
}

TEST(Plan, IsTheSumOfItsParts) {
  EXPECT_DOUBLE_EQ(sample().ms(), 1.25 + 0.1 + 0.5 + 1.0 / 3);
  EXPECT_EQ(NetPlan{}.ms(), 0);
}

TEST(Plan, GoesThroughJson) {
  const NetPlan plan = sample();
  EXPECT_EQ(plan_from_json(to_json(plan), "a.json"), plan);
  EXPECT_EQ(plan_from_json(to_json(NetPlan{}), "a.json"), NetPlan{});
  // Times round-trip to the last bit, and rewritten text is unchanged.
  EXPECT_EQ(to_json(plan_from_json(to_json(plan), "a.json")), to_json(plan));
}

// A missing field, or one of the wrong type, is named in the error, for every field of the file.
TEST(Plan, SaysWhichFieldIsWrong) {
  const Json good = Json::parse(to_json(sample()));
  const auto read = [](const Json& json) {
    return error_of([&] { plan_from_json(json.dump(), "a.json"); });
  };
  EXPECT_EQ(read(good), "");
  std::size_t fields = 0;
  const auto damage = [&](const Json::json_pointer& object, const std::string& place) {
    for (const auto& item : good.at(object).items()) {
      Json less = good, wrong = good;
      less.at(object).erase(item.key());
      wrong.at(object)[item.key()] = Json::array({Json()});
      const std::string name = place + item.key();
      if (place.find("passes.") == place.size() - 7)  // a pass may be missing
        EXPECT_EQ(read(less), "") << name;
      else
        EXPECT_NE(
            read(less).find(item.key() == "convlab_plan" ? "a.json: is no plan"
                                                         : "a.json: " + name + ": is missing"),
            std::string::npos)
            << name << ": " << read(less);
      EXPECT_NE(read(wrong).find(item.key() == "convlab_plan" ? "a.json: convlab_plan is"
                                                              : "a.json: " + name),
                std::string::npos)
          << name << ": " << read(wrong);
      ++fields;
    }
    Json more = good;
    more.at(object)["colour"] = "red";
    EXPECT_NE(read(more).find("a.json: " + place + "colour: "), std::string::npos) << read(more);
  };
  damage(Json::json_pointer(""), "");
  damage(Json::json_pointer("/steps/1"), "steps[1].");
  damage(Json::json_pointer("/steps/1/passes"), "steps[1].passes.");
  damage(Json::json_pointer("/steps/1/passes/fwd"), "steps[1].passes.fwd.");
  EXPECT_EQ(fields, 10u + 6 + 2 + 6);
}

TEST(Plan, RefusesImpossibleValues) {
  const auto read = [](const char* pointer, const Json& value) {
    Json json = Json::parse(to_json(sample()));
    json[Json::json_pointer(pointer)] = value;
    return error_of([&] { plan_from_json(json.dump(), "a.json"); });
  };
  EXPECT_EQ(read("/steps/1/other_ms", -1),
            "a.json: steps[1].other_ms: expected a number from 0 on");
  EXPECT_EQ(read("/steps/1/other_ms", nullptr),
            "a.json: steps[1].other_ms: expected a number from 0 on");
  EXPECT_EQ(read("/batch", 1.5), "a.json: batch: expected a whole number from 0 on");
  EXPECT_EQ(read("/batch", 1e30), "a.json: batch: expected a whole number from 0 on");
  EXPECT_EQ(read("/threads", 0), "a.json: threads: expected a whole number from 1 on");
  EXPECT_EQ(read("/mode", "guessing"),
            "a.json: mode: unknown mode 'guessing': expected one of training, inference");
  EXPECT_EQ(
      read("/steps/1/passes/fwd/config", "tile"),
      "a.json: steps[1].passes.fwd.config: malformed config 'tile': 'tile': expected name=value, "
      "as in tile=4,schedule=shared");
  EXPECT_EQ(read("/steps/1/passes/fwd/config", "tile=04"),
            "a.json: steps[1].passes.fwd.config: malformed config 'tile=04': expected 'tile=4'");
  EXPECT_EQ(read("/convlab_plan", 3),
            "a.json: convlab_plan is 3, this program reads 2: make the plan anew");
}

TEST(Plan, RefusesWhatIsNoPlan) {
  const std::string text = to_json(sample());
  for (const std::string& bad : {std::string(), text.substr(0, text.size() / 2), text.substr(1),
                                 std::string("[]"), std::string("{\"rows\": []}")})
    EXPECT_NE(error_of([&] { plan_from_json(bad, "a.json"); }).find("a.json"), std::string::npos)
        << bad;
}

TEST(Plan, FitsOneNetBatchMachineAndNumberOfThreads) {
  const NetPlan plan = sample();
  const auto error = [&](const Graph& graph, const DeviceInfo& info) {
    return error_of([&] { require_plan_fits(plan, graph, info); });
  };
  EXPECT_EQ(error(lenet(16), device()), "");
  EXPECT_EQ(error(alexnet(16), device()),
            "the plan is for net lenet, not alexnet: make one with `convlab plan alexnet --batch "
            "16 --forward-only --format json` here");
  EXPECT_NE(error(lenet(8), device()).find("for batch 16, not 8"), std::string::npos);
  NetPlan training = plan;
  training.mode = Mode::training;
  EXPECT_NE(error_of([&] {
              require_plan_fits(training, lenet(8), device());
            }).find("convlab plan lenet --batch 8 --format json"),
            std::string::npos);
  DeviceInfo other = device();
  other.isa = "avx2";
  EXPECT_NE(error(lenet(16), other).find("machine AMD EPYC 9R45, avx512, not AMD EPYC 9R45, avx2"),
            std::string::npos);
  other = device();
  other.threads = 8;
  EXPECT_NE(error(lenet(16), other).find("for threads 2, not 8"), std::string::npos);

  NetPlan changed = plan;
  changed.steps[2].layer = "elsewhere";
  EXPECT_NE(error_of([&] { require_plan_fits(changed, lenet(16), device()); }).find("elsewhere"),
            std::string::npos);
  changed.steps.pop_back();
  EXPECT_NE(error_of([&] { require_plan_fits(changed, lenet(16), device()); }).find("steps"),
            std::string::npos);
}

}  // namespace
}  // namespace convlab::nets
