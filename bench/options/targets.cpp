#include "bench/options/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "bench/output.h"
#include "bench/reports/tune_cells.h"
#include "conv/error.h"
#include "conv/problem_text.h"
#include "conv/reference.h"
#include "conv/text/bytes.h"
#include "conv/text/names.h"
#include "conv/text/problem_reader.h"
#include "conv/text/text_file.h"
#include "conv/transposed.h"
#include "nets/onnx/layers.h"
#include "nets/onnx/net.h"
#include "nets/zoo/zoo.h"
#include "recurrent/problem_text.h"

namespace convlab {

using namespace nets;
namespace {

// One problem of a target, and the names of all layers that have it.
struct TargetItem {
  TuneItem item;
  std::vector<std::string> names;
};

TargetItem& add(std::vector<TargetItem>& items, const LayerProblem& layer,
                std::vector<std::string> names) {
  TargetItem& added = items.emplace_back();
  added.item.layer = layer;
  added.names = std::move(names);
  return added;
}

const std::string& name_of(const ConvLayer& conv) { return conv.layer.name; }
const std::string& name_of(const NamedRecurrentProblem& layer) { return layer.name; }

// Of those layers that merge_equal() merges into `merged`.
template <class Layer>
std::vector<std::string> equal_names(const Layer& merged, const std::vector<Layer>& layers) {
  std::vector<std::string> names;
  for (const Layer& layer : layers)
    if (merge_equal({merged, layer}).size() == 1) names.push_back(name_of(layer));
  return names;
}

void add_merged(std::vector<TargetItem>& items, const std::vector<ConvLayer>& convolutions) {
  for (const ConvLayer& conv : merge_equal(convolutions)) {
    TuneItem& item = add(items, conv.layer, equal_names(conv, convolutions)).item;
    item.first_layer = conv.first;
    item.layer.transposed = conv.transposed;
  }
}

std::vector<TargetItem> net_items(const std::string& name, std::int64_t batch) {
  const Graph net = make_net(name, batch);
  std::vector<TargetItem> items;
  add_merged(items, conv_layers(net));
  const std::vector<NamedRecurrentProblem> recurrent = recurrent_layers(net);
  for (const NamedRecurrentProblem& layer : merge_equal(recurrent))
    add(items, layer, equal_names(layer, recurrent));
  if (items.empty())
    throw InputError(fmt::format(
        "{} has no convolutions and no recurrent layers: expected a net that has some", name));
  return items;
}

constexpr std::string_view problem_examples = "mb1ic64ih56oc64oh56kh3ph1 or lstm:t32mb16dhc512";

bool is_net(const std::string& text) {
  try {
    make_net(text, 1);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// The problems of an @FILE, or a literal one.
std::vector<LayerProblem> read_problems(const std::string& target,
                                        std::vector<std::string>& warnings) {
  std::vector<LayerProblem> layers;
  if (!target.starts_with('@')) {
    layers.push_back(parse_layer(target, warnings));
    return layers;
  }
  const std::string path = target.substr(1);
  for_each_problem_line(
      read_text_file(path, "a file with one problem a line"), path, &warnings,
      [&](std::string_view line) {
        if (const std::string word(trim(line)); !looks_like_problem(word) && is_net(word))
          throw InputError(
              fmt::format("'{}' is a net, but a file holds problems: give it as a TARGET", word));
        std::vector<std::string> about_batch;
        layers.push_back(parse_layer(line, about_batch));
        return about_batch.empty();
      });
  return layers;
}

// A model that is a net as a whole: its convolutions are the net's, which has more of them
// (products over the channels of each pixel) and has taken paddings into them.
void add_layers_of_net(OnnxLayers& model, const std::string& file, const OnnxSizes& sizes) {
  std::vector<ConvLayer> of_net;
  try {
    of_net = conv_layers(read_onnx_net(file, sizes).graph());
  } catch (const InputError&) {
    return;  // no net: what can be known of its convolutions was said
  }
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    places.emplace(model.layers[i].layer.name, i);
  for (ConvLayer& layer : of_net) {
    const auto place = places.find(layer.layer.name);
    if (place == places.end())
      model.layers.push_back(std::move(layer));
    else
      model.layers[place->second].layer.problem = layer.layer.problem;
  }
}

std::vector<TargetItem> model_items(const std::string& file, const CommonOptions& options) {
  std::vector<std::optional<std::int64_t>> batches(options.batches.begin(), options.batches.end());
  if (batches.empty()) batches.emplace_back();
  std::vector<TargetItem> items;
  for (const std::optional<std::int64_t>& batch : batches) {
    const OnnxSizes sizes = sizes_of(options, batch);
    OnnxLayers model = read_onnx_layers(file, sizes);
    add_layers_of_net(model, file, sizes);
    if (batch == batches.front())
      for (const std::string& note : model.notes) say(printable(note));
    add_merged(items, model.layers);
  }
  return items;
}

std::vector<TargetItem> target_items(const std::string& target, const CommonOptions& options) {
  const std::vector<std::int64_t>& batches = options.batches;
  std::vector<TargetItem> items;
  if (is_model(target)) return model_items(target, options);
  const bool is_file = target.starts_with('@');
  if (is_file || looks_like_problem(target)) {
    std::vector<std::string> warnings;
    const std::vector<LayerProblem> problems = read_problems(target, warnings);
    if (is_file || batches.empty())
      for (const std::string& warning : warnings) say(warning);
    if (batches.empty())
      for (const LayerProblem& problem : problems) add(items, problem, {show_layer(problem)});
    for (const std::int64_t batch : batches)
      for (LayerProblem problem : problems) {
        problem.problem.set_batch(batch);
        add(items, problem, {show_layer(problem)});
      }
    return items;
  }
  if (begins_with_cell(target) && !target.starts_with("rnn:"))
    throw InputError(
        fmt::format("unknown target '{}': expected rnn: rnn_relu: gru: or lstm: and sizes, as in "
                    "lstm:t32mb16dhc512, or a net, as in rnn:28-32-10:lstm",
                    target));
  for (const std::int64_t batch : batches.empty() ? std::vector<std::int64_t>{1} : batches)
    for (TargetItem& item : net_items(target, batch)) items.push_back(std::move(item));
  return items;
}

// --dtype decides for all targets, so that the message names the problem that does not take it.
void require_type(const Problem& problem) {
  const RecurrentProblem* const p = problem.recurrent();
  if (p && p->dtype != DType::f32 && p->dtype != DType::f64)
    throw InputError(fmt::format("--dtype {}: '{}' is a recurrent layer, which takes f32 or f64",
                                 to_string(p->dtype), to_text(*p)));
}

void require_memory(const LayerProblem& layer, const DeviceInfo& device) {
  const double needed = required_bytes(layer.problem);
  if (needed <= double(device.memory_bytes)) return;
  const auto fits =
      std::int64_t(double(layer.problem.batch()) * double(device.memory_bytes) / needed);
  throw InputError(
      fmt::format("{} needs {} for its tensors and their reference, but this machine has {}: {}",
                  layer.name.empty() ? layer.text() : layer.name + " " + layer.text(),
                  show_bytes(std::int64_t(needed)), show_bytes(device.memory_bytes),
                  fits > 0 ? fmt::format("expected a batch of at most about {}", fits)
                           : "expected a smaller problem"));
}

}  // namespace

// Problem texts start with a field and its number ("mb1ic64..."). No net's name does, except where
// the field is "g" alone: "g2mb1..." against "googlenet".
// A recurrent problem's cell is followed by a size, and a recurrent net's by a number.
bool looks_like_problem(const std::string& target) {
  if (is_transposed_text(target)) return true;
  if (is_recurrent_text(target)) {
    const std::string_view sizes = std::string_view(target).substr(target.find(':') + 1);
    return sizes.empty() || std::isdigit(static_cast<unsigned char>(sizes.front())) == 0;
  }
  static const std::vector<std::string> fields{"g",  "mb", "ic", "ih", "iw", "oc", "oh", "ow",
                                               "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw",
                                               "id", "od", "kd", "sd", "pd", "dd"};
  return std::any_of(fields.begin(), fields.end(), [&](const std::string& field) {
    return target.size() > field.size() && target.starts_with(field) &&
           (std::isdigit(static_cast<unsigned char>(target[field.size()])) != 0 ||
            target[field.size()] == '-');
  });
}

bool is_model(const std::string& target) { return target.ends_with(".onnx"); }

OnnxSizes sizes_of(const CommonOptions& options, std::optional<std::int64_t> batch) {
  return {options.dims, batch};
}

Graph net_of_target(const CommonOptions& options, std::optional<std::int64_t> batch,
                    std::string* notes) {
  const std::string& target = options.targets.front();
  if (!is_model(target)) return make_net(target, batch.value_or(1));
  const OnnxNet model = read_onnx_net(target, sizes_of(options, batch));
  if (notes) *notes = fmt::format("{}", fmt::join(model.notes(), "\n"));
  return model.graph();
}

LayerProblem parse_one_problem(const std::string& text) {
  if (!looks_like_problem(text))
    throw InputError(
        fmt::format("'{}' is not a problem: expected one, as in {}", text, problem_examples));
  return parse_layer(text);
}

double required_bytes(const Problem& problem) {
  // A recurrent layer's reference is of a few rows of the batch, and all of the weights.
  if (const RecurrentProblem* const p = problem.recurrent())
    return problem.elements() * double(size_of(p->dtype)) + 8 * double(p->weights_elements());
  const ConvProblem& p = *problem.conv();
  const double x = double(p.x_desc().elements()), y = double(p.y_desc().elements()),
               w = double(p.filter_elements());
  const bool sampled = p.flops() / 2 > full_reference_limit;
  const double read = p.pass == Pass::forward         ? x + w
                      : p.pass == Pass::backward_data ? y + w
                                                      : x + y;
  const double written = x + y + w - read;
  return 8 * (read + (sampled ? 0 : written)) + double(size_of(p.dtype)) * (x + y + w);
}

void require_convolutions(const std::vector<TuneItem>& items, const std::string& verb) {
  for (const TuneItem& item : items)
    if (!item.layer.problem.conv())
      throw InputError(fmt::format("{}: '{}' is a recurrent layer: expected convolutions", verb,
                                   item.layer.text()));
}

std::vector<TuneItem> resolve_targets(const CommonOptions& options, const DeviceInfo& device) {
  if (!options.layer.empty() && options.targets.size() > 1)
    throw InputError(fmt::format("--layer: {} targets: expected the net that has this layer, alone",
                                 options.targets.size()));
  if (!options.dims.empty() &&
      std::none_of(options.targets.begin(), options.targets.end(), is_model))
    throw InputError("--dim: only ONNX models have dimensions by name: drop it");
  std::vector<TuneItem> items;
  std::vector<std::string> names;
  bool recomputes = false;
  for (const std::string& target : options.targets)
    for (auto& [item, layer_names] : target_items(target, options)) {
      names.insert(names.end(), layer_names.begin(), layer_names.end());
      if (!options.layer.empty()) {
        if (std::find(layer_names.begin(), layer_names.end(), options.layer) == layer_names.end())
          continue;
        if (!item.layer.name.empty()) item.layer.name = options.layer;
      }
      const bool training = options.passes != std::vector{Pass::forward};
      for (const Pass pass : options.passes) {
        item.layer.set_pass(pass, training);
        item.layer.problem.set_dtype(options.dtype);
        recomputes |= options.recompute && item.layer.problem.set_recompute();
        require_type(item.layer.problem);
        validate(item.layer.problem);
        require_memory(item.layer, device);
        items.push_back(item);
      }
    }
  if (items.empty() && !options.layer.empty()) {
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (names.size() == 1)
      throw InputError(fmt::format("--layer: {} is one layer itself: expected a net", names[0]));
    throw InputError(fmt::format("--layer: unknown layer '{}': {}", options.layer,
                                 did_you_mean(options.layer, names)));
  }
  const bool any_layouts = std::any_of(items.begin(), items.end(), [](const TuneItem& item) {
    return item.layer.problem.has_layouts();
  });
  if (options.layout != "auto" && !any_layouts)
    throw InputError("--layout: recurrent layers have none: drop it");
  if (options.recompute && !recomputes)
    throw InputError(
        "--recompute: expected a gru or lstm, and a backward pass among --pass: nothing else saves "
        "gates");
  return items;
}

}  // namespace convlab
