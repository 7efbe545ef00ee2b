#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "autotune/measure/ceilings.h"
#include "autotune/measure/disturbance.h"
#include "autotune/store/build_info.h"
#include "autotune/store/store.h"
#include "bench/options/options.h"
#include "bench/output.h"
#include "bench/reports/roofline/roofline_data.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/optional/averaging_device.h"
#include "conv/text/counted.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/device/cpu_limits.h"
#include "kernels_cpu/gemm/openblas.h"
#include "kernels_cpu/half/units.h"
#include "kernels_cuda/cuda.h"
#include "nets/distributed/mpi/mpi.h"

namespace convlab {
namespace {

// Findings, one a row: fine, a problem with its remedy, or a plain fact.
class Findings {
 public:
  void fact(const std::string& what, const std::string& value) { add(what, value, "", ""); }
  void judge(const std::string& what, const std::string& value, bool fine,
             const std::string& remedy) {
    add(what, value, fine ? "ok" : "PROBLEM", fine ? "" : remedy);
    if (!fine) ++problems_;
  }
  Report report(Provenance provenance) const {
    Report report;
    report.columns = {"what", "found", "verdict", "remedy"};
    for (const Finding& f : findings_)
      report.rows.push_back({f.what, f.found, f.verdict, f.remedy});
    report.notes = {problems_ == 0 ? "No problems." : counted(problems_, "problem") + "."};
    report.provenance = std::move(provenance);
    return report;
  }
  // For a terminal: a problem's remedy is on the next line.
  Report narrow_report() const {
    Report report = this->report({});
    report.width = terminal_width;
    report.columns = {"what", "verdict", "found"};
    report.rows.clear();
    for (const Finding& f : findings_)
      report.rows.push_back(
          {f.what, f.verdict,
           f.remedy.empty() ? Cell(f.found) : Cell::lines(f.found + "\n-> " + f.remedy)});
    return report;
  }

 private:
  struct Finding {
    std::string what, found, verdict, remedy;
  };
  void add(const std::string& what, const std::string& value, const std::string& verdict,
           const std::string& remedy) {
    findings_.push_back({what, value, verdict, remedy});
  }
  std::vector<Finding> findings_;
  int problems_ = 0;
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string dot_unit_text(const DeviceInfo& info) {
  if (const std::string_view unit = cpu::dot_unit(info); !unit.empty()) return std::string(unit);
  if (!cpu::matrix_unit(info).empty()) return "not used: the matrix unit is faster";
  return cpu::half_units().avx512_bf16
             ? "none in force: they take avx512, and CONVLAB_AVX512_BF16 unset"
             : "none: the CPU has no AVX512_BF16";
}

void examine_cpu(const DeviceInfo& info, int threads, Findings& findings) {
  findings.fact("cpu", info.name);
  const std::string best = supported_isas().back();
  findings.judge("isa in force", info.isa, info.isa == best,
                 fmt::format("this CPU has {}: unset CONVLAB_ISA", best));
  const std::string_view unit = cpu::matrix_unit(info);
  findings.fact("matrix unit", !unit.empty()               ? std::string(unit)
                               : cpu::amx_support().usable ? "none in force: it takes avx512, and "
                                                             "CONVLAB_AMX unset"
                                                           : "none: " + cpu::amx_support().why_not);
  findings.fact("bf16 dot products", dot_unit_text(info));
  findings.fact("bf16", cpu::bf16_text(info));
  findings.fact("f16", cpu::f16_text(info));
  findings.fact("caches", fmt::format("L1d {}, L2 {} a core, L3 {}", show_bytes(info.l1_bytes),
                                      show_bytes(info.l2_bytes), show_bytes(info.l3_bytes)));
  findings.fact("memory", show_bytes(info.memory_bytes));
  const int processors = int(sysconf(_SC_NPROCESSORS_ONLN)), cores = usable_cores();
  findings.judge(
      "threads", fmt::format("{} on {} usable cores, of {} processors", threads, cores, processors),
      threads <= cores,
      "more threads than cores, affinity or CPU quota allow: lower --threads or OMP_NUM_THREADS");
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (!governor.empty())
    findings.judge("frequency governor", governor, governor == "performance",
                   "sudo cpupower frequency-set -g performance");
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  findings.judge("load", fmt::format("{:.2f}", load), load < 0.5 * processors,
                 "other programs are running: measurements will be noisy");
}

void examine_openblas(Findings& findings) {
  const OpenBlasInfo blas = openblas_info();
  findings.judge("OpenBLAS kernels", fmt::format("{} {}", blas.version, blas.core),
                 blas.advisable_core.empty(),
                 fmt::format("too slow for this CPU: unset OPENBLAS_CORETYPE, and in programs of "
                             "your own set OPENBLAS_CORETYPE={}",
                             blas.advisable_core));
  findings.judge("OpenBLAS threads", blas.openmp ? "OpenMP" : "its own", blas.openmp,
                 "not the OpenMP build: apt-get install libopenblas0-openmp, then choose it with "
                 "update-alternatives --config libopenblas.so.0-x86_64-linux-gnu");
}

void examine_build(const DeviceInfo& info, Findings& findings) {
  const BuildInfo& build = build_info();
  findings.fact("compiler", build.compiler);
  const bool release =
      build.flags.find("-O3") != std::string::npos || build.flags.find("-O2") != std::string::npos;
  findings.judge("flags", build.flags, release, "not optimised: configure with --preset user");
  findings.fact("commit", build.commit);
  for (const auto& [name, version] : info.libraries)
    if (name != cpu::matrix_unit_key && name != cpu::dot_unit_key) findings.fact(name, version);
  if (!info.libraries.contains("onednn"))
    findings.judge(
        "onednn", "not in this build", false,
        "no vendor's algorithms to compare with: apt-get install libdnnl-dev, then build "
        "again");
}

// Only training on several ranks needs it.
void examine_mpi(Findings& findings) {
  const std::string library = nets::mpi_library();
  findings.fact("MPI", !library.empty() ? library
                                        : "none: to train on several ranks apt-get install "
                                          "libopenmpi-dev openmpi-bin, then configure (cmake "
                                          "--preset user) and build again");
}

// Only training on several cards needs it.
void examine_averaging(Device& card, Findings& findings) {
  auto* const averaging = dynamic_cast<AveragingDevice*>(&card);
  if (averaging == nullptr) return;
  try {
    findings.fact("averages over cards", averaging->averaging_library());
  } catch (const Error& error) {
    findings.fact("averages over cards", fmt::format("through the hosts: {}", error.what()));
  }
}

// A missing card is a problem only if the user requested one.
void examine_card(const CommonOptions& o, Findings& findings) {
  const bool wanted = o.device.kind == DeviceKind::cuda;
  if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) {
    if (wanted)
      findings.judge("card", "none", false, obstacle);
    else
      findings.fact("card", "none: " + obstacle);
    return;
  }
  const int first = wanted ? o.device.index : 0, last = wanted ? first + 1 : cuda_device_count();
  for (int i = first; i < last; ++i) {
    DeviceChoice choice;
    choice.kind = DeviceKind::cuda;
    choice.index = i;
    std::unique_ptr<Device> card;
    try {
      card = make_device(choice);
    } catch (const EnvironmentError& error) {  // too old, or held by another process
      findings.judge("card", fmt::format("cuda:{}", i), false, error.what());
      continue;
    }
    const DeviceInfo& info = card->info();
    findings.fact("card", fmt::format("cuda:{} {}, {}, {} multiprocessors", i, info.name, info.isa,
                                      info.threads));
    findings.fact("card's memory",
                  fmt::format("{}, L2 {}, {} shared a multiprocessor, {} a block",
                              show_bytes(info.memory_bytes), show_bytes(info.l2_bytes),
                              show_bytes(info.l1_bytes), show_bytes(info.block_shared_bytes)));
    findings.judge("card's kernels", info.compiles_kernels ? "compiled by the driver" : "built in",
                   !info.compiles_kernels,
                   "first runs take long: configure with CMAKE_CUDA_ARCHITECTURES=native");
    findings.fact("card's peaks",
                  fmt::format("f32 {:.1f} TFLOP/s, f64 {:.1f} TFLOP/s, memory {:.0f} GB/s, by its "
                              "clocks and units",
                              info.peak_f32_flops / 1e12, info.peak_f64_flops / 1e12,
                              info.peak_bandwidth / 1e9));
    for (const auto& [name, version] : info.libraries) findings.fact(name, version);
    examine_averaging(*card, findings);
  }
  for (const auto& [name, obstacle] : missing_cuda_libraries())
    findings.judge(name, "missing: the algorithms that call it refuse", false, obstacle);
}

// How a race notices that something else ran. A missing source weakens it and breaks nothing.
void examine_observables(Findings& findings) {
  for (const Observable& o : observables())
    findings.fact("notices " + o.what, o.offered ? "yes: " + o.how : o.how);
}

void examine_noise(Device& device, Findings& findings) {
  const Ceilings ceilings = measure_ceilings(device);
  findings.fact("f32 peak", fmt::format("{:.0f} GFLOP/s on {}", ceilings.flops(DType::f32) / 1e9,
                                        counted(ceilings.threads, "thread")));
  findings.fact("f64 peak", fmt::format("{:.0f} GFLOP/s on {}", ceilings.flops(DType::f64) / 1e9,
                                        counted(ceilings.threads, "thread")));
  findings.fact("bandwidth",
                fmt::format("L2 {:.0f}, L3 {:.0f}, memory {:.0f} GB/s", ceilings.l2_bandwidth / 1e9,
                            ceilings.l3_bandwidth / 1e9, ceilings.memory_bandwidth / 1e9));
  if (const double trip = measure_round_trip(device.info().threads); trip > 0)
    findings.judge(
        "core to core", fmt::format("{:.0f} ns there and back", trip * 1e9), trip < 2e-7,
        "slow, as between cores that share no L3: keep the threads on cores that do (taskset); in "
        "a virtual machine it can change by the minute, and measurements with it");
  const NoiseFloor noise = measure_noise_floor(device);
  findings.fact("clock", fmt::format("steps of {:.0f} ns", noise.clock_s * 1e9));
  findings.judge(
      "noise",
      fmt::format("{:.2f}% spread, ratios to ±{:.2f}%", 100 * noise.mad, 100 * noise.interval),
      noise.mad < 0.02 && noise.interval < 0.01,
      "the same work does not take the same time: stop other programs, fix the CPU's "
      "frequency, or expect more rows that stay UNSURE");
}

// The results of `roofline`, ISA by ISA; on all threads, and the peaks also on one.
void examine_roofs(const CommonOptions& o, const DeviceInfo& info, Findings& findings) {
  const std::string path = db_path_if_any(o);
  for (const std::string& isa : supported_isas()) {
    DeviceInfo with_isa = info;
    with_isa.isa = isa;
    cpu::set_bf16_units(with_isa);
    std::vector<Roof> roofs;
    if (Store::exists(path)) try {
        roofs = Store(path, Store::Open::existing).roofs(with_isa);
      } catch (const Error&) {  // its own row says why
      }
    const std::string what = "roofs of " + isa;
    if (peak_of(roofs, info.threads, "f32") <= 0) {
      findings.fact(what, "not measured: `convlab roofline` measures peaks and bandwidths");
      continue;
    }
    const auto peaks = [&](int threads) {
      return fmt::format("f32 {:.0f}, f64 {:.0f} GFLOP/s on {}",
                         peak_of(roofs, threads, "f32") / 1e9, peak_of(roofs, threads, "f64") / 1e9,
                         threads);
    };
    double noise = 0;
    for (const Roof& roof : roofs) noise = std::max(noise, roof.noise);
    std::string bandwidths;
    for (const char* level : memory_levels)
      bandwidths += fmt::format("{}{} {:.0f}", bandwidths.empty() ? "" : ", ", level,
                                bandwidth_of(roofs, info.threads, level) / 1e9);
    const std::string warning = noise_warning(roofs);
    findings.judge(what,
                   fmt::format("{}{}; {} GB/s; noise to {:.1f}%; of {}", peaks(info.threads),
                               info.threads > 1 ? ", " + peaks(1) : " thread", bandwidths,
                               100 * noise, roofs.front().date.substr(0, 10)),
                   warning.empty(), warning);
  }
}

void examine_store(const CommonOptions& o, Findings& findings) {
  const std::string path = db_path_if_any(o);
  if (path.empty()) {
    findings.judge("store", "no place for one", false,
                   "HOME is not set: set it, or CONVLAB_DB to a file");
    return;
  }
  if (!Store::exists(path)) {
    findings.fact("store", path + " (none yet)");
    return;
  }
  try {
    const Store store(path, Store::Open::existing);
    findings.judge("store", fmt::format("{}: {}", path, counted(store.size(), "row")),
                   access(path.c_str(), W_OK) == 0, "cannot be written: choose another with --db");
  } catch (const Error& error) {
    findings.judge("store", path, false, error.what());
  }
}

int run(const CommonOptions& o) {
  Output output(o.output);
  DeviceChoice cpu;
  cpu.threads = o.threads;
  std::unique_ptr<Device> device = make_device(cpu);
  // Threads that take turns wait for one another at every barrier: measurements on many times more
  // threads than cores hardly end. Two always can, which is what core to core takes.
  const int threads = device->info().threads, most = std::max(usable_cores(), 2);
  if (threads > most) {
    cpu.threads = most;
    device = make_device(cpu);
  }
  Findings findings;
  examine_cpu(device->info(), threads, findings);
  examine_openblas(findings);
  examine_build(device->info(), findings);
  examine_mpi(findings);
  examine_card(o, findings);
  examine_observables(findings);
  examine_noise(*device, findings);
  examine_roofs(o, device->info(), findings);
  examine_store(o, findings);
  const bool narrow = o.format == Format::table && !o.wide;
  output.write(
      render(narrow ? findings.narrow_report() : findings.report(provenance(*device)), o.format));
  return 0;
}

}  // namespace

VerbAction declare_doctor(CLI::App& app) {
  const auto o = std::make_shared<CommonOptions>();
  add_device(app, *o);
  add_wide(app, *o, "remedies in a column of their own, and what made the table,");
  add_output(app, *o, {"table", "csv", "json", "md"});
  add_db(app, *o);
  set_footer(
      app,
      "Looks at what decides how fast convolutions run here and how well that can be measured.\n"
      "Exits 0 whatever it finds.\n\n"
      "Examples:\n"
      "  convlab doctor\n"
      "  convlab doctor --device cuda\n"
      "  convlab doctor --threads 1 --format json");
  return [o] { return run(*o); };
}

}  // namespace convlab
