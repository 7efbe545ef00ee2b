#include "bench/reports/nets/worker_times.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/json_text.h"
#include "bench/reports/nets/time_report.h"
#include "conv/error.h"
#include "conv/text/text_file.h"
#include "conv/types/arithmetic_type.h"
#include "nets/steps.h"
#include "nets/zoo/zoo.h"

namespace convlab {

using namespace nets;
namespace {

using Json = nlohmann::ordered_json;

constexpr double s_per_ms = 1e-3;

// Multiplies these times so that they add up to `sum_s`.
void scale(std::vector<LayerTimes>& layers, double LayerTimes::*part, double sum_s) {
  double sum = 0;
  for (const LayerTimes& layer : layers) sum += layer.*part;
  if (sum <= 0) return;
  for (LayerTimes& layer : layers) layer.*part *= sum_s / sum;
}

// `layers` have the times of single steps, in ms; those of `parts` are of whole iterations.
WorkerTimes worker_of(const Graph& graph, std::vector<LayerTimes> layers,
                      const IterationTime& parts) {
  scale(layers, &LayerTimes::forward_s, s_per_ms * parts.forward);
  scale(layers, &LayerTimes::backward_s, s_per_ms * parts.backward);
  WorkerTimes worker;
  worker.batch = graph.batch();
  worker.h2d_s = s_per_ms * parts.h2d;
  worker.update_s = s_per_ms * parts.update;
  worker.layers = std::move(layers);
  return worker;
}

LayerTimes layer_of(const Graph& graph, const Step& step, DType dtype) {
  const Node& node = graph.nodes()[step.node];
  return {.name = node.name,
          .gradient_bytes = graph.parameters(node) * size_of(arithmetic_type(dtype))};
}

// The number at this path, "/iteration/t_f".
double number_at(const Json& file, const std::string& path) {
  const Json& value = file.at(Json::json_pointer(path));
  if (!value.is_number())
    throw InputError(fmt::format("{} is {}: expected a number", path.substr(1), value.type_name()));
  return value.get<double>();
}

TimedWorker read(const Json& file) {
  const Json& net = file.at("net");
  TimedWorker timed;
  timed.net = net.at("name").get<std::string>();
  timed.dtype = parse_dtype(net.at("dtype").get<std::string>());
  if (net.at("mode") != to_string(Mode::training))
    throw InputError("times of inference: expected those of training, without --forward-only");
  if (net.value("streams", std::int64_t(1)) != 1)
    throw InputError(
        "times of several nets side by side: expected those of one, without --streams");
  // Their backward has done part of the exchange.
  if (file.contains("exchange"))
    throw InputError("times of several ranks: expected those of one, without mpirun");
  if (file.at("complete") != true)
    throw InputError("the run was interrupted: expected times of a whole one");

  const Graph graph = make_net(timed.net, net.at("batch").get<std::int64_t>());
  const std::vector<Step> steps = steps_of(graph, Mode::training);
  const Json& rows = file.at("steps");
  std::vector<LayerTimes> layers;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    LayerTimes layer = layer_of(graph, steps[i], timed.dtype);
    if (rows.size() != steps.size() || rows.at(i).at("layer") != layer.name)
      throw InputError(
          fmt::format("its steps are not those of {} here, which has {}: expected the "
                      "times of this version",
                      timed.net, layer.name));
    const auto phase_ms = [&](Phase phase) {
      return number_at(file, fmt::format("/steps/{}/phases/{}/ms", i, to_string(phase)));
    };
    layer.forward_s = phase_ms(Phase::forward);
    layer.backward_s = phase_ms(Phase::backward_data) + phase_ms(Phase::backward_filter);
    layers.push_back(std::move(layer));
  }
  const auto part = [&](const char* name) {
    return number_at(file, fmt::format("/iteration/{}", name));
  };
  timed.worker = worker_of(graph, std::move(layers),
                           {.h2d = part("t_h2d"),
                            .forward = part("t_f"),
                            .backward = part("t_b"),
                            .update = part("t_u")});
  validate(timed.worker);
  for (const auto& [name, value] : file.at("provenance").items())
    timed.provenance.fields.emplace_back(name, value.get<std::string>());
  return timed;
}

}  // namespace

WorkerTimes worker_times(const Graph& graph, DType dtype, const NetTimes& times) {
  const std::vector<Step> steps = steps_of(graph, Mode::training);
  std::vector<LayerTimes> layers;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    LayerTimes layer = layer_of(graph, steps[i], dtype);
    layer.forward_s = times.step_ms(i, Phase::forward);
    layer.backward_s =
        times.step_ms(i, Phase::backward_data) + times.step_ms(i, Phase::backward_filter);
    layers.push_back(std::move(layer));
  }
  return worker_of(graph, std::move(layers), times.typical());
}

TimedWorker read_timed_worker(const std::string& path) {
  const std::string expected = "what `convlab time NET --format json` writes";
  const std::string text = read_text_file(path, expected);
  require_json(text, path, expected);
  const Json file = Json::parse(text);
  if (!file.is_object() || !file.contains("convlab_time"))
    throw InputError(fmt::format("{}: expected {}", path, expected));
  if (file["convlab_time"] != time_format)
    throw InputError(fmt::format("{}: convlab_time is of version {}: expected {}", path,
                                 file["convlab_time"].dump(), time_format));
  try {
    return read(file);
  } catch (const Json::exception& error) {
    throw InputError(fmt::format("{}: not what convlab_time {} has: {}", path, time_format,
                                 without_json_tag(error.what())));
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace convlab
