#include "kernels_cpu/device/team.h"

#include <fmt/format.h>
#include <pthread.h>

#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/device/cpu_limits.h"
#include "kernels_cpu/gemm/openblas.h"

namespace convlab {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// "16k" or "2M"; without a unit, KiB. OpenMP ignores text that it cannot parse, and so does this.
std::optional<std::size_t> parse_stack_size(const std::string& text) {
  std::size_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || number > (std::size_t{1} << 40)) return {};
  const std::string unit(stop, end);
  if (unit == "B" || unit == "b") return number;
  if (unit.empty() || unit == "K" || unit == "k") return number << 10;
  if (unit == "M" || unit == "m") return number << 20;
  if (unit == "G" || unit == "g") return number << 30;
  return {};
}

// Kernels keep a panel's filters on the stack; OpenBLAS and oneDNN may keep anything there.
constexpr std::size_t least_stack = 512 << 10;

class ThreadAttributes {
 public:
  ThreadAttributes() {
    pthread_attr_init(&attributes_);
    const auto stack = parse_stack_size(variable("OMP_STACKSIZE"));
    std::size_t bytes = 0;
    pthread_attr_getstacksize(&attributes_, &bytes);
    bytes = stack.value_or(bytes);
    if (bytes < least_stack)
      throw EnvironmentError(fmt::format(
          "threads would have stacks of {} KiB: expected {} KiB or "
          "more; set {}",
          bytes >> 10, least_stack >> 10, stack ? "OMP_STACKSIZE=2M" : "ulimit -s 8192"));
    pthread_attr_setstacksize(&attributes_, bytes);
  }
  ThreadAttributes(const ThreadAttributes&) = delete;
  ~ThreadAttributes() { pthread_attr_destroy(&attributes_); }
  // Binds the thread as OpenMP would, to its number's place, round robin.
  void bind(int thread) {
    const int places = omp_get_num_places();
    if (places == 0) return;
    const int place = thread % places;
    std::vector<int> processors(std::size_t(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, processors.data());
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int processor : processors) CPU_SET(processor, &set);
    pthread_attr_setaffinity_np(&attributes_, sizeof set, &set);
  }
  const pthread_attr_t* get() const { return &attributes_; }

 private:
  pthread_attr_t attributes_{};
};

// OpenMP ends the process if it cannot start a thread. So the threads are first started without it,
// all at once.
void require_threads(int count) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable opened;
    bool open = false;
  } gate;
  const auto wait = [](void* of) -> void* {
    Gate& gate = *static_cast<Gate*>(of);
    std::unique_lock lock(gate.mutex);
    gate.opened.wait(lock, [&] { return gate.open; });
    return nullptr;
  };
  ThreadAttributes attributes;
  std::vector<pthread_t> threads;
  threads.reserve(std::size_t(count));
  int error = 0;
  while (error == 0 && int(threads.size()) < count - 1) {
    pthread_t thread{};
    attributes.bind(int(threads.size()) + 1);
    error = pthread_create(&thread, attributes.get(), wait, &gate);
    if (error == 0) threads.push_back(thread);
  }
  {
    const std::lock_guard lock(gate.mutex);
    gate.open = true;
  }
  gate.opened.notify_all();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  if (error == EINVAL && omp_get_num_places() > 0)
    throw EnvironmentError(
        "cannot start threads on the processors that GOMP_CPU_AFFINITY or OMP_PLACES name: unset "
        "it, "
        "or name some that this process may use");
  if (error != 0)
    throw EnvironmentError(
        fmt::format("cannot start {} threads: the system gives {} ({}); raise ulimit -u or -v, or "
                    "say --threads {}",
                    count, threads.size() + 1, std::strerror(error), threads.size() + 1));
}

// The reason why there are fewer threads here.
std::string limit_here() {
  if (omp_in_parallel()) return "this is inside another parallel region";
  if (omp_get_max_active_levels() < 1)
    return fmt::format("OMP_MAX_ACTIVE_LEVELS is {}", omp_get_max_active_levels());
  return fmt::format("OMP_THREAD_LIMIT is {}", omp_get_thread_limit());
}

}  // namespace

int start_threads(int wanted) {
  if (wanted < 0 || wanted > most_threads)
    throw InputError(
        fmt::format("threads is {}: expected 1 to {}, or 0 for one a core", wanted, most_threads));
  int threads = wanted;
  if (threads == 0) {
    threads = std::min(omp_get_max_threads(), most_threads);
    if (variable("OMP_NUM_THREADS").empty()) threads = std::min(threads, usable_cores());
  }
  const int team = cpu::team_here(threads);
  if (team < wanted)
    throw EnvironmentError(
        fmt::format("{} threads requested, OpenMP gives {}: {}", wanted, team, limit_here()));
  static std::mutex mutex;
  static int started = 0;
  const std::lock_guard lock(mutex);
  if (team > started) {
    require_threads(team);
    reserve_openblas_memory(team);
    started = team;
  }
  // The team itself decides. On an oversubscribed machine LLVM's runtime occasionally forms a
  // smaller one.
  const cpu::ThreadCount count(team);
  int given = 0;
  for (int tries = 0; given < team && tries < 3; ++tries) {
#pragma omp parallel
#pragma omp single
    given = omp_get_num_threads();
  }
  if (given < team)
    throw EnvironmentError(fmt::format("{} threads requested, OpenMP gives {}", team, given));
  return team;
}

}  // namespace convlab
