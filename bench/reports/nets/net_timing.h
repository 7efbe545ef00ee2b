// Runs a net on random data and times it: first whole iterations without interruption, then the
// same step by step.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/output.h"
#include "conv/optional/profiled_device.h"
#include "nets/distributed/exchange.h"
#include "nets/net.h"

namespace convlab {

// In ms: the parts of one iteration, the device's queue drained between them.
struct IterationTime {
  double io = 0;        // making the batch on the host
  double h2d = 0;       // copying it to the device
  double forward = 0;   // loss included
  double backward = 0;  // both passes
  double exposed = 0;   // after backward: the wait for other ranks' gradients
  double update = 0;
  double communicated = 0;  // all of the exchange, of which the rest was hidden by backward
  // Data are made beforehand.
  double total() const { return h2d + forward + backward + exposed + update; }
};

// An interval of activity, in seconds since the observed iterations began.
struct TimedStep {
  std::size_t step = 0;
  nets::Phase phase = nets::Phase::forward;
  double begin_s = 0, end_s = 0;
};
struct TimedPart {
  const char* name = "";  // "t_io", "t_h2d", "t_f", "t_b", "t_comm", "t_u"
  double begin_s = 0, end_s = 0;
};
// A bucket of gradients, of these parameters.
struct TimedBucket {
  std::string first, last;
  std::size_t bytes = 0;
  double begin_s = 0, end_s = 0;
};

struct NetTimes {
  std::vector<IterationTime> iterations;  // undisturbed, of all streams together
  std::int64_t streams = 1;
  int ranks = 1;                  // that train together, each with such a batch
  std::int64_t bucket_bytes = 0;  // of their exchange
  std::string exchange_note;      // GradientExchange::note
  // The later iterations, with the queue drained around each step: ms by step and Phase.
  std::vector<std::array<std::vector<double>, 4>> steps;
  // Events of the first few of those iterations.
  std::vector<TimedStep> step_events;
  std::vector<TimedPart> part_events;
  std::vector<TimedBucket> bucket_events;
  nets::MemoryUse memory;
  std::vector<std::array<nets::MemoryUse, 4>> memory_during;  // by step and Phase
  std::int64_t resident_before = 0, resident_peak = 0;        // bytes of this process; 0: not known
  // CPU counters over one whole iteration, if requested; else the reason why there are none.
  std::vector<std::string> counter_names;
  std::vector<double> counts;
  std::string no_counters;
  // If counters were requested: the kernels of further iterations as a card ran them; else the
  // reason why there are none.
  std::vector<KernelRun> kernels;
  std::int64_t kernel_iterations = 0;
  std::string no_kernels;  // empty on the CPU
  bool finite = true;      // the loss, in training
  bool interrupted = false;

  double iteration_ms() const;                          // median of the totals
  IterationTime typical() const;                        // median of each part
  double iteration_spread() const;                      // their median absolute deviation over it
  double step_ms(std::size_t step, nets::Phase) const;  // median; 0 when there is no sample
  double step_ms(std::size_t step) const;               // of all phases
  double step_mad_ms(std::size_t step) const;
};

struct TimingOptions {
  std::int64_t iterations = 0;  // of each kind; 0: as many as take about 5 s in all, at least 3
  std::uint64_t seed = 1;       // of weights and data
  // This many nets, each with its own weights, data and stream, run whole iterations side by side.
  // Only one of them runs step by step.
  std::int64_t streams = 1;
  // Null: one rank. Otherwise time_net is collective, and all ranks run the same iterations.
  nets::Communicator* communicator = nullptr;
  std::optional<nets::ExchangeOptions> exchange{};  // nullopt: ranks exchange nothing
  std::function<void()> warmed_up{};                // called when measuring begins
  bool step_by_step = true;
  bool counters = false;  // the CPU's own, over the undisturbed iterations; also a card's kernels
};

// A warning when the iterations spread so far that their times mean little; else empty. A quiet
// machine's spread is about 0.02, as in a tuning run.
std::string unrest(const NetTimes&);

// How time_net trains a net: its loss (a net with one output is a regression) and its update rule.
nets::NetOptions timing_net_options(const nets::Graph&, nets::Mode);
nets::UpdateRule timing_update_rule();

// Makes the net, runs one unmeasured iteration, then measures. *stop ends it after the current part
// or step, with the results so far.
NetTimes time_net(const nets::Graph&, const nets::NetPlan&, const nets::NetAlgos&, Device&,
                  const TimingOptions&, Progress&, const std::atomic<bool>& stop);

}  // namespace convlab
