#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>

#include "autotune/measure.h"
#include "bench/options.h"
#include "bench/output.h"
#include "bench/result_file.h"
#include "bench/verbs.h"
#include "conv/error.h"

namespace convlab {
namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> files;
  double threshold = 0.02;
};

// With fewer samples on a side an interval says nothing.
constexpr std::size_t least_samples = 5;

enum class Change : std::uint8_t { same, faster, slower, flipped };
constexpr std::array<const char*, 4> change_names{"SAME", "FASTER", "SLOWER", "FLIPPED"};

// One row of both files.
struct Pair {
  const ResultRow *a, *b;
  std::array<double, 3> ratio{};  // B's ms over A's: low, middle, high; low and high 0 without
                                  // samples, all 0 when one side has no time
  bool slower = false;            // beyond the threshold, or no longer working
  Change change = Change::same;
};

Pair compare(const ResultRow& a, const ResultRow& b, double threshold) {
  Pair pair{&a, &b};
  const bool interval = std::min(a.samples_ms.size(), b.samples_ms.size()) >= least_samples;
  if (a.ms && b.ms && *a.ms > 0) {
    if (interval)
      pair.ratio = paired_ratio(b.samples_ms, a.samples_ms, 1);
    else
      pair.ratio[1] = *b.ms / *a.ms;
  }
  const auto& [low, middle, high] = pair.ratio;
  pair.slower = (middle > 1 + threshold && (!interval || low > 1)) || (a.ms && !b.ms);
  const bool faster = middle > 0 && middle < 1 / (1 + threshold) && (!interval || high < 1);
  pair.change = a.algo != b.algo ? Change::flipped
                : pair.slower    ? Change::slower
                : faster         ? Change::faster
                                 : Change::same;
  return pair;
}

void require_comparable(const ResultFile& a, const ResultFile& b) {
  if (a.family != b.family)
    throw InputError(fmt::format("{} holds a {} and {} a {}: expected two of a kind", a.path,
                                 a.family, b.path, b.family));
  if (a.subject != b.subject)
    throw InputError(
        fmt::format("{} is about {}, {} about {}: expected the same net, batch, mode "
                    "and type",
                    a.path, a.subject, b.path, b.subject));
}

std::vector<std::string> warnings(const ResultFile& a, const ResultFile& b) {
  std::vector<std::string> lines;
  const auto differ = [&](const char* what, const std::string& in_a, const std::string& in_b) {
    if (in_a != in_b && !in_a.empty() && !in_b.empty())
      lines.push_back(fmt::format("Different {}: A {}, B {}.", what, in_a, in_b));
  };
  differ("machines", a.machine, b.machine);
  differ("settings", a.setting, b.setting);
  return lines;
}

std::string names_of(const std::vector<const ResultRow*>& rows) {
  constexpr std::size_t most = 3;
  std::vector<std::string> names;
  for (const ResultRow* row : rows)
    if (names.size() < most) names.push_back(row->name);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     rows.size() > most ? fmt::format(" and {} more", rows.size() - most) : "");
}

struct Comparison {
  std::vector<Pair> pairs;  // in A's order
  std::vector<const ResultRow*> only_a, only_b;
};

Comparison compare(const ResultFile& a, const ResultFile& b, double threshold) {
  require_comparable(a, b);
  // A setting that a whole file shares is no part of what its rows are.
  const auto key = [](const ResultRow& row) { return row.key + " " + row.setting; };
  std::map<std::string, const ResultRow*> in_b;
  for (const ResultRow& row : b.rows) in_b.emplace(key(row), &row);
  Comparison all;
  std::map<std::string, bool> met;
  for (const ResultRow& row : a.rows) {
    if (!met.emplace(key(row), true).second) continue;  // a layer that two nets share
    const auto found = in_b.find(key(row));
    if (found == in_b.end())
      all.only_a.push_back(&row);
    else
      all.pairs.push_back(compare(row, *found->second, threshold));
  }
  for (const ResultRow& row : b.rows)
    if (met.emplace(key(row), true).second) all.only_b.push_back(&row);
  if (all.pairs.empty())
    throw InputError(
        fmt::format("{} and {} have no row in common: one begins with {}, the other "
                    "with {}",
                    a.path, b.path, a.rows.front().key, b.rows.front().key));
  return all;
}

std::vector<std::string> notes(const Comparison& all, const Options& o) {
  std::vector<std::string> notes;
  std::array<int, 4> counts{};
  int flipped_slower = 0, without_samples = 0;
  double sum_a = 0, sum_b = 0;
  std::vector<double> unchanged;
  for (const Pair& pair : all.pairs) {
    ++counts[std::size_t(pair.change)];
    flipped_slower += pair.change == Change::flipped && pair.slower;
    without_samples += pair.ratio[1] > 0 && pair.ratio[0] == 0;
    if (pair.ratio[1] <= 0) continue;
    sum_a += double(pair.a->count) * *pair.a->ms;
    sum_b += double(pair.a->count) * *pair.b->ms;
    if (pair.a->choice == pair.b->choice) unchanged.push_back(pair.ratio[1]);
  }
  notes.push_back(
      fmt::format("{} FASTER, {} SLOWER, {} SAME within {}%, {} FLIPPED{}", counts[1], counts[2],
                  counts[0], 100 * o.threshold, counts[3],
                  flipped_slower > 0 ? fmt::format(" ({} slower)", flipped_slower) : ""));
  if (sum_a > 0)
    notes.push_back(fmt::format("In all {} ms in A, {} ms in B: {:.2f}x.", show_ms(sum_a),
                                show_ms(sum_b), sum_b / sum_a));
  if (unchanged.size() >= least_samples)
    notes.push_back(
        fmt::format("Over the {} rows with the same choice in both the middle B/A is "
                    "{:.2f}.",
                    unchanged.size(), median(unchanged)));
  if (without_samples > 0)
    notes.push_back(
        fmt::format("{} rows have too few samples for an interval: there only the "
                    "threshold decides.",
                    without_samples));
  for (const auto& [file, rows] : {std::pair{"A", &all.only_a}, std::pair{"B", &all.only_b}})
    if (!rows->empty()) notes.push_back(fmt::format("Only in {}: {}.", file, names_of(*rows)));
  return notes;
}

Cell ratio_cell(double value) {
  return value > 0 ? Cell(value, fmt::format("{:.2f}", value)) : Cell();
}

Report report(const Comparison& all) {
  Report report;
  report.columns = {"what", "A_ms", "B_ms", "B/A", "low", "high", "verdict", "A", "B"};
  for (const Pair& pair : all.pairs) {
    const ResultRow &a = *pair.a, &b = *pair.b;
    const auto time = [](const ResultRow& row) { return row.ms ? ms_cell(*row.ms) : Cell(); };
    const auto choice = [](const ResultRow& row) {
      return row.ms || !row.choice.empty() ? row.choice : "nothing works";
    };
    report.rows.push_back({a.setting.empty() ? a.name : fmt::format("{} ({})", a.name, a.setting),
                           time(a), time(b), ratio_cell(pair.ratio[1]), ratio_cell(pair.ratio[0]),
                           ratio_cell(pair.ratio[2]), change_names[std::size_t(pair.change)],
                           choice(a), choice(a) == choice(b) ? "" : choice(b)});
  }
  return report;
}

int run(const Options& o) {
  if (o.files.size() != 2)
    throw InputError(
        fmt::format("diff: {} file{}: expected two, the one before and the one after, "
                    "as in `convlab diff before.json after.json`",
                    o.files.size(), o.files.size() == 1 ? "" : "s"));
  Output output(o.common.output);
  const ResultFile a = read_result_file(o.files[0]), b = read_result_file(o.files[1]);
  const Comparison all = compare(a, b, o.threshold);
  Report table = report(all);
  table.notes = warnings(a, b);
  for (const std::string& line : table.notes) fmt::print(stderr, "convlab: {}\n", line);
  for (std::string& line : notes(all, o)) table.notes.push_back(std::move(line));
  table.provenance.fields = {{"A", a.path}, {"B", b.path}};
  for (const auto& field : command_provenance().fields) table.provenance.fields.push_back(field);
  output.write(render(table, o.common.format));
  return std::any_of(all.pairs.begin(), all.pairs.end(), [](const Pair& p) { return p.slower; });
}

double parse_percentage(const std::string& text) {
  const std::optional<double> percent =
      text.ends_with('%') ? parse_number(text.substr(0, text.size() - 1)) : std::nullopt;
  if (!percent || *percent < 0)
    throw InputError(fmt::format("'{}': expected a percentage from 0% on, as in 2%", text));
  return *percent / 100;
}

}  // namespace

VerbAction declare_diff(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_texts(app, "FILE", o->files, "The results before and those after");
  add_parsed(
      app, "--threshold", [o](const std::string& text) { o->threshold = parse_percentage(text); },
      "By how much a row must have changed to be FASTER or SLOWER; default: 2%", "PERCENT");
  add_output(app, o->common, {"table", "csv", "json", "md"});
  set_footer(
      app,
      "Compares two result files of a kind: the JSON of tune, bench, sweep or roofline and tuning\n"
      "stores; the JSON of time; or plans. Exits with 1 when any row became slower by more than "
      "the\n"
      "threshold or stopped working, so that a build can depend on it.\n\n"
      "B/A is the time after over the time before. Where both files have samples, low and high\n"
      "are its 95% interval, paired round by round, and a change counts only if the interval\n"
      "excludes 1. FLIPPED: another algorithm was chosen. Other machines, threads or cache modes "
      "are\n"
      "compared, with a warning; another net, batch or type is refused.\n\n"
      "Examples:\n"
      "  convlab diff before.json after.json\n"
      "  convlab diff before.json after.json --threshold 5% --format md     for a review\n"
      "  convlab diff main.db branch.db --format csv --output changes.csv");
  return [o] { return run(*o); };
}

}  // namespace convlab
