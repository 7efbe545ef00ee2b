// The start of a tuning run: its problems, and each one's candidates with predicted times.
#pragma once

#include <span>
#include <vector>

#include "autotune/candidates.h"
#include "autotune/measure/ceilings.h"
#include "autotune/tuner.h"
#include "autotune/tuning_entry.h"

namespace convlab {

// Equal problems become one entry. Throws InputError for a malformed problem, and for one that does
// not fit in the device's memory.
std::vector<TuningEntry> entries_of(const std::vector<TuneItem>&, const DeviceInfo&);

// Every algorithm of the problem's kind, in every layout it takes.
class Enumeration {
 public:
  // The arguments outlive it.
  Enumeration(const TuneOptions& options, std::span<const AlgoRef> algos, Device& device,
              const Ceilings& ceilings)
      : options_(options), algos_(algos), device_(device), ceilings_(ceilings) {}

  // Fills in the candidates and predictions; `quick` leaves out algorithms that are slow to list.
  void fill(TuningEntry&, bool quick = false) const;
  // Adds the configs, measured by an earlier run, of an algorithm that was left out.
  void add_known(TuningEntry&, const AlgoRef&, const std::vector<Candidate>&) const;
  static bool any_taken(const std::vector<TuningEntry>&);
  // Throws InputError when no algorithm takes any of the problems, but would in another data type.
  void require_taken(const std::vector<TuningEntry>&) const;

 private:
  std::vector<Layouts> layouts_of(const Problem&) const;
  void add(TuningEntry&, const AlgoRef&, const Problem&, Config) const;
  bool takes(const AlgoRef&, const Problem&) const;

  const TuneOptions& options_;
  std::span<const AlgoRef> algos_;
  Device& device_;
  const Ceilings& ceilings_;
};

}  // namespace convlab
