// Learning rates over time, optimizers and schedules as text, and scores.
#include "nets/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "conv/error.h"
#include "nets/train/optimizer.h"
#include "nets/train/scores.h"

namespace convlab::nets {
namespace {

std::vector<double> factors(const std::string& text, std::int64_t per_epoch, std::int64_t all) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < all; ++i)
    values.push_back(parse_schedule(text).at(i, per_epoch, all));
  return values;
}

TEST(Schedule, StepsAtItsEpochs) {
  EXPECT_EQ(factors("constant", 2, 3), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(factors("step:1,2.5,factor=0.5", 2, 7),
            (std::vector<double>{1, 1, 0.5, 0.5, 0.5, 0.25, 0.25}));
}

TEST(Schedule, FallsAsACosine) {
  const std::vector<double> f = factors("cosine", 10, 100);
  EXPECT_EQ(f[0], 1);
  EXPECT_NEAR(f[50], 0.5, 1e-15);
  EXPECT_NEAR(f[25], 0.5 + std::sqrt(0.125), 1e-15);
  EXPECT_GT(f[99], 0);
  EXPECT_LT(f[99], 1e-3);
}

TEST(Schedule, WarmsUpThenGoesOnAsUsual) {
  const std::vector<double> f = factors("cosine,warmup=0.5", 8, 24);
  EXPECT_EQ(std::vector<double>(f.begin(), f.begin() + 5),
            (std::vector<double>{0.25, 0.5, 0.75, 1, 1}));
  EXPECT_NEAR(f[14], 0.5, 1e-15);  // in the middle of the rest
  // A warmup longer than the schedule.
  EXPECT_EQ(factors("constant,warmup=9", 1, 4), (std::vector<double>{0.25, 0.5, 0.75, 1}));
}

std::string schedule_error(const std::string& text) {
  try {
    parse_schedule(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Schedule, IsWrittenAsItIsRead) {
  for (const char* text :
       {"constant", "cosine", "cosine,warmup=5", "step:30,60", "step:0.5,factor=0.2,warmup=0.25"})
    EXPECT_EQ(to_string(parse_schedule(text)), text);
  const std::string after = "; expected constant, cosine or step:30,60, perhaps with ,warmup=5";
  for (const auto& [text, why] : std::map<std::string, std::string>{
           {"", "'' is unknown"},
           {"linear", "'linear' is unknown"},
           {"step", "it has no epochs at which to step"},
           {"step:60,30", "its epochs do not ascend"},
           {"step:30,x", "'x' is not a number from 0 on"},
           {"step:-3", "'-3' is not a number from 0 on"},
           {"cosine:3", "cosine takes no epochs"},
           {"cosine,3", "'3' has no place here"},
           {"cosine,warmup=nan", "'nan' is not a number from 0 on"},
           {"cosine,factor=0.1", "'factor' is not one of its options"},
           {"step:3,factor=2", "a factor of 2 is above 1"},
           {"step:3,warmup=1,4", "'4' has no place here"}})
    EXPECT_EQ(schedule_error(text), "schedule '" + text + "': " + why + after);
}

TEST(Optimizer, IsWrittenAsItIsRead) {
  for (const UpdateRule& rule :
       {UpdateRule(
            SgdDesc{.rate = 0.1, .momentum = 1.0 / 3, .weight_decay = 5e-4, .nesterov = true}),
        UpdateRule(AdamDesc{.rate = 1e-3, .beta2 = 0.99}), make_rule("adamw"), make_rule("sgd")}) {
    const std::string text = to_string(rule);
    EXPECT_EQ(to_string(parse_rule(text)), text);
    EXPECT_EQ(parse_rule(text).index(), rule.index());
    EXPECT_EQ(rate_of(parse_rule(text)), rate_of(rule));
  }
  EXPECT_EQ(std::get<SgdDesc>(parse_rule(to_string(SgdDesc{.momentum = 1.0 / 3}))).momentum,
            1.0 / 3);
  EXPECT_TRUE(std::get<AdamDesc>(make_rule("adamw")).decoupled);
  EXPECT_FALSE(std::get<AdamDesc>(make_rule("adam")).decoupled);
  EXPECT_EQ(rate_of(with_rate(make_rule("adam"), 0.25)), 0.25);
  for (const char* text : {"", "lamb", "sgd", "sgd,rate=x", "sgd,momentum=0.9",
                           "sgd,rate=1,momentum=0,nesterov=0,weight_decay=0,more=1"})
    EXPECT_THROW(parse_rule(text), InputError) << text;
  for (const auto& [text, why] : std::map<std::string, std::string>{
           {"sgd,rate=inf,momentum=0,nesterov=0,weight_decay=0",
            "sgd: the rate is inf: expected a number from 0 on"},
           {"sgd,rate=1,momentum=2,nesterov=0,weight_decay=0",
            "sgd: the momentum is 2: expected a number from 0 to below 1"},
           {"sgd,rate=1,momentum=0,nesterov=0,weight_decay=nan",
            "sgd: the weight decay is nan: expected a number from 0 on"},
           {"adam,rate=1,beta1=1,beta2=0,epsilon=0,weight_decay=0",
            "adam: beta1 is 1: expected a number from 0 to below 1"}})
    try {
      parse_rule(text);
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_EQ(error.what(), why);
    }
  EXPECT_THROW(parse_rule("sgd,rate=1,momentum=0,nesterov=7,weight_decay=0"), InputError);
}

TEST(Scores, CountRanksAndCrossEntropy) {
  const std::vector<float> output{0, 1, 2, 3, 4, 5,   // label 5: first
                                  0, 1, 2, 3, 4, 5,   // label 0: sixth
                                  0, 1, 2, 3, 4, 5,   // label 1: fifth
                                  1, 1, 1, 1, 1, 1,   // label 0: first of equals
                                  9, 9, 9, 9, 9, 9};  // filled up
  const std::vector<std::int32_t> labels{5, 0, 1, 0, no_label};
  Scores s = score(std::as_bytes(std::span(output)), DType::f32, labels);
  EXPECT_EQ(s.images, 4);
  EXPECT_EQ(s.top1, 2);
  EXPECT_EQ(s.top5, 3);
  double sum = 0;
  for (int i = 0; i < 6; ++i) sum += std::exp(i);
  EXPECT_NEAR(s.loss, 3 * std::log(sum) - 6 + std::log(6), 1e-12);
  s += s;
  EXPECT_EQ(s.images, 8);
  EXPECT_EQ(s.top1_rate(), 0.5);
  EXPECT_EQ(s.top5_rate(), 0.75);

  const std::vector<double> broken{std::numeric_limits<double>::quiet_NaN(), 1};
  s = score(std::as_bytes(std::span(broken)), DType::f64, std::vector<std::int32_t>{1});
  EXPECT_EQ(s.top5, 0);
  EXPECT_TRUE(std::isnan(s.loss));
  EXPECT_EQ(Scores().mean_loss(), 0);
}

}  // namespace
}  // namespace convlab::nets
