#include "conv/device.h"

#include <chrono>

namespace convlab {

double Stream::time(const std::function<void()>& enqueue, int runs) {
  using Clock = std::chrono::steady_clock;
  synchronize();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < runs; ++i) enqueue();
  synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count() / runs;
}

}  // namespace convlab
