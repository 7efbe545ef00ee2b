// Where measured convolutions stand under the machine's roofs. Williams, Waterman, Patterson 2009:
// what is attainable is min(peak, bandwidth x FLOPs per byte), level by level.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autotune/check.h"
#include "autotune/measure/ceilings.h"
#include "autotune/tuner.h"
#include "conv/registry.h"

namespace convlab {

// Of the JSON form (bench/FORMATS.md); raise it when a field goes or changes its meaning.
inline constexpr int roofline_format = 1;

// What one level of memory allows. Bytes are at least what one run moves through it, so that the
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

// The best of one algorithm for another batch or number of threads.
struct RooflineCurve {
  std::string layer, pass, algo;
  std::int64_t batch = 1, threads = 1;
  double ms = 0;
};

struct RooflineReport {
  std::vector<std::pair<std::string, std::string>> provenance;
  std::string bytes;  // where they come from: modelled or counted
  std::vector<Roof> roofs;
  std::vector<RooflinePoint> points;
  std::vector<RooflineCurve> curves;
  std::vector<std::string> notes;
  bool complete = true;  // else interrupted before the last layer was measured
};

// The point of one measured candidate of this problem, without phases. The problem has the
// candidate's layouts.
RooflinePoint roofline_point(const WorkEstimate&, const ConvProblem&, const Candidate&,
                             const DeviceInfo&, const std::vector<Roof>&);

// Runs the candidate on the case's data with its phases recorded, and holds each against its own
// roof.
std::vector<RooflinePhase> roofline_phases(const ConvAlgo&, const ConvProblem&, const Candidate&,
                                           const ReferenceCase&, Device&, const std::vector<Roof>&);

// One point for the best measured candidate of each algorithm that has one.
std::vector<RooflinePoint> roofline_points(const LayerResult&, const AlgoRegistry&, Device&,
                                           const std::vector<Roof>&, bool with_phases);

// The machine's roofs from the store at `db`, or measured and kept there. `again` measures anyway.
// Throws CeilingsInterrupted when the user stops it.
std::vector<Roof> find_roofs(Device&, const std::string& db, bool again);

// Roofs under which a quiet machine might pass are not for later runs: why, or empty.
std::string why_not_kept(const std::vector<Roof>&);

// What to say of roofs that a quiet machine does not have: samples that spread, or a level that is
// slower than one farther away; empty: nothing.
std::string noise_warning(const std::vector<Roof>&);

// Why this machine's counters do not give the bytes, in a clause.
std::string counters_obstacle(const DeviceInfo&);

std::string to_json(const RooflineReport&);
// Throws InputError for another version, or what is no such report, with `name` in it.
RooflineReport roofline_from_json(const std::string& text, const std::string& name);

}  // namespace convlab
