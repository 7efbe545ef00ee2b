// Runs bench/studies/study.py: on logs with known times, or on scripts in place of programs.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "bench/reports/gnuplot.h"
#include "tests/bench/program/run_program.h"

namespace convlab {

class StudyTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3";
    if (gnuplot("")) plots_ = fmt::format("--plots '{}'", (directory_ / "plots").string());
  }
  std::string study(const std::string& arguments) {
    const std::string out = directory_ / "out", err = directory_ / "err";
    const std::string command = fmt::format("python3 '{}' {} --log '{}' {} >'{}' 2>'{}'",
                                            CONVLAB_STUDY, arguments, log(), plots_, out, err);
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(err);
    return read_file(out);
  }
  std::string log() const { return directory_ / "log"; }
  // On failure prints the part not found and the whole text.
  static void expect(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
  void expect_plot(const std::string& name, const std::string& part = "<svg") {
    if (!plots_.empty()) expect(read_file(directory_ / "plots" / name), part);
  }
  static void write_script(const std::string& path, const std::string& text) {
    write_file(path, "#!/bin/sh\n" + text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  Ran run(const Words& arguments, const std::map<std::string, std::string>& environment = {},
          const std::string& script = CONVLAB_STUDY) {
    return Program(directory_, Words{"python3", "-B", script} + arguments, environment,
                   "/usr/bin/env")
        .wait();
  }
  TemporaryDirectory directory_;
  std::string plots_;
};

}  // namespace convlab
