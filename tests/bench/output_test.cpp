// Destinations of results and messages: closed, full, devices, terminals.
#include "bench/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

#include "conv/error.h"
#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;

class OutputTest : public testing::Test {
 protected:
  // "convlab ARGUMENTS REDIRECTIONS", as a shell runs it in the test's directory.
  Ran run(const std::string& command, const std::string& before = "") {
    const std::string line = "cd " + directory_.path().string() + "; " + before + " exec " +
                             CONVLAB_PROGRAM + " " + command;
    return Program(directory_, {"-c", line}, {}, "/bin/bash").wait();
  }
  // The directory's files, without the runs' stdout and stderr.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
      if (const std::string name = entry.path().filename();
          !name.starts_with("out.") && !name.starts_with("err."))
        names.push_back(name);
    return names;
  }
  TemporaryDirectory directory_;
};

constexpr const char* tiny = "mb1ic16ih8oc16oh8kh3ph1";

// ---- Messages ----

class Unheard : public OutputTest, public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    Verbs, Unheard,
    testing::Values("list --threads 1",
                    "check mb1ic16ih8oc16oh8kh3ph1 --algos im2col --pass fwd --threads 1",
                    "tune mb1ic16ih8oc16oh8kh3ph1 --mode heuristic --pass fwd --threads 1",
                    "sweep mb1ic16ih8oc16oh8kh3ph1 --mode heuristic --pass fwd -a n=1,2",
                    "time lenet --forward-only --iterations 1 --threads 1",
                    "plan lenet --forward-only --no-audit --threads 1"),
    [](const auto& info) {
      const std::string command = info.param;
      return command.substr(0, command.find(' '));
    });

TEST_P(Unheard, ResultsAndExitCodeAreAsEver) {
  for (const char* nowhere : {"2>/dev/full", "2>&-"}) {
    const Ran ran = run(std::string(GetParam()) + " " + nowhere);
    EXPECT_EQ(ran.exit_code, 0) << nowhere;
    EXPECT_NE(ran.out, "") << nowhere;
  }
}

TEST_F(OutputTest, AnUnheardRefusalIsARefusal) {
  for (const char* nowhere : {"2>/dev/full", "2>&-", "2> >(:)"})
    EXPECT_EQ(run(std::string("tune resnet19 ") + nowhere).exit_code, 2) << nowhere;
}

TEST_F(OutputTest, AFileDoesNotTakeThePlaceOfAClosedDescriptor) {
  for (const char* closed : {"2>&-", "0<&- 1>&- 2>&-"}) {
    const Ran ran =
        run(std::string("tune ") + tiny + " --mode heuristic --pass fwd --format json " +
            "--output t.json " + closed);
    EXPECT_EQ(ran.exit_code, 0) << closed;
    EXPECT_EQ(json::parse(read_file(directory_ / "t.json"))["layers"].size(), 1u) << closed;
  }
}

// ---- Results ----

TEST_F(OutputTest, AStdoutThatCannotBeWrittenIsExitCode3) {
  for (const char* command : {"--version >&-", "tune --help >/dev/full", "list >&-"}) {
    const Ran ran = run(command);
    EXPECT_EQ(ran.exit_code, 3) << command;
    EXPECT_TRUE(ran.err.starts_with("convlab: cannot write stdout: ")) << ran.err;
  }
  EXPECT_EQ(run("list >/dev/full 2>&-").exit_code, 3);
  // A reader that stops early causes no message.
  const Ran ran = run("list > >(:)", "trap '' PIPE;");
  EXPECT_EQ(ran.err, "");
}

TEST_F(OutputTest, ADeletedDirectoryIsOneLineAndExitCode3) {
  const Ran ran = run("db show --db x.db", "mkdir gone; cd gone; rmdir ../gone;");
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_EQ(ran.err, "convlab: the current directory was deleted: change to one that exists\n");
}

TEST_F(OutputTest, MoreThreadsThanCoresAreWarnedOfOnStderr) {
  const std::string list = std::string("list ") + tiny + " --format json --threads ";
  const std::string threads = std::to_string(std::thread::hardware_concurrency() + 1);
  const Ran many = run(list + threads);
  EXPECT_EQ(many.exit_code, 0) << many.err;
  EXPECT_TRUE(many.err.starts_with("convlab: --threads " + threads + " of ")) << many.err;
  EXPECT_TRUE(json::accept(many.out)) << many.out;
  EXPECT_EQ(run(list + "1").err, "");
}

TEST_F(OutputTest, AFileThatMustNotGrowLeavesNothing) {
  if (CONVLAB_SANITIZED) GTEST_SKIP() << "a sanitizer's own files must grow";
  const Ran ran = run("list --output l.txt", "ulimit -f 1;");
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_TRUE(contains(ran.err, "cannot write 'l.txt': File too large")) << ran.err;
  EXPECT_EQ(files(), std::vector<std::string>());
}

TEST_F(OutputTest, AResultThatItsFileCannotTakeIsPrinted) {
  const std::filesystem::path folder = directory_ / "folder";
  std::filesystem::create_directory(folder);
  Output output(folder / "result");
  std::filesystem::remove_all(folder);
  testing::internal::CaptureStdout();
  EXPECT_THROW(output.write("measured for an hour\n"), EnvironmentError);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "measured for an hour\n");
}

TEST_F(OutputTest, ADashIsStdinOrStdout) {
  const Ran ran = run(std::string("tune @- --mode heuristic --format json --output - <<< ") + tiny);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["layers"].size(), 3u);
  write_file(directory_ / "t.json", ran.out);
  const Ran diff = run("diff - t.json < t.json");
  EXPECT_TRUE(contains(diff.out, "not measured")) << diff.out << diff.err;
}

TEST_F(OutputTest, NothingLiesAboutBeforeTheResultIsThere) {
  const std::string path = directory_ / "result";
  // Left by a killed process with the same process number.
  const std::string left = path + "." + std::to_string(getpid()) + ".tmp";
  write_file(left, "half");
  {
    Output output(path);
    EXPECT_LE(files().size(), 1u);  // that one, if the file system supports unnamed files
    output.write("all");
  }
  EXPECT_EQ(read_file(path), "all");
  EXPECT_EQ(files(), std::vector<std::string>{"result"});
  EXPECT_THROW(Output(directory_ / "missing" / "file"), InputError);
  EXPECT_THROW(Output(directory_.path()), InputError);
}

TEST_F(OutputTest, ATerminalObeysNoControlCharacters) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const int kept_open = open(name.c_str(), O_RDWR | O_NOCTTY);
  Output(name).write("a\x1b[31mb\n");
  std::array<char, 100> seen{};
  const ssize_t count = read(terminal, seen.data(), seen.size());
  EXPECT_EQ(std::string(seen.data(), std::size_t(std::max<ssize_t>(count, 0))), "a\\x1b[31mb\r\n");
  close(kept_open);
  close(terminal);

  write_file(directory_ / "list", std::string("--x\x1b[31m ") + tiny + "\n");
  const Ran ran = run("list @list");
  EXPECT_EQ(ran.err, "convlab: list:1: option skipped: --x\\x1b[31m\n");
}

}  // namespace
}  // namespace convlab
