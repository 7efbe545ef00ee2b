#include "nets/train/checkpoint.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "conv/error.h"
#include "nets/run/finite.h"
#include "nets/train/optimizer.h"
#include "nets/train/trainer.h"
#include "nets/weights/weights.h"

namespace convlab::nets {
namespace {

constexpr const char* format_key = "convlab_checkpoint";
const std::string format_version = "3";  // raise it when a field is added, removed or redefined

std::string text_of(const std::string& v) { return v; }
std::string text_of(DType v) { return std::string(to_string(v)); }
std::string text_of(const UpdateRule& v) { return to_string(v); }
std::string text_of(const Schedule& v) { return to_string(v); }
std::string text_of(const NetPlan& v) { return to_json(v); }
std::string text_of(const std::optional<NetPlan>& v) { return v ? to_json(*v) : ""; }
template <class Number>
requires std::is_arithmetic_v<Number> std::string text_of(Number v) {
  return fmt::format("{}", v);  // round-trips to the same bits
}

void read(const std::string& text, std::string& v) { v = text; }
void read(const std::string& text, DType& v) { v = parse_dtype(text); }
void read(const std::string& text, UpdateRule& v) { v = parse_rule(text); }
void read(const std::string& text, Schedule& v) { v = parse_schedule(text); }
void read(const std::string& text, NetPlan& v) { v = plan_from_json(text, "read as JSON"); }
void read(const std::string& text, std::optional<NetPlan>& v) {
  v.reset();
  if (!text.empty()) read(text, v.emplace());
}
template <class Number>
requires std::is_arithmetic_v<Number>
void read(const std::string& text, Number& v) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, v);
  if (error != std::errc() || stop != end || !(v >= Number(0)))
    throw InputError(fmt::format("'{}' is not a number from 0 on", text));
}

// Each field named once, for writing and reading.
template <class State, class Visit>
void visit_fields(State& s, Visit&& visit) {
  visit("net", s.net);
  visit("batch", s.batch);
  visit("dtype", s.dtype);
  visit("data", s.data);
  visit("steps_per_epoch", s.steps);
  visit("seed", s.seed);
  visit("plan", s.plan);
  visit("test_plan", s.test_plan);
  visit("optimizer", s.rule);
  visit("schedule", s.schedule);
  visit("epochs", s.epochs);
  visit("epoch", s.epoch);
  visit("step", s.step);
  visit("forwards", s.counters.forwards);
  visit("updates", s.counters.updates);
  visit("epoch_images", s.scores.images);
  visit("epoch_top1", s.scores.top1);
  visit("epoch_top5", s.scores.top5);
  visit("epoch_loss", s.scores.loss);
  visit("best", s.best);
}

ElementType element_type(DType dtype) {
  return dtype == DType::f64 ? ElementType::f64 : ElementType::f32;
}

Array read_array(Net& net, const Parameter& p, const std::byte* from) {
  Array array{element_type(net.value_type()), p.shape,
              std::vector<std::byte>(std::size_t(p.count * size_of(net.value_type())))};
  net.read(from, array.bytes);
  return array;
}

std::string state_name(std::size_t s, const Parameter& p) {
  return fmt::format("{}{}/{}", optimizer_prefix, s, p.name);
}

void require_name(const std::string& file) {
  if (format_of(file) != FileFormat::safetensors)
    throw InputError(fmt::format(
        "checkpoint '{}': expected a name that ends in .safetensors, the format it is in", file));
}

}  // namespace

void write_checkpoint(const std::string& file, Net& net, const TrainingState& state) {
  require_name(file);
  ArrayFile content;
  for (const Parameter& p : net.parameters()) {
    Array& value = content.arrays[p.name] = read_array(net, p, p.value);
    if (!all_finite(value.bytes, net.value_type()))
      throw Diverged(fmt::format("{} is not finite after step {} of epoch {}", p.name, state.step,
                                 state.epoch + 1));
    for (std::size_t s = 0; s < p.state.size(); ++s)
      if (p.state[s] != nullptr) content.arrays[state_name(s, p)] = read_array(net, p, p.state[s]);
  }
  content.metadata = state.notes;
  content.metadata[format_key] = format_version;
  visit_fields(state, [&content](const char* name, const auto& field) {
    content.metadata[name] = text_of(field);
  });
  write_arrays(file, content);
}

Checkpoint read_checkpoint(const std::string& file) {
  require_name(file);
  Checkpoint checkpoint{file, {}, std::make_shared<const ArrayReader>(file)};
  std::map<std::string, std::string> metadata = checkpoint.arrays->header().metadata;
  const auto found = metadata.find(format_key);
  if (found == metadata.end())
    throw InputError(fmt::format(
        "{} is no checkpoint: expected a file that `convlab train --checkpoint` has written",
        file));
  if (found->second != format_version)
    throw InputError(fmt::format("{} is a checkpoint of format {}, this program reads {}", file,
                                 found->second, format_version));
  metadata.erase(found);
  if (!checkpoint.arrays->has_checksum())
    throw InputError(fmt::format("{} is damaged: its checksum is missing", file));
  checkpoint.arrays->verify();
  visit_fields(checkpoint.state, [&](const char* name, auto& field) {
    const auto text = metadata.find(name);
    if (text == metadata.end()) throw InputError(fmt::format("{}: {} is missing", file, name));
    try {
      read(text->second, field);
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}: {}", file, name, error.what()));
    }
    metadata.erase(text);
  });
  checkpoint.state.notes = std::move(metadata);
  return checkpoint;
}

void require_fits(const Checkpoint& checkpoint, const TrainingState& start) {
  const TrainingState& from = checkpoint.state;
  const auto require = [&](const char* what, const auto& was, const auto& is) {
    if (was != is)
      throw InputError(
          fmt::format("{} is a checkpoint with {} {}, not {}", checkpoint.file, what, was, is));
  };
  require("net", from.net, start.net);
  require("type", to_string(from.dtype), to_string(start.dtype));
  require("batch", from.batch, start.batch);
  require("data", from.data, start.data);
  require("seed", from.seed, start.seed);
  require("batches an epoch:", from.steps, start.steps);
  require("optimizer", rule_name(from.rule), rule_name(start.rule));
}

void restore(const Checkpoint& checkpoint, const UpdateRule& rule, Net& net) {
  const auto fail = [&](const std::string& why) {
    throw InputError(fmt::format("{} is a checkpoint of another net: {}", checkpoint.file, why));
  };
  net.start_optimizer(rule);

  std::map<std::string, std::byte*> targets;
  const auto& arrays = checkpoint.arrays->header().arrays;
  const auto add = [&](const std::string& name, const Parameter& p, std::byte* to) {
    const auto found = arrays.find(name);
    if (found == arrays.end()) fail(fmt::format("{} is missing", name));
    if (found->second.shape != p.shape || found->second.type != element_type(net.value_type()))
      fail(fmt::format("{} has another shape", name));
    targets[name] = to;
  };
  for (const Parameter& p : net.parameters()) {
    add(p.name, p, p.value);
    for (std::size_t s = 0; s < p.state.size(); ++s)
      if (p.state[s] != nullptr) add(state_name(s, p), p, p.state[s]);
  }
  if (targets.size() != arrays.size())
    fail(fmt::format("it has {} arrays, this one {}", arrays.size(), targets.size()));
  for (const auto& [name, to] : targets) {
    const Array array = checkpoint.arrays->read(name);
    if (!all_finite(array.bytes, net.value_type()))
      throw InputError(fmt::format("{}: {} is infinite or NaN in parts", checkpoint.file, name));
    net.write(to, array.bytes);
  }
  net.set_counters(checkpoint.state.counters);
  net.parameters_changed();
}

}  // namespace convlab::nets
