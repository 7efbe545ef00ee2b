// Places measured convolutions under the machine's roofs. Williams, Waterman, Patterson 2009:
// attainable performance is min(peak, bandwidth x FLOPs per byte), level by level.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autotune/measure/ceilings.h"
#include "autotune/testbed/testbed.h"
#include "autotune/tuner.h"

namespace convlab {

// Version of the JSON form (bench/FORMATS.md). Raise it when a field is removed or changes its
// meaning.
inline constexpr int roofline_format = 1;

// The limit set by one level of memory. Bytes are the least that one run moves through it, so the
// roof is never too low.
struct RooflineLevel {
  std::string level;
  double bytes = 0, flops_per_byte = 0, attainable_gflops = 0;
};

struct RooflinePhase {
  std::string name;
  double ms = 0, flops = 0, bytes = 0;
  double percent_of_roof = 0;  // 0 where no time was recorded
};

struct RooflinePoint {
  std::string layer, problem, pass, dtype, algo, config, layouts, cache;
  std::int64_t count = 1, batch = 1, threads = 1;
  bool chosen = false;
  std::string verdict;  // of the chosen: WIN, TIE, ONLY, UNSURE; else, and in older files, empty
  std::string status;   // "ok", "dropped" (slower, so timed by few samples), "above roof"
  double ms = 0, mad_ms = 0, rel_error = 0;
  std::int64_t workspace_bytes = 0;
  double flops = 0;  // executed
  double attained_gflops = 0, attainable_gflops = 0, percent_of_roof = 0, headroom_ms = 0;
  std::string limit;  // "f32 peak" or a level
  std::vector<RooflineLevel> levels;
  std::vector<RooflinePhase> phases;  // empty when they were not measured; "other" is the rest
  std::vector<double> samples_ms;     // raw, of the chosen
};

// One algorithm's best for another batch or number of threads.
struct RooflineCurve {
  std::string layer, pass, algo;
  std::int64_t batch = 1, threads = 1;
  double ms = 0;
};

struct RooflineReport {
  std::vector<std::pair<std::string, std::string>> provenance;
  std::string bytes;  // their source: modelled or counted
  std::vector<Roof> roofs;
  std::vector<RooflinePoint> points;
  std::vector<RooflineCurve> curves;
  std::vector<std::string> notes;
  bool complete = true;  // else interrupted before the last layer was measured
};

// The point of one measured candidate of this problem, without phases. The problem has the
// candidate's layouts.
RooflinePoint roofline_point(const WorkEstimate&, const Problem&, const Candidate&,
                             const DeviceInfo&, const std::vector<Roof>&);

// Runs the candidate on the testbed's data with its phases recorded, and compares each phase with
// its own roof. The problem is the testbed's, with the candidate's layouts.
std::vector<RooflinePhase> roofline_phases(const AlgoRef&, const Problem&, const Candidate&,
                                           Testbed&, Device&, Stream&, const std::vector<Roof>&);

// One point for the best measured candidate of each algorithm that has one.
std::vector<RooflinePoint> roofline_points(const LayerResult&, const Algos&, Device&,
                                           const std::vector<Roof>&, bool with_phases);

// The machine's roofs from the store at `db`, or measured and kept there. `again` always measures.
// Throws CeilingsInterrupted when the user stops it.
std::vector<Roof> find_roofs(Device&, const std::string& db, bool again);

// Why these roofs must not be kept for later runs; empty if they may be. Roofs that a quiet machine
// could exceed are not kept.
std::string why_not_kept(const std::vector<Roof>&);

// A warning about roofs that show noise: samples that spread, or a level slower than one farther
// away. Empty: none.
std::string noise_warning(const std::vector<Roof>&);

// Why this machine's counters do not give the bytes, in a clause.
std::string counters_obstacle(const DeviceInfo&);

std::string to_json(const RooflineReport&);
// Throws InputError, with `name` in the message, for another version or anything that is not such a
// report.
RooflineReport roofline_from_json(const std::string& text, const std::string& name);

}  // namespace convlab
