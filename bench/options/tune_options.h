// The flags of the verbs that tune, and a tuning run's messages.
#pragma once

#include <chrono>

#include "autotune/tuner.h"
#include "bench/options/options.h"

namespace convlab {

struct TuneArguments {
  CommonOptions common;
  TuneOptions tune;
};

// TARGETs and every flag except those of output, store and budget.
void add_tuning(CLI::App&, TuneArguments&, const std::string& target_description = any_target);
void add_choice(CLI::App&, TuneArguments&,  // all of them except --mode and --recompute
                const std::string& target_description = any_target);

// The same flags in separate groups.
void add_max_error(CLI::App&, TuneOptions&);
void add_limits(CLI::App&, TuneOptions&);       // --max-error --workspace-max --deterministic
void add_algo_choice(CLI::App&, TuneOptions&);  // --algos --exclude --math
void add_mode(CLI::App&, TuneOptions&);
Shard parse_shard(const std::string&);  // "2/4"; throws InputError

// Throws InputError, naming the flag, if --algos or --exclude names none of these algorithms.
void require_known_algos(const TuneOptions&, const std::vector<AlgoRef>& known);
// Throws InputError if --math is given for a type that has no choice.
void require_math_choice(const TuneOptions&, DType);
std::string show_maths(const TuneOptions&);  // "f32,bf16x3"

// Before a CPU is measured, warns on stderr if other programs use it, once per process.
void warn_of_other_programs(const DeviceInfo&);

// Tunes as the flags say, with progress on stderr until Ctrl-C. Keeps its results in the store at
// `db`, unless `db` is empty.
struct TuneOutcome {
  TuneTable table;
  bool interrupted = false;
};
TuneOutcome run_tuning(const TuneArguments&, const std::string& db);

// Tunes these items on this device as part of a longer run: `items_before` of `items_total` are
// done.
struct TuningPart {
  std::size_t items_before = 0, items_total = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};
TuneOutcome run_tuning(const TuneArguments&, const std::vector<TuneItem>&, Device&,
                       const std::string& db, const TuningPart&);

}  // namespace convlab
