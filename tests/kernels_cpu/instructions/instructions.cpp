// Runs each of our algorithms once on small problems, on one thread with AVX2, for callgrind to
// count. Prints one name per line on stdout, with one call of counted_run between two names. See
// instructions.sh.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "autotune/problem.h"
#include "autotune/testbed/verify.h"
#include "conv/registry.h"
#include "kernels_cpu/cpu.h"
#include "tests/cpu_backed_device.h"

// The function that instructions.sh tells callgrind to count.
extern "C" [[gnu::noinline]] void counted_run(convlab::Trial& trial) { trial.run(); }

namespace convlab {
namespace {

// The CPU with fixed cache sizes, because kernels are blocked for the caches.
class SameCaches : public CpuBackedDevice {
 public:
  SameCaches() : CpuBackedDevice({.threads = 1, .isa = "avx2"}) {
    info_.l1_bytes = 32 << 10;
    info_.l2_bytes = 1 << 20;
    info_.l3_bytes = 32 << 20;
  }
};

// Small, because callgrind's emulation is slow, yet with full register tiles.
constexpr const char* problems[] = {
    "mb1ic32ih12oc32oh12kh3ph1",          "mb1ic32ih13oc16oh7kh3sh2ph1",
    "mb1ic64ih12oc32oh12kh1ph0",          "mb1ic16ih12oc16oh12kh5ph2",
    "mb1ic3ih31oc16oh16kh7sh2ph3",        "mb1ic3ih16oc32oh16kh3ph1",
    "g8mb1ic32ih12oc32oh12kh3ph1",        "g2mb1ic32ih12oc32oh12kh3ph1",
    "mb1ic32ih12oc32oh12kh3dh1ph2",       "g16mb1ic16ih14oc16oh14kh7ph3",
    "mb1ic16id3ih8oc16kd3kh3pd1ph1",      "g16mb1ic16ih13oc16oh7kh3sh2ph1",
    "g16mb1ic16id3ih8oc16kd3kh3pd1ph1",   "g8mb1ic32ih13oc32oh7kh3sh2ph1",
    "g8mb1ic64ih8oc64oh8kh3ph1",          "mb1ic16iw96oc16ow96kw5pw4dw1",
    "deconv:mb1ic32ih6oc16oh12kh2sh2ph0",
};

// The default, and the first of each other tile size up to 16, since those have transforms of their
// own.
std::vector<Config> kernels_of(const ConvAlgo& algo, const ConvProblem& problem, Device& device) {
  std::vector<Config> kept;
  for (const Config& config : algo.configs(problem, device)) {
    const auto same = [&](const Config& other) {
      return !config.has("tile") || config.get("tile") == other.get("tile");
    };
    if (config.has("tile") && config.get("tile") > 16) continue;
    if (std::none_of(kept.begin(), kept.end(), same)) kept.push_back(config);
  }
  return kept;
}

void run_all() {
  SameCaches device;
  const std::unique_ptr<Stream> stream = device.make_stream();
  AlgoRegistry algos;
  append_cpu_algos(algos);
  for (const char* text : problems)
    for (const Pass pass : all_passes)
      for (const ConvAlgo* algo : algos.all()) {
        if (algo->info().origin != Origin::own || !algo->info().libraries.empty()) continue;
        LayerProblem layer = parse_layer(text);
        layer.set_pass(pass);
        ConvProblem problem = *layer.problem.conv();
        problem.y_layout = Layout::nchw8c;
        problem.x_layout = problem.c < 8 ? Layout::nchw : Layout::nchw8c;
        if (algo->refuse(problem, device)) continue;
        if (algo->info().id == "fft_tiled" && problem.r < 5) continue;  // slow, and never chosen
        const ReferenceCase data(problem, 1, DataKind::normal, ReferenceCase::Evaluate::nothing);
        Operands operands(data, problem, device, *stream);
        for (const Config& config : kernels_of(*algo, problem, device)) {
          GuardedBuffer workspace;
          Trial trial(*algo, config, operands, workspace, device, *stream);
          trial.pack();
          fmt::print("{} {} {} {}\n", text, to_string(pass), algo->info().id, config.text());
          counted_run(trial);
        }
      }
}

}  // namespace
}  // namespace convlab

int main() { convlab::run_all(); }
