// Data goes to stdout, or to a file whole or not at all. Progress goes to stderr.
#pragma once

#include <atomic>
#include <string>

namespace convlab {

// Checks its destination before any work is done, so that an unwritable path is refused first, and
// writes it at the end.
class Output {
 public:
  // Empty, "-" or "/dev/stdout": stdout. Throws InputError, naming the flag, if the destination
  // cannot be written.
  explicit Output(std::string path, const std::string& flag = "--output");
  Output(const Output&) = delete;
  ~Output();
  // The file gets all of the text or keeps its old contents. Throws EnvironmentError.
  void write(const std::string& text);

 private:
  std::string path_;  // empty: stdout
  int device_ = -1;   // for files that cannot be replaced: a device, a pipe
};

// Must be the first call in main. If descriptors 0 to 2 are closed, files that this program opens
// would reuse them and receive its messages. A closed stdout stays unwritable. A pipe without a
// reader and a file at its size limit become errors instead of killing the process.
void settle_descriptors_and_signals();

// Nothing is said any more, neither by say() nor by Progress: another rank speaks. Or again.
void be_silent(bool);
bool is_silent();

// Writes a line to stderr, "convlab: ...". Write errors are ignored, because messages are not the
// command's result.
void say(const std::string& text);
void say_in_any_case(const std::string& text);  // also if silent

// Width of the terminal on stdout, between 60 and `most`; `most` if stdout is not a terminal.
std::size_t terminal_columns(std::size_t most);

// A bar on a terminal, plain lines otherwise.
class Progress {
 public:
  Progress();
  ~Progress();  // clears the bar
  bool has_terminal() const { return terminal_; }
  // A line that is always printed.
  void line(const std::string& text);
  // `done` of `total` steps are finished; the text describes the last one.
  void step(std::size_t done, std::size_t total, const std::string& text);
  // Progress between steps. Only on a terminal.
  void bar(std::size_t done, std::size_t total, const std::string& text);

 private:
  void clear();
  bool terminal_ = false, drawn_ = false;
};

// Becomes true at the first Ctrl-C, SIGTERM or SIGHUP (closed terminal; not under nohup) after the
// call. A second one ends the process.
const std::atomic<bool>& stop_on_interrupt();
// The exit code of a command that was interrupted and has printed its partial results.
inline constexpr int interrupted_exit_code = 130;

}  // namespace convlab
