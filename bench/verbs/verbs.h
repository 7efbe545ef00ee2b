// The program's verbs, one file each.
#pragma once

#include <functional>
#include <string>

#include "autotune/result.h"
#include "conv/device.h"

namespace CLI {
class App;
}

namespace convlab {

// Each declares its flags on the given subcommand and returns the action to run after parsing. The
// action returns the exit code, or throws InputError or EnvironmentError.
using VerbAction = std::function<int()>;
VerbAction declare_bench(CLI::App&);
VerbAction declare_check(CLI::App&);
VerbAction declare_db(CLI::App&);
VerbAction declare_diff(CLI::App&);
VerbAction declare_doctor(CLI::App&);
VerbAction declare_explain(CLI::App&);
VerbAction declare_list(CLI::App&);
VerbAction declare_plan(CLI::App&);
VerbAction declare_predict(CLI::App&);
VerbAction declare_scaling(CLI::App&);
VerbAction declare_sweep(CLI::App&);
VerbAction declare_roofline(CLI::App&);
VerbAction declare_time(CLI::App&);
VerbAction declare_train(CLI::App&);
VerbAction declare_tune(CLI::App&);

// Parses the command line and runs the verb. Returns the exit code: 0 done, 1 a check failed, 2 bad
// usage or input, 3 the environment cannot do it, 130 interrupted.
int run_program(int argc, const char* const* argv);

// The device, the build, the libraries, the date, and the command in shell syntax.
Provenance provenance(const Device&);
// The part that does not depend on a device.
Provenance command_provenance();

}  // namespace convlab
