// What `convlab diff` compares: the rows of a result file or a tuning store, whichever verb wrote
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convlab {

struct RowTimes {
  double ms = 0;                   // as the file gives it
  std::vector<double> process_ms;  // medians, one a worker process; empty where they are not known
  std::vector<double> samples_ms;  // raw, in the order taken; may be empty
};

// Another candidate of the same problem that was measured.
struct ResultRival {
  std::string algo, choice;
  RowTimes times;
};

struct ResultRow {
  std::string key;      // equal in two files for what can be compared
  std::string name;     // for people: "layer1.0.conv1 n=1 fwd"
  std::string setting;  // "2 threads, hot"; empty when the file has one for all
  std::string algo;     // the chosen algorithm; empty where nothing is chosen
  std::string choice;   // with config and layouts
  std::int64_t count = 1;
  std::optional<RowTimes> times;  // nullopt: nothing works
  bool predicted = false;         // so are the times
  bool unsure = false;            // the choice was left undecided
  std::vector<ResultRival> rivals;
};

struct ResultFile {
  std::string path;
  std::string family;   // "results of layers", "the times of a net" or "a plan": only equal
                        // ones compare
  std::string subject;  // of a net: "resnet18, batch 16, training, f32"
  std::string machine;  // "AMD EPYC 9R45, avx512"; empty when the file holds several
  std::string setting;  // that all rows share; empty when they differ
  // "counted" in the times, as the race of a training step does, or "left out"; of layers only
  std::string packing;
  std::vector<ResultRow> rows;
};

// A tuning store, an exported one, or the JSON of tune, bench, sweep, roofline, time or plan.
// Throws InputError, in one line that names the file, for what cannot be read, is something else,
// or has a version that this build does not know.
ResultFile read_result_file(const std::string& path);
// The same of JSON that was read from there.
ResultFile parse_result_file(const std::string& text, const std::string& path);

}  // namespace convlab
