// Shared by the tuner's tests: runs, in this process, over algorithms that are right, wrong, slow
// or worse. Their times are made up, so that verdicts do not depend on the machine.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "autotune/tuner.h"
#include "conv/forwarding_algo.h"
#include "conv/optional/slow_listing.h"
#include "kernels_cpu/cpu.h"
#include "tests/autotune/test_algos.h"
#include "tests/cpu_backed_device.h"

namespace convlab {

// A CPU on which the test algorithms take as long as they pretend to.
class PretendingDevice : public CpuBackedDevice {
 public:
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<Pretending>(); }

 private:
  struct Pretending final : Stream {
    void synchronize() override {}
    // The loops that measure the ceilings do not pretend.
    double time(const std::function<void()>& enqueue, int runs) override {
      const double before_s = pretended_s();
      const double real_s = Stream::time(enqueue, runs);
      const double s = (pretended_s() - before_s) / runs;
      return s > 0 ? s : real_s;
    }
  };
};

struct Log : TuneProgress {
  void resumed(std::size_t rows, std::size_t failed) override {
    resumed_rows = rows;
    resumed_failed = failed;
  }
  void store_lost(const std::string&) override { ++stores_lost; }
  void begin(const TuneItem&, std::size_t index, std::size_t total) override {
    ++begun, of = total;
    if (on_begin) on_begin(index);
  }
  void process(std::size_t number, std::size_t) override {
    if (on_process) on_process(number);
  }
  void ended(const Problem&, const Candidate& c) override {
    ++ended_candidates;
    if (on_ended) on_ended(c);
  }
  void again(const TuneItem&, const std::string&) override { ++raced_again; }
  void end(const LayerResult&, std::size_t, std::size_t) override { ++finished; }

  std::size_t resumed_rows = 0, resumed_failed = 0, stores_lost = 0, begun = 0, of = 0,
              ended_candidates = 0, finished = 0, raced_again = 0;
  std::function<void(const Candidate&)> on_ended;
  std::function<void(std::size_t)> on_begin, on_process;
};

// Counts the tuner's calls to the test algorithms.
struct Watch {
  std::vector<std::string> planned;
  int slow_listings = 0;  // calls to the one that is slow to list
  std::function<void()> on_plan = [] {};
};

class WatchedAlgo : public ForwardingAlgo {
 public:
  WatchedAlgo(const ConvAlgo& algo, Watch& watch) : ForwardingAlgo(algo), watch_(watch) {}
  std::unique_ptr<ConvPlan> plan(const ConvProblem& problem, const Config& config,
                                 Device& device) const override {
    watch_.planned.push_back(info().id);
    watch_.on_plan();
    return ForwardingAlgo::plan(problem, config, device);
  }

 protected:
  Watch& watch_;
};

class SlowlyListedAlgo : public WatchedAlgo, public SlowListing {
 public:
  using WatchedAlgo::WatchedAlgo;
  std::optional<Refusal> refuse(const ConvProblem& problem, Device& device) const override {
    ++watch_.slow_listings;
    return WatchedAlgo::refuse(problem, device);
  }
  std::vector<Config> configs(const ConvProblem& problem, Device& device) const override {
    ++watch_.slow_listings;
    return WatchedAlgo::configs(problem, device);
  }
};

class TunerTest : public ::testing::Test {
 protected:
  TunerTest() { options_.in_process = true; }
  ~TunerTest() override { std::filesystem::remove_all(directory_); }

  void add(std::string_view text, Pass pass = Pass::forward, bool first_layer = false) {
    TuneItem item{parse_layer(text), first_layer};
    item.layer.problem.set_pass(pass);
    items_.push_back(item);
  }
  TuneTable run(std::vector<std::string> algos, Store* store = nullptr) {
    options_.algos = std::move(algos);
    log_.resumed_rows = log_.begun = log_.of = log_.ended_candidates = log_.finished = 0;
    return tune(items_, options_, make_registry_, *device_, store, &log_, &stop_);
  }
  void watch(const std::string& slow_to_list = "") {
    append_test_algos(watched_);
    make_registry_ = [this, slow_to_list](AlgoRegistry& registry) {
      for (const ConvAlgo* algo : watched_.all())
        if (algo->info().id == slow_to_list)
          registry.append(std::make_unique<SlowlyListedAlgo>(*algo, watch_));
        else
          registry.append(std::make_unique<WatchedAlgo>(*algo, watch_));
    };
  }
  static const Candidate& row(const LayerResult& layer, const std::string& algo) {
    for (const Candidate& c : layer.candidates)
      if (c.algo == algo) return c;
    throw std::out_of_range(algo);
  }
  static std::string chosen(const LayerResult& layer) {
    return layer.chosen ? layer.candidates[*layer.chosen].algo : "nothing";
  }

  std::unique_ptr<Device> device_ = std::make_unique<PretendingDevice>();
  std::vector<TuneItem> items_;
  TuneOptions options_;
  Log log_;
  std::atomic<bool> stop_ = false;
  RegistryMaker make_registry_ = append_test_algos;
  AlgoRegistry watched_;
  Watch watch_;

 private:
  static std::filesystem::path make_directory() {
    std::string name = std::filesystem::temp_directory_path() / "convlab_tuner_XXXXXX";
    return mkdtemp(name.data());
  }
  std::filesystem::path directory_ = make_directory();

 protected:
  Store store_{directory_ / "tune.db"};
};

inline constexpr const char* small = R"(mb1ic4ih6oc8oh6kh3ph1n"conv*3")";

}  // namespace convlab
