// The rows of `check` are on disk as soon as they are known.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

TEST(CheckRows, SurviveTheEndOfTheProcess) {
  const TemporaryDirectory directory;
  const auto whole = directory / "rows.csv", partial = directory / "rows.csv.partial";
  // More than can be done before the signal.
  Program program(directory, {"check", "vgg16", "--format", "csv", "--output", whole});
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (lines(read_file(partial)) < 4 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  program.signal_group(SIGKILL);
  EXPECT_EQ(program.wait().exit_code, -SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(whole));
  const std::string rows = read_file(partial);
  EXPECT_TRUE(rows.starts_with("layer,pass,algo,config,layouts,result,rel_error,reason,repeat\n"))
      << rows;
  EXPECT_GE(lines(rows), 4) << rows;
}

TEST(CheckRows, AreInTheTableAloneAtTheEnd) {
  const TemporaryDirectory directory;
  const auto whole = directory / "rows.csv";
  const Ran ran = Program(directory, {"check", "mb1ic4ih6oc6kh3ph1", "--pass", "fwd", "--algos",
                                      "direct", "--output", whole})
                      .wait();
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_GT(lines(read_file(whole)), 2);
  EXPECT_FALSE(std::filesystem::exists(directory / "rows.csv.partial"));
}

// Rows of a run that was cut off, or a file of somebody else.
TEST(CheckRows, LeaveWhatWasThere) {
  const TemporaryDirectory directory;
  write_file(directory / "rows.csv.partial", "precious\n");
  const Ran ran = Program(directory, {"check", "mb1ic4ih6oc6kh3ph1", "--pass", "fwd", "--algos",
                                      "direct", "--output", directory / "rows.csv"})
                      .wait();
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.err, "rows.csv.partial of an earlier run is ")) << ran.err;
  EXPECT_EQ(read_file(directory / "rows.csv.partial~"), "precious\n");
  EXPECT_FALSE(std::filesystem::exists(directory / "rows.csv.partial"));
}

// A folder in its way, or a link that leads nowhere yet: neither costs what it stands for.
TEST(CheckRows, LeaveWhatCannotBeMoved) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "rows.csv.partial~/full");
  for (const bool link : {false, true}) {
    if (link) {
      std::filesystem::remove(directory / "rows.csv.partial");
      std::filesystem::create_symlink(directory / "later", directory / "rows.csv.partial");
    } else {
      write_file(directory / "rows.csv.partial", "precious\n");
    }
    const Ran ran = Program(directory, {"check", "mb1ic4ih6oc6kh3ph1", "--pass", "fwd", "--algos",
                                        "direct", "--output", directory / "rows.csv"})
                        .wait();
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(contains(ran.err, "rows are not kept as they come")) << ran.err;
    EXPECT_GT(lines(read_file(directory / "rows.csv")), 1);
    EXPECT_FALSE(std::filesystem::exists(directory / "later"));
    if (!link) {
      EXPECT_EQ(read_file(directory / "rows.csv.partial"), "precious\n");
    }
  }
}

}  // namespace
}  // namespace convlab
