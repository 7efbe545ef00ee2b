// The flags that several verbs share, and their values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/result.h"
#include "autotune/worker.h"
#include "bench/options/flags.h"
#include "bench/reports/report.h"
#include "conv/device.h"
#include "conv/registry.h"

namespace convlab {

struct CommonOptions {
  std::vector<std::string> targets;
  std::map<std::string, std::int64_t> dims;  // of ONNX models, by name
  std::vector<std::int64_t> batches;         // empty: 1 for nets, literal problems keep their own
  std::string from;                          // a log in place of targets; empty: none
  std::string layer;                         // only the target layer of this name; empty: all
  std::vector<Pass> passes{all_passes.begin(), all_passes.end()};
  DType dtype = DType::f32;
  bool dtype_given = false;
  DeviceChoice device;
  int threads = 0;  // 0: one per core
  std::string layout = "auto";
  CacheMode cache = CacheMode::hot;
  std::uint64_t seed = 1;
  Format format = Format::table;
  bool recompute = false;  // Problem::set_recompute
  bool wide = false;
  std::string output;  // empty: stdout
  std::string db;      // empty: the default
};

inline const std::string any_target =
    "A net (resnet18), a problem (mb1ic64ih56oc64oh56kh3ph1, lstm:t32mb16dhc512), an ONNX model "
    "(model.onnx), or @FILE with one problem a line";
// TARGET... --batch --dim --pass --dtype
void add_targets(CLI::App&, CommonOptions&, const std::string& target_description = any_target);
void add_recompute(CLI::App&, CommonOptions&);  // for verbs that take recurrent layers
// --pass and --dtype, which are among these
void add_passes(CLI::App&, CommonOptions&);
void add_dtype(CLI::App&, CommonOptions&, const std::string& description);
// NET --batch --dtype, each with one value.
void add_net(CLI::App&, CommonOptions&,
             const std::string& batch_description = "Images at a time; default: 1");
void add_device(CLI::App&, CommonOptions&);  // --device --threads
int parse_threads(const std::string&);       // what --threads takes
void add_layout(CLI::App&, CommonOptions&);
void add_cache(CLI::App&, CommonOptions&);
void add_seed(CLI::App&, CommonOptions&);
void add_seed(CLI::App&, const std::function<void(std::uint64_t)>& take, const std::string& help);
void add_output(CLI::App&, CommonOptions&, const std::vector<std::string>& formats);
// The format that the file's suffix names; empty if the suffix is not a format. Throws InputError
// for a format that only other verbs have.
std::string format_of_suffix(const std::string& path, const std::vector<std::string>& formats);
// --svg FILE. Refuses another suffix than .svg.
void add_svg(CLI::App&, std::string&, const std::string& description);
void add_db(CLI::App&, CommonOptions&);
void add_layer(CLI::App&, CommonOptions&);  // --layer
// --wide: prints tables with these columns too, and wider than a terminal if needed.
void add_wide(CLI::App&, CommonOptions&, const std::string& columns);

// Throws EnvironmentError for a device that this build or machine lacks, or for threads that it
// cannot get. Code beside the kernels, such as the reference, uses the same number of threads.
std::unique_ptr<Device> open_device(const CommonOptions&);
std::unique_ptr<Device> make_device(const DeviceChoice&);
void append_all_algos(Algos&);  // of this build
// nullopt for `auto`; `nchwc` uses the device's channel block.
std::optional<Layout> chosen_layout(const CommonOptions&, const Device&);
// --db, else $CONVLAB_DB, else the default. Throws EnvironmentError if no directory can hold it.
std::string db_path(const CommonOptions&);
// The same for callers that can go on without a store: empty if no directory can hold it.
std::string db_path_if_any(const CommonOptions&);

}  // namespace convlab
