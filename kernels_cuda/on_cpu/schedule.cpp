#include "kernels_cuda/on_cpu/schedule.h"

#include <cstdlib>

#include "kernels_cuda/on_cpu/sanitizers.h"

namespace convlab::on_cpu {
namespace {

unsigned variable(const char* name, unsigned otherwise) {
  const char* const value = std::getenv(name);
  return value ? unsigned(std::strtoul(value, nullptr, 10)) : otherwise;
}

}  // namespace

Config config{.seed = variable("CONVLAB_SCHEDULE", 0),
              .workers = variable("CONVLAB_WORKERS", tsan ? 2 : 1)};

}  // namespace convlab::on_cpu
