#include "autotune/measure/disturbance.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace convlab {
namespace {

constexpr const char* run_delay_path = "/proc/thread-self/schedstat";
constexpr const char* pressure_path = "/proc/pressure/cpu";
constexpr const char* frequency_path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq";

double seconds(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

double seconds(const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); }

// The beginning of a kernel file that is read repeatedly; empty if it is missing.
class KernelFile {
 public:
  explicit KernelFile(const char* path) : file_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  ~KernelFile() {
    if (file_ >= 0) ::close(file_);
  }
  KernelFile(const KernelFile&) = delete;
  const char* read() {
    const ssize_t n = file_ < 0 ? -1 : ::pread(file_, text_.data(), text_.size() - 1, 0);
    text_[std::size_t(std::max<ssize_t>(n, 0))] = '\0';
    return text_.data();
  }

 private:
  int file_;
  std::array<char, 512> text_{};
};

// "3819201 51712 207": ns run, ns runnable and waiting, slices.
double run_delay_s() {
  thread_local KernelFile file(run_delay_path);
  const char* const waiting = std::strchr(file.read(), ' ');
  return waiting ? 1e-9 * std::strtod(waiting, nullptr) : 0;
}

// "some avg10=0.96 avg60=1.02 avg300=0.34 total=1498274": us in which some task waited for a CPU.
double pressure_s() {
  thread_local KernelFile file(pressure_path);
  const char* const total = std::strstr(file.read(), "total=");
  return total ? 1e-6 * std::strtod(total + 6, nullptr) : 0;
}

bool readable(const char* path) { return *KernelFile(path).read() != '\0'; }

}  // namespace

DisturbanceMeter::DisturbanceMeter(const DeviceInfo& device)
    : before_(device.kind == DeviceKind::cpu && !disturbances_ignored()
                  ? std::size_t(device.threads)
                  : 0),
      after_(before_.size()) {}

// Each thread reads its own clocks: the kernel updates a thread's clock only when that thread asks,
// and other threads' clocks lag by up to a tick.
void DisturbanceMeter::read(std::vector<Reading>& readings) const {
#pragma omp parallel num_threads(int(readings.size()))
  {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    if (const auto i = std::size_t(omp_get_thread_num()); i < readings.size())
      readings[i] = {.thread = ::gettid(),
                     .wall_s = seconds(CLOCK_MONOTONIC),
                     .cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID),
                     .slept = usage.ru_nvcsw,
                     .delayed_s = run_delay_s()};
  }
}

void DisturbanceMeter::start() {
  if (before_.empty()) return;
  pressure_s_ = pressure_s();
  read(before_);
  process_cpu_s_ = seconds(CLOCK_PROCESS_CPUTIME_ID);
}

double DisturbanceMeter::stop() {
  if (before_.empty()) return 0;
  read(after_);
  const double process_cpu_s = seconds(CLOCK_PROCESS_CPUTIME_ID) - process_cpu_s_;
  static const bool run_delay_is_known = readable(run_delay_path);
  const double pressure = pressure_s() - pressure_s_;
  double most = 0, whole = 0, wanted = 0;
  const auto count = [&](double lost, double wall) {
    constexpr double clocks_s = 20e-6;  // the clocks are not read at once; interrupts happen
    if (lost > clocks_s) most = std::max(most, lost / wall);
  };
  for (std::size_t i = 0; i < before_.size(); ++i) {
    const Reading &a = before_[i], &b = after_[i];
    const double wall = b.wall_s - a.wall_s;
    if (a.thread == 0 || b.thread == 0 || wall <= 0) continue;  // the team was smaller
    whole = std::max(whole, wall);
    if (a.thread != b.thread) {  // a new thread: what it waited since it began
      count(b.delayed_s, wall);
      continue;
    }
    wanted += b.cpu_s - a.cpu_s + (run_delay_is_known ? b.delayed_s - a.delayed_s : 0);
    double lost = std::max(0.0, wall - (b.cpu_s - a.cpu_s));
    // For a thread that also blocked, count only the time for which it was kept from running.
    if (b.slept > a.slept)
      lost = std::min(lost, run_delay_is_known ? b.delayed_s - a.delayed_s : pressure);
    count(lost, wall);
  }
  // SIGSTOP and a freezer look like sleep. But some thread always has work, possibly one that has
  // ended: the process's CPU time includes that one.
  count(whole - std::max(wanted, process_cpu_s) - (run_delay_is_known ? 0 : pressure), whole);
  return std::min(most, 1.0);
}

bool disturbances_ignored() { return std::getenv("CONVLAB_IGNORE_DISTURBANCES") != nullptr; }

double own_cpu_s() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    sum += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return sum;
}

// "cpu  user nice system idle iowait irq softirq steal ...", in ticks since the start.
LoadMeter::Load LoadMeter::look(double own_s) {
  std::array<double, 8> ticks{};
  if (KernelFile file("/proc/stat"); std::strncmp(file.read(), "cpu ", 4) == 0) {
    char* at = const_cast<char*>(file.read()) + 4;
    for (double& t : ticks) t = std::strtod(at, &at);
  }
  const double tick_s = 1 / double(::sysconf(_SC_CLK_TCK));
  const double busy_s = tick_s * (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]);
  const double stolen_s = tick_s * ticks[7];
  const auto now = std::chrono::steady_clock::now();
  const double there_s = std::chrono::duration<double>(now - last_).count() *
                         double(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  const auto share = [&](double s) { return std::clamp(s / there_s, 0.0, 1.0); };
  const Load load{share(busy_s - busy_s_ - (own_s - own_s_)), share(stolen_s - stolen_s_)};
  busy_s_ = busy_s, stolen_s_ = stolen_s, own_s_ = own_s, last_ = now;
  return load;
}

std::vector<Observable> observables() {
  const auto by_file = [](const char* what, const char* path, const char* how, const char* remedy) {
    const bool offered = readable(path);
    return Observable{what, offered, offered ? how : fmt::format("no {}: {}", path, remedy)};
  };
  if (disturbances_ignored())
    return {{"disturbances", false, "they are ignored: unset CONVLAB_IGNORE_DISTURBANCES"}};
  return {
      {"lost CPU time", true, "each thread's CPU time against the clock"},
      by_file("run delay", run_delay_path, "time that threads waited for a core, sleepers included",
              "the kernel was built without CONFIG_SCHED_INFO"),
      by_file("CPU pressure", pressure_path, "in place of run delay, of the whole machine",
              "boot with psi=1"),
      by_file("load and stolen time", "/proc/stat", "of the whole machine, over a run",
              "mount /proc"),
      by_file("frequency", frequency_path, "readable; rounds share it, so ratios cancel it",
              "a virtual machine's host decides; rounds share it, so ratios cancel it")};
}

}  // namespace convlab
