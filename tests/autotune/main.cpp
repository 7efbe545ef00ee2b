// The tests' own main: a worker of theirs is this program with the test algorithms.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "autotune/worker.h"
#include "tests/autotune/test_algos.h"

int main(int argc, char** argv) {
  if (const std::optional<int> code = convlab::worker_main(argc, argv, convlab::append_test_algos))
    return *code;
  setenv("CONVLAB_IGNORE_DISTURBANCES", "1", 0);  // tests run beside one another
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
