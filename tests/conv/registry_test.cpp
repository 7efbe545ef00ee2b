#include "conv/registry.h"

#include <gtest/gtest.h>

#include "conv/error.h"

namespace convlab {
namespace {

class Named : public ConvAlgo {
 public:
  explicit Named(std::string id, std::string family = "") {
    info_.id = std::move(id);
    info_.family = std::move(family);
  }
  const AlgoInfo& info() const noexcept override { return info_; }
  std::optional<Refusal> refuse(const ConvProblem&, Device&) const override { return {}; }
  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }
  WorkEstimate work(const ConvProblem&, const Config&, Device&) const override { return {}; }
  std::unique_ptr<ConvPlan> plan(const ConvProblem&, const Config&, Device&) const override {
    return nullptr;
  }

 private:
  AlgoInfo info_;
};

TEST(AlgoRegistry, FindsWhatWasAppendedInOrder) {
  AlgoRegistry registry;
  registry.append(std::make_unique<Named>("b"));
  registry.append(std::make_unique<Named>("a"));
  ASSERT_EQ(registry.all().size(), 2u);
  EXPECT_EQ(registry.all()[0]->info().id, "b");
  EXPECT_EQ(registry.find(DeviceKind::cpu, "a"), registry.all()[1]);
  EXPECT_EQ(registry.find(DeviceKind::cuda, "a"), nullptr);
}

TEST(AlgoRegistry, RefusesADuplicate) {
  AlgoRegistry registry;
  registry.append(std::make_unique<Named>("a"));
  EXPECT_THROW(registry.append(std::make_unique<Named>("a")), Error);
}

TEST(AlgoRegistry, NamesWhatExistsWhenAskedForWhatDoesNot) {
  AlgoRegistry registry;
  registry.append(std::make_unique<Named>("direct"));
  try {
    registry.get(DeviceKind::cpu, "dirct");
    FAIL() << "did not throw";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "unknown algorithm 'dirct': expected one of direct");
  }
}

TEST(AlgoRegistry, AFamilysNameStandsForItsMembers) {
  AlgoRegistry registry;
  for (const char* id : {"direct", "direct_plain"})
    registry.append(std::make_unique<Named>(id, "direct"));
  registry.append(std::make_unique<Named>("fft"));
  registry.append(std::make_unique<Named>("directly"));
  const auto ids = [&](const char* name) {
    std::vector<std::string> found;
    for (const ConvAlgo* algo : registry.named(DeviceKind::cpu, name))
      found.push_back(algo->info().id);
    return found;
  };
  using Ids = std::vector<std::string>;
  EXPECT_EQ(ids("direct"), (Ids{"direct", "direct_plain"}));
  EXPECT_EQ(ids("direct_plain"), Ids{"direct_plain"});
  EXPECT_EQ(ids("fft"), Ids{"fft"});
  for (const char* name : {"dirct", ""}) try {
      registry.named(DeviceKind::cpu, name);
      FAIL() << "did not throw";
    } catch (const InputError& e) {
      EXPECT_EQ(e.what(), "unknown algorithm '" + std::string(name) +
                              "': expected one of direct, direct_plain, fft, directly, or a "
                              "family: direct");
    }
}

TEST(IsNamed, ByIdThePartBeforeADotAndFamily) {
  AlgoInfo info;
  info.id = "direct_plain.twin";
  info.family = "direct";
  for (const char* name : {"direct_plain.twin", "direct_plain", "direct"})
    EXPECT_TRUE(is_named(info, name)) << name;
  for (const char* name : {"", ".", "direct_", "direct_plai", "direct_plain.", "direct_plain.twi",
                           "direct_plain.twin.", "twin", "vendor"})
    EXPECT_FALSE(is_named(info, name)) << name;
  info = AlgoInfo{};
  info.id = "cudnn.fft";
  info.origin = Origin::vendor;
  for (const char* name : {"cudnn.fft", "cudnn", "vendor"})
    EXPECT_TRUE(is_named(info, name)) << name;
  EXPECT_FALSE(is_named(info, ""));
}

}  // namespace
}  // namespace convlab
