// Which algorithms recurrent layers get by what the tuning store knows.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "kernels_cpu/cpu.h"
#include "nets/plan/choose.h"
#include "nets/tensor.h"
#include "tests/nets/net_lab.h"

namespace convlab::nets {
namespace {

struct RecurrentBehaviour {
  std::string id;
  double efficiency = 0.5;
  bool own_format = false;  // and then bwd_d does bwd_w's products
  std::vector<Config> configs{Config{}};
  std::size_t workspace = 64;
};

class FakeRecurrent : public RecurrentAlgo {
 public:
  explicit FakeRecurrent(RecurrentBehaviour behaviour) : behaviour_(std::move(behaviour)) {
    info_.id = behaviour_.id;
    info_.origin = behaviour_.own_format ? Origin::vendor : Origin::own;
  }
  const AlgoInfo& info() const noexcept override { return info_; }
  std::optional<Refusal> refuse(const RecurrentProblem&, Device&) const override { return {}; }
  std::vector<Config> configs(const RecurrentProblem&, Device&) const override {
    return behaviour_.configs;
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config&, Device&) const override {
    const double share = !behaviour_.own_format || p.pass == Pass::forward ? 1
                         : p.pass == Pass::backward_data                   ? 2
                                                                           : 0;
    return {{{.name = "steps", .flops = share * p.flops(), .efficiency = behaviour_.efficiency}}};
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem&, const Config&,
                                      Device&) const override {
    class Plan : public RecurrentPlan {
     public:
      explicit Plan(std::size_t bytes) : bytes_(bytes) {}
      std::size_t workspace_bytes() const noexcept override { return bytes_; }
      void run(const RecurrentArgs&, Workspace, Stream&) const override {}

     private:
      std::size_t bytes_;
    };
    return std::make_unique<Plan>(behaviour_.workspace);
  }
  std::optional<SavedBytes> own_format(const RecurrentProblem&, Device&) const override {
    if (behaviour_.own_format) return SavedBytes{64, 64};
    return {};
  }

 private:
  RecurrentBehaviour behaviour_;
  AlgoInfo info_;
};

// input > rnn > fc. In the registry: "plain", "better" and "peer", whose format is its own. Without
// a store "better" does all passes.
class ChooseRecurrent : public testing::Test {
 protected:
  using Names = std::vector<std::string>;

  ChooseRecurrent()
      : path_(std::filesystem::temp_directory_path() /
              ("convlab_choose_recurrent_" + std::to_string(::getpid()) + ".db")),
        store_(path_) {
    for (const RecurrentBehaviour& b :
         {RecurrentBehaviour{.id = "plain"},
          {.id = "better", .efficiency = 0.8, .configs = {{{"units", 1}}, {{"units", 2}}}},
          {.id = "peer", .efficiency = 1, .own_format = true}})
      recurrent_.append(std::make_unique<FakeRecurrent>(b));
    input(graph_, {4, 1, 64, 32}).recurrent("rnn", {.hidden = 64}).linear("fc", 4);
  }
  ~ChooseRecurrent() override { std::filesystem::remove(path_); }

  void measured(const std::string& id, Pass pass, double ms,
                const std::function<void(Candidate&)>& change = {}) {
    const AlgoInfo& info = recurrent_.get(DeviceKind::cpu, id).info();
    RecurrentProblem p = graph_.recurrent_problem(graph_.nodes()[1]);
    p.pass = pass;
    p.training = mode_ == Mode::training && pass == Pass::forward;
    Candidate c;
    c.algo = id;
    c.version = info.version;
    c.has_layouts = false;
    c.threads = device_->info().threads;
    if (id == "better") c.config = {{"units", 2}};
    c.ms = ms;
    c.rel_error = 1e-7;
    c.process_ms.assign(5, ms);
    c.process_pack_ms.assign(5, 0);
    if (change) change(c);
    store_.record(p, device_->info(), info, c);
  }
  Chosen choose() {
    return choose_plan(graph_, {.mode = mode_}, {conv_, recurrent_}, *device_, &store_);
  }
  // Names of all passes.
  std::string algos() {
    const Chosen chosen = choose();
    std::string names;
    for (const auto& pass : chosen.plan.steps[1].passes)
      if (pass) names += (names.empty() ? "" : " ") + pass->algo;
    return names;
  }
  PassPlan pass_of(Pass pass) { return choose().plan.steps[1].passes[std::size_t(pass)].value(); }

  std::filesystem::path path_;
  std::unique_ptr<Device> device_ = make_cpu_device({2, ""});
  Store store_;
  AlgoRegistry conv_;
  RecurrentRegistry recurrent_;
  Graph graph_{"net"};
  Mode mode_ = Mode::training;
};

TEST_F(ChooseRecurrent, PredictsWhatIsNotMeasured) {
  EXPECT_EQ(algos(), "better better better");
  EXPECT_EQ(choose().untuned, (Names{"rnn fwd", "rnn bwd_d", "rnn bwd_w"}));
  measured("plain", Pass::backward_data, 7);
  EXPECT_EQ(algos(), "better plain better");
  EXPECT_EQ(pass_of(Pass::backward_data), (PassPlan{"plain", {}, 0, 7, true}));
  EXPECT_FALSE(pass_of(Pass::forward).measured);
  EXPECT_EQ(choose().untuned, (Names{"rnn fwd", "rnn bwd_w"}));
  // Inference is another problem.
  mode_ = Mode::inference;
  EXPECT_EQ(choose().untuned, Names{"rnn fwd"});
  measured("plain", Pass::forward, 3);
  EXPECT_EQ(pass_of(Pass::forward), (PassPlan{"plain", {}, 0, 3, true}));
  EXPECT_EQ(choose().untuned, Names{});
}

TEST_F(ChooseRecurrent, PredictsNoGradientOfTheInputForAFirstLayer) {
  const auto passes = [&](bool input_gradient) {
    return choose_plan(graph_, {.input_gradient = input_gradient}, {conv_, recurrent_}, *device_,
                       nullptr)
        .plan.steps[1]
        .passes;
  };
  const auto without = passes(false), with = passes(true);
  EXPECT_DOUBLE_EQ(with[1]->ms, with[0]->ms);
  EXPECT_DOUBLE_EQ(without[0]->ms, with[0]->ms);
  EXPECT_LT(without[1]->ms, 0.9 * with[1]->ms);
  // Tuned times are of the whole pass, and count.
  measured("plain", Pass::backward_data, 7);
  EXPECT_EQ(pass_of(Pass::backward_data), (PassPlan{"plain", {}, 0, 7, true}));
}

TEST_F(ChooseRecurrent, KeepsToTheDefaultLimitOfTraining) {
  constexpr std::size_t limit = 96 << 20;
  for (const std::size_t bytes : {limit, limit + 64}) {
    RecurrentRegistry registry;
    registry.append(std::make_unique<FakeRecurrent>(
        RecurrentBehaviour{.id = "big", .efficiency = 1, .workspace = bytes}));
    const auto algo = [&] {
      return choose_plan(graph_, {}, {conv_, registry}, *device_, nullptr)
          .plan.steps[1]
          .passes[0]
          ->algo;
    };
    EXPECT_EQ(algo(), "big");  // nothing else is there
    registry.append(std::make_unique<FakeRecurrent>(RecurrentBehaviour{.id = "small"}));
    EXPECT_EQ(algo(), bytes > limit ? "small" : "big");
  }
}

TEST_F(ChooseRecurrent, TakesTheFastestOfThoseMeasuredInItsConfig) {
  measured("plain", Pass::forward, 5);
  measured("better", Pass::forward, 4.9);
  EXPECT_EQ(pass_of(Pass::forward), (PassPlan{"better", {{"units", 2}}, 0, 4.9, true}));
  measured("better", Pass::forward, 5.1);
  EXPECT_EQ(pass_of(Pass::forward).algo, "plain");
}

TEST_F(ChooseRecurrent, CountsPackingInTrainingOnly) {
  const auto packs = [](Candidate& c) { c.pack_ms = 2; };
  measured("plain", Pass::forward, 6);
  measured("better", Pass::forward, 5, packs);
  EXPECT_EQ(pass_of(Pass::forward).algo, "plain");
  mode_ = Mode::inference;
  measured("plain", Pass::forward, 6);
  measured("better", Pass::forward, 5, packs);
  EXPECT_EQ(pass_of(Pass::forward), (PassPlan{"better", {{"units", 2}}, 0, 5, true}));
}

TEST_F(ChooseRecurrent, TakesAFormatOfItsOwnByTheSumOfItsPasses) {
  for (const Pass pass : all_passes) measured("plain", pass, 5);
  measured("peer", Pass::forward, 1);
  EXPECT_EQ(algos(), "plain plain plain");  // its bwd_d is a guess
  measured("peer", Pass::backward_data, 14.5);
  EXPECT_EQ(algos(), "plain plain plain");
  measured("peer", Pass::backward_data, 13.5);
  EXPECT_EQ(algos(), "peer peer peer");
  // Its bwd_w only copies, which is never measured.
  EXPECT_FALSE(pass_of(Pass::backward_filter).measured);
  EXPECT_EQ(choose().untuned, Names{});

  mode_ = Mode::inference;
  measured("plain", Pass::forward, 2);
  measured("peer", Pass::forward, 1);
  EXPECT_EQ(algos(), "peer");
}

TEST_F(ChooseRecurrent, TakesAFormatOfItsOwnIfAllElseIsAGuess) {
  measured("plain", Pass::forward, 5);
  measured("peer", Pass::forward, 100);
  measured("peer", Pass::backward_data, 100);
  EXPECT_EQ(algos(), "peer peer peer");
}

TEST_F(ChooseRecurrent, LeavesOutWhatFailedOrIsTooInaccurate) {
  measured("better", Pass::forward, 1, [](Candidate& c) {
    c.config = {{"units", 1}};
    c.status = Status::failed;
    c.reason = "for a reason";
  });
  EXPECT_EQ(pass_of(Pass::forward).config.text(), "units=2");
  EXPECT_FALSE(pass_of(Pass::forward).measured);
  measured("better", Pass::forward, 1, [](Candidate& c) { c.rel_error = 0.1; });
  EXPECT_EQ(pass_of(Pass::forward).algo, "plain");
  EXPECT_FALSE(pass_of(Pass::forward).measured);
}

TEST_F(ChooseRecurrent, UsesAnOpenRaceAndStillAdvisesToTune) {
  const auto once = [](Candidate& c) {
    c.process_ms.resize(1);
    c.process_pack_ms.resize(1);
  };
  measured("plain", Pass::forward, 1, once);
  measured("better", Pass::forward, 2, once);
  EXPECT_EQ(pass_of(Pass::forward), (PassPlan{"plain", {}, 0, 1, true}));
  EXPECT_EQ(choose().untuned.front(), "rnn fwd");
}

}  // namespace
}  // namespace convlab::nets
