// What a command works on: its TARGETs, or the convolutions of a log (--from).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autotune/tuner.h"
#include "bench/options/options.h"

namespace convlab {

// --from FILE
void add_from(CLI::App&, CommonOptions&);
// Throws InputError, naming the verb, if there is neither a TARGET nor --from, or both.
void require_work(const CommonOptions&, const std::string& verb, const std::string& example);

struct Work {
  std::vector<TuneItem> items;
  // Of a log: its name and library, and what was skipped and why. For the provenance.
  std::vector<std::pair<std::string, std::string>> about;
};

// TARGETs as resolve_targets() reads them. Of a log, each convolution and pass that ran, in the
// order of their first runs, with its own batch and type; --pass and --dtype keep those that they
// name. Says on stderr what the log held. Throws InputError for a file that is not a log, and if
// nothing is left of it.
Work resolve_work(const CommonOptions&, const DeviceInfo&);

// One problem a line, as an @FILE has them: equal sizes are one line with their count, the passes
// and types are comments.
std::string problem_lines(const Work&, const Provenance&);

}  // namespace convlab
