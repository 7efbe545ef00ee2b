#include "autotune/store/row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "conv/error.h"

namespace convlab {
namespace {

using Json = nlohmann::json;

// The last of an epilogue's parts, if that is an activation.
std::optional<ActivationKind> activation_of(std::string_view epilogue) {
  const std::string_view last = epilogue.substr(epilogue.rfind('+') + 1);
  for (const ActivationKind kind : all_activations)
    if (last == to_string(kind)) return kind;
  return {};
}

std::string activation_names() {
  std::vector<std::string_view> names;
  for (const ActivationKind kind : all_activations) names.push_back(to_string(kind));
  return fmt::format("{}", fmt::join(names, ", "));
}

// The inverse of what to_raw makes of a problem.
Problem problem_of(const RawRow& raw) {
  const auto has = [&](std::string_view part) {
    return raw.epilogue.find(part) != std::string::npos;
  };
  Problem problem = parse_layer(raw.problem).problem;
  if (const RecurrentProblem* const parsed = problem.recurrent()) {
    RecurrentProblem p = *parsed;
    p.pass = parse_pass(raw.pass);
    p.dtype = parse_dtype(raw.dtype);
    p.training = has("training");
    p.recompute = has("recompute");
    problem = p;
  } else {
    ConvProblem p = *problem.conv();
    p.pass = parse_pass(raw.pass);
    p.dtype = parse_dtype(raw.dtype);
    p.x_layout = parse_layout(raw.x_layout);
    p.y_layout = parse_layout(raw.y_layout);
    p.accumulate = has("accumulate");
    p.epilogue = {has("bias"), has("residual"), activation_of(raw.epilogue)};
    problem = p;
  }
  if (extras_of(problem) != raw.epilogue)
    throw InputError(fmt::format(
        "unknown epilogue '{}' of a {}", raw.epilogue,
        problem.recurrent()
            ? "recurrent layer: expected none, training, recompute or training+recompute"
            : fmt::format("convolution: expected none, accumulate, or parts of "
                          "bias+residual+ACTIVATION, which is one of {}",
                          activation_names())));
  if (!problem.has_layouts() && !(raw.x_layout.empty() && raw.y_layout.empty()))
    throw InputError(fmt::format("a recurrent layer in layout '{}'", raw.x_layout));
  validate(problem);
  return problem;
}

std::string layout_text(const Problem& problem, Layout layout) {
  return std::string(problem.has_layouts() ? to_string(layout) : "");
}

}  // namespace

RawRow to_raw(const StoreRow& row) {
  const Candidate& c = row.candidate;
  return {.problem = to_text(row.problem),
          .pass = std::string(to_string(row.problem.pass())),
          .dtype = std::string(to_string(row.problem.dtype())),
          .epilogue = extras_of(row.problem),
          .threads = c.threads,
          .cache = std::string(to_string(c.cache)),
          .fingerprint = row.fingerprint,
          .algo = c.algo,
          .version = c.version,
          .config = c.config.text(),
          .x_layout = layout_text(row.problem, c.x_layout),
          .y_layout = layout_text(row.problem, c.y_layout),
          .status = std::string(to_string(c.status)),
          .reason = c.reason,
          .deterministic = c.deterministic,
          .predicted = c.predicted,
          .ms = c.ms,
          .mad_ms = c.mad_ms,
          .pack_ms = c.pack_ms,
          .convert_ms = c.convert_ms,
          .eff_gflops = c.eff_gflops,
          .exec_gflops = c.exec_gflops,
          .rel_error = c.rel_error,
          .sampled_error = c.sampled_error,
          .workspace_bytes = c.workspace_bytes,
          .packed_filter_bytes = c.packed_filter_bytes,
          .samples_ms = c.samples_ms,
          .process_ms = c.process_ms,
          .process_pack_ms = c.process_pack_ms,
          .protocol = row.protocol,
          .commit = row.commit,
          .date = row.date};
}

StoreRow from_raw(const RawRow& raw) {
  StoreRow row;
  row.problem = problem_of(raw);
  const ConvProblem* const conv = row.problem.conv();
  row.fingerprint = raw.fingerprint;
  row.protocol = int(raw.protocol);
  row.commit = raw.commit;
  row.date = raw.date;
  for (double v : {raw.ms, raw.mad_ms, raw.pack_ms, raw.convert_ms, raw.eff_gflops, raw.exec_gflops,
                   raw.rel_error})
    if (!(v >= 0)) throw InputError(fmt::format("negative or no number: {}", v));
  if (raw.threads < 1 || raw.threads > std::numeric_limits<int>::max())
    throw InputError(fmt::format("threads is {}", raw.threads));
  if (raw.workspace_bytes < 0 || raw.packed_filter_bytes < 0)
    throw InputError("negative number of bytes");
  if (raw.process_ms.size() != raw.process_pack_ms.size())
    throw InputError("process_ms and process_pack_ms differ in length");
  row.candidate = {.algo = raw.algo,
                   .version = int(raw.version),
                   .config = Config::parse(raw.config),
                   .x_layout = conv ? conv->x_layout : Layout::nchw,
                   .y_layout = conv ? conv->y_layout : Layout::nchw,
                   .has_layouts = row.problem.has_layouts(),
                   .threads = int(raw.threads),
                   .cache = parse_cache_mode(raw.cache),
                   .status = parse_status(raw.status),
                   .reason = raw.reason,
                   .deterministic = raw.deterministic != 0,
                   .predicted = raw.predicted != 0,
                   .ms = raw.ms,
                   .mad_ms = raw.mad_ms,
                   .pack_ms = raw.pack_ms,
                   .convert_ms = raw.convert_ms,
                   .eff_gflops = raw.eff_gflops,
                   .exec_gflops = raw.exec_gflops,
                   .rel_error = raw.rel_error,
                   .sampled_error = raw.sampled_error != 0,
                   .workspace_bytes = raw.workspace_bytes,
                   .packed_filter_bytes = raw.packed_filter_bytes,
                   .samples_ms = raw.samples_ms,
                   .process_ms = raw.process_ms,
                   .process_pack_ms = raw.process_pack_ms};
  return row;
}

void require_date(const StoreRow& row) {
  if (parse_date(row.date) != row.date)
    throw InputError(
        fmt::format("date '{}': expected one as in 2026-01-31T23:59:59.999Z", row.date));
}

Json to_json(const StoreRow& row) {
  Json object;
  const RawRow raw = to_raw(row);
  visit_all(raw, [&](const char* name, const auto& field) { object[name] = field; });
  return object;
}

StoreRow row_from_json(const Json& object) {
  RawRow raw;
  std::string at;
  try {
    visit_all(raw, [&](const char* name, auto& field) {
      at = name;
      const Json& value = object.at(name);
      // JSON has no infinity or NaN: such an error is written as null.
      if constexpr (std::is_same_v<decltype(field), double&>)
        field = value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>();
      else
        value.get_to(field);
    });
  } catch (const Json::exception&) {
    throw InputError(fmt::format("{} is missing or of the wrong type", at));
  }
  return from_raw(raw);
}

std::string export_json(const std::vector<StoreRow>& rows) {
  Json list = Json::array();
  for (const StoreRow& row : rows) list.push_back(to_json(row));
  return Json{{"convlab_store", store_json_format}, {"rows", std::move(list)}}.dump(1) + "\n";
}

std::vector<StoreRow> import_json(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    throw InputError(fmt::format("not JSON: {}", e.what()));
  }
  if (!json.is_object() || json.value("convlab_store", Json()) != store_json_format ||
      !json.value("rows", Json()).is_array())
    throw InputError(fmt::format(
        "not an exported tuning store: expected {{\"convlab_store\": {}, \"rows\": [...]}}",
        store_json_format));
  std::vector<StoreRow> rows;
  for (const Json& object : json["rows"]) try {
      StoreRow row = row_from_json(object);
      require_date(row);
      rows.push_back(std::move(row));
    } catch (const InputError& e) {
      throw InputError(fmt::format("row {}: {}", rows.size(), e.what()));
    }
  return rows;
}

}  // namespace convlab
