#include "bench/reports/nets/scaling_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/options/network_options.h"
#include "bench/reports/trace_events.h"
#include "conv/text/bytes.h"

namespace convlab {

using namespace nets;
namespace {

using Json = trace::Json;

constexpr double ms_per_s = 1e3;

double images_per_s(const ScalingTable& table, const ScalingPoint& p) {
  return double(p.scenario.workers) * double(table.worker.batch) / p.simulation.iteration_s;
}

// The share of the exchange that other work hides.
template <class Exchange>  // simulated or measured
double hidden(const Exchange& e) {
  return e.exchange_s > 0 ? std::max(1 - e.exposed_s / e.exchange_s, 0.0) : 1;
}

double predicted_over_measured(const ScalingPoint& p) {
  return p.simulation.iteration_s / p.measured->iteration_s;
}

bool has_measured(const ScalingTable& table) {
  return std::any_of(table.points.begin(), table.points.end(),
                     [](const ScalingPoint& p) { return p.measured.has_value(); });
}

std::string exposed_from(const ScalingTable& table, const ScalingPoint& p) {
  const std::optional<std::size_t> layer = p.simulation.exposed_from;
  return layer ? table.worker.layers[*layer].name : "";
}

double sum_s(const WorkerTimes& worker, double LayerTimes::*part) {
  double sum = 0;
  for (const LayerTimes& layer : worker.layers) sum += layer.*part;
  return sum;
}

std::int64_t gradient_bytes(const WorkerTimes& worker) {
  std::int64_t sum = 0;
  for (const LayerTimes& layer : worker.layers) sum += layer.gradient_bytes;
  return sum;
}

// ---- Tables ----

Cell bucket_cell(std::int64_t bytes) { return bytes > 0 ? bytes_cell(bytes) : Cell("layer"); }

// For people. One worker, which exchanges nothing, has one row.
Report reading_table(const ScalingTable& table) {
  Report report;
  report.width = terminal_width;
  report.columns = {"workers", "exchange", "ms",     "images/s", "speedup",     "%",
                    "t_comm",  "exposed",  "bucket", "batch",    "exposed from"};
  for (const ScalingPoint& p : table.points) {
    const Simulation& s = p.simulation;
    const bool alone = p.scenario.workers == 1;
    if (alone && p.scenario.strategy != table.strategies.front()) continue;
    std::vector<Cell> row{p.scenario.workers,
                          alone ? Cell() : Cell(to_string(p.scenario.strategy)),
                          ms_cell(ms_per_s * s.iteration_s),
                          Cell(images_per_s(table, p), show_images_per_s(images_per_s(table, p))),
                          Cell(p.speedup, fmt::format("{:.2f}", p.speedup)),
                          Cell(100 * p.efficiency, fmt::format("{:.1f}", 100 * p.efficiency))};
    if (!alone)
      row.insert(row.end(), {ms_cell(ms_per_s * s.exchange_s), ms_cell(ms_per_s * s.exposed_s),
                             bucket_cell(p.scenario.bucket_bytes),
                             p.hiding_batch ? Cell(*p.hiding_batch) : Cell::without_value("none"),
                             exposed_from(table, p)});
    row.resize(report.columns.size());
    report.rows.push_back(std::move(row));
  }
  return report;
}

// For people: what ranks took, after what was predicted for them.
Report measured_table(const ScalingTable& table) {
  Report report;
  report.width = terminal_width;
  report.columns = {"ranks",  "exchange", "ms",     "measured", "ratio",
                    "t_comm", "measured", "hidden", "measured", "bucket"};
  const auto percent = [](double share) {
    return Cell(share, fmt::format("{:.0f}%", 100 * share));
  };
  for (const ScalingPoint& p : table.points) {
    if (!p.measured) continue;
    const Simulation& s = p.simulation;
    const MeasuredExchange& m = *p.measured;
    const double ratio = predicted_over_measured(p);
    report.rows.push_back({p.scenario.workers, to_string(p.scenario.strategy),
                           ms_cell(ms_per_s * s.iteration_s), ms_cell(ms_per_s * m.iteration_s),
                           Cell(ratio, fmt::format("{:.2f}", ratio)),
                           ms_cell(ms_per_s * s.exchange_s), ms_cell(ms_per_s * m.exchange_s),
                           percent(hidden(s)), percent(hidden(m)), bucket_cell(m.bucket_bytes)});
  }
  report.notes = {
      "measured: by these ranks, beside what is simulated for them; ratio: predicted "
      "over measured ms"};
  return report;
}

Report full_table(const ScalingTable& table) {
  Report report;
  report.columns = {"workers", "exchange",     "bucket_bytes", "ms",         "images_per_s",
                    "speedup", "efficiency",   "exchange_ms",  "exposed_ms", "hidden",
                    "batch",   "hiding_batch", "exposed_from"};
  const bool measured = has_measured(table);
  if (measured)
    report.columns.insert(report.columns.end(), {"measured_ms", "ratio", "measured_exchange_ms",
                                                 "measured_exposed_ms", "measured_hidden"});
  const auto exact = [](double value) { return Cell(value, ""); };
  for (const ScalingPoint& p : table.points) {
    const Simulation& s = p.simulation;
    report.rows.push_back(
        {p.scenario.workers, to_string(p.scenario.strategy), p.scenario.bucket_bytes,
         exact(ms_per_s * s.iteration_s), exact(images_per_s(table, p)), exact(p.speedup),
         exact(p.efficiency), exact(ms_per_s * s.exchange_s), exact(ms_per_s * s.exposed_s),
         exact(hidden(s)), table.worker.batch, p.hiding_batch ? Cell(*p.hiding_batch) : Cell(),
         exposed_from(table, p)});
    if (const auto& m = p.measured)
      report.rows.back().insert(
          report.rows.back().end(),
          {exact(ms_per_s * m->iteration_s), exact(predicted_over_measured(p)),
           exact(ms_per_s * m->exchange_s), exact(ms_per_s * m->exposed_s), exact(hidden(*m))});
    report.rows.back().resize(report.columns.size());
  }
  return report;
}

std::string show_link(const Network& n) {
  return fmt::format("{}, {} and {}", to_string(n.topology), show_latency(n.link.latency_s),
                     show_bandwidth(n.link.bytes_per_s));
}

std::string show_network(const Network& n) {
  std::string text = show_link(n);
  if (n.topology == Topology::hierarchical)
    text += fmt::format(" between hosts; {} workers a host, {} and {} inside", n.workers_per_host,
                        show_latency(n.inside_host.latency_s),
                        show_bandwidth(n.inside_host.bytes_per_s));
  return text;
}

std::vector<std::string> notes(const ScalingTable& table) {
  const WorkerTimes& w = table.worker;
  std::vector<std::string> notes{
      fmt::format("worker   {} at batch {}: t_io {}, t_h2d {}, t_f {}, t_b {}, t_u {} ms; {} "
                  "of gradients",
                  table.net, w.batch, show_ms(ms_per_s * w.io_s), show_ms(ms_per_s * w.h2d_s),
                  show_ms(ms_per_s * sum_s(w, &LayerTimes::forward_s)),
                  show_ms(ms_per_s * sum_s(w, &LayerTimes::backward_s)),
                  show_ms(ms_per_s * w.update_s), show_bytes(gradient_bytes(w))),
      fmt::format("network  {}{}", show_network(table.network),
                  table.network_measured ? ", as measured between the ranks" : "")};
  if (table.contention.compute < 1 || table.contention.exchange < 1)
    notes.push_back(
        fmt::format("at once  compute goes on at {:.0f}% of its speed, the exchange at {:.0f}%",
                    100 * table.contention.compute, 100 * table.contention.exchange));
  notes.push_back(fmt::format(
      "ms: of a simulated iteration; t_comm: the network is busy; batch: the smallest a "
      "worker with which at most {:.0f}% of ms are exposed, if compute grows with it",
      100 * hidden_share));
  notes.insert(notes.end(), table.notes.begin(), table.notes.end());
  return notes;
}

// ---- JSON ----

Json link_json(const Link& link) {
  return {{"latency_s", link.latency_s}, {"bytes_per_s", link.bytes_per_s}};
}

std::string render_json(const ScalingTable& table) {
  const WorkerTimes& w = table.worker;
  const Network& n = table.network;
  Json json{
      {"convlab_scaling", scaling_format},
      {"provenance", Json::object()},
      {"net", {{"name", table.net}, {"batch", w.batch}, {"dtype", to_string(table.dtype)}}},
      {"worker",
       {{"t_io", ms_per_s * w.io_s},
        {"t_h2d", ms_per_s * w.h2d_s},
        {"t_f", ms_per_s * sum_s(w, &LayerTimes::forward_s)},
        {"t_b", ms_per_s * sum_s(w, &LayerTimes::backward_s)},
        {"t_u", ms_per_s * w.update_s},
        {"gradient_bytes", gradient_bytes(w)},
        {"layers", Json::array()}}},
      {"network", {{"topology", to_string(n.topology)}, {"measured", table.network_measured}}},
      {"points", Json::array()},
      {"notes", notes(table)}};
  for (const auto& [name, value] : table.provenance.fields) json["provenance"][name] = value;
  for (const LayerTimes& layer : w.layers)
    json["worker"]["layers"].push_back({{"layer", layer.name},
                                        {"fwd_ms", ms_per_s * layer.forward_s},
                                        {"bwd_ms", ms_per_s * layer.backward_s},
                                        {"gradient_bytes", layer.gradient_bytes}});
  json["network"].update(link_json(n.link));
  json["network"]["shares_at_once"] = {{"compute", table.contention.compute},
                                       {"exchange", table.contention.exchange}};
  if (n.topology == Topology::hierarchical) {
    json["network"]["workers_per_host"] = n.workers_per_host;
    json["network"]["inside_host"] = link_json(n.inside_host);
  }
  for (const ScalingPoint& p : table.points) {
    const Simulation& s = p.simulation;
    Json point{{"workers", p.scenario.workers},
               {"exchange", to_string(p.scenario.strategy)},
               {"bucket_bytes", p.scenario.bucket_bytes},
               {"ms", ms_per_s * s.iteration_s},
               {"images_per_s", images_per_s(table, p)},
               {"speedup", p.speedup},
               {"efficiency", p.efficiency},
               {"exchange_ms", ms_per_s * s.exchange_s},
               {"exposed_ms", ms_per_s * s.exposed_s},
               {"hidden", hidden(s)},
               {"exposed_from", nullptr},
               {"hiding_batch", nullptr}};
    if (s.exposed_from) point["exposed_from"] = exposed_from(table, p);
    if (p.hiding_batch) point["hiding_batch"] = *p.hiding_batch;
    if (const auto& m = p.measured)
      point["measured"] = {{"ms", ms_per_s * m->iteration_s},
                           {"ratio", predicted_over_measured(p)},
                           {"exchange_ms", ms_per_s * m->exchange_s},
                           {"exposed_ms", ms_per_s * m->exposed_s},
                           {"hidden", hidden(*m)}};
    json["points"].push_back(std::move(point));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// ---- Charts ----

const ScalingPoint& best_of_most_workers(const ScalingTable& table) {
  const std::int64_t most = table.last().scenario.workers;
  return *std::max_element(table.points.begin(), table.points.end(),
                           [&](const ScalingPoint& a, const ScalingPoint& b) {
                             const auto rank = [&](const ScalingPoint& p) {
                               return p.scenario.workers == most ? p.speedup : -1;
                             };
                             return rank(a) < rank(b);
                           });
}

std::string headline(const ScalingTable& table) {
  const ScalingPoint& best = best_of_most_workers(table);
  return fmt::format("{}, {} images a worker: {} workers are worth {:.1f} with {}", table.net,
                     table.worker.batch, best.scenario.workers, best.speedup,
                     to_string(best.scenario.strategy));
}

// Colours that the colour-blind tell apart (Okabe and Ito 2008).
std::string line_style(Strategy strategy, ChartKind kind) {
  constexpr const char* colours[] = {"#0072B2", "#D55E00", "#009E73"};
  constexpr const char* letters[] = {"o", "a", "s"};
  const auto i = std::size_t(strategy);
  if (kind == ChartKind::text) return fmt::format("with points pt '{}'", letters[i]);
  return fmt::format("with linespoints lw 2 pt {} lc rgb '{}'", 5 + 2 * i, colours[i]);
}

// Numbers of workers are spaced evenly, whatever they are.
std::string chart_script(const ScalingTable& table, ChartKind kind) {
  std::string script = "$data << EOD\n";
  const std::size_t lines = table.strategies.size();
  for (std::size_t i = 0; i < table.points.size(); i += lines) {
    script += fmt::format("{} {}", i / lines, table.points[i].scenario.workers);
    for (std::size_t line = 0; line < lines; ++line)
      script += fmt::format(" {:.6g}", 100 * table.points[i + line].efficiency);
    script += "\n";
  }
  script += fmt::format("EOD\n{}set xlabel {}\nset yrange [0:105]\nset xrange [-0.3:{}]\nplot ",
                        chart_titles(headline(table), "efficiency in %", kind),
                        gnuplot_quoted(fmt::format("workers; {}", show_link(table.network))),
                        double(table.points.size()) / double(lines) - 0.7);
  for (std::size_t line = lines; line-- > 0;)  // the first over the others
    script += fmt::format("{}$data using 1:{}:xtic(2) {} title {}", line + 1 < lines ? ", " : "",
                          line + 3, line_style(table.strategies[line], kind),
                          gnuplot_quoted(to_string(table.strategies[line])));
  return script + "\n";
}

// ---- Timeline ----

std::string name_of(const ScalingTable& table, const Task& task) {
  const auto layer = [&](std::size_t i) -> const std::string& {
    return table.worker.layers[i].name;
  };
  const std::string kind(to_string(task.kind));
  switch (task.kind) {
    case TaskKind::io:
    case TaskKind::h2d:
    case TaskKind::update:
      return kind;
    case TaskKind::forward:
    case TaskKind::backward:
      return fmt::format("{} {}", layer(task.first_layer), kind);
    case TaskKind::all_reduce:
    case TaskKind::push:
    case TaskKind::pull:
      break;
  }
  if (task.first_layer == task.last_layer)
    return fmt::format("{} {}", kind, layer(task.last_layer));
  return fmt::format("{} {} .. {}", kind, layer(task.first_layer), layer(task.last_layer));
}

}  // namespace

ScalingPoint scaling_point(const WorkerTimes& worker, const Scenario& scenario,
                           std::optional<std::int64_t> bucket_bytes) {
  ScalingPoint p;
  p.scenario = scenario;
  p.scenario.bucket_bytes = bucket_bytes ? *bucket_bytes : best_bucket(worker, scenario);
  p.simulation = simulate(worker, p.scenario);
  Scenario alone = scenario;
  alone.workers = 1;
  p.speedup =
      double(scenario.workers) * simulate(worker, alone).iteration_s / p.simulation.iteration_s;
  p.efficiency = p.speedup / double(scenario.workers);
  if (scenario.workers > 1) p.hiding_batch = hiding_batch(worker, scenario, bucket_bytes);
  return p;
}

std::string render(const ScalingTable& table, Format format) {
  if (format == Format::json) return render_json(table);
  Report report = format == Format::csv ? full_table(table) : reading_table(table);
  report.notes = notes(table);
  report.provenance = table.provenance;
  const std::string text = render(report, format);
  if (format == Format::csv || !has_measured(table)) return text;
  return render(measured_table(table), format) + "\n" + text;
}

std::string text_chart_script(const ScalingTable& table, int columns) {
  return fmt::format("set terminal dumb {} 22 noenhanced\nset key outside\n", columns) +
         chart_script(table, ChartKind::text);
}

std::string svg_chart_script(const ScalingTable& table) {
  return "set terminal svg size 900,420 noenhanced font 'sans-serif,13' background '#ffffff'\n"
         "set key outside\nset grid ytics\n" +
         chart_script(table, ChartKind::picture);
}

std::string render_trace(const ScalingTable& table) {
  constexpr std::int64_t most_ranks = 4;
  Json events = Json::array();
  int process = 0;
  for (const ScalingPoint& p : table.points) {
    if (p.scenario.workers != table.last().scenario.workers) continue;
    for (std::int64_t rank = 0; rank < std::min(p.scenario.workers, most_ranks); ++rank) {
      ++process;
      events.push_back(
          trace::name_event("process_name", {process, 0},
                            fmt::format("{}: rank {} of {}", to_string(p.scenario.strategy), rank,
                                        p.scenario.workers)));
      std::vector<Lane> named;
      for (const Task& task : p.simulation.tasks) {
        if (task.end_s == task.begin_s) continue;
        const trace::Row row{process, int(task.lane)};
        if (std::find(named.begin(), named.end(), task.lane) == named.end()) {
          named.push_back(task.lane);
          events.push_back(
              trace::name_event("thread_name", row, std::string(to_string(task.lane))));
        }
        Json args{{"iteration", task.iteration}};
        if (task.bytes > 0) args["bytes"] = task.bytes;
        events.push_back(trace::slice(row, name_of(table, task), std::string(to_string(task.kind)),
                                      task.begin_s, task.end_s, std::move(args)));
      }
    }
  }
  return trace::render(std::move(events), table.provenance);
}

}  // namespace convlab
