// Where results and messages go: closed, full, devices, terminals.
#include "bench/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "conv/error.h"
#include "tests/bench/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class OutputTest : public testing::Test {
 protected:
  // "convlab ARGUMENTS REDIRECTIONS", as a shell runs it in the test's directory.
  Ran run(const std::string& command, const std::string& before = "") {
    const std::string line = "cd " + directory_.path().string() + "; " + before + "; exec " +
                             CONVLAB_PROGRAM + " " + command;
    return Program(directory_, {"-c", line}, {}, "/bin/bash").wait();
  }
  // What is in the directory but for stdout and stderr of the runs.
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
    testing::Values("list", "check mb1ic16ih8oc16oh8kh3ph1 --algos im2col --pass fwd",
                    "tune mb1ic16ih8oc16oh8kh3ph1 --mode heuristic",
                    "bench mb1ic16ih8oc16oh8kh3ph1 --mode heuristic",
                    "sweep mb1ic16ih8oc16oh8kh3ph1 --mode heuristic -a n=1,2",
                    "time lenet --forward-only --iterations 1", "plan lenet --no-audit",
                    "predict lenet --weights none x.png", "tune resnet19", "db verify"),
    [](const auto& info) {
      std::string name = std::string(info.param).substr(0, 14);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

TEST_P(Unheard, ResultsAndExitCodeAreAsEver) {
  const Ran heard = run(GetParam());
  for (const char* nowhere : {"2>/dev/full", "2>&-", "2> >(:)"}) {
    const Ran ran = run(std::string(GetParam()) + " --threads 1 " + nowhere);
    const bool no_threads = std::string_view(GetParam()).starts_with("db");  // an unknown flag
    EXPECT_EQ(ran.exit_code, no_threads ? 2 : heard.exit_code) << nowhere;
    EXPECT_EQ(ran.out.empty(), heard.out.empty()) << nowhere << ran.out;
  }
}

TEST_F(OutputTest, AFileDoesNotTakeThePlaceOfAClosedDescriptor) {
  for (const char* closed : {"2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"}) {
    const Ran ran = run(std::string("tune ") + tiny + " --algos im2col --pass fwd --format json " +
                        "--output t.json " + closed);
    EXPECT_EQ(ran.exit_code, 0) << closed;
    EXPECT_EQ(json::parse(read_file(directory_ / "t.json"))["layers"].size(), 1u) << closed;
  }
}

// ---- Results ----

TEST_F(OutputTest, AStdoutThatCannotBeWrittenIsExitCode3) {
  for (const std::string command : {"--help", "--version", "list", "tune --help"})
    for (const std::string nowhere : {">/dev/full", ">&-"}) {
      const Ran ran = run(command + " " + nowhere);
      EXPECT_EQ(ran.exit_code, 3) << command << nowhere;
      EXPECT_TRUE(ran.err.starts_with("convlab: cannot write stdout: ")) << ran.err;
      EXPECT_EQ(run(command + " " + nowhere + " 2>&-").exit_code, 3) << command << nowhere;
    }
  // Somebody who has read enough gets no message.
  const Ran ran = run("list > >(:)", "trap '' PIPE");
  EXPECT_EQ(ran.err, "");
}

TEST_F(OutputTest, AFileThatMustNotGrowLeavesNothing) {
  const Ran ran = run("list --output l.txt", "ulimit -f 1");
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_TRUE(contains(ran.err, "cannot write 'l.txt': File too large")) << ran.err;
  EXPECT_EQ(files(), std::vector<std::string>());
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
  // What was killed with this process's number.
  const std::string left = path + "." + std::to_string(getpid()) + ".tmp";
  write_file(left, "half");
  {
    Output output(path);
    EXPECT_LE(files().size(), 1u);  // that one, where files without a name can be had
    output.write("all");
  }
  EXPECT_EQ(read_file(path), "all");
  EXPECT_EQ(files(), std::vector<std::string>{"result"});
  EXPECT_THROW(Output(directory_ / "missing" / "file"), InputError);
  EXPECT_THROW(Output(directory_.path()), InputError);
}

TEST_F(OutputTest, ATerminalShowsControlCharactersAsQuestionMarks) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const int kept_open = open(name.c_str(), O_RDWR | O_NOCTTY);
  Output(name).write("a\x1b[31mb\n");
  std::array<char, 100> seen{};
  const ssize_t count = read(terminal, seen.data(), seen.size());
  EXPECT_EQ(std::string(seen.data(), std::size_t(std::max<ssize_t>(count, 0))), "a?[31mb\r\n");
  close(kept_open);
  close(terminal);

  write_file(directory_ / "list", std::string("--x\x1b[31m ") + tiny + "\n");
  const Ran ran = run("list @list");
  EXPECT_EQ(ran.err, "convlab: list:1: option skipped: --x?[31m\n");
}

}  // namespace
}  // namespace convlab
