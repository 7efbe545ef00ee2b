// The tests' own main: the tests' workers run this program with the test algorithms.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include "autotune/race/worker.h"
#include "conv/error.h"
#include "tests/autotune/test_algos.h"

namespace {

std::unique_ptr<convlab::Device> make_test_device(const convlab::DeviceChoice& choice) {
  if (choice.index == convlab::device_that_exits) std::_Exit(1);
  if (choice.index == convlab::device_that_is_killed) std::raise(SIGKILL);
  if (choice.index == convlab::device_that_is_lost) throw convlab::DeviceLost("it is gone");
  return convlab::make_cpu_device_only(choice);
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::optional<int> code =
          convlab::worker_main(argc, argv, convlab::append_test_algos, make_test_device))
    return *code;
  // In workers a crash must end by its signal, with sanitizers as without.
  for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
    const char* const before = std::getenv(name);
    setenv(name, ((before ? before : "") + std::string(":abort_on_error=1")).c_str(), 1);
  }
  setenv("CONVLAB_IGNORE_DISTURBANCES", "1", 0);  // tests run beside one another
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
