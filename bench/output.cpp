#include "bench/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "autotune/store/store.h"
#include "bench/text.h"
#include "conv/error.h"
#include "conv/text/text.h"
#include "nets/weights/file_io.h"

namespace convlab {

using namespace nets;
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int signal) {
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

// False, with errno set, if not all of it can be written.
bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EAGAIN) {  // a full non-blocking pipe
      pollfd ready{file, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (written == 0 || (written < 0 && errno != EINTR)) return false;
    text.remove_prefix(std::size_t(std::max<ssize_t>(written, 0)));
  }
  return true;
}

std::atomic<bool> silent{false};

void to_stderr(std::string_view text) {
  if (!silent) static_cast<void>(write_all(STDERR_FILENO, text));
}

// Ends the process as SIGPIPE would, once the reader has closed the pipe.
[[noreturn]] void end_by_broken_pipe() {
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  std::abort();
}

}  // namespace

Output::Output(std::string path, const std::string& flag) : path_(std::move(path)) {
  if (path_ == "-" || path_ == "/dev/stdout") path_.clear();
  if (path_.empty()) return;
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    device_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (device_ < 0)
      throw InputError(fmt::format("{}: cannot write '{}': {}", flag, path_, std::strerror(errno)));
    return;
  }
  try {
    require_replaceable(path_);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", flag, error.what()));
  }
}

Output::~Output() {
  if (device_ >= 0) close(device_);
}

void Output::write(const std::string& text) {
  if (!path_.empty() && device_ < 0) {
    const ConstSpan piece = std::as_bytes(std::span(text));
    try {
      return replace_file(path_, {&piece, 1});
    } catch (const std::exception& error) {
      if (!write_all(STDOUT_FILENO, text)) throw;
      throw EnvironmentError(fmt::format("{}; the result went to stdout instead", error.what()));
    }
  }
  const int file = path_.empty() ? STDOUT_FILENO : device_;
  if (write_all(file, isatty(file) ? printable_lines(text) : text)) return;
  const int error = errno;
  if (error == EPIPE && path_.empty()) end_by_broken_pipe();
  throw EnvironmentError(
      fmt::format("cannot write {}: {}", path_.empty() ? "stdout" : path_, std::strerror(error)));
}

void settle_descriptors_and_signals() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0)
      static_cast<void>(open("/dev/null", file == STDOUT_FILENO ? O_RDONLY : O_RDWR));
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void be_silent(bool now) { silent = now; }
bool is_silent() { return silent; }

void say(const std::string& text) {
  if (!silent) say_in_any_case(text);
}

void say_in_any_case(const std::string& text) {
  static_cast<void>(write_all(STDERR_FILENO, fmt::format("convlab: {}\n", printable_lines(text))));
}

std::size_t terminal_columns(std::size_t most) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::clamp<std::size_t>(size.ws_col, 60, most) : most;
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (std::exchange(drawn_, false)) to_stderr("\r\033[K");
}

void Progress::line(const std::string& text) {
  clear();
  to_stderr(printable_lines(text) + "\n");
}

void Progress::step(std::size_t done, std::size_t total, const std::string& text) {
  if (terminal_)
    bar(done, total, text);
  else
    line(fmt::format("[{}/{}] {}", done, total, text));
}

void Progress::bar(std::size_t done, std::size_t total, const std::string& text) {
  if (!terminal_) return;
  winsize size{};
  const std::size_t columns =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  const std::size_t cells = 20, filled = total > 0 ? cells * done / total : 0;
  std::string line = fmt::format("[{}{}] {}/{} {}", std::string(filled, '#'),
                                 std::string(cells - filled, '.'), done, total, printable(text));
  if (line.size() >= columns) line.resize(columns - 1);
  to_stderr(fmt::format("\r\033[K{}", line));
  drawn_ = true;
}

const std::atomic<bool>& stop_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  return interrupted;
}

}  // namespace convlab
