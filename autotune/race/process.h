// A child process that runs this same executable and exchanges lines with it over one socket.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace convlab {

// The child's end of the socket.
inline constexpr int child_fd = 3;
// Set in the child's environment, which its own children inherit.
inline constexpr const char* child_variable = "CONVLAB_WORKER";

// The result of waiting for a line.
enum class Heard : std::uint8_t { line, end, timeout, stopped };

// Lines in and out over one file descriptor, on either end.
class LineChannel {
 public:
  explicit LineChannel(int fd) : fd_(fd) {}
  // False if the other end has closed.
  bool send(std::string line);
  // Waits at most `seconds` (negative: for ever), not counting time for which this process was
  // stopped; gives up when `stop` returns true.
  Heard receive(std::string& line, double seconds, const std::function<bool()>& stop = {});
  bool ended() const { return ended_; }  // seen by send or receive

 private:
  int fd_;
  bool ended_ = false;
  std::string pending_;
};

// Started with the given argument, and with child_variable in its environment. Its standard output
// goes to our standard error. Ctrl-C and SIGTERM, which a whole process group gets, do not reach
// it. It is killed with this object.
class ChildProcess {
 public:
  explicit ChildProcess(const std::string& argument);  // throws EnvironmentError
  ChildProcess(const ChildProcess&) = delete;
  ~ChildProcess();

  LineChannel& channel() { return channel_; }
  // It received SIGSTOP and cannot answer.
  bool is_halted() const;
  // Threads that are running or runnable now.
  int runnable_threads() const;
  // CPU time used so far.
  double cpu_s() const;
  // Kills it unless its channel has ended, and waits for its end. Returns its status, as waitpid
  // reports it; nullopt if it was killed here.
  std::optional<int> end();

 private:
  int fd_ = -1;
  int pid_ = -1;
  LineChannel channel_{-1};
};

// In the child: makes it die with its parent and write no core file. Call it first.
void settle_as_child();

}  // namespace convlab
