#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "autotune/store/store.h"
#include "bench/json_text.h"
#include "bench/options/choice.h"
#include "bench/options/options.h"
#include "bench/options/targets.h"
#include "bench/output.h"
#include "bench/reports/tune_cells.h"
#include "bench/text.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/text/counted.h"
#include "conv/text/text_file.h"
#include "conv/transposed.h"

namespace convlab {
namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> files;  // merge, import
  std::string problem;
  std::vector<std::string> algos;
  std::vector<Status> statuses;
  std::string before;
  bool stale = false, damaged = false, dry_run = false;
};

Store open_existing(const Options& o) { return Store(db_path(o.common), Store::Open::existing); }

// Canonicalises the problem as stored rows have it. This happens after the flags are parsed,
// because a misspelt flag's value would be taken for a problem.
Options with_canonical_problem(Options o) {
  if (o.problem.empty()) return o;
  const LayerProblem layer = parse_one_problem(o.problem);
  o.problem = to_text(layer.problem);
  if (layer.transposed)
    for (Pass& pass : o.common.passes) pass = transposed(pass);
  return o;
}

// The ids that the names match, as everywhere else, in this build or in the store, which may have
// algorithms that the build lacks.
std::vector<std::string> named_algos(const std::vector<std::string>& names,
                                     const std::vector<StoreRow>& rows, const Algos& all) {
  std::set<std::string> known, families;
  for (const StoreRow& row : rows) known.insert(row.candidate.algo);
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda})
    for (const AlgoRef& algo : all.for_device(kind)) {
      known.insert(algo.info().id);
      if (!algo.info().family.empty()) families.insert(algo.info().family);
    }
  std::vector<std::string> ids;
  for (const std::string& name : names) {
    const std::size_t before = ids.size();
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda})
      for (const AlgoRef& algo : all.for_device(kind))
        if (is_named(algo.info(), name)) ids.push_back(algo.info().id);
    for (const std::string& id : known)
      if (stands_for(name, id)) ids.push_back(id);
    if (ids.size() > before) continue;
    throw InputError(
        fmt::format("--algos: unknown algorithm '{}': expected one of {}, or a family: {}", name,
                    fmt::join(known, ", "), fmt::join(families, ", ")));
  }
  return ids;
}

bool matches(const StoreRow& row, const Options& o) {
  const auto contains = [](const auto& list, const auto& value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  return (o.problem.empty() || to_text(row.problem) == o.problem) &&
         contains(o.common.passes, row.problem.pass()) &&
         (!o.common.dtype_given || row.problem.dtype() == o.common.dtype) &&
         contains(o.algos, row.candidate.algo) && contains(o.statuses, row.candidate.status) &&
         (o.before.empty() || row.date < o.before);
}

Cell time_of(const Candidate& c) { return c.ms > 0 ? time_cell(c) : Cell(); }

Report full_report(const std::vector<StoreRow>& rows) {
  Report report;
  report.columns = {"problem", "pass",      "epilogue", "dtype",  "algo",   "version",
                    "config",  "layouts",   "threads",  "cache",  "status", "predicted",
                    "ms",      "rel_error", "date",     "commit", "reason"};
  for (const StoreRow& row : rows) {
    const Candidate& c = row.candidate;
    const bool ran = c.status == Status::ok || c.status == Status::inaccurate;
    report.rows.push_back({to_text(row.problem), to_string(row.problem.pass()),
                           extras_of(row.problem), to_string(row.problem.dtype()), c.algo,
                           std::int64_t(c.version), c.config.text(), show_layouts(c),
                           std::int64_t(c.threads), to_string(c.cache), to_string(c.status),
                           std::int64_t(c.predicted), time_of(c),
                           ran ? error_cell(c.rel_error) : Cell(), row.date, row.commit, c.reason});
  }
  return report;
}

// Distinguishes rows whose problem, algorithm and config are the same.
std::vector<std::string> particulars(const StoreRow& row) {
  const Candidate& c = row.candidate;
  return {extras_of(row.problem),
          show_layouts(c),
          std::string(to_string(row.problem.dtype())),
          counted(c.threads, "thread"),
          std::string(to_string(c.cache)),
          fmt::format("version {}", c.version),
          row.fingerprint};
}

// For a terminal: shows only the particulars of a config in which its rows differ.
Report narrow_report(const std::vector<StoreRow>& rows) {
  const auto key = [](const StoreRow& row) {
    return std::tuple(to_text(row.problem), row.problem.pass(), row.candidate.algo,
                      row.candidate.config.text());
  };
  std::map<decltype(key(rows[0])), std::vector<std::set<std::string>>> groups;
  for (const StoreRow& row : rows) {
    std::vector<std::set<std::string>>& seen = groups[key(row)];
    const std::vector<std::string> all = particulars(row);
    seen.resize(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) seen[i].insert(all[i]);
  }
  Report report;
  report.width = terminal_width;
  report.columns = {"problem", "pass", "algo", "status", "ms", "config"};
  for (const StoreRow& row : rows) {
    const Candidate& c = row.candidate;
    const std::vector<std::set<std::string>>& seen = groups.at(key(row));
    const std::vector<std::string> all = particulars(row);
    std::vector<std::string> words;
    if (!c.config.values().empty()) words.push_back(c.config.text());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (seen[i].size() > 1 && !all[i].empty()) words.push_back(all[i]);
    report.rows.push_back({to_text(row.problem), to_string(row.problem.pass()), c.algo,
                           to_string(c.status), time_of(c),
                           fmt::format("{}", fmt::join(words, " "))});
  }
  return report;
}

int show(const Options& given) {
  Options o = with_canonical_problem(given);
  Output output(o.common.output);
  const Store store = open_existing(o);
  std::vector<StoreRow> rows = store.rows();
  Algos algos;
  append_all_algos(algos);
  o.algos = named_algos(o.algos, rows, algos);
  const std::size_t total = rows.size();
  std::erase_if(rows, [&](const StoreRow& row) { return !matches(row, o); });
  const bool narrow = o.common.format == Format::table && !o.common.wide;
  Report report = narrow ? narrow_report(rows) : full_report(rows);
  report.notes = {
      fmt::format("{}: {} of {}", store.path().string(), rows.size(), counted(total, "row"))};
  output.write(render(report, o.common.format));
  return 0;
}

// Empty unless this build knows the row's algorithm, and not for problems of this kind.
std::string wrong_kind(const StoreRow& row, const Algos& algos) {
  const std::vector<AlgoRef> all = algos.for_device(device_kind(row.fingerprint));
  const auto has_id = [&](const AlgoRef& algo) { return algo.info().id == row.candidate.algo; };
  const auto found = std::find_if(all.begin(), all.end(), has_id);
  if (found == all.end() || found->is_for(row.problem)) return "";
  return fmt::format("{} {}: {} is not an algorithm of {}", to_text(row.problem),
                     to_string(row.problem.pass()), row.candidate.algo,
                     row.problem.conv() ? "convolutions" : "recurrent layers");
}

int verify(const Options& o) {
  std::string text;
  int code = 1;
  try {
    const Store store = open_existing(o);
    std::vector<std::string> wrong = store.verify();
    if (wrong.empty()) {
      Algos algos;
      append_all_algos(algos);
      for (const StoreRow& row : store.rows())
        if (const std::string why = wrong_kind(row, algos); !why.empty())
          wrong.push_back(why + ": `convlab db prune --stale` deletes it");
    }
    for (const std::string& line : wrong) text += line + "\n";
    if (wrong.empty()) {
      text =
          fmt::format("{}: {}, all sound\n", store.path().string(), counted(store.size(), "row"));
      code = 0;
    }
  } catch (const DamagedStore& error) {
    // SQLite's part of the message may have several lines.
    text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    text += "\n";
  }
  Output(std::string()).write(text);
  return code;
}

void print_merged(const std::string& source, const Store& store, const Store::Merged& merged) {
  Output(std::string())
      .write(fmt::format("{} into {}: {} rows added, {} replaced by newer ones, {} kept\n", source,
                         store.path().string(), merged.added, merged.replaced, merged.kept));
}

// Decided by the first non-blank character.
bool is_json_file(const std::string& path) {
  std::ifstream file(path);
  char first = 0;
  return file >> first && first == '{';
}

int merge(const Options& o) {
  // All sources are opened before anything is written.
  std::vector<Store> sources;
  for (const std::string& file : o.files) {
    if (is_json_file(file))
      throw InputError(fmt::format(
          "{} is JSON: expected a tuning store; `convlab db import` takes what `convlab db export` "
          "wrote",
          file));
    sources.emplace_back(file, Store::Open::existing);
  }
  Store store(db_path(o.common));
  for (const Store& source : sources)
    print_merged(source.path().string(), store, store.merge(source));
  return 0;
}

int export_rows(const Options& o) {
  Output output(o.common.output);
  output.write(export_json(open_existing(o).rows()));
  return 0;
}

void require_right_kinds(const std::vector<StoreRow>& rows) {
  Algos algos;
  append_all_algos(algos);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const std::string why = wrong_kind(rows[i], algos); !why.empty())
      throw InputError(fmt::format("row {}: {}", i, why));
}

int import_rows(const Options& o) {
  std::vector<StoreRow> rows;
  for (const std::string& path : o.files) {
    const std::string text = read_text_file(path, "a file that `convlab db export` wrote");
    require_json(text, path, "what `convlab db export` writes");
    try {
      const std::vector<StoreRow> read = import_json(text);
      require_right_kinds(read);
      rows.insert(rows.end(), read.begin(), read.end());
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", path, error.what()));
    }
  }
  Store store(db_path(o.common));
  print_merged(fmt::format("{}", fmt::join(o.files, ", ")), store, store.merge(rows));
  return 0;
}

// Rows of algorithm versions that this build no longer has, of unknown algorithms, or timed by
// another protocol. A build without a backend cannot judge that backend's rows.
bool is_stale(const StoreRow& row, const Algos& algos) {
  const DeviceKind kind = device_kind(row.fingerprint);
  const std::vector<AlgoRef> known = algos.for_device(kind);
  if (known.empty()) return false;
  const bool is_known = std::any_of(known.begin(), known.end(), [&](const AlgoRef& algo) {
    return algo.is_for(row.problem) && algo.info().id == row.candidate.algo &&
           algo.info().version == row.candidate.version;
  });
  return !is_known || row.protocol != current_protocol();
}

// "direct 3, fft 12"
std::string count_algos(const std::vector<StoreRow>& rows) {
  std::map<std::string, int> counts;
  for (const StoreRow& row : rows) ++counts[row.candidate.algo];
  std::vector<std::string> words;
  for (const auto& [algo, count] : counts) words.push_back(fmt::format("{} {}", algo, count));
  return fmt::format("{}", fmt::join(words, ", "));
}

// A merge would refuse damaged rows.
std::string undo_note(const Store& store, bool damaged) {
  const std::string undo = shell_word(store.undo_path().string());
  const std::string path = shell_word(store.path().string());
  return damaged ? fmt::format("to undo: cp {} {}\n", undo, path)
                 : fmt::format("to undo: convlab db merge {} --db {}\n", undo, path);
}

int prune_damaged(const Options& o) {
  Store store = open_existing(o);
  Output output{std::string()};
  if (o.dry_run) {
    std::string text;
    for (const std::string& line : store.verify()) text += line + "\n";
    output.write(text + fmt::format("{}: a dry run: nothing was removed\n", store.path().string()));
    return 0;
  }
  const auto [removed, rebuilt] = store.prune_damaged();
  output.write(fmt::format("{}: {} removed, {} left\n{}{}", store.path().string(),
                           counted(removed, "damaged row"), store.size(),
                           rebuilt ? "the index was damaged, and was made anew\n" : "",
                           removed > 0 || rebuilt ? undo_note(store, true) : ""));
  return 0;
}

int prune(const Options& given) {
  Options o = with_canonical_problem(given);
  const bool filtered = o.stale || !o.problem.empty() ||
                        o.common.passes.size() != all_passes.size() || o.common.dtype_given ||
                        !o.algos.empty() || !o.statuses.empty() || !o.before.empty();
  if (o.damaged && filtered)
    throw InputError("db prune: a damaged row matches no filter: give --damaged alone");
  if (o.damaged) return prune_damaged(o);
  if (!filtered)
    throw InputError(
        "db prune: no filter: expected a problem, --stale, --damaged, --pass, --dtype, --algos, "
        "--status or --before");
  Algos algos;
  append_all_algos(algos);
  Store store = open_existing(o);
  std::vector<StoreRow> going = store.rows();
  o.algos = named_algos(o.algos, going, algos);
  const auto goes = [&](const StoreRow& row) {
    return matches(row, o) && (!o.stale || is_stale(row, algos));
  };
  std::erase_if(going, [&](const StoreRow& row) { return !goes(row); });
  Output output{std::string()};
  const std::string path = store.path().string();
  if (going.empty()) {
    output.write(
        fmt::format("{}: nothing matched: 0 of {} removed\n", path, counted(store.size(), "row")));
    return 0;
  }
  if (o.dry_run) {
    Report report = narrow_report(going);
    report.notes = {fmt::format("{}: {} of {} would be removed", path, going.size(),
                                counted(store.size(), "row"))};
    output.write(render(report, Format::table));
    return 0;
  }
  const std::int64_t removed = store.prune(goes);
  output.write(fmt::format("{}: {} removed ({}), {} left\n{}", path, counted(removed, "row"),
                           count_algos(going), store.size(),
                           removed > 0 ? undo_note(store, false) : ""));
  return 0;
}

void add_filters(CLI::App& app, Options& o) {
  add_text(app, "PROBLEM", o.problem, "Rows of this problem only: mb1ic64ih56oc64oh56kh3ph1", "");
  add_passes(app, o.common);
  add_dtype(app, o.common, "Rows of this type only: f32, f64, f16 or bf16");
  add_parsed(
      app, "--algos", [&o](const std::string& text) { o.algos = split_list(text); },
      "Rows of these algorithms only, by id or family: winograd,onednn", "ID,...");
  add_parsed(
      app, "--status",
      [&o](const std::string& text) {
        o.statuses.clear();
        for (const std::string& item : split_list(text)) o.statuses.push_back(parse_status(item));
      },
      "Rows with these outcomes only: ok, refused, failed, inaccurate, timeout, dropped",
      "STATUS,...");
  add_parsed(
      app, "--before", [&o](const std::string& text) { o.before = parse_date(text); },
      "Rows older than this UTC date only, as in 2026-01-31", "DATE");
}

}  // namespace

VerbAction declare_db(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  const auto chosen = std::make_shared<VerbAction>();
  const auto add = [&](const char* name, const char* summary, int (*act)(const Options&)) {
    CLI::App* const sub = app.add_subcommand(name, summary);
    sub->footer("");
    add_db(*sub, o->common);
    sub->callback([o, chosen, act] { *chosen = [o, act] { return act(*o); }; });
    return sub;
  };
  CLI::App* sub = add("show", "Lists the stored rows, one a candidate", show);
  add_filters(*sub, *o);
  add_wide(*sub, o->common, "type, layouts, threads, cache, error, date, commit and reason");
  add_output(*sub, o->common, {"table", "csv", "json", "md"});
  add("verify", "Is the file sound? Exits 1 if the store is damaged", verify);
  sub = add("merge", "Take over the rows of other stores; the newer row wins", merge);
  sub->add_option("FILE", o->files, "Stores")->required()->type_name("");
  sub = add("export", "All rows as JSON", export_rows);
  add_parsed(
      *sub, "--output",
      [o](const std::string& path) {
        format_of_suffix(path, {"json"});
        o->common.output = path;
      },
      "Write there instead of to stdout, all or nothing", "FILE");
  sub = add("import", "Take over exported rows; the newer row wins", import_rows);
  sub->add_option("FILE", o->files, "Files that `convlab db export` wrote")
      ->required()
      ->type_name("");
  sub = add("prune", "Forget rows that match every filter given; leaves a copy beside the store",
            prune);
  add_filters(*sub, *o);
  add_flag(*sub, "--stale", o->stale,
           "Rows of algorithms, or versions of them, that this build does not have, and rows "
           "measured by a former protocol; not those of a device that this build does not know");
  add_flag(*sub, "--damaged", o->damaged, "Rows in which verify finds impossible values");
  add_flag(*sub, "--dry-run", o->dry_run, "Only say which rows would go");
  app.footer(
      "Examples:\n"
      "  convlab db show mb1ic64ih56oc64oh56kh3ph1 --pass fwd --wide\n"
      "  convlab db show --algos winograd --format csv\n"
      "  convlab db verify\n"
      "  convlab db export --output tuned.json    then, elsewhere: convlab db import tuned.json\n"
      "  convlab db merge colleague.db --db team.db\n"
      "  convlab db prune --stale --dry-run\n"
      "  convlab db prune --status failed,timeout --before 2026-01-31\n"
      "convlab db SUBVERB --help shows its flags.");
  return [chosen] {
    if (!*chosen)
      throw InputError("db: expected one of show, verify, merge, export, import, prune");
    return (*chosen)();
  };
}

}  // namespace convlab
