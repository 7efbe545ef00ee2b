// The input of `convlab diff`: the rows of a result file or a tuning store, whichever verb wrote
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convlab {

struct RowTimes {
  double ms = 0;                   // as the file gives it
  std::vector<double> process_ms;  // medians, one per worker process; empty if not known
  std::vector<double> samples_ms;  // raw, in the order taken; may be empty
};

// Another measured candidate of the same problem.
struct ResultRival {
  std::string algo, choice;
  RowTimes times;
};

struct ResultRow {
  std::string key;      // equal in two files for rows that can be compared
  std::string name;     // for people: "layer1.0.conv1 n=1 fwd"
  std::string setting;  // "2 threads, hot"
  std::string machine;  // "AMD EPYC 9R45, avx512"
  std::string algo;     // the chosen algorithm; empty if there is none
  std::string choice;   // with config and layouts
  std::int64_t count = 1;
  std::optional<RowTimes> times;  // nullopt: nothing works
  bool predicted = false;         // the times are predictions
  bool unsure = false;            // the choice was left undecided
  std::vector<ResultRival> rivals;
};

struct ResultFile {
  std::string path;
  std::string family;   // "results of layers", "the times of a net" or "a plan": only equal
                        // ones compare
  std::string subject;  // of a net: "resnet18, batch 16, training, f32"
  std::string machine, setting;  // shared by all rows; empty when they differ
  // "counted" in the times, as in the race of a training step, or "left out"; only for layers
  std::string packing;
  std::vector<ResultRow> rows;
};

// Reads a tuning store, an exported one, or the JSON of tune, bench, sweep, roofline, time or plan.
// Throws InputError, in one line that names the file, if it cannot be read, is something else, or
// has a version unknown to this build.
ResultFile read_result_file(const std::string& path);
// The same for JSON text that was read from there.
ResultFile parse_result_file(const std::string& text, const std::string& path);

}  // namespace convlab
