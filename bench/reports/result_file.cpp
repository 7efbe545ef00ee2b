#include "bench/reports/result_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "autotune/race/race.h"
#include "autotune/store/store.h"
#include "bench/json_text.h"
#include "bench/options/choice.h"
#include "bench/reports/nets/time_report.h"
#include "bench/reports/roofline/roofline_data.h"
#include "bench/reports/sweep_report.h"
#include "bench/reports/tune_report.h"
#include "conv/error.h"
#include "conv/text/counted.h"
#include "conv/text/text_file.h"
#include "nets/plan/plan.h"

namespace convlab {

using namespace nets;
namespace {

using nlohmann::json;

std::string joined(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : " ") + part;
  return text;
}

std::string show_setting(std::int64_t threads, const std::string& cache) {
  return fmt::format("{}, {}", counted(threads, "thread"), cache);
}

std::string problem_key(const std::string& problem, const std::string& pass,
                        const std::string& dtype) {
  return joined({problem, pass, dtype});
}

// "layer1.0.conv1 n=16 fwd"; f32 is the default and not shown.
std::string problem_name(const std::string& layer, const std::string& problem,
                         const std::string& pass, const std::string& dtype) {
  const std::string what =
      layer.empty() ? problem : fmt::format("{} n={}", layer, parse_layer(problem).problem.batch());
  return joined({what, pass, dtype == "f32" ? "" : dtype});
}

std::string show_layouts(const json& layouts) {
  if (layouts.empty()) return "";  // a recurrent layer's
  const auto x = layouts.at(0).get<std::string>(), y = layouts.at(1).get<std::string>();
  return x == y ? x : fmt::format("{}>{}", x, y);
}

std::string machine_of(const json& provenance) {
  const bool card = provenance.contains("gpu");
  return fmt::format("{}, {}", provenance.at(card ? "gpu" : "cpu").get<std::string>(),
                     provenance.at("isa").get<std::string>());
}

// ---- One problem a row: tune, bench, sweep ----

RowTimes times_of(const json& measured) {
  return {measured.at("ms").get<double>(), measured.value("process_ms", std::vector<double>()),
          measured.value("samples_ms", std::vector<double>())};
}

// Costs as in the race: packing the filter counts where it is part of a training step.
RowTimes cost_of(const json& candidate, bool count_packing) {
  RowTimes times = times_of(candidate);
  const json pack = candidate.value("pack_ms", json());
  if (!count_packing || !pack.is_number()) return times;
  const auto process_pack_ms = candidate.value("process_pack_ms", std::vector<double>());
  times.ms += pack.get<double>();
  for (double& ms : times.samples_ms) ms += pack.get<double>();
  for (std::size_t i = 0; i < times.process_ms.size(); ++i)
    times.process_ms[i] += i < process_pack_ms.size() ? process_pack_ms[i] : pack.get<double>();
  return times;
}

std::string choice_of(const json& candidate) {
  return joined({candidate.at("algo").get<std::string>(), candidate.at("config").get<std::string>(),
                 show_layouts(candidate.at("layouts"))});
}

// Timed in rounds. A prediction or a single sample has a spread of 0.
bool is_timed(const json& candidate) {
  const std::string status = candidate.value("status", "");
  return (status == "ok" || status == "dropped") && !candidate.value("predicted", false) &&
         (!candidate.value("process_ms", json::array()).empty() ||
          candidate.value("mad_ms", 0.0) > 0);
}

ResultRow layer_row(const json& layer, bool training) {
  const auto text = [&](const char* field) { return layer.at(field).get<std::string>(); };
  const std::string problem = text("problem"), pass = text("pass"), dtype = text("dtype");
  ResultRow row;
  row.key = problem_key(problem, pass, dtype);
  row.name = problem_name(text("layer"), problem, pass, dtype);
  row.count = layer.at("count").get<std::int64_t>();
  std::string extras;  // as extras_of has them for a store's rows
  for (const std::string extra : {"training", "recompute"})
    if (layer.value(extra, false)) extras += "+" + extra;
  if (const std::string epilogue = layer.value("epilogue", ""); !epilogue.empty())
    extras += "+" + epilogue;
  row.key = joined({row.key, extras});
  row.name = joined({row.name, extras});
  if (const json point = layer.value("point", json::object()); point.contains("layout")) {
    row.key = joined({row.key, point.at("layout").get<std::string>()});
    row.name = joined({row.name, point.at("layout").get<std::string>()});
  }
  const bool count_packing = training && pass != to_string(Pass::backward_filter);
  const json& chosen = layer.at("chosen");
  const json& candidates = layer.at("candidates");
  if (const json& any = chosen.is_null() && !candidates.empty() ? candidates.at(0) : chosen;
      !any.is_null())
    row.setting =
        show_setting(any.at("threads").get<std::int64_t>(), any.at("cache").get<std::string>());
  for (const json& candidate : candidates)
    if (is_timed(candidate))
      row.rivals.push_back({candidate.at("algo").get<std::string>(), choice_of(candidate),
                            cost_of(candidate, count_packing)});
  if (chosen.is_null()) return row;
  const std::string verdict = layer.value("verdict", "");
  row.predicted = verdict == to_string(Verdict::predicted);
  row.unsure = verdict == to_string(Verdict::unsure);
  row.algo = chosen.at("algo").get<std::string>();
  row.choice = choice_of(chosen);
  row.times = cost_of(chosen, count_packing);
  return row;
}

void read_layers(const json& file, ResultFile& result) {
  result.family = "results of layers";
  result.machine = machine_of(file.at("provenance"));
  const json& layers = file.at("layers");
  const bool training = std::any_of(layers.begin(), layers.end(), [](const json& layer) {
    return layer.at("pass").get<std::string>() != to_string(Pass::forward);
  });
  result.packing = training ? "counted" : "left out";
  for (const json& layer : layers) result.rows.push_back(layer_row(layer, training));
}

// ---- A roofline: the points that were chosen ----

void read_roofline(const std::string& text, ResultFile& result) {
  result.family = "results of layers";
  result.packing = "left out";
  const RooflineReport report = roofline_from_json(text, "its points");
  json provenance = json::object();
  for (const auto& [name, value] : report.provenance) provenance[name] = value;
  result.machine = machine_of(provenance);
  for (const RooflinePoint& p : report.points) {
    if (!p.chosen) continue;
    ResultRow row;
    row.key = problem_key(p.problem, p.pass, p.dtype);
    row.name = problem_name(p.layer, p.problem, p.pass, p.dtype);
    row.setting = show_setting(p.threads, p.cache);
    row.algo = p.algo;
    row.choice = joined({p.algo, p.config, p.layouts});
    row.count = p.count;
    row.times = {p.ms, {}, p.samples_ms};
    row.unsure = p.verdict == to_string(Verdict::unsure);
    result.rows.push_back(std::move(row));
  }
}

// ---- A timed net ----

void read_time(const json& file, ResultFile& result) {
  result.family = "the times of a net";
  const json& net = file.at("net");
  const auto text = [&](const char* field) { return net.at(field).get<std::string>(); };
  result.subject = fmt::format("{}, batch {}, {}, {}", text("name"),
                               net.at("batch").get<std::int64_t>(), text("mode"), text("dtype"));
  if (const auto streams = net.value("streams", std::int64_t(1)); streams > 1)
    result.subject += fmt::format(", {} streams", streams);
  const json& provenance = file.at("provenance");
  result.machine = machine_of(provenance);
  const auto threads = provenance.at("threads").get<std::string>();
  const std::string setting = threads + (threads == "1" ? " thread" : " threads");

  // A run stopped before its first whole iteration has no times.
  ResultRow whole;
  whole.key = whole.name = "iteration";
  whole.setting = setting;
  whole.count = 0;  // its parts follow
  whole.times = times_of(file.at("iteration"));
  if (whole.times->ms > 0) result.rows.push_back(std::move(whole));
  for (const json& step : file.at("steps"))
    for (const auto& [phase, entry] : step.at("phases").items()) {
      if (entry.at("ms").get<double>() <= 0) continue;  // nothing to do in this phase
      ResultRow row;
      row.key = row.name = joined({step.at("layer").get<std::string>(), phase});
      row.setting = setting;
      row.algo = entry.value("algo", "");
      if (!row.algo.empty())
        row.choice = joined(
            {row.algo, entry.at("config").get<std::string>(), show_layouts(step.at("layouts"))});
      row.times = times_of(entry);
      result.rows.push_back(std::move(row));
    }
}

// ---- A plan: expected times ----

void read_plan(const std::string& text, ResultFile& result) {
  const NetPlan plan = plan_from_json(text, "its plan");
  result.family = "a plan";
  result.subject = fmt::format("{}, batch {}, {}, {}", plan.net, plan.batch, to_string(plan.mode),
                               to_string(plan.dtype));
  result.machine = plan.machine;
  for (const StepPlan& step : plan.steps)
    for (const Pass pass : all_passes)
      if (const std::optional<PassPlan>& chosen = step.passes[std::size_t(pass)]) {
        Candidate layouts;
        layouts.x_layout = step.x_layout;
        layouts.y_layout = step.y_layout;
        ResultRow row;
        row.key = row.name = joined({step.layer, std::string(to_string(pass))});
        row.setting = counted(plan.threads, "thread");
        row.algo = chosen->algo;
        row.choice = joined({row.algo, chosen->config.text(), show_layouts(layouts)});
        row.times = {chosen->ms, {}, {}};
        row.predicted = !chosen->measured;
        result.rows.push_back(std::move(row));
      }
}

// ---- A store: many candidates a problem, perhaps of several versions and machines ----

// "cpu=AMD EPYC 9R45; isa=avx512; l1=..." -> "AMD EPYC 9R45, avx512"
std::string machine_of_fingerprint(const std::string& fingerprint) {
  const auto field = [&](std::size_t begin) {
    const std::size_t equals = fingerprint.find('=', begin);
    const std::size_t end = std::min(fingerprint.find(';', begin), fingerprint.size());
    return equals < end ? fingerprint.substr(equals + 1, end - equals - 1) : fingerprint;
  };
  const std::size_t second = fingerprint.find("; isa=");
  return second == std::string::npos
             ? fingerprint
             : fmt::format("{}, {}", field(0), field(second + std::string_view("; ").size()));
}

RowTimes times_of(const Candidate& c) { return {c.ms, c.process_ms, c.samples_ms}; }

bool is_timed(const Candidate& c) {
  return (c.status == Status::ok || c.status == Status::dropped) && !c.predicted &&
         (!c.process_ms.empty() || c.mad_ms > 0);
}

// Dropped candidates work. They lost to one that is no longer in the store or did not finish.
std::optional<std::size_t> fastest_dropped(const std::vector<Candidate>& candidates) {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& c = candidates[i];
    if (c.status == Status::dropped && !c.predicted && c.ms > 0 &&
        (!fastest || c.ms < candidates[*fastest].ms))
      fastest = i;
  }
  return fastest;
}

void read_store(const std::vector<StoreRow>& rows, ResultFile& result) {
  result.family = "results of layers";
  result.packing = "left out";
  // If a candidate was measured again, as another version or by another build, the newest counts.
  struct Problem {
    ResultRow row;
    std::map<std::string, const StoreRow*> candidates;
  };
  std::vector<Problem> problems;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places;
  for (const StoreRow& stored : rows) {
    const Candidate& c = stored.candidate;
    Problem problem;
    std::string extras = extras_of(stored.problem);
    if (!extras.empty()) extras = "+" + extras;
    const std::string text = to_text(stored.problem), pass(to_string(stored.problem.pass())),
                      dtype(to_string(stored.problem.dtype()));
    problem.row.key = joined({problem_key(text, pass, dtype), extras});
    problem.row.name = joined({problem_name("", text, pass, dtype), extras});
    problem.row.setting = show_setting(c.threads, std::string(to_string(c.cache)));
    problem.row.machine = machine_of_fingerprint(stored.fingerprint);
    const auto [place, fresh] = places.try_emplace(
        {problem.row.key, problem.row.setting, problem.row.machine}, problems.size());
    if (fresh) problems.push_back(std::move(problem));
    const StoreRow*& newest = problems[place->second].candidates[show_choice(c)];
    if (!newest || newest->date < stored.date) newest = &stored;
  }
  for (Problem& problem : problems) {
    std::vector<Candidate> candidates;
    ResultRow& row = problem.row;
    for (const auto& [name, stored] : problem.candidates) {
      const Candidate& c = candidates.emplace_back(stored->candidate);
      if (is_timed(c)) row.rivals.push_back({c.algo, name, times_of(c)});
    }
    Decision decision = decide(candidates, false);
    if (!decision.chosen) decision.chosen = fastest_dropped(candidates);
    if (decision.chosen) {
      const Candidate& c = candidates[*decision.chosen];
      row.algo = c.algo;
      row.choice = show_choice(c);
      row.times = times_of(c);
      row.unsure = decision.verdict == Verdict::unsure;
      row.predicted = c.predicted;
    }
    result.rows.push_back(std::move(row));
  }
}

// ---- The kind of file ----

struct Kind {
  const char* member;  // "convlab_tune": version
  int version;
  std::function<void(const json&, const std::string& text, ResultFile&)> read;
};

const std::vector<Kind>& kinds() {
  const auto layers = [](const json& file, const std::string&, ResultFile& result) {
    read_layers(file, result);
  };
  static const std::vector<Kind> kinds{
      {"convlab_tune", tune_format, layers},
      {"convlab_sweep", sweep_format, layers},
      {"convlab_roofline", roofline_format,
       [](const json&, const std::string& text, ResultFile& result) {
         read_roofline(text, result);
       }},
      {"convlab_time", time_format,
       [](const json& file, const std::string&, ResultFile& result) { read_time(file, result); }},
      {"convlab_plan", plan_format,
       [](const json&, const std::string& text, ResultFile& result) { read_plan(text, result); }},
      {"convlab_store", store_json_format,
       [](const json&, const std::string& text, ResultFile& result) {
         read_store(import_json(text), result);
       }},
  };
  return kinds;
}

void read_json(const std::string& text, ResultFile& result) {
  const char* const expected =
      "a tuning store, or JSON of tune, bench, sweep, roofline, time or plan";
  require_json(text, result.path, expected);
  const json file = json::parse(text);
  for (const Kind& kind : kinds()) {
    if (!file.is_object() || !file.contains(kind.member)) continue;
    if (file[kind.member] != kind.version)
      throw InputError(fmt::format("{}: {} is of version {}: expected {}", result.path, kind.member,
                                   file[kind.member].dump(), kind.version));
    try {
      kind.read(file, text, result);
    } catch (const json::exception& error) {
      throw InputError(fmt::format("{}: row {}: not what {} {} has: {}", result.path,
                                   result.rows.size(), kind.member, kind.version,
                                   without_json_tag(error.what())));
    } catch (const InputError& error) {
      const std::string what = error.what();  // the message for a problem continues with its place
      throw InputError(fmt::format("{}: row {}: {}", result.path, result.rows.size(),
                                   what.substr(0, what.find('\n'))));
    }
    return;
  }
  throw InputError(fmt::format("{}: expected {}", result.path, expected));
}

// Times are compared as ratios.
void require_positive(const RowTimes& times, const std::string& path, const std::string& name) {
  std::vector<double> all = times.process_ms;
  all.push_back(times.ms);
  all.insert(all.end(), times.samples_ms.begin(), times.samples_ms.end());
  for (const double ms : all)
    if (!(ms > 0))
      throw InputError(fmt::format("{}: {}: {} ms: expected a time above 0", path, name, ms));
}

// Finds what all rows share that say it, and tells it those that do not.
void share(ResultFile& file, std::string ResultRow::*of_row, std::string ResultFile::*of_file) {
  std::set<std::string> values{file.*of_file};
  for (const ResultRow& row : file.rows) values.insert(row.*of_row);
  values.erase("");
  file.*of_file = values.size() == 1 ? *values.begin() : "";
  for (ResultRow& row : file.rows)
    if ((row.*of_row).empty()) row.*of_row = file.*of_file;
}

// Requires rows, with times above 0, and finds what all of them share.
ResultFile checked(ResultFile result) {
  if (result.rows.empty()) throw InputError(fmt::format("{}: has no rows", result.path));
  for (const ResultRow& row : result.rows) {
    if (row.times) require_positive(*row.times, result.path, row.name);
    for (const ResultRival& rival : row.rivals)
      require_positive(rival.times, result.path, row.name);
  }

  share(result, &ResultRow::setting, &ResultFile::setting);
  share(result, &ResultRow::machine, &ResultFile::machine);
  return result;
}

}  // namespace

ResultFile read_result_file(const std::string& path) {
  const std::string text =
      read_text_file(path, "a tuning store, or JSON of tune, bench, sweep, roofline, time or plan");
  if (!text.starts_with("SQLite format 3")) return parse_result_file(text, path);
  ResultFile result;
  result.path = path;
  read_store(Store(path, Store::Open::existing).rows(), result);
  return checked(std::move(result));
}

ResultFile parse_result_file(const std::string& text, const std::string& path) {
  ResultFile result;
  result.path = path;
  read_json(text, result);
  return checked(std::move(result));
}

}  // namespace convlab
