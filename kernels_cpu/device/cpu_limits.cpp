#include "kernels_cpu/device/cpu_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>

namespace convlab {
namespace {

// A file of numbers; "max" and a file that is absent give none.
struct Numbers {
  std::int64_t first = -1, second = -1;
};
Numbers read_numbers(const std::string& path) {
  Numbers numbers;
  std::ifstream file(path);
  if (!(file >> numbers.first)) return {};
  if (!(file >> numbers.second)) numbers.second = -1;
  return numbers;
}

// Calls f(directory, whether v2) for this process's control group under `controller`, and for its
// ancestors.
template <class F>
void for_each_group(const std::string& root, const std::string& controller, const F& f) {
  std::ifstream groups(root + "/proc/self/cgroup");  // lines "id:controllers:/path"
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const bool v2 = line.starts_with("0::");
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    if (!v2 && controllers.find(',' + controller + ',') == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (v2 ? "" : '/' + controller);
    // A container may not see the directories that its path names, but sees its own limits at the
    // mount.
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      f(mount + path, v2);
      if (path.find('/') == std::string::npos) break;
    }
  }
}

// In processors; infinite without a quota.
double cpu_quota(const std::string& root) {
  double quota = std::numeric_limits<double>::infinity();
  for_each_group(root, "cpu", [&](const std::string& group, bool v2) {
    const Numbers time = v2 ? read_numbers(group + "/cpu.max")
                            : Numbers{read_numbers(group + "/cpu.cfs_quota_us").first,
                                      read_numbers(group + "/cpu.cfs_period_us").first};
    if (time.first > 0 && time.second > 0)
      quota = std::min(quota, double(time.first) / double(time.second));
  });
  return quota;
}

}  // namespace

int usable_cores(const cpu_set_t& affinity, const std::string& root) {
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &affinity)) continue;
    std::ifstream file(
        fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu));
    std::string siblings;
    // Containers may hide the topology; each processor counts as a core then.
    cores.insert(std::getline(file, siblings) ? siblings : fmt::format("cpu{}", cpu));
  }
  // Rounded down: a thread beyond the quota would hold up all others at each barrier.
  const double most = std::min(double(cores.size()), cpu_quota(root));
  return std::max(1, int(most));
}

int usable_cores() {
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  // Fails on machines of more than CPU_SETSIZE processors: then all that are online count.
  if (sched_getaffinity(0, sizeof affinity, &affinity) != 0)
    return int(sysconf(_SC_NPROCESSORS_ONLN));
  return usable_cores(affinity);
}

std::int64_t usable_memory(const std::string& root) {
  std::int64_t bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  for_each_group(root, "memory", [&](const std::string& group, bool v2) {
    const std::int64_t limit =
        read_numbers(group + (v2 ? "/memory.max" : "/memory.limit_in_bytes")).first;
    if (limit > 0) bytes = std::min(bytes, limit);
  });
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur < rlim_t(bytes))
      bytes = std::int64_t(limit.rlim_cur);
  }
  return bytes;
}

}  // namespace convlab
