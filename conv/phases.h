// Work of an algorithm's phases (estimated) and their times (recorded).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "conv/types/layout.h"

namespace convlab {

// Executed work of one phase of a run, summed over all threads. FLOPs count a multiply-add as 2.
// Bytes are traffic beyond the last private cache: compulsory traffic plus what the blocking
// re-reads.
struct PhaseWork {
  std::string name;  // "input_transform", "product", "output_transform", ...
  double flops = 0;
  double bytes_read = 0, bytes_written = 0;
  // The fraction of the machine's FLOP peak that this phase's inner loop reaches when its data is
  // in cache; without FLOPs, the fraction of the bandwidth that its copying reaches. This and the
  // waits are the only empirical factors of the heuristic mode. In (0, 1]; above 1 for tensor
  // cores, since the peak is that of ordinary multiply-adds (f32's for f16 and bf16).
  double efficiency = 1;
  // What a phase of many short steps waits on top, in seconds: the starts and ends of its parallel
  // loops, its barriers. No peak shortens them.
  double waits_s = 0;
};

// Phases of a run, in the order of PhaseScope's indices.
struct WorkEstimate {
  std::vector<PhaseWork> phases;
  PhaseWork pack{};  // of one pack_filter, in no sum here; empty when nothing is packed
  double flops() const {
    double sum = 0;
    for (const PhaseWork& p : phases) sum += p.flops;
    return sum;
  }
  double bytes() const {
    double sum = 0;
    for (const PhaseWork& p : phases) sum += p.bytes_read + p.bytes_written;
    return sum;
  }
};

// What one byte from beyond L2 costs on a CPU, in FLOPs at peak: about eight in f32, since the
// arithmetic mostly hides it, and half as many in f64, where FLOPs take twice as long.
inline double flops_per_byte(DType dtype) { return dtype == DType::f64 ? 4 : 8; }

// Orders one algorithm's configs before anything is measured, in FLOPs at peak. It needs no
// ceilings, so that the untuned default is the same at every start. Autotune's predict_ms predicts
// times.
inline double ranking_cost(const WorkEstimate& work, DType dtype = DType::f32) {
  double cost = flops_per_byte(dtype) * work.bytes();
  for (const PhaseWork& phase : work.phases) cost += phase.flops / phase.efficiency;
  return cost;
}

// Collects time spent per phase; phases are numbered as in the algorithm's WorkEstimate. Called
// from every worker thread. Implementations keep per-thread counters.
class PhaseRecorder {
 public:
  virtual ~PhaseRecorder() = default;
  virtual void add(int phase, double seconds) = 0;
};

// Times a scope on the calling thread. A null recorder costs one branch.
class PhaseScope {
 public:
  PhaseScope(PhaseRecorder* recorder, int phase) : recorder_(recorder), phase_(phase) {
    if (recorder_) start_ = Clock::now();
  }
  PhaseScope(const PhaseScope&) = delete;
  ~PhaseScope() {
    if (recorder_)
      recorder_->add(phase_, std::chrono::duration<double>(Clock::now() - start_).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  PhaseRecorder* recorder_;
  int phase_;
  Clock::time_point start_;
};

}  // namespace convlab
