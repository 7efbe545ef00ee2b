// The flags of the verbs that tune, and what a tuning run tells its user.
#pragma once

#include <chrono>

#include "autotune/tuner.h"
#include "bench/options/options.h"

namespace convlab {

struct TuneArguments {
  CommonOptions common;
  TuneOptions tune;
};

// TARGETs and every flag but those of output, store and budget.
void add_tuning(CLI::App&, TuneArguments&, const std::string& target_description = any_target);
void add_choice(CLI::App&, TuneArguments&,  // those but --mode
                const std::string& target_description = any_target);

// The same flags apart.
void add_max_error(CLI::App&, TuneOptions&);
void add_limits(CLI::App&, TuneOptions&);       // --max-error --workspace-max --deterministic
void add_algo_choice(CLI::App&, TuneOptions&);  // --algos --exclude
void add_mode(CLI::App&, TuneOptions&);

// Throws InputError, naming the flag, where --algos or --exclude has an algorithm that the device
// does not have.
void require_known_algos(const TuneOptions&, const AlgoRegistry&, const DeviceInfo&);

// Before a CPU is measured, a line on stderr when other programs use it, once a process.
void warn_of_other_programs(const DeviceInfo&);

// What the flags ask for, with progress on stderr until Ctrl-C. Keeps what it finds in the store at
// `db`, unless that is empty.
struct TuneOutcome {
  TuneTable table;
  bool interrupted = false;
};
TuneOutcome run_tuning(const TuneArguments&, const std::string& db);

// The same of these items on this device, as a part of a longer run: `items_before` are done,
// `items_total` there are.
struct TuningPart {
  std::size_t items_before = 0, items_total = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};
TuneOutcome run_tuning(const TuneArguments&, const std::vector<TuneItem>&, Device&,
                       const std::string& db, const TuningPart&);

}  // namespace convlab
