#include "tests/bench/program/run_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace convlab {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Words words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "convlab-test-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp " + name);
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Program::Program(const TemporaryDirectory& directory, const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment,
                 const std::string& executable) {
  static int runs = 0;
  out_ = directory / ("out." + std::to_string(++runs));
  err_ = directory / ("err." + std::to_string(runs));

  std::map<std::string, std::string> variables;
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable;
    variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  variables["HOME"] = directory.path();
  variables["CONVLAB_DB"] = directory / "tune.db";
  variables["CONVLAB_IGNORE_DISTURBANCES"] = "1";  // tests run in parallel
  for (const auto& [name, value] : environment) variables[name] = value;
  std::vector<std::string> assignments;
  for (const auto& [name, value] : variables) assignments.push_back(name + "=" + value);
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), executable);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  constexpr int fresh = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out_.c_str(), fresh, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err_.c_str(), fresh, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&pid_, executable.c_str(), &files, &attributes,
                                pointers(words).data(), pointers(assignments).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::runtime_error("cannot start " + executable);
}

void Program::wait_until_said(const std::string& text) const {
  using Clock = std::chrono::steady_clock;
  const auto give_up = Clock::now() + std::chrono::minutes(5);
  while (err().find(text) == std::string::npos && Clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void Program::signal_group(int signal) const { kill(-pid_, signal); }

Ran Program::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(out_),
          read_file(err_)};
}

void expect_refused(const std::function<Ran(const Words&)>& run,
                    const std::vector<BadUsage>& cases) {
  for (const BadUsage& bad : cases) {
    std::string command;
    for (const std::string& word : bad.arguments) command += " '" + word + "'";
    const Ran ran = run(bad.arguments);
    EXPECT_EQ(ran.exit_code, 2) << command << "\n" << ran.err;
    EXPECT_EQ(lines(ran.err), 1) << command << "\n" << ran.err;
    EXPECT_TRUE(ran.err.starts_with("convlab: ")) << command << "\n" << ran.err;
    EXPECT_TRUE(contains(ran.err, bad.says)) << command << "\n" << ran.err;
    EXPECT_EQ(ran.out, "") << command;
  }
}

Ran interrupted(const std::function<Program()>& start, const std::string& text, int signal) {
  constexpr int most_tries = 5;
  for (int tries = 1;; ++tries) {
    Program program = start();
    program.wait_until_said(text);
    program.signal_group(signal);
    Ran ran = program.wait();
    const bool too_late = ran.exit_code == 0 && contains(ran.err, text);
    if (!too_late || tries == most_tries) return ran;
  }
}

}  // namespace convlab
