// Data goes to stdout or, whole or not at all, to a file; what goes on, to stderr.
#pragma once

#include <atomic>
#include <string>

namespace convlab {

// Opens its destination before any work is done, so that a path that cannot be written is refused
// first, and fills it at the end.
class Output {
 public:
  // Empty: stdout. Throws InputError, naming the flag, when the file's directory cannot be written.
  explicit Output(std::string path, const std::string& flag = "--output");
  Output(const Output&) = delete;
  ~Output();  // leaves no trace unless write() was called
  // The file appears with all of the text or keeps what it had. Throws EnvironmentError.
  void write(const std::string& text);

 private:
  std::string path_, temporary_;
  int file_ = -1;
};

// Of the terminal that stdout is, between 60 and `most`; `most` where it is none.
std::size_t terminal_columns(std::size_t most);

// A bar on a terminal, plain lines otherwise.
class Progress {
 public:
  Progress();
  ~Progress();  // clears the bar
  bool has_terminal() const { return terminal_; }
  // Worth reading in any case: a line of its own.
  void line(const std::string& text);
  // `done` of `total` steps are finished; the text is about the last one.
  void step(std::size_t done, std::size_t total, const std::string& text);
  // What is going on between steps. Only on a terminal.
  void bar(std::size_t done, std::size_t total, const std::string& text);

 private:
  void clear();
  bool terminal_ = false, drawn_ = false;
};

// Becomes true at the first Ctrl-C or SIGTERM after the call; a second one ends the process.
const std::atomic<bool>& stop_on_interrupt();
// The exit code of a command that was interrupted and has printed what was done by then.
inline constexpr int interrupted_exit_code = 130;

}  // namespace convlab
