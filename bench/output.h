// Data goes to stdout or, whole or not at all, to a file; what goes on, to stderr.
#pragma once

#include <atomic>
#include <string>

namespace convlab {

// Looks at its destination before any work is done, so that a path that cannot be written is
// refused first, and fills it at the end.
class Output {
 public:
  // Empty, "-" or "/dev/stdout": stdout. Throws InputError, naming the flag, where nothing can be
  // written.
  explicit Output(std::string path, const std::string& flag = "--output");
  Output(const Output&) = delete;
  ~Output();
  // A file appears with all of the text or keeps what it had. Throws EnvironmentError.
  void write(const std::string& text);

 private:
  std::string path_;  // empty: stdout
  int device_ = -1;   // what cannot be replaced: a device, a pipe
};

// First thing in main. Descriptors 0 to 2 that are closed would become files of this program, and
// take its messages; a closed stdout stays one that cannot be written. A pipe without a reader and
// a file that must not grow become errors, in place of a death in the middle.
void settle_descriptors_and_signals();

// A line on stderr, "convlab: ...". That nobody reads it, or that it cannot be written, changes
// nothing: what a command says on the way is not its result.
void say(const std::string& text);

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

// Becomes true at the first Ctrl-C, SIGTERM or SIGHUP (the terminal is gone; not under nohup) after
// the call; a second one ends the process.
const std::atomic<bool>& stop_on_interrupt();
// The exit code of a command that was interrupted and has printed what was done by then.
inline constexpr int interrupted_exit_code = 130;

}  // namespace convlab
