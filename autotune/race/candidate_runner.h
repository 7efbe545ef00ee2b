// Runs the candidates of one problem for a race: in this process, in a worker process, or from a
// script in a test.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "autotune/result.h"

namespace convlab {

// A candidate that ended while it ran: crashed, hung, out of memory. Thrown by runners.
class CandidateLost : public std::runtime_error {
 public:
  CandidateLost(Status status, const std::string& reason)
      : std::runtime_error(reason), status(status) {}
  Status status;
};

// The timed operation: a run with the filter packed and layouts converted, packing the filter, or
// converting both activations from or to NCHW.
enum class Timed : std::uint8_t { run, pack, convert };

struct Sample {
  double seconds = 0;  // of one, the mean over those timed together
  double lost = 0;     // share of it lost to other programs, as in DisturbanceMeter
};

// A candidate is identified by algo, config and layouts.
class CandidateRunner {
 public:
  virtual ~CandidateRunner() = default;
  // Plans, packs, runs once and checks; fills in status and reason, workspace and packed filter,
  // deterministic and rel_error. Throws CandidateLost.
  virtual void prepare(Candidate&) = 0;
  // The mean over `runs`, after an untimed warm-up run if that matters to a run of about c.ms. For
  // a candidate that prepare left `ok`. Throws CandidateLost.
  virtual Sample sample(const Candidate&, Timed, int runs) = 0;
  virtual void release(const Candidate&) = 0;  // it will not be sampled again
};

}  // namespace convlab
