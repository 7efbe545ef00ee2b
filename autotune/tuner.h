// Chooses algorithm, config and layouts for every convolution and recurrent layer of a list: a
// whole tuning run.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autotune/result.h"
#include "autotune/store/store.h"
#include "autotune/worker.h"
#include "conv/device.h"
#include "conv/types/math_type.h"

namespace convlab {

// heuristic: predicted from the work estimates and the machine's ceilings; nothing is run. race:
// the protocol of autotune/race/race.h. exhaustive: every candidate, never dropped.
enum class TuneMode : std::uint8_t { heuristic, race, exhaustive };
std::string_view to_string(TuneMode);
TuneMode parse_tune_mode(std::string_view);  // throws InputError

// The index-th of `count` parts of a run, which as many equal machines tune, each into a store of
// its own. Problems are divided by the predicted cost of tuning them, alike on equal machines.
struct Shard {
  std::int64_t index = 1, count = 1;  // index from 1
};

struct TuneOptions {
  CacheMode cache = CacheMode::hot;
  TuneMode mode = TuneMode::race;
  std::uint64_t seed = 1;                     // of the data, the order of rounds, and the bootstrap
  std::optional<Layout> layout;               // of x and y; nullopt: any
  std::optional<double> max_error;            // nullopt: default_max_error of the problem's type
  std::optional<std::int64_t> workspace_max;  // bytes, packed filter not counted
  bool deterministic = false;                 // deterministic algorithms only
  std::vector<std::string> algos, exclude;    // as admitted_algos
  std::vector<MathType> maths;                // for products of f32; empty: all
  std::optional<double> budget_s;             // wall clock for the whole run, from `start`
  // Time at which the program parsed its command line, so that the budget covers opening the
  // device, the ceilings and the list of candidates.
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  bool fresh = false;          // ignores the store's rows (and replaces them)
  bool retry_failed = false;   // reruns failed or timed-out candidates
  std::optional<Shard> shard;  // tunes and returns only this part; nullopt: everything
  // Returns why algorithms refuse even if none takes any of the problems in this type. Otherwise
  // that is an InputError, which names the types that are taken.
  bool lists_refusals = false;
  // Runs candidates in the calling process, which a crash or a hang then ends. Otherwise they run
  // in a worker process, and main() must pass its arguments to worker_main (autotune/worker.h).
  bool in_process = false;
  // A candidate that does not answer within this many seconds plus 100 times its predicted time
  // ends as `timeout`. Only with a worker.
  double timeout_s = 20;
};

double default_max_error(DType);  // f64 1e-12, f32 1e-4, f16 1e-2, bf16 5e-2

// A problem to tune: its pass and dtype set, its layouts ignored. Equal problems are tuned once.
struct TuneItem {
  LayerProblem layer;
  bool first_layer = false;  // its backward_data is listed but left out of totals
  double log_ms = 0;         // as LayerResult's
};

// The algorithms for the kinds of problems that occur, on a device of this kind.
std::vector<AlgoRef> algos_for(const std::vector<TuneItem>&, const Algos&, DeviceKind);

// Progress callbacks, on the calling thread. Equal problems count as one.
class TuneProgress {
 public:
  virtual ~TuneProgress() = default;
  // Candidates that the store already had, and how many of them failed or timed out.
  virtual void resumed(std::size_t /*rows*/, std::size_t /*failed*/) {}
  // The store can no longer be written. The run continues without it.
  virtual void store_lost(const std::string& /*why*/) {}
  // Screening of one problem, the index-th of all.
  virtual void begin(const TuneItem&, std::size_t /*index*/, std::size_t /*total*/) {}
  virtual void ended(const Problem&, const Candidate&) {}  // one candidate is final
  // A fresh process starts for the finals of the problems that are still open.
  virtual void process(std::size_t /*number*/, std::size_t /*open*/) {}
  // A problem is raced again, since its result contradicts other knowledge; `why` says how.
  virtual void again(const TuneItem&, const std::string& /*why*/) {}
  // One more of all is finished.
  virtual void end(const LayerResult&, std::size_t /*done*/, std::size_t /*total*/) {}
};

// Throws InputError for unknown ids, for a problem that does not fit in memory, and for a shard
// that is not from 1 to the number of shards, or one of more shards than there are problems. It
// also throws, before anything is run, when no algorithm takes any of the problems but one would in
// another data type. Every candidate is in `store` as soon as it has ended. When *stop becomes true
// (a signal handler may set it) or the budget is spent, returns the results so far and predictions
// for the rest: complete is false, and remaining_gain estimates the gain from the rest. A later run
// with the same store resumes results that are unsure, whether from the stop, a busy machine or a
// close race. Throws CeilingsInterrupted when *stop becomes true while the ceilings are measured,
// and Error for a device that has neither ceiling loops (conv/optional/ceiling_loops.h) nor stated
// peaks.
TuneTable tune(const std::vector<TuneItem>&, const TuneOptions&, const RegistryMaker&, Device&,
               Store* store = nullptr, TuneProgress* progress = nullptr,
               const std::atomic<bool>* stop = nullptr);

struct TuneTotals {
  double chosen_ms = 0;  // sum of count * ms over the chosen, first layer's bwd_d left out
  double pack_ms = 0, convert_ms = 0;
  int layers_without = 0;  // layers without a usable algorithm
};
// Over one pass, or over all.
TuneTotals totals(const TuneTable&, std::optional<Pass> = {});

}  // namespace convlab
