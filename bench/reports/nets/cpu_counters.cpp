#include "bench/reports/nets/cpu_counters.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "conv/error.h"

namespace convlab {
namespace {

// Opens a counter of the calling thread; negative errno if there is none.
int open_counter(const CpuCounters::Event& event) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  const long fd = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  return fd < 0 ? -errno : int(fd);
}

std::string why(int error) {
  if (error == EACCES || error == EPERM)
    return "not permitted: /proc/sys/kernel/perf_event_paranoid must be 2 or less, and a container "
           "must allow perf_event_open";
  if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP)
    return "this machine shows none (most virtual machines do not)";
  return std::strerror(error);
}

}  // namespace

std::vector<CpuCounters::Event> CpuCounters::usual() {
  return {{"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
          {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
          {"misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES}};
}

CpuCounters::CpuCounters(std::vector<Event> events, int threads) : events_(std::move(events)) {
  files_.assign(std::size_t(threads), std::vector<int>(events_.size(), -1));
  const std::vector<Event>& wanted = events_;
  std::vector<std::vector<int>>& files = files_;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t)
    for (std::size_t e = 0; e < wanted.size(); ++e)
      files[std::size_t(t)][e] = open_counter(wanted[e]);
  for (const std::vector<int>& mine : files_)
    for (std::size_t e = 0; e < mine.size(); ++e)
      if (mine[e] < 0) {
        const std::string reason = fmt::format("{}: {}", events_[e].name, why(-mine[e]));
        close_all();
        throw EnvironmentError("no hardware counters: " + reason);
      }
}

CpuCounters::~CpuCounters() { close_all(); }

void CpuCounters::close_all() {
  for (const std::vector<int>& mine : files_)
    for (const int fd : mine)
      if (fd >= 0) close(fd);
}

std::vector<double> CpuCounters::read() const {
  std::vector<double> sums(events_.size());
  for (const std::vector<int>& mine : files_)
    for (std::size_t e = 0; e < mine.size(); ++e) {
      std::array<std::uint64_t, 3> value{};  // count, ns enabled, ns running
      if (::read(mine[e], value.data(), sizeof value) != ssize_t(sizeof value) || value[2] == 0)
        continue;
      sums[e] += double(value[0]) * double(value[1]) / double(value[2]);
    }
  return sums;
}

}  // namespace convlab
