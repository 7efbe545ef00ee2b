// The flags that several verbs share, and what they say.
#pragma once

#include <cstdint>
#include <functional>
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
  std::vector<std::int64_t> batches;  // empty: nets 1, literal problems their own
  std::string layer;                  // of the targets only the one of this name; empty: all
  std::vector<Pass> passes{all_passes.begin(), all_passes.end()};
  DType dtype = DType::f32;
  DeviceChoice device;
  int threads = 0;  // 0: one a core
  std::string layout = "auto";
  CacheMode cache = CacheMode::hot;
  std::uint64_t seed = 1;
  Format format = Format::table;
  bool wide = false;
  std::string output;  // empty: stdout
  std::string db;      // empty: the default
};

inline const std::string any_target =
    "A net (resnet18), a problem (mb1ic64ih56oc64oh56kh3ph1), or @FILE with one problem a line";
// TARGET... --batch --pass --dtype
void add_targets(CLI::App&, CommonOptions&, const std::string& target_description = any_target);
void add_passes(CLI::App&, CommonOptions&);  // --pass, which is among these
// NET --batch --dtype: one of each.
void add_net(CLI::App&, CommonOptions&,
             const std::string& batch_description = "Images at a time; default: 1");
void add_device(CLI::App&, CommonOptions&);  // --device --threads
int parse_threads(const std::string&);       // what --threads takes
void add_layout(CLI::App&, CommonOptions&);
void add_cache(CLI::App&, CommonOptions&);
void add_seed(CLI::App&, CommonOptions&);
void add_seed(CLI::App&, const std::function<void(std::uint64_t)>& take, const std::string& help);
void add_output(CLI::App&, CommonOptions&, const std::vector<std::string>& formats);
// The one of `formats` that the file's suffix names; empty where the suffix is no format. Throws
// InputError where it is one that only other verbs have.
std::string format_of_suffix(const std::string& path, const std::vector<std::string>& formats);
void add_db(CLI::App&, CommonOptions&);
void add_layer(CLI::App&, CommonOptions&);  // --layer
// --wide: tables for people with these columns as well, and wider than a terminal may be.
void add_wide(CLI::App&, CommonOptions&, const std::string& columns);

// Throws EnvironmentError for a device this build or machine does not have, or threads that it does
// not give. What runs beside the kernels, as the reference does, keeps to as many threads.
std::unique_ptr<Device> open_device(const CommonOptions&);
std::unique_ptr<Device> make_device(const DeviceChoice&);
// Every algorithm of this build.
void append_all_algos(AlgoRegistry&);
// nullopt for `auto`; `nchwc` in the block of the device.
std::optional<Layout> chosen_layout(const CommonOptions&, const Device&);
// --db, else $CONVLAB_DB, else the default. Throws EnvironmentError where there is no place for it.
std::string db_path(const CommonOptions&);
// The same for whoever can go on without a store: empty where there is no place.
std::string db_path_if_any(const CommonOptions&);

}  // namespace convlab
