// The CPU's own counters, through Linux's perf events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convlab {

class CpuCounters {
 public:
  // As perf_event_open(2) has them.
  struct Event {
    std::string name;
    std::uint32_t type = 0;
    std::uint64_t config = 0;
  };
  static std::vector<Event> usual();  // cycles, instructions, last-level cache misses

  // Counts the events of an OpenMP team of that many threads from now on, outside the kernel.
  // Throws EnvironmentError with the reason if there are no such counters or they may not be read,
  // as in most virtual machines.
  CpuCounters(std::vector<Event>, int threads);
  CpuCounters(const CpuCounters&) = delete;
  ~CpuCounters();

  // Counts since the beginning, summed over the threads, by event. Extrapolated when events share a
  // counter by turns.
  std::vector<double> read() const;
  const std::vector<Event>& events() const { return events_; }

 private:
  void close_all();
  std::vector<Event> events_;
  std::vector<std::vector<int>> files_;  // by thread and event
};

}  // namespace convlab
