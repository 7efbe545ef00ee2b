// A child process that runs this same executable, spoken to in lines over one socket.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace convlab {

// The child's end of the socket.
inline constexpr int child_fd = 3;
// Set in the child's environment, and so in that of whatever it starts.
inline constexpr const char* child_variable = "CONVLAB_WORKER";

// What came of waiting for a line.
enum class Heard : std::uint8_t { line, end, timeout, stopped };

// Lines in and out over one file descriptor, on either end.
class LineChannel {
 public:
  explicit LineChannel(int fd) : fd_(fd) {}
  // False when the other end is gone.
  bool send(std::string line);
  // Waits at most `seconds` (negative: for ever), not counting those in which this process was
  // stopped; gives up when `stop` says so.
  Heard receive(std::string& line, double seconds, const std::function<bool()>& stop = {});
  bool ended() const { return ended_; }  // seen by send or receive

 private:
  int fd_;
  bool ended_ = false;
  std::string pending_;
};

// Started with the given argument, and with child_variable in its environment; its standard output
// goes to our standard error, Ctrl-C and SIGTERM, which a whole process group gets, do not reach
// it, and it is killed with this object.
class ChildProcess {
 public:
  explicit ChildProcess(const std::string& argument);  // throws EnvironmentError
  ChildProcess(const ChildProcess&) = delete;
  ~ChildProcess();

  LineChannel& channel() { return channel_; }
  // Somebody sent it SIGSTOP: it cannot answer, whatever it does.
  bool is_halted() const;
  // Threads that have a processor just now, or would go on if they had one.
  int runnable_threads() const;
  // CPU time that it has used so far.
  double cpu_s() const;
  // Kills it unless its channel has ended, and waits for its end. Its status, as waitpid says;
  // nullopt when it was killed here.
  std::optional<int> end();

 private:
  int fd_ = -1;
  int pid_ = -1;
  LineChannel channel_{-1};
};

// In the child: dies with its parent, leaves no core file. Called first thing.
void settle_as_child();

}  // namespace convlab
