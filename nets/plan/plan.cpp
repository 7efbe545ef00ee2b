#include "nets/plan/plan.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "conv/error.h"
#include "conv/text/names.h"
#include "nets/separable.h"

namespace convlab::nets {
namespace {

// Ordered, so that the file's fields follow the structs above.
using Json = nlohmann::ordered_json;

constexpr const char* format_name = "convlab_plan";

// ---- Values as text and numbers ----

Json json_of(const std::string& v) { return v; }
Json json_of(bool v) { return v; }
Json json_of(int v) { return v; }
Json json_of(std::int64_t v) { return v; }
Json json_of(double v) { return v; }
Json json_of(Mode v) { return std::string(to_string(v)); }
Json json_of(DType v) { return std::string(to_string(v)); }
Json json_of(Layout v) { return std::string(to_string(v)); }
Json json_of(const Config& v) { return v.text(); }
Json json_of(const std::optional<std::int64_t>& v) { return v ? Json(*v) : Json(); }

[[noreturn]] void expected(const std::string& what) { throw InputError("expected " + what); }

void read(const Json& json, std::string& v) {
  if (!json.is_string()) expected("text");
  v = json.get<std::string>();
}
void read(const Json& json, bool& v) {
  if (!json.is_boolean()) expected("true or false");
  v = json.get<bool>();
}
void read(const Json& json, std::int64_t& v) {
  if (!json.is_number_integer() || json.get<double>() < 0 || json.get<double>() > 0x1p62)
    expected("a whole number from 0 on");
  v = json.get<std::int64_t>();
}
void read(const Json& json, int& v) {
  std::int64_t wide = 0;
  read(json, wide);
  if (wide < 1 || wide > std::numeric_limits<int>::max()) expected("a whole number from 1 on");
  v = int(wide);
}
void read(const Json& json, double& v) {
  if (!json.is_number() || !(json.get<double>() >= 0) || std::isinf(json.get<double>()))
    expected("a number from 0 on");
  v = json.get<double>();
}
template <class Parse, class T>
void read_text(const Json& json, Parse parse, T& v) {
  std::string text;
  read(json, text);
  v = parse(text);
}
void read(const Json& json, Mode& v) {
  constexpr std::array<std::string_view, 2> names{"training", "inference"};
  read_text(
      json, [&](const auto& text) { return Mode(index_of_name("mode", text, names)); }, v);
}
void read(const Json& json, DType& v) { read_text(json, parse_dtype, v); }
void read(const Json& json, Pass& v) { read_text(json, parse_pass, v); }
void read(const Json& json, Layout& v) { read_text(json, parse_layout, v); }
void read(const Json& json, Config& v) { read_text(json, Config::parse, v); }
void read(const Json& json, std::optional<std::int64_t>& v) {
  v.reset();
  if (!json.is_null()) read(json, v.emplace());
}

// ---- Fields, each named once, for writing and reading ----

template <class Plan, class Visit>
void visit_pass(Plan& p, Visit&& visit) {
  visit("algo", p.algo);
  visit("config", p.config);
  visit("images", p.images);
  visit("ms", p.ms);
  visit("measured", p.measured);
  visit("packs_each_run", p.packs_each_run);
}

template <class Plan, class Visit>
void visit_step(Plan& p, Visit&& visit) {
  visit("layer", p.layer);
  visit("x_layout", p.x_layout);
  visit("y_layout", p.y_layout);
  visit("passes", p.passes);
  visit("other_ms", p.other_ms);
  visit("convert_ms", p.convert_ms);
}

template <class Plan, class Visit>
void visit_net(Plan& p, Visit&& visit) {
  visit("net", p.net);
  visit("batch", p.batch);
  visit("mode", p.mode);
  visit("dtype", p.dtype);
  visit("deterministic", p.deterministic);
  visit("workspace_max", p.workspace_max);
  visit("threads", p.threads);
  visit("machine", p.machine);
  visit("steps", p.steps);
}

using Passes = std::array<std::optional<PassPlan>, 3>;

// ---- Writing ----

Json json_of(const Passes&);
Json json_of(const std::vector<StepPlan>&);

template <class VisitFields>
Json write_object(VisitFields visit_fields) {
  Json object = Json::object();
  visit_fields([&](const char* name, const auto& field) { object[name] = json_of(field); });
  return object;
}

Json json_of(const Passes& passes) {
  Json object = Json::object();
  for (const Pass pass : all_passes)
    if (const std::optional<PassPlan>& plan = passes[std::size_t(pass)])
      object[std::string(to_string(pass))] =
          write_object([&](auto&& visit) { visit_pass(*plan, visit); });
  return object;
}

Json json_of(const std::vector<StepPlan>& steps) {
  Json list = Json::array();
  for (const StepPlan& step : steps)
    list.push_back(write_object([&](auto&& visit) { visit_step(step, visit); }));
  return list;
}

// ---- Reading. A place is a path in the file: "steps[3].passes.fwd.algo" ----

[[noreturn]] void fail(const std::string& place, std::string_view what) {
  throw InputError(fmt::format("{}: {}", place, what));
}

std::string inside(const std::string& place, const std::string& name) {
  return place.empty() ? name : fmt::format("{}.{}", place, name);
}

template <class T>
void read_at(const Json& json, const std::string& place, T& field) {
  try {
    read(json, field);
  } catch (const InputError& e) {
    fail(place, e.what());
  }
}
void read_at(const Json&, const std::string& place, Passes&);
void read_at(const Json&, const std::string& place, std::vector<StepPlan>&);

// Requires every field, and rejects any other.
template <class VisitFields>
void read_object(const Json& json, const std::string& place, VisitFields visit_fields) {
  if (!json.is_object()) fail(place, "expected an object");
  std::set<std::string> known;
  visit_fields([&](const char* name, auto& field) {
    const auto found = json.find(name);
    if (found == json.end()) fail(inside(place, name), "is missing");
    known.insert(name);
    read_at(*found, inside(place, name), field);
  });
  for (const auto& item : json.items())
    if (known.count(item.key()) == 0) fail(inside(place, item.key()), "is no field of a plan");
}

void read_at(const Json& json, const std::string& place, Passes& passes) {
  if (!json.is_object()) fail(place, "expected an object");
  for (const auto& item : json.items()) {
    const std::string at = inside(place, item.key());
    Pass pass{};
    read_at(item.key(), at, pass);
    PassPlan& plan = passes[std::size_t(pass)].emplace();
    read_object(item.value(), at, [&](auto&& visit) { visit_pass(plan, visit); });
  }
}

void read_at(const Json& json, const std::string& place, std::vector<StepPlan>& steps) {
  if (!json.is_array()) fail(place, "expected a list");
  for (const Json& element : json) {
    const std::string at = fmt::format("{}[{}]", place, steps.size());
    read_object(element, at,
                [&step = steps.emplace_back()](auto&& visit) { visit_step(step, visit); });
  }
}

}  // namespace

double NetPlan::ms() const {
  double sum = 0;
  for (const StepPlan& step : steps) {
    sum += step.other_ms + step.convert_ms;
    for (const std::optional<PassPlan>& pass : step.passes)
      if (pass) sum += pass->ms;
  }
  return sum;
}

std::string plan_machine(const DeviceInfo& device) {
  return fmt::format("{}, {}", device.name, device.isa);
}

std::string plan_misfit(const NetPlan& plan, const Graph& graph, const DeviceInfo& device) {
  std::string misfit;
  const auto require = [&](const char* what, const auto& has, const auto& wanted) {
    if (misfit.empty() && has != wanted)
      misfit = fmt::format("the plan is for {} {}, not {}", what, has, wanted);
  };
  require("net", plan.net, graph.name());
  require("batch", plan.batch, graph.batch());
  require("machine", plan.machine, plan_machine(device));
  require("threads", plan.threads, device.threads);
  const std::vector<Step> steps = steps_of(graph, plan);
  require("steps", plan.steps.size(), steps.size());
  for (std::size_t i = 0; i < std::min(steps.size(), plan.steps.size()); ++i)
    require("layer", plan.steps[i].layer, graph.nodes()[steps[i].node].name);
  return misfit;
}

void require_plan_fits(const NetPlan& plan, const Graph& graph, const DeviceInfo& device) {
  if (const std::string misfit = plan_misfit(plan, graph, device); !misfit.empty())
    throw InputError(fmt::format(
        "{}: make one with `convlab plan {} --batch {}{} --format json` here", misfit, graph.name(),
        graph.batch(), plan.mode == Mode::inference ? " --forward-only" : ""));
}

std::string to_json(const NetPlan& plan) {
  Json json{{format_name, plan_format}};
  json.update(write_object([&](auto&& visit) { visit_net(plan, visit); }));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

NetPlan plan_from_json(const std::string& text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || !json.contains(format_name))
      throw InputError(
          fmt::format("is no plan: expected what `convlab plan NET --format json` "
                      "writes, with a field {}",
                      format_name));
    if (json[format_name] != plan_format)
      throw InputError(fmt::format("{} is {}, this program reads {}: make the plan anew",
                                   format_name, json[format_name].dump(), plan_format));
    NetPlan plan;
    read_object(json, "", [&](auto&& visit) {
      int format = 0;
      visit(format_name, format);
      visit_net(plan, visit);
    });
    return plan;
  } catch (const Json::exception&) {
    throw InputError(fmt::format("{} is no plan: it is not JSON, or only a part of it", source));
  } catch (const InputError& e) {
    throw InputError(fmt::format("{}: {}", source, e.what()));
  }
}

}  // namespace convlab::nets
