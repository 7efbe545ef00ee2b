// A simulated machine for races that take no time: candidates' times, noise and clock are made up.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "autotune/race/race.h"

namespace convlab {

struct SimulatedMachine {
  // By algorithm name: milliseconds of a run, and of packing.
  std::map<std::string, double> ms, pack_ms;
  double round_noise = 0.004;    // standard deviation of the logarithm, sample by sample
  double process_offset = 0.01;  // likewise, candidate by candidate in each process
  // The slowdown of everything in a process, and at a time in seconds.
  std::function<double(std::mt19937_64&)> process_level = [](std::mt19937_64&) { return 1.0; };
  std::function<double(double)> level = [](double) { return 1.0; };
  // The slowdown of one algorithm alone in a process.
  std::function<double(std::mt19937_64&)> mode = [](std::mt19937_64&) { return 1.0; };
  // The share of its time that a sample loses to other programs at a given time. It takes longer by
  // that share.
  std::function<double(double)> lost = [](double) { return 0.0; };

  std::mt19937_64 random;
  double now_s = 0;
  int processes = 0, samples = 0;

  explicit SimulatedMachine(std::uint64_t seed = 1) : random(seed) {}

  double factor(double deviation) {
    return deviation > 0 ? std::exp(std::normal_distribution<double>(0, deviation)(random)) : 1;
  }
  RaceClock clock() {
    return {.now = [this] { return now_s; }, .sleep = [this](double s) { now_s += s; }};
  }
  std::unique_ptr<CandidateRunner> process();
  // Candidates as input to a race, with slightly wrong predictions.
  std::vector<Candidate> candidates() const {
    std::vector<Candidate> all;
    for (const auto& [name, time] : ms) {
      Candidate& c = all.emplace_back();
      c.algo = name;
      c.ms = 1.2 * time;
      c.predicted = c.deterministic = true;
      c.packed_filter_bytes = pack_ms.contains(name) ? 1 : 0;
    }
    return all;
  }
  // Runs the race and returns its decision.
  Decision race(std::vector<Candidate>& all, const RaceOptions& options = {}) {
    Sampler sampler({}, clock());
    convlab::race(
        all, [this] { return process(); }, sampler, options);
    return decide(all, options.count_packing);
  }
};

class SimulatedProcess : public CandidateRunner {
 public:
  explicit SimulatedProcess(SimulatedMachine& machine)
      : machine_(machine), level_(machine.process_level(machine.random)) {
    for (const auto& [name, time] : machine.ms)
      offsets_[name] = machine.factor(machine.process_offset) * machine.mode(machine.random);
    machine.now_s += 0.1;
  }
  void prepare(Candidate& c) override { machine_.now_s += 5e-3 * machine_.ms.at(c.algo); }
  Sample sample(const Candidate& c, Timed timed, int runs) override {
    ++machine_.samples;
    const double ms = timed == Timed::run                 ? machine_.ms.at(c.algo)
                      : machine_.pack_ms.contains(c.algo) ? machine_.pack_ms.at(c.algo)
                                                          : 0;
    const double lost = machine_.lost(machine_.now_s);
    const double s = 1e-3 * ms * level_ * offsets_.at(c.algo) * machine_.level(machine_.now_s) *
                     machine_.factor(machine_.round_noise) / (1 - lost);
    machine_.now_s += s * (runs + 1);
    return {s, lost};
  }
  void release(const Candidate&) override {}

 private:
  SimulatedMachine& machine_;
  double level_;
  std::map<std::string, double> offsets_;
};

inline std::unique_ptr<CandidateRunner> SimulatedMachine::process() {
  ++processes;
  return std::make_unique<SimulatedProcess>(*this);
}

}  // namespace convlab
