#include "tests/autotune/test_algos.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <system_error>
#include <thread>

#include "conv/error.h"
#include "conv/optional/plan_note.h"
#include "conv/reference.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

std::vector<double> plain_values(const void* memory, const TensorDesc& t) {
  std::vector<double> values;
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t c = 0; c < t.c; ++c)
      for (std::int64_t h = 0; h < t.h; ++h)
        for (std::int64_t w = 0; w < t.w; ++w)
          values.push_back(static_cast<const float*>(memory)[t.offset(n, c, h, w)]);
  return values;
}

// f32 only, no epilogue. Single-threaded, because tests run in parallel.
void right_answer(const ConvProblem& f, const ConvArgs& args, double factor) {
  const TensorDesc filter{f.k, f.c / f.groups, f.r, f.s};
  std::vector<double> x, w, dy;
  if (f.pass != Pass::backward_data) x = plain_values(args.x, f.x_desc());
  if (f.pass != Pass::backward_filter) w = plain_values(args.w, filter);
  if (f.pass != Pass::forward) dy = plain_values(args.dy, f.y_desc());
  ReferenceInput input;
  input.x = x, input.w = w, input.dy = dy;
  const TensorDesc out = f.pass == Pass::forward         ? f.y_desc()
                         : f.pass == Pass::backward_data ? f.x_desc()
                                                         : filter;
  float* memory = static_cast<float*>(args.out);
  std::fill_n(memory, out.elements(), 0.0f);
  std::int64_t i = 0;
  for (std::int64_t n = 0; n < out.n; ++n)
    for (std::int64_t c = 0; c < out.c; ++c)
      for (std::int64_t h = 0; h < out.h; ++h)
        for (std::int64_t width = 0; width < out.w; ++width)
          memory[out.offset(n, c, h, width)] = float(factor * reference_at(f, input, i++));
}

double pretended = 0;  // seconds

struct Behaviour {
  std::string id;
  double ms = 10;  // that a run pretends to take
  double factor = 1;
  std::string note = {};
  std::function<void()> misbehave = [] {};
  std::function<std::optional<Refusal>(const ConvProblem&)> refuse = [](const ConvProblem&) {
    return std::nullopt;
  };
};

class TestAlgo : public ConvAlgo {
 public:
  explicit TestAlgo(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
    info_.id = behaviour_.id;
  }
  const AlgoInfo& info() const noexcept override { return info_; }
  std::optional<Refusal> refuse(const ConvProblem& problem, Device&) const override {
    return behaviour_.refuse(problem);
  }
  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }
  bool deterministic(const ConvProblem&, const Config&) const override {
    return behaviour_.id != "slow";
  }
  WorkEstimate work(const ConvProblem& problem, const Config&, Device&) const override {
    return {{{.name = "loops", .flops = problem.flops(), .efficiency = 0.01}}};
  }
  std::unique_ptr<ConvPlan> plan(const ConvProblem& problem, const Config&,
                                 Device&) const override {
    class Plan : public ConvPlan, public PlanNote {
     public:
      Plan(const Behaviour& behaviour, const ConvProblem& problem)
          : behaviour_(behaviour), problem_(problem) {}
      std::size_t workspace_bytes() const noexcept override { return 64; }
      std::string note() const override { return behaviour_.note; }
      void run(const ConvArgs& args, Workspace, Stream&) const override {
        behaviour_.misbehave();
        right_answer(problem_, args, behaviour_.factor);
        pretended += 1e-3 * behaviour_.ms;
      }

     private:
      const Behaviour& behaviour_;
      ConvProblem problem_;
    };
    return std::make_unique<Plan>(behaviour_, problem);
  }

 private:
  Behaviour behaviour_;
  AlgoInfo info_;
};

// Passes on to stepwise, and then misbehaves.
class TestRecurrent : public RecurrentAlgo {
 public:
  using Misbehave = std::function<void(const RecurrentProblem&, const RecurrentArgs&, Workspace)>;
  TestRecurrent(
      std::string id, double ms, Misbehave misbehave = [](auto&, auto&, auto) {},
      bool own_format = false)
      : ms_(ms), misbehave_(std::move(misbehave)), own_format_(own_format) {
    append_cpu_recurrent_algos(algos_);
    info_.id = std::move(id);
    info_.origin = own_format ? Origin::vendor : Origin::own;
  }
  const AlgoInfo& info() const noexcept override { return info_; }
  std::optional<Refusal> refuse(const RecurrentProblem&, Device&) const override { return {}; }
  std::vector<Config> configs(const RecurrentProblem&, Device&) const override { return {{}}; }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config&, Device&) const override {
    const double share = !own_format_ || p.pass == Pass::forward ? 1
                         : p.pass == Pass::backward_data         ? 2
                                                                 : 0;
    return {{{.name = "steps", .flops = share * p.flops(), .efficiency = 0.01}}};
  }
  std::optional<SavedBytes> own_format(const RecurrentProblem& p, Device&) const override {
    if (!own_format_) return {};
    return SavedBytes{std::size_t(p.activations_bytes()) + header,
                      std::size_t(p.dgates_bytes()) + header};
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device& device) const override {
    class Plan : public RecurrentPlan {
     public:
      Plan(const TestRecurrent& algo, const RecurrentProblem& p,
           std::unique_ptr<RecurrentPlan> stepwise)
          : algo_(algo), problem_(p), stepwise_(std::move(stepwise)) {}
      std::size_t workspace_bytes() const noexcept override { return stepwise_->workspace_bytes(); }
      void run(const RecurrentArgs& given, Workspace workspace, Stream& stream) const override {
        RecurrentArgs args = given;
        if (algo_.own_format_) skip_headers(args);
        stepwise_->run(args, workspace, stream);
        algo_.misbehave_(problem_, args, workspace);
        pretended += 1e-3 * algo_.ms_;
      }

     private:
      // Its format: what the problem says, behind a header that only its own forward pass writes.
      void skip_headers(RecurrentArgs& args) const {
        const auto reads = [](const void*& data) {
          if (!data) return;
          if (*static_cast<const int*>(data) != mark) throw std::runtime_error("not its format");
          data = static_cast<const std::byte*>(data) + header;
        };
        const auto writes = [](void*& data) {
          if (!data) return;
          *static_cast<int*>(data) = mark;
          data = static_cast<std::byte*>(data) + header;
        };
        if (problem_.pass != Pass::forward) reads(args.activations);
        if (problem_.pass == Pass::forward && problem_.training) writes(args.out_activations);
        if (problem_.pass == Pass::backward_data) writes(args.out_dgates);
      }
      const TestRecurrent& algo_;
      RecurrentProblem problem_;
      std::unique_ptr<RecurrentPlan> stepwise_;
    };
    return std::make_unique<Plan>(*this, p,
                                  algos_.get(DeviceKind::cpu, "stepwise").plan(p, config, device));
  }

 private:
  static constexpr std::size_t header = 64;
  static constexpr int mark = 4711;
  double ms_;
  Misbehave misbehave_;
  bool own_format_;
  AlgoInfo info_;
  RecurrentRegistry algos_;
};

[[gnu::noinline]] void starve() { throw std::bad_alloc(); }

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

double pretended_s() { return pretended; }

void append_test_algos(AlgoRegistry& registry) {
  const auto add = [&](Behaviour b) { registry.append(std::make_unique<TestAlgo>(std::move(b))); };
  const auto lost = std::make_shared<std::atomic<bool>>(false);
  const auto need_device = [lost] {
    if (*lost) throw DeviceLost("the device is gone");
  };
  add({.id = "plain", .misbehave = need_device});
  add({.id = "loser", .misbehave = [lost, need_device] {
         *lost = true;
         need_device();
       }});
  add({.id = "slow", .ms = 100});
  const Refusal layout{Field::layout, "layout nchw"};
  add({.id = "nchw_only", .refuse = [layout](const ConvProblem& f) -> std::optional<Refusal> {
         if (f.x_layout == Layout::nchw && f.y_layout == Layout::nchw) return {};
         return layout;
       }});
  add({.id = "picky", .refuse = [layout](const ConvProblem& f) -> std::optional<Refusal> {
         if (f.x_layout == Layout::nchw) return Refusal{Field::stride, "stride 7", "1"};
         return layout;
       }});
  add({.id = "chooser", .note = "took the plain way"});
  add({.id = "sloppy", .factor = 1.001});
  add({.id = "liar", .factor = 1.5});
  add({.id = "greedy", .misbehave = [] { throw OutOfMemory("1 TB is not there"); }});
  add({.id = "thrower", .misbehave = [] { throw std::runtime_error("no luck today"); }});
  add({.id = "tired", .misbehave = [runs = std::make_shared<std::atomic<int>>(0)] {
         if ((*runs)++ == 2) throw std::runtime_error("twice is enough");
       }});
  add({.id = "segfault", .misbehave = [] { std::raise(SIGSEGV); }});
  add({.id = "abort", .misbehave = [] { std::abort(); }});
  // Ends by causes outside the algorithm: the OOM killer, a limit on CPU time, OpenMP's runtime
  // when it gets no thread, and a failed allocation in a parallel loop.
  add({.id = "exit", .misbehave = [] { std::_Exit(3); }});
  add({.id = "killed", .misbehave = [] { std::raise(SIGKILL); }});
  add({.id = "limited", .misbehave = [] { std::raise(SIGXCPU); }});
  add({.id = "starved", .misbehave = []() noexcept { starve(); }});
  add({.id = "threadless",
       .misbehave = [] { throw std::system_error(EAGAIN, std::generic_category(), "thread"); }});
  add({.id = "hang", .misbehave = [] {
         for (;;) sleep_ms(1000);
       }});
  add({.id = "late_segfault", .misbehave = [runs = std::make_shared<std::atomic<int>>(0)] {
         if ((*runs)++ == 3) std::raise(SIGSEGV);
       }});
}

void append_test_algos(RecurrentRegistry& registry) {
  const auto add = [&](auto... arguments) {
    registry.append(std::make_unique<TestRecurrent>(std::move(arguments)...));
  };
  add("plain_rnn", 10.0);
  add("slow_rnn", 100.0);
  add("last_row", 10.0,
      TestRecurrent::Misbehave([](const RecurrentProblem& p, const RecurrentArgs& args, Workspace) {
        if (p.pass != Pass::forward) return;
        float* const last = static_cast<float*>(args.out) + p.y_elements() - p.directions() * p.h;
        std::copy_n(last - p.directions() * p.h, p.directions() * p.h, last);
      }));
  add("forgetful", 20.0,
      TestRecurrent::Misbehave([](const RecurrentProblem& p, const RecurrentArgs& args, Workspace) {
        if (args.out_h) std::memset(args.out_h, 0xff, std::size_t(p.state_bytes()));
      }));
  add("overrunning", 10.0,
      TestRecurrent::Misbehave([](const RecurrentProblem& p, const RecurrentArgs& args, Workspace) {
        static_cast<float*>(args.out)[p.y_elements()] = 1;
      }));
  add("crashing", 10.0,
      TestRecurrent::Misbehave([](const auto&, const auto&, Workspace) { std::raise(SIGSEGV); }));
  add("own_format", 5.0, TestRecurrent::Misbehave([](const auto&, const auto&, Workspace) {}),
      true);
}

void append_test_algos(Algos& algos) {
  append_test_algos(algos.conv);
  append_test_algos(algos.recurrent);
}

}  // namespace convlab
