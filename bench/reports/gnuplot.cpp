#include "bench/reports/gnuplot.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "conv/error.h"

namespace convlab {
namespace {

// Files rather than pipes: a writer to a full pipe would block until its reader catches up.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File temporary_file() {
  File file(std::tmpfile(), &std::fclose);
  if (!file)
    throw EnvironmentError(fmt::format("cannot make a temporary file: {}", std::strerror(errno)));
  return file;
}

std::string contents(std::FILE* file) {
  std::rewind(file);
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file))
    text.append(buffer.data(), n);
  return text;
}

// gnuplot marks the error's position with a caret and prints the message after it.
std::string complaint(const std::string& text) {
  std::string last = "it says nothing";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (line.find_first_not_of(" \t^") != std::string::npos) last = line;
    at = end + 1;
  }
  return last.substr(last.find_first_not_of(' '));
}

}  // namespace

std::optional<std::string> gnuplot(const std::string& script) {
  const File in = temporary_file(), out = temporary_file(), err = temporary_file();
  std::fwrite(script.data(), 1, script.size(), in.get());
  std::rewind(in.get());  // flushes, too

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, fileno(err.get()), STDERR_FILENO);
  std::array<std::string, 3> words{"gnuplot", "--default-settings", "-"};
  std::array<char*, 4> arguments{words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, "gnuplot", &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error == ENOENT) return {};
  if (error != 0)
    throw EnvironmentError(fmt::format("cannot start gnuplot: {}", std::strerror(error)));

  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw EnvironmentError(fmt::format("gnuplot failed: {}", complaint(contents(err.get()))));
  const std::string drawing = contents(out.get());
  return drawing.substr(drawing.starts_with('\f'));  // a form feed precedes each dumb chart
}

std::string text_chart(const std::string& script) {
  const std::optional<std::string> chart = gnuplot(script);
  if (!chart) return fmt::format("(No chart: {}.)\n\n", no_gnuplot);
  std::string text;  // without the trailing blanks of each line
  for (std::size_t at = 0, end = 0; at < chart->size(); at = end + 1) {
    end = std::min(chart->find('\n', at), chart->size());
    const std::string line = chart->substr(at, end - at);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "\n";
}

std::string chart_titles(std::string_view title, std::string_view y_axis, ChartKind kind) {
  if (kind == ChartKind::picture)
    return fmt::format("set title {}\nset ylabel {}\n", gnuplot_quoted(title),
                       gnuplot_quoted(y_axis));
  return fmt::format(
      "set tmargin 3\nset label 1 {} at graph 0, graph 1 left offset -4, 2\n"
      "set label 2 {} at graph 0, graph 1 left offset -4, 1\n",
      gnuplot_quoted(title), gnuplot_quoted(y_axis));
}

std::string gnuplot_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') quoted += '\'';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "'";
}

}  // namespace convlab
