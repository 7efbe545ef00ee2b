#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/options/options.h"
#include "bench/output.h"
#include "bench/reports/comparison.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/text/counted.h"

namespace convlab {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  CommonOptions common;
  std::vector<std::string> files, before, after;
  CompareOptions compare;
  bool wide = false;
};

// ---- The files ----

std::pair<std::vector<std::string>, std::vector<std::string>> sides(const Options& o) {
  const char* const usage =
      "expected BEFORE AFTER, or of several runs --before A1 A2 --after B1 B2";
  if (o.before.empty() && o.after.empty()) {
    if (o.files.size() != 2)
      throw InputError(fmt::format("diff: {}: {}", counted(o.files.size(), "file"), usage));
    return {{o.files[0]}, {o.files[1]}};
  }
  if (!o.files.empty())
    throw InputError(fmt::format("diff: '{}' belongs to neither side: {}", o.files[0], usage));
  if (o.before.empty() || o.after.empty())
    throw InputError(fmt::format("diff: {} without {}: {}",
                                 o.before.empty() ? "--after" : "--before",
                                 o.before.empty() ? "--before" : "--after", usage));
  return {o.before, o.after};
}

// Each file is a run. Counting one twice would narrow the intervals.
std::vector<ResultFile> read_files(const std::vector<std::string>& paths) {
  std::vector<ResultFile> files;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    std::error_code error;
    for (std::size_t j = 0; j < i; ++j)
      if (std::filesystem::equivalent(paths[i], paths[j], error))
        throw InputError(fmt::format(
            "diff: '{}' and '{}' are one file: expected a file for each run", paths[j], paths[i]));
    files.push_back(read_result_file(paths[i]));
  }
  return files;
}

// "A", or "A2" if there are several.
std::string file_name(const char* side, std::size_t i, std::size_t files) {
  return files == 1 ? side : fmt::format("{}{}", side, i + 1);
}

std::vector<std::string> warnings(const std::vector<ResultFile>& a,
                                  const std::vector<ResultFile>& b) {
  std::vector<std::string> lines;
  const auto differ = [&](const char* what, std::string ResultFile::*field) {
    const std::string& first = a.front().*field;
    for (const auto& [side, files] : {std::pair{"A", &a}, std::pair{"B", &b}})
      for (std::size_t i = 0; i < files->size(); ++i)
        if (const std::string& other = (*files)[i].*field;
            other != first && !other.empty() && !first.empty())
          lines.push_back(fmt::format("Different {}: {} {}, {} {}.", what,
                                      file_name("A", 0, a.size()), first,
                                      file_name(side, i, files->size()), other));
  };
  differ("machines", &ResultFile::machine);
  differ("settings", &ResultFile::setting);
  differ("packing", &ResultFile::packing);
  return lines;
}

// ---- Outcome ----

constexpr std::array<const char*, 4> change_names{"SAME", "FASTER", "SLOWER", "not measured"};
constexpr std::array<const char*, 4> flipped_names{"FLIPPED same", "FLIPPED faster",
                                                   "FLIPPED slower", "not measured"};

std::string verdict(const ComparedRow& row) {
  return (row.flipped ? flipped_names : change_names)[std::size_t(row.change)];
}

// If a row's interval extends beyond the threshold, the row has not been shown to be the same.
std::string shown_verdict(const ComparedRow& row) { return verdict(row) + (row.open ? "?" : ""); }

std::string unsure(const ComparedRow& row) {
  return row.a.unsure ? row.b.unsure ? "both" : "A" : row.b.unsure ? "B" : "";
}

std::string unsure_mark(const ComparedRow& row) { return unsure(row).empty() ? "" : "*"; }

struct Summary {
  std::array<int, 4> changed{}, flipped{};  // by Change
  int unsure = 0, assumed = 0;
  int open = 0, open_same = 0;  // all rows, and those that are not flipped
  double a_ms = 0, b_ms = 0;    // over rows measured on both sides
};

Summary summarise(const Comparison& all) {
  Summary s;
  for (const ComparedRow& row : all.rows) {
    const bool flipped = row.flipped && row.change != Change::not_measured;
    ++(flipped ? s.flipped : s.changed)[std::size_t(row.change)];
    s.unsure += !unsure(row).empty();
    s.assumed += row.assumed;
    s.open += row.open;
    s.open_same += row.open && !flipped;
    if (row.ratio[1] <= 0) continue;
    s.a_ms += double(row.a.row->count) * *row.a.ms;
    s.b_ms += double(row.a.row->count) * *row.b.ms;
  }
  return s;
}

// Why the exit code is 1; empty when it is 0.
std::vector<std::string> failures(const Comparison& all) {
  std::vector<std::string> reasons;
  const auto slower = std::count_if(all.rows.begin(), all.rows.end(), [](const ComparedRow& row) {
    return row.change == Change::slower && row.b.ms;
  });
  const auto broken = std::count_if(all.rows.begin(), all.rows.end(), [](const ComparedRow& row) {
    return row.change == Change::slower && !row.b.ms;
  });
  if (all.nothing_measured()) reasons.emplace_back("no row is measured on both sides");
  if (slower > 0) reasons.push_back(fmt::format("{} slower", slower));
  if (broken > 0) reasons.push_back(fmt::format("{} without a working algorithm in B", broken));
  if (!all.only_a.empty()) reasons.push_back(fmt::format("{} missing in B", all.only_a.size()));
  if (const auto gaps = std::count_if(all.gaps.begin(), all.gaps.end(),
                                      [](const Gap& gap) { return gap.side == 'B'; });
      gaps > 0)
    reasons.push_back(fmt::format("{} without a time in one of B's runs", gaps));
  return reasons;
}

std::string drift_note(const Comparison& all, const Options& o) {
  const std::string& control = o.compare.control;
  const std::string what = control.empty()
                               ? counted(all.drift.rows, "row") + " of equal algorithm and config"
                               : fmt::format("{} of {}", all.drift.rows, control);
  if (!all.drift.removed)
    return fmt::format("Drift is left in: {} in all files, expected {} or more.", what,
                       least_drift_rows);
  return fmt::format("Drift of the machine: {:.3f}x, the median of {}, divided out of B/A.",
                     all.drift.ratio, what);
}

void append_missing(std::vector<std::string>& notes, const char* where,
                    const std::vector<const ResultRow*>& rows, const Comparison& all) {
  constexpr std::size_t most = 10;
  for (std::size_t i = 0; i < std::min(most, rows.size()); ++i)
    notes.push_back(fmt::format("Only in {}: {}.", where, all.name_of(*rows[i])));
  if (rows.size() > most)
    notes.push_back(fmt::format("Only in {}: {} more.", where, rows.size() - most));
}

std::string gap_text(const Gap& gap, const Comparison& all) {
  return fmt::format("{} in {}{}: {}", gap.missing ? "Missing" : "Nothing works", gap.side,
                     gap.run + 1, all.name_of(*gap.row));
}

void append_gaps(std::vector<std::string>& notes, const Comparison& all) {
  const std::vector<Gap>& gaps = all.gaps;
  constexpr std::size_t most = 10;
  for (std::size_t i = 0; i < std::min(most, gaps.size()); ++i)
    notes.push_back(gap_text(gaps[i], all) + ".");
  if (gaps.size() > most)
    notes.push_back(fmt::format("Rows without a time in one run: {} more.", gaps.size() - most));
}

std::vector<std::string> notes(const Comparison& all, const Options& o) {
  const Summary s = summarise(all);
  std::vector<std::string> notes;
  notes.push_back(
      fmt::format("{} FASTER, {} SLOWER, {} SAME within {}%{}, {} FLIPPED ({} slower, {} faster)",
                  s.changed[1], s.changed[2], s.changed[0] - s.open_same, 100 * o.compare.threshold,
                  s.open_same > 0 ? fmt::format(", {} SAME?", s.open_same) : "",
                  s.flipped[0] + s.flipped[1] + s.flipped[2], s.flipped[2], s.flipped[1]));
  if (s.open > 0)
    notes.push_back(
        fmt::format("{} of {} {} open: an interval reaches beyond the threshold; more runs a side "
                    "would tell.",
                    s.open, counted(all.rows.size(), "row"), s.open == 1 ? "is" : "are"));
  if (s.changed[3] > 0)
    notes.push_back(fmt::format("{} not measured: a side has only a prediction.", s.changed[3]));
  if (s.unsure > 0)
    notes.push_back(
        fmt::format("* {} UNSURE in A or B: the race had left the choice open.", s.unsure));
  if (s.a_ms > 0)
    notes.push_back(fmt::format("In all {} ms in A, {} ms in B: {:.2f}x.", show_ms(s.a_ms),
                                show_ms(s.b_ms), s.b_ms / s.a_ms));
  notes.push_back(drift_note(all, o));
  notes.push_back(fmt::format("Intervals hold for all rows together with {:.0f}%.",
                              100 * (1 - comparison_error)));
  if (!all.run_spread)
    notes.push_back("Too few rows and runs show how runs differ: that is not in the intervals.");
  else if (*all.run_spread > 0)
    notes.push_back(fmt::format(
        "Rows differ by {:.1f}% from run to run, as their scatter shows: that is in the intervals.",
        100 * *all.run_spread));
  if (s.assumed > 0)
    notes.push_back(fmt::format(
        "{} under {} processes or runs a side: {:.0f}% between them is assumed "
        "(--before, --after).",
        counted(s.assumed, "row has", "rows have"), least_values, 100 * assumed_spread));
  append_missing(notes, "A", all.only_a, all);
  append_missing(notes, "B", all.only_b, all);
  append_gaps(notes, all);
  if (const std::vector<std::string> reasons = failures(all); !reasons.empty())
    notes.push_back(fmt::format("FAILED: {}.", fmt::join(reasons, ", ")));
  return notes;
}

Json summary_json(const Comparison& all, const Options& o, std::size_t runs_a, std::size_t runs_b) {
  const Summary s = summarise(all);
  const auto names = [&](const std::vector<const ResultRow*>& rows) {
    Json json = Json::array();
    for (const ResultRow* row : rows) json.push_back(all.name_of(*row));
    return json;
  };
  Json gaps = Json::array();
  for (const Gap& gap : all.gaps) gaps.push_back(gap_text(gap, all));
  return {{"exit_code", all.fails() ? 1 : 0},
          {"reasons", failures(all)},
          {"threshold", o.compare.threshold},
          {"runs", {{"A", runs_a}, {"B", runs_b}}},
          {"counts",
           {{"FASTER", s.changed[1]},
            {"SLOWER", s.changed[2]},
            {"SAME", s.changed[0]},
            {"FLIPPED faster", s.flipped[1]},
            {"FLIPPED slower", s.flipped[2]},
            {"FLIPPED same", s.flipped[0]},
            {"not measured", s.changed[3]},
            {"unsure", s.unsure},
            {"open", s.open},
            {"assumed_spread", s.assumed}}},
          {"drift",
           {{"removed", all.drift.removed},
            {"ratio", all.drift.ratio},
            {"control", o.compare.control},
            {"references", all.drift.rows}}},
          {"run_spread", all.run_spread ? Json(*all.run_spread) : Json()},
          {"totals", {{"A_ms", s.a_ms}, {"B_ms", s.b_ms}}},
          {"only_A", names(all.only_a)},
          {"only_B", names(all.only_b)},
          {"gaps", gaps}};
}

// ---- Tables ----

Cell ratio_cell(double value) {
  return value > 0 ? Cell(value, fmt::format("{:.2f}", value)) : Cell();
}

Cell time_cell(const ComparedSide& side) {
  if (!side.ms) return {};
  return {*side.ms, (side.measured ? "" : "~") + show_ms(*side.ms)};
}

std::string choice(const ComparedSide& side) {
  return side.ms || !side.row->choice.empty() ? side.row->choice : "nothing works";
}

Report full_report(const Comparison& all) {
  Report report;
  report.columns = {"what", "A_ms", "B_ms", "B/A", "low", "high", "verdict", "unsure", "A", "B"};
  for (const ComparedRow& row : all.rows)
    report.rows.push_back({all.name_of(*row.a.row), time_cell(row.a), time_cell(row.b),
                           ratio_cell(row.ratio[1]), ratio_cell(row.ratio[0]),
                           ratio_cell(row.ratio[2]),
                           Cell(verdict(row), shown_verdict(row) + unsure_mark(row)), unsure(row),
                           choice(row.a), choice(row.a) == choice(row.b) ? "" : choice(row.b)});
  return report;
}

Report reading_report(const Comparison& all) {
  Report report;
  report.columns = {"what", "A_ms", "B_ms", "B/A", "interval", "verdict", "algorithm"};
  for (const ComparedRow& row : all.rows) {
    const auto algo = [](const ComparedSide& side) {
      return side.ms ? side.row->algo : "nothing works";
    };
    report.rows.push_back(
        {all.name_of(*row.a.row), time_cell(row.a), time_cell(row.b), ratio_cell(row.ratio[1]),
         row.ratio[1] > 0 ? fmt::format("[{:.2f} {:.2f}]", row.ratio[0], row.ratio[2]) : "",
         shown_verdict(row) + unsure_mark(row),
         algo(row.a) == algo(row.b) ? algo(row.a)
                                    : fmt::format("{} > {}", algo(row.a), algo(row.b))});
  }
  return report;
}

std::string render_json(const Report& table, const Json& summary) {
  Json json = Json::parse(render(table, Format::json));
  json["summary"] = summary;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run(const Options& o) {
  const auto [before, after] = sides(o);
  Output output(o.common.output);
  const std::vector<ResultFile> a = read_files(before), b = read_files(after);
  const Comparison all = compare(a, b, o.compare);
  const Format format = o.common.format;
  const bool full = o.wide || format == Format::csv || format == Format::json;
  Report table = full ? full_report(all) : reading_report(all);
  if (!full && format == Format::table) table.width = terminal_width;
  table.notes = warnings(a, b);
  // Only a control distinguishes a slower machine from code that made everything slower.
  if (o.compare.control.empty() && all.drift.ratio > 1 + o.compare.threshold)
    table.notes.push_back(
        fmt::format("Rows of the same algorithm and config took {:.2f}x in B, taken for drift; "
                    "--control onednn tells.",
                    all.drift.ratio));
  for (const std::string& line : table.notes) say(line);
  for (std::string& line : notes(all, o)) table.notes.push_back(std::move(line));
  table.provenance.fields = {{"A", fmt::format("{}", fmt::join(before, ", "))},
                             {"B", fmt::format("{}", fmt::join(after, ", "))}};
  for (const auto& field : command_provenance().fields) table.provenance.fields.push_back(field);
  output.write(format == Format::json ? render_json(table, summary_json(all, o, a.size(), b.size()))
                                      : render(table, format));
  return all.fails() ? 1 : 0;
}

double parse_percentage(const std::string& text) {
  const std::optional<double> percent =
      text.ends_with('%') ? parse_number(text.substr(0, text.size() - 1)) : std::nullopt;
  if (!percent || !(*percent >= 0) || std::isinf(*percent))
    throw InputError(
        fmt::format("'{}': expected a percentage with its sign, 0% or more, as in 2%", text));
  return *percent / 100;
}

}  // namespace

VerbAction declare_diff(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_texts(app, "FILE", o->files, "The results before and those after");
  add_text_list(app, "--before", o->before, "Several runs from before, in place of FILE",
                "FILE...");
  add_text_list(app, "--after", o->after, "Several runs from after", "FILE...");
  add_parsed(
      app, "--threshold",
      [o](const std::string& text) { o->compare.threshold = parse_percentage(text); },
      "The smallest change that is FASTER or SLOWER; default: 2%", "PERCENT");
  add_text(app, "--control", o->compare.control,
           "Take the machine's drift from this algorithm alone: its id, or the part of ids before "
           "the dot: onednn",
           "ID");
  add_flag(app, "--wide", o->wide, "Tables with both sides' configs and layouts as well");
  add_output(app, o->common, {"table", "csv", "json", "md"});
  set_footer(
      app,
      "Compares result files of a kind: the JSON of tune, bench, sweep or roofline and tuning\n"
      "stores; the JSON of time; or plans. Exits with 1 when a row became slower by more than the\n"
      "threshold, stopped working or is missing, in one of several runs too, or when no row is\n"
      "measured on both sides, so that a build can depend on it.\n\n"
      "B/A is the time after over the time before. A row is SLOWER when the whole interval of B/A\n"
      "lies beyond the threshold, FASTER when it lies below. The intervals come from how runs\n"
      "differ, or with one file a side the worker processes in it, and all of them together hold\n"
      "with 99%. Where a side has fewer than three of these, processes are taken to differ by 5%:\n"
      "only large changes show. With fewer than three runs a side, how runs differ comes from the\n"
      "scatter of all rows. SAME? is a row whose interval reaches beyond the threshold: it may\n"
      "have changed.\n\n"
      "The change that all rows share (the median over those with the same algorithm, config and\n"
      "layouts) counts as the machine's drift and is divided out. A change to all rows looks the\n"
      "same: --control onednn takes the drift from an algorithm that did not change. FLIPPED:\n"
      "another algorithm was chosen. UNSURE rows are marked *. Predicted times are not compared.\n"
      "Other machines, threads or cache modes are compared, with a warning; another net, batch or\n"
      "type is refused.\n\n"
      "Examples:\n"
      "  convlab diff before.json after.json\n"
      "  convlab diff --before a1.json a2.json a3.json --after b1.json b2.json b3.json\n"
      "  convlab diff before.json after.json --threshold 5% --format md     for a review\n"
      "  convlab diff main.db branch.db --control onednn --format csv --output changes.csv");
  return [o] { return run(*o); };
}

}  // namespace convlab
