#include "autotune/race/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "conv/error.h"

extern char** environ;

namespace convlab {

namespace {

// "17 (name with (any) signs) T 1 ...": the state follows the last parenthesis.
char state_in(const std::filesystem::path& stat) {
  std::ifstream file(stat);
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");
  return name_end != std::string::npos ? line[name_end + 2] : '?';
}

}  // namespace

bool LineChannel::send(std::string line) {
  line += '\n';
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return !(ended_ = true);
    sent += std::size_t(n);
  }
  return true;
}

Heard LineChannel::receive(std::string& line, double seconds, const std::function<bool()>& stop) {
  using Clock = std::chrono::steady_clock;
  constexpr double slice_s = 0.2;  // between two looks at `stop`
  for (double waited_s = 0;;) {
    const std::size_t newline = pending_.find('\n');
    if (newline != std::string::npos) {
      line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return Heard::line;
    }
    if (seconds >= 0 && waited_s >= seconds) return Heard::timeout;
    if (stop && stop()) return Heard::stopped;
    const double wait_s = seconds < 0 ? slice_s : std::min(slice_s, seconds - waited_s);
    const auto start = Clock::now();
    pollfd waiting{fd_, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, seconds < 0 && !stop ? -1 : int(1e3 * wait_s) + 1);
    // poll() returned late: the clock advanced while this process was stopped.
    const double took_s = std::chrono::duration<double>(Clock::now() - start).count();
    waited_s += std::min(took_s, wait_s);
    if (ready <= 0) continue;
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      ended_ = true;
      return Heard::end;
    }
    pending_.append(buffer, std::size_t(n));
  }
}

ChildProcess::ChildProcess(const std::string& argument) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw EnvironmentError(fmt::format("cannot make a socket pair: {}", std::strerror(errno)));
  // A number that the child's own files will not use.
  const int theirs = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
  ::close(ends[1]);
  if (theirs < 0) {
    ::close(ends[0]);
    throw EnvironmentError(
        "cannot start a worker: too few open files are allowed (ulimit -n): expected 32 or more");
  }
  fd_ = ends[0];
  channel_ = LineChannel(fd_);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, theirs, child_fd);
  // Ignored and blocked signals stay so across exec; posix_spawn can only set blocking.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&blocked, signal);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);

  std::string name = "convlab", word = argument, mark = fmt::format("{}=1", child_variable);
  char* const argv[] = {name.data(), word.data(), nullptr};
  std::vector<char*> environment{mark.data()};
  for (char** variable = ::environ; *variable; ++variable) environment.push_back(*variable);
  environment.push_back(nullptr);
  const int error =
      ::posix_spawn(&pid_, "/proc/self/exe", &files, &attributes, argv, environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  ::close(theirs);
  if (error != 0) {
    ::close(fd_);
    throw EnvironmentError(fmt::format("cannot start a worker: {}", std::strerror(error)));
  }
}

ChildProcess::~ChildProcess() {
  end();
  ::close(fd_);
}

bool ChildProcess::is_halted() const { return state_in(fmt::format("/proc/{}/stat", pid_)) == 'T'; }

int ChildProcess::runnable_threads() const {
  std::error_code ended;
  int runnable = 0;
  const std::filesystem::directory_iterator none;
  for (std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", pid_), ended);
       !ended && thread != none; thread.increment(ended))
    runnable += state_in(thread->path() / "stat") == 'R';
  return runnable;
}

double ChildProcess::cpu_s() const {
  clockid_t clock{};
  timespec used{};
  if (pid_ < 0 || ::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &used) != 0)
    return 0;
  return double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
}

std::optional<int> ChildProcess::end() {
  if (pid_ < 0) return {};
  // A closed channel means that the child is exiting: wait for its own status.
  constexpr int grace_ms = 5000;
  int status = 0;
  bool killed = false;
  for (int waited = 0; ::waitpid(pid_, &status, WNOHANG) == 0; ++waited) {
    if (!killed && (!channel_.ended() || waited == grace_ms)) {
      killed = true;
      ::kill(pid_, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  if (killed) return {};
  return status;
}

void settle_as_child() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
}

}  // namespace convlab
