// The results of tuning: one Candidate per algorithm, config and layout; one LayerResult per
// problem and pass; one TuneTable per run. Plain values; `convlab tune` prints them as they are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autotune/problem.h"
#include "conv/config.h"
#include "conv/error.h"

namespace convlab {

// The user stopped a run while it measured the machine's ceilings: there is no result yet. The
// program exits 130.
class CeilingsInterrupted : public Error {
 public:
  using Error::Error;
};

// Cache contents when a timed run starts. hot: as the previous run left them; cold: no operand, no
// workspace and no output.
enum class CacheMode : std::uint8_t { hot, cold };
std::string_view to_string(CacheMode);
CacheMode parse_cache_mode(std::string_view);  // throws InputError

enum class Status : std::uint8_t {
  ok,
  refused,     // by the algorithm, by the caller's limit on workspace, or for lack of memory
  failed,      // threw, crashed, or left outputs unwritten
  inaccurate,  // its error is above the caller's limit
  timeout,     // did not answer in time
  dropped,     // lost the race before it was over
};
std::string_view to_string(Status);
Status parse_status(std::string_view);  // throws InputError

// One way to run a problem, and its outcome. Unknown numbers are 0.
struct Candidate {
  std::string algo;  // AlgoInfo::id
  int version = 0;   // AlgoInfo::version
  Config config;
  Layout x_layout = Layout::nchw, y_layout = Layout::nchw;
  bool has_layouts = true;  // false: a recurrent layer's, which has none to choose
  int threads = 1;
  CacheMode cache = CacheMode::hot;

  Status status = Status::ok;
  // For every status but ok; for ok, the plan's note (conv/optional/plan_note.h).
  std::string reason;
  bool deterministic = false;
  bool predicted = false;  // ms comes from the heuristic, nothing was run

  double ms = 0, mad_ms = 0;  // of one run, and the median absolute deviation of its samples
  double pack_ms = 0;         // packing the filter or the weights, once
  double convert_ms = 0;      // both activations from and to NCHW
  // 1e9 FLOPs a second: as Problem::flops counts them (direct convolution's), and as this algorithm
  // executes them.
  double eff_gflops = 0, exec_gflops = 0;
  double rel_error = 0;        // in the 2-norm; CheckResult's
  bool sampled_error = false;  // rel_error is over a sample of the outputs
  std::int64_t workspace_bytes = 0, packed_filter_bytes = 0;
  std::vector<double> samples_ms;  // raw and undisturbed, in the order taken
  // One per worker process in which this candidate ran: the median of a run there, and of packing
  // the filter. Rivals' are paired by index: they ran in the same processes.
  std::vector<double> process_ms, process_pack_ms;
};

// Names one candidate of a problem: "winograd tile=4 nchw16c nchw16c".
std::string candidate_key(const Candidate&);
// Still to be run: its time is a prediction.
inline bool is_open(const Candidate& c) { return c.status == Status::ok && c.predicted; }
inline bool is_measured(const Candidate& c) { return c.status == Status::ok && !c.predicted; }
// It worked and was timed, perhaps before it was dropped.
inline bool was_timed(const Candidate& c) {
  return (c.status == Status::ok || c.status == Status::dropped) && !c.predicted && c.ms > 0;
}

// Raise it when the measuring method changes: rows of the store from another protocol are stale.
inline constexpr int measuring_protocol = 2;

enum class Verdict : std::uint8_t {
  none,       // nothing works
  win,        // every rival takes over 1% more time
  tie,        // no rival takes over 2% less, and the next best takes less than 2% more
  only,       // there is no rival
  unsure,     // measured, but samples are too few or too disturbed; a later run continues
  predicted,  // nothing was measured
};
std::string_view to_string(Verdict);

struct LayerResult {
  LayerProblem layer;        // its pass and dtype set; its layouts are not the chosen
  bool first_layer = false;  // backward_data is listed but left out of totals
  double log_ms = 0;         // what all of its runs took in the log that it is from; 0: unknown
  std::vector<Candidate> candidates;  // best first: ok by cost, then dropped, then the rest
  std::optional<std::size_t> chosen;  // index into candidates
  Verdict verdict = Verdict::none;
  std::string reason;  // why it is none or unsure
  // The runner-up's cost over the chosen's: low, middle, high of its interval
  // (autotune/race/race.h). Low and high are 0 if too few processes ran both, all three if there is
  // no runner-up.
  std::array<double, 3> ratio{};
};

// The origin of numbers. Ordered name, value pairs: cpu, isa, compiler, flags, commit,
// threads, one per library, date.
struct Provenance {
  std::vector<std::pair<std::string, std::string>> fields;
};

// Other programs' use of the machine during a run's measurements.
struct Disturbances {
  std::int64_t samples = 0;    // taken
  std::int64_t disturbed = 0;  // of these, discarded
  double others = 0,
         stolen = 0;  // CPU time of other programs and of a hypervisor, as a share of the total
  long processors = 0;
};

// Says that a table is a part of another: the index-th of `count`, with `problems` of `of`, equal
// ones counted once.
struct TableShard {
  std::int64_t index = 0, count = 0;
  std::size_t problems = 0, of = 0;
  bool training = false;  // the whole table has a backward pass: packing the filter counts
};

struct TuneTable {
  Provenance provenance;
  std::optional<TableShard> shard;  // nullopt: the whole table
  std::vector<LayerResult> layers;
  Disturbances disturbances;
  bool complete = true;       // false: stopped by the budget or by Ctrl-C
  std::string store_error;    // why results could no longer be stored; empty: all are
  double remaining_gain = 0;  // ms that untried candidates may still save over the whole table
};

}  // namespace convlab
