#include "bench/logs/log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "bench/logs/readers.h"
#include "conv/error.h"
#include "conv/text/counted.h"
#include "conv/text/problem_reader.h"
#include "conv/text/text.h"
#include "conv/transposed.h"

namespace convlab {
namespace {

// Reasons and kinds that a file may invent.
constexpr std::size_t most_remarks = 40, most_kinds = 20, most_shown = 60, most_libraries = 4;

}  // namespace

std::int64_t ConvLog::runs() const {
  std::int64_t sum = 0;
  for (const LoggedConv& conv : convs) sum += conv.count;
  return sum;
}

double ConvLog::ms() const {
  double sum = 0;
  for (const LoggedConv& conv : convs) sum += conv.ms;
  return sum;
}

std::string show(const LogRemark& r) {
  return fmt::format("{}, first in line {}: {}", r.count, r.first_line, r.reason);
}

std::string quoted_part(std::string_view text) {
  return printable(text.substr(0, most_shown)) + (text.size() > most_shown ? "..." : "");
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value > ProblemReader::largest_number) return {};
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator, std::size_t most) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < most) {
    const std::size_t end = text.find(separator);
    if (end == text.npos) break;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

void LogSink::at_line(std::int64_t number) {
  line_ = number;
  part_ = 0;
}

void LogSink::found(const std::string& library) {
  // A version tells more than the name alone.
  for (const std::string& known : libraries_)
    if (known.starts_with(library)) return;
  std::erase_if(libraries_, [&](const std::string& known) { return library.starts_with(known); });
  if (libraries_.size() < most_libraries) libraries_.push_back(library);
}

LogSink::Run LogSink::add(const ConvProblem& p, bool transposed, std::optional<double> ms) {
  try {
    validate(p);
  } catch (const InputError&) {
    skip(impossible_sizes);
    return no_run;
  }
  Part& part = parts_[part_];
  const std::string key = fmt::format(
      "{}{} {} {} {}{}{}", transposed ? transposed_prefix : "", to_text(p), to_string(p.pass),
      to_string(p.dtype), p.epilogue.bias ? "b" : "", p.epilogue.residual ? "s" : "",
      p.epilogue.activation ? to_string(*p.epilogue.activation) : "");
  const auto [place, fresh] = part.places.try_emplace(key, part.convs.size());
  if (fresh) {
    part.convs.emplace_back();
    part.convs.back().problem = p;
    part.convs.back().transposed = transposed;
  }
  LoggedConv& conv = part.convs[place->second];
  ++conv.count;
  if (ms) {
    ++conv.timed;
    conv.ms += *ms;
  }
  return place->second;
}

void LogSink::add_time(Run run, double ms) {
  if (run == no_run) return;
  LoggedConv& conv = parts_[0].convs[run];
  ++conv.timed;
  conv.ms += ms;
}

void LogSink::Remarks::add(const std::string& reason, std::int64_t count, std::int64_t line) {
  const bool full = list.size() >= most_remarks && !places.contains(reason);
  const auto [place, fresh] = places.try_emplace(full ? "other reasons" : reason, list.size());
  if (fresh) list.push_back({place->first, 0, line});
  list[place->second].count += count;
}

void LogSink::skip(const std::string& reason) { parts_[part_].skipped.add(reason, 1, line_); }

void LogSink::simplify(const std::string& reason) {
  parts_[part_].simplified.add(reason, 1, line_);
}

void LogSink::other(std::string_view kind) {
  if (others_.empty()) first_other_ = line_;
  std::string name = quoted_part(kind);
  if (others_.size() >= most_kinds && !others_.contains(name)) name = "others";
  ++others_[name];
}

ConvLog LogSink::finish(const std::string& name) {
  if (libraries_.empty())
    throw InputError(
        fmt::format("'{}' is not a log that convlab reads: expected oneDNN's (ONEDNN_VERBOSE=1), "
                    "MIOpen's (MIOPEN_ENABLE_LOGGING_CMD=1) or cuDNN's (CUDNN_LOGINFO_DBG=1)",
                    name));
  ConvLog log;
  log.source = fmt::format("{}", fmt::join(libraries_, " and "));
  log.only_prepared = parts_[0].convs.empty() && parts_[0].skipped.list.empty();
  Part& part = parts_[log.only_prepared ? 1 : 0];
  log.convs = std::move(part.convs);
  log.simplified = std::move(part.simplified.list);
  if (!others_.empty()) {
    std::int64_t sum = 0;
    std::vector<std::string> kinds;
    for (const auto& [kind, count] : others_) {
      sum += count;
      kinds.push_back(fmt::format("{} {}", kind, count));
    }
    part.skipped.list.push_back(
        {fmt::format("not convolutions ({})", fmt::join(kinds, ", ")), sum, first_other_});
  }
  log.skipped = std::move(part.skipped.list);
  std::sort(log.skipped.begin(), log.skipped.end(),
            [](const LogRemark& a, const LogRemark& b) { return a.first_line < b.first_line; });
  if (!log.convs.empty()) return log;
  std::string why;
  if (!log.skipped.empty()) why = ": skipped " + show(log.skipped.front());
  if (log.skipped.size() > 1)
    why += fmt::format("; and {}", counted(log.skipped.size() - 1, "other reason"));
  throw InputError(fmt::format("'{}' is a log of {} without a convolution that convlab takes{}",
                               name, log.source, why));
}

ConvLog read_log(std::string_view text, const std::string& name) {
  LogSink sink;
  OnednnReader onednn;
  MiopenReader miopen;
  CudnnReader cudnn;
  const std::array<LogReader*, 3> readers{&onednn, &miopen, &cudnn};
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
    sink.at_line(number);
    for (LogReader* reader : readers)
      if (reader->take(line, sink)) break;
  }
  for (LogReader* reader : readers) reader->end(sink);
  return sink.finish(name);
}

}  // namespace convlab
