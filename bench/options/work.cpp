#include "bench/options/work.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "bench/logs/log.h"
#include "bench/options/targets.h"
#include "bench/output.h"
#include "bench/reports/report.h"
#include "conv/error.h"
#include "conv/text/counted.h"
#include "conv/text/problem_reader.h"
#include "conv/text/text.h"
#include "conv/text/text_file.h"

namespace convlab {
namespace {

// Flags that choose what a log has chosen already.
void refuse_with_log(const CommonOptions& o) {
  if (!o.batches.empty())
    throw InputError(
        "--batch: a log's problems have their own: drop it, or write them by `convlab list --from "
        "FILE --format problems` and tune that @FILE");
  if (!o.layer.empty()) throw InputError("--layer: a log names no layers: drop it");
  if (!o.dims.empty()) throw InputError("--dim: a log's sizes are numbers: drop it");
  if (o.recompute) throw InputError("--recompute: a log holds convolutions only: drop it");
}

TuneItem item_of(const LoggedConv& conv) {
  TuneItem item;
  item.layer.problem = conv.problem;
  item.layer.transposed = conv.transposed;
  item.layer.count = conv.count;
  if (conv.timed == conv.count) item.log_ms = conv.ms;
  return item;
}

bool is_wanted(const TuneItem& item, const CommonOptions& o) {
  const Problem& p = item.layer.problem;
  return std::find(o.passes.begin(), o.passes.end(), item.layer.pass()) != o.passes.end() &&
         (!o.dtype_given || p.dtype() == o.dtype);
}

// "fwd, bwd_d; f32", what the items are of.
std::string kinds_of(const std::vector<TuneItem>& items) {
  std::vector<std::string_view> passes, types;
  for (const Pass pass : all_passes)
    if (std::any_of(items.begin(), items.end(),
                    [&](const TuneItem& i) { return i.layer.pass() == pass; }))
      passes.push_back(to_string(pass));
  for (const DType type : all_dtypes)
    if (std::any_of(items.begin(), items.end(),
                    [&](const TuneItem& i) { return i.layer.problem.dtype() == type; }))
      types.push_back(to_string(type));
  return fmt::format("{}; {}", fmt::join(passes, ", "), fmt::join(types, ", "));
}

std::string summary(const ConvLog& log) {
  const std::int64_t runs = log.runs();
  std::string text =
      fmt::format("{}, {} of {}", log.source,
                  log.only_prepared ? counted(runs, "preparation") : counted(runs, "run"),
                  counted(log.convs.size(), "convolution and pass", "convolutions and passes"));
  if (log.ms() > 0) text += fmt::format(", {} ms", show_ms(log.ms()));
  return text;
}

Work work_of_log(const CommonOptions& o, const DeviceInfo& device) {
  refuse_with_log(o);
  const std::string name = printable(o.from == "-" ? "stdin" : o.from);
  const ConvLog log = naming("--from", [&] {
    return read_log(read_text_file(o.from, "a log of oneDNN, MIOpen or cuDNN"), name);
  });
  Work work;
  work.about.emplace_back("log", fmt::format("{}, {}", name, summary(log)));
  say(fmt::format("{}: {}", name, summary(log)));
  // A field for each word, since names of fields are unique.
  const auto tell = [&](const char* word, const std::string& what) {
    say(fmt::format("{}: {} {}", name, word, what));
    const std::string field = fmt::format("log_{}", word);
    for (auto& [known, value] : work.about)
      if (known == field) {
        value += "; " + what;
        return;
      }
    work.about.emplace_back(field, what);
  };
  if (log.only_prepared)
    tell("holds", "no runs, only preparations: each counts as one run without a time");
  for (const LogRemark& remark : log.skipped) tell("skipped", show(remark));
  for (const LogRemark& remark : log.simplified) tell("simplified", show(remark));

  std::int64_t untimed = 0, too_large = 0;
  for (const LoggedConv& conv : log.convs) {
    if (conv.timed < conv.count && conv.timed > 0) untimed += conv.count;
    if (required_bytes(conv.problem) > double(device.memory_bytes)) {
      too_large += conv.count;
      continue;
    }
    work.items.push_back(item_of(conv));
  }
  if (untimed > 0)
    tell("lacks", fmt::format("a time of some runs: {} of their rows are not compared",
                              counted(untimed, "run")));
  if (too_large > 0)
    tell("skipped", fmt::format("{}: tensors and their reference need more than the {} of this "
                                "machine",
                                too_large, show_bytes(device.memory_bytes)));
  if (work.items.empty())
    throw InputError(fmt::format("--from: '{}' holds nothing that fits into memory", name));
  const std::string kinds = kinds_of(work.items);
  std::erase_if(work.items, [&](const TuneItem& item) { return !is_wanted(item, o); });
  if (work.items.empty())
    throw InputError(fmt::format(
        "--from: '{}' holds nothing of this --pass and --dtype: expected some of {}", name, kinds));
  return work;
}

}  // namespace

void add_from(CLI::App& app, CommonOptions& o) {
  add_text(app, "--from", o.from,
           "In place of TARGETs, the convolutions that a program ran: its log of oneDNN "
           "(ONEDNN_VERBOSE=1), MIOpen (MIOPEN_ENABLE_LOGGING_CMD=1) or cuDNN "
           "(CUDNN_LOGINFO_DBG=1); - is stdin. --pass and --dtype keep what they name",
           "FILE");
}

void require_work(const CommonOptions& o, const std::string& verb, const std::string& example) {
  if (o.targets.empty() && o.from.empty())
    throw InputError(fmt::format("{}: no target: expected {}, or --from and a log", verb, example));
  if (!o.targets.empty() && !o.from.empty())
    throw InputError(
        fmt::format("{}: '{}' and --from: expected TARGETs or a log", verb, o.targets.front()));
}

Work resolve_work(const CommonOptions& o, const DeviceInfo& device) {
  if (o.from.empty()) return {resolve_targets(o, device), {}};
  return work_of_log(o, device);
}

std::string problem_lines(const Work& work, const Provenance& origin) {
  struct Line {
    std::int64_t count = 0;
    // By pass and type: runs, and "bias+relu" of each kind of them.
    std::map<std::pair<Pass, DType>, std::pair<std::int64_t, std::vector<std::string>>> kinds;
    double log_ms = 0;
  };
  std::vector<std::pair<std::string, Line>> lines;
  std::map<std::string, std::size_t> places;
  for (const TuneItem& item : work.items) {
    const LayerProblem& layer = item.layer;
    const std::string key = fmt::format("{} {}", layer.text(), layer.name);
    const auto [place, fresh] = places.try_emplace(key, lines.size());
    if (fresh) lines.emplace_back(layer.text() + "\n" + layer.name, Line());
    Line& line = lines[place->second].second;
    auto& [count, extras] = line.kinds[{layer.pass(), layer.problem.dtype()}];
    count += layer.count;
    if (const std::string more = extras_of(layer.problem); !more.empty()) extras.push_back(more);
    line.log_ms += item.log_ms;
    line.count = std::max(line.count, count);
  }
  std::string text;
  for (const auto& fields : {origin.fields, work.about})
    for (const auto& [name, value] : fields)
      if (name == "command" || name.starts_with("log"))
        text += fmt::format("# {}: {}\n", name, printable(value));
  text += fmt::format("# passes and types: {}\n", kinds_of(work.items));
  for (const auto& [what, line] : lines) {
    const std::size_t end = what.find('\n');
    text += what.substr(0, end) + to_text(LayerName{what.substr(end + 1), line.count}) + "  #";
    for (const auto& [kind, runs] : line.kinds) {
      text += fmt::format(" {} {} x{}", to_string(kind.first), to_string(kind.second), runs.first);
      for (const std::string& extras : runs.second) text += " " + extras;
    }
    if (line.log_ms > 0) text += fmt::format(", {} ms", show_ms(line.log_ms));
    text += '\n';
  }
  return text;
}

}  // namespace convlab
