// Shared by the tests of the command line: short runs of the built program, and checks of its
// output.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/bench/program/run_program.h"

namespace convlab {

inline constexpr const char* tiny = "mb1ic16ih8oc16oh8kh3ph1";
inline constexpr const char* strided = "mb1ic16ih8oc16oh4kh3sh2ph1";  // fft refuses it

inline nlohmann::json rows_of(const std::string& text) {
  return nlohmann::json::parse(text).at("rows");
}

class ProgramTest : public testing::Test {
 protected:
  Ran run(const Words& arguments, const std::map<std::string, std::string>& environment = {}) {
    return Program(directory_, arguments, environment).wait();
  }
  // A short tuning run.
  Ran tune(const Words& more = {}) {
    return run(Words{"tune", tiny, "--pass", "fwd", "--threads", "1", "--algos", "im2col"} + more);
  }
  TemporaryDirectory directory_;
};

}  // namespace convlab
