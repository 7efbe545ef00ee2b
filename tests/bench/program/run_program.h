// Runs the built convlab program as a user would.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace convlab {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words words_of(const std::string& line);  // between its spaces

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::ptrdiff_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

inline std::ptrdiff_t occurrences(const std::string& text, const std::string& part) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

// A directory private to this test, removed with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path&);
void write_file(const std::filesystem::path&, const std::string& text);

struct Ran {
  int exit_code = -1;  // the negative signal number if a signal ended it
  std::string out, err;
};

// One run of the program. Files in `directory` hold its stdout, stderr, store and home.
// `environment` adds to this process's environment. The program leads its own process group.
class Program {
 public:
  Program(const TemporaryDirectory& directory, const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment = {},
          const std::string& executable = CONVLAB_PROGRAM);
  std::string err() const { return read_file(err_); }  // so far
  // Returns when this text is on stderr, or after five minutes.
  void wait_until_said(const std::string& text) const;
  // Signals the program and its workers, as a terminal does on Ctrl-C and `timeout` with SIGTERM.
  void signal_group(int signal) const;
  Ran wait();

 private:
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
};

struct BadUsage {
  Words arguments;
  std::string says;
};
// Expects of each run exit code 2, nothing on stdout, and one line on stderr with `says` in it.
void expect_refused(const std::function<Ran(const Words&)>& run, const std::vector<BadUsage>&);

// A run that gets the signal once it has said `text`. On a busy machine the signal may come when
// the run is over (exit code 0): then another is started.
Ran interrupted(const std::function<Program()>& start, const std::string& text, int signal);

}  // namespace convlab
