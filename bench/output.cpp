#include "bench/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "conv/error.h"
#include "conv/text.h"

namespace convlab {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int signal) {
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Output::Output(std::string path, const std::string& flag) : path_(std::move(path)) {
  if (path_.empty()) return;
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    // A device or a pipe cannot be replaced; it is written as it is.
    file_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    temporary_ = fmt::format("{}.{}.tmp", path_, getpid());
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  if (file_ < 0)
    throw InputError(fmt::format("{}: cannot write '{}': {}", flag, path_, std::strerror(errno)));
}

Output::~Output() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void Output::write(const std::string& text) {
  const auto require = [this](bool fine) {
    if (!fine)
      throw EnvironmentError(fmt::format("cannot write {}: {}", path_.empty() ? "stdout" : path_,
                                         std::strerror(errno)));
  };
  if (path_.empty()) {
    require(std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
            std::fflush(stdout) == 0);
    return;
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
    require(written > 0 || errno == EINTR);
    done += std::size_t(std::max<ssize_t>(written, 0));
  }
  if (temporary_.empty()) return;
  require(fsync(file_) == 0 && std::rename(temporary_.c_str(), path_.c_str()) == 0);
  temporary_.clear();
}

std::size_t terminal_columns(std::size_t most) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::clamp<std::size_t>(size.ws_col, 60, most) : most;
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (std::exchange(drawn_, false)) fmt::print(stderr, "\r\033[K");
}

void Progress::line(const std::string& text) {
  clear();
  fmt::print(stderr, "{}\n", printable(text));
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
  fmt::print(stderr, "\r\033[K{}", line);
  drawn_ = true;
}

const std::atomic<bool>& stop_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  return interrupted;
}

}  // namespace convlab
