#include "nets/onnx/translation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "conv/error.h"
#include "nets/onnx/attributes.h"

namespace convlab::nets::onnx_reader {
namespace {

// A sum over that many takes hours, and a file may claim it in a few bytes.
constexpr std::int64_t most_weights = std::int64_t{1} << 38;
constexpr std::int64_t most_channels = std::int64_t{1} << 24;
constexpr std::size_t most_layers = 20'000;  // a net compares the names of all of them

// The net's shape of dimensions in a plain order; nullopt if it has none.
std::optional<Shape> plain_shape(const Dims& dims) {
  if (dims.size() < 2 || dims.size() > 5) return {};
  if (std::any_of(dims.begin(), dims.end(), [](auto d) { return d < 1 || d > largest_size; }))
    return {};
  Shape s{dims[0], dims[1]};
  if (dims.size() > 2) s.w = dims.back();
  if (dims.size() > 3) s.h = dims[dims.size() - 2];
  if (dims.size() > 4) s.d = dims[2];
  return s;
}

// Of an activation: whether 0 becomes 0.
bool keeps_zero(const Layer& layer) {
  if (const auto* const other = std::get_if<LayerActivation>(&layer)) return other->keeps_zero();
  return convlab::keeps_zero(std::get<Activation>(layer).kind);
}

bool reads_channels_last(const std::vector<const Node*>& readers) {
  return std::all_of(readers.begin(), readers.end(), [](const Node* node) {
    return node && node->op_type() == "Transpose" && integers(*node, "perm") == Dims{0, 3, 1, 2};
  });
}

}  // namespace

const Rules& translation_rules() {
  static const Rules rules = [] {
    Rules all;
    add_layer_rules(all);
    add_pooling_rules(all);
    add_activation_rules(all);
    add_reshaping_rules(all);
    return all;
  }();
  return rules;
}

Translation::Translation(const onnx::ModelProto& model, const OnnxSizes& sizes,
                         const Folder& folder, Graph& graph)
    : model_(model.graph()), known_(known_values(model, sizes)), folder_(folder), graph_(graph) {}

void Translation::run() {
  if (model_.output_size() == 0) throw InputError("the model has no output");
  output_ = model_.output(0).name();
  if (model_.output_size() > 1)
    known_.notes.push_back(fmt::format("of its {} outputs the net computes the first, '{}'",
                                       model_.output_size(), output_));
  for (const Node& node : model_.node()) infer(node, known_.values);
  constants_ = constants_of(model_, known_.values, known_.inputs);
  mark_needed();
  written_out_ = find_written_out(model_, known_.values, readers_);
  add_input();
  for (const Node* node : needed_)
    if (!written_out_.inner.contains(node) && !absorbed_.contains(node)) translate(*node);
  refuse_lacking();
  finish();
}

// What the output depends on, but for sizes and constants, which inference has found.
void Translation::mark_needed() {
  std::unordered_set<std::string> wanted{output_};
  for (int i = model_.node_size(); i-- > 0;) {
    const Node& node = model_.node(i);
    const bool is_wanted =
        std::any_of(node.output().begin(), node.output().end(), [&](const std::string& name) {
          return wanted.contains(name) && !constants_.contains(name);
        });
    if (!is_wanted) continue;
    needed_.push_back(&node);
    for (const std::string& name : node.input()) {
      if (name.empty()) continue;
      wanted.insert(name);
      readers_[name].push_back(&node);
    }
  }
  std::reverse(needed_.begin(), needed_.end());
  readers_[output_].push_back(nullptr);
}

void Translation::add_input() {
  if (known_.inputs.empty()) throw InputError("the model has no input");
  const std::string& name = known_.inputs.front();
  const Value& v = known_.values[name];
  if (!v.complete())
    throw InputError(fmt::format("input '{}': the model says no sizes: export it with them", name));
  Dims dims = *v.dims;
  NetValue value{.form = Form::plain, .rank = dims.size()};
  if (const auto readers = readers_.find(name);
      dims.size() == 4 && readers != readers_.end() && reads_channels_last(readers->second)) {
    value.form = Form::channels_last;
    dims = {dims[0], dims[3], dims[1], dims[2]};
  }
  const std::optional<Shape> shape = plain_shape(dims);
  if (!shape)
    throw InputError(fmt::format("input '{}' is {}: a net takes 2 to 5 dimensions, from N C on",
                                 name, fmt::join(*v.dims, "x")));
  value.id = graph_.add(unique("input"), Input{*shape}, {});
  values_[name] = value;
}

std::string Translation::unique(const std::string& name) {
  for (std::string candidate = name;;) {
    const auto [taken, fresh] = names_.emplace(candidate, 1);
    if (fresh) return candidate;
    candidate = fmt::format("{}.{}", name, ++names_[name]);
  }
}

void Translation::translate(const Node& node) {
  const auto any_input = [&](const auto& known) {
    return std::any_of(node.input().begin(), node.input().end(),
                       [&](const std::string& name) { return known.contains(name); });
  };
  const auto whole = written_out_.last.find(&node);
  const bool is_whole = whole != written_out_.last.end();
  const bool behind = is_whole ? unknown_.contains(whole->second.input) : any_input(unknown_);
  if (!behind && !is_whole && !any_input(values_))
    return;  // whoever reads it finds neither value nor constant
  if (node.output_size() < 1) return;
  if (node.op_type() == "Shape" || node.op_type() == "Size") return;  // of what has no known sizes
  const auto rule = translation_rules().find(node.op_type());
  const bool has_rule = is_standard(node) && rule != translation_rules().end();
  const auto lacks = [&](const std::string& why) {
    std::string what = is_standard(node) ? node.op_type() : node.domain() + ":" + node.op_type();
    if (!why.empty()) what += " " + why;
    const auto known = std::find_if(lacking_.begin(), lacking_.end(),
                                    [&](const auto& entry) { return entry.first == what; });
    if (known == lacking_.end())
      lacking_.push_back({what, {name_of(node)}});
    else
      known->second.push_back(name_of(node));
    stand_in(node);
  };
  if (!has_rule) return lacks("");
  if (behind) return stand_in(node);
  try {
    Call call(*this, node);
    if (is_whole) {
      const auto x = values_.find(whole->second.input);
      if (x == values_.end()) return lacks("of what the net does not compute");
      // Zeros that are still to come around the image would not go through it.
      if (!x->second.pad_begin.empty() && !keeps_zero(whole->second.layer))
        return lacks("of a padded image");
      elementwise(call, x->second, whole->second.layer);
    } else {
      rule->second(call);
    }
  } catch (const Lacking& lacking) {
    lacks(lacking.why);
  }
}

// For a node without a layer, so that those behind it are looked at too: the net is refused anyway.
void Translation::stand_in(const Node& node) {
  for (const std::string& name : node.output()) {
    if (!readers_.contains(name)) continue;
    const Value& v = known_.values[name];
    const std::optional<Shape> shape = v.complete() ? plain_shape(*v.dims) : std::nullopt;
    if (shape && shape->c <= most_channels) {
      values_[name] = {.id = graph_.add(unique(name), Input{*shape}, {}), .rank = v.dims->size()};
    } else {
      unknown_.insert(name);
    }
  }
}

void Translation::refuse_lacking() const {
  if (lacking_.empty()) return;
  constexpr std::size_t most = 4;
  std::vector<std::string> operators;
  for (const auto& [what, nodes] : lacking_)
    operators.push_back(
        fmt::format("{} ({}: {}{})", what, nodes.size(),
                    fmt::join(nodes.begin(),
                              nodes.begin() + std::ptrdiff_t(std::min(most, nodes.size())), ", "),
                    nodes.size() > most ? ", ..." : ""));
  throw InputError(fmt::format("no layer for: {}", fmt::join(operators, ", ")));
}

void Translation::finish() {
  const auto output = values_.find(output_);
  if (output == values_.end())
    throw InputError(fmt::format("its output '{}' depends on no input", output_));
  const NetValue& v = output->second;
  if (v.id == 0) throw InputError(fmt::format("its output '{}' is its input", output_));
  if (v.id + 1 != graph_.nodes().size())
    throw InputError(fmt::format("its output '{}' is not what its last node computes", output_));
  if (v.form == Form::line || v.form == Form::grouped || v.form == Form::apart ||
      v.form == Form::shuffled || !v.pad_begin.empty())
    throw InputError(fmt::format(
        "its output '{}' is padded or in groups: expected an image or scores", output_));
  if (v.form == Form::channels_last && graph_.nodes()[v.id].shape.pixels() > 1)
    known_.notes.push_back("the output has its channels before the image here");
}

// ---- What a rule may ask ----

const NetValue* Call::find_value(int i) const {
  if (!has(i)) return nullptr;
  const auto found = t_.values_.find(node.input(i));
  return found == t_.values_.end() ? nullptr : &found->second;
}

const NetValue& Call::value(int i) const {
  const NetValue* const v = find_value(i);
  if (!v) throw Lacking{"of what the net does not compute"};
  if (v->form == Form::line && node.op_type() != "Reshape" && node.op_type() != "Gather")
    throw Lacking{"of several images as one"};
  if (v->form == Form::grouped && node.op_type() != "Reshape" &&
      node.op_type() != "InstanceNormalization")
    throw Lacking{"of groups of channels"};
  const bool takes_padding =
      is_convolution(node) || node.op_type() == "MaxPool" || node.op_type() == "AveragePool";
  if (!v->pad_begin.empty() && !takes_padding) throw Lacking{"of a padded image"};
  return *v;
}

const NetValue& Call::image(int i) const {
  const NetValue& v = value(i);
  if (v.form != Form::plain) throw Lacking{"of an image in another order than N C H W"};
  return v;
}

const Constant* Call::find_constant(int i) const {
  if (!has(i)) return nullptr;
  const auto found = t_.constants_.find(node.input(i));
  return found == t_.constants_.end() ? nullptr : &found->second;
}

const Constant& Call::weight(int i, const char* part) const {
  const Constant* const c = find_constant(i);
  if (!c) throw Lacking{fmt::format("with a {} that the model computes", part)};
  if (c->elements() > most_weights)
    contradict(fmt::format("'{}' claims {}: expected at most {} elements", c->name,
                           fmt::join(c->dims, "x"), most_weights));
  return *c;
}

const std::optional<std::vector<double>>& Call::data(int i) const {
  static const std::optional<std::vector<double>> none;
  if (!has(i)) return none;
  const auto v = known().find(node.input(i));
  return v == known().end() ? none : v->second.data;
}

std::vector<double> Call::elements(const Constant& c) const {
  return values_of(read_constant(c, t_.folder_));
}

Dims Call::sizes(const char* name, int input) const {
  if (attribute(node, name)) return integers(node, name);
  if (!has(input)) return {};
  if (!data(input)) throw Lacking{fmt::format("with {} that the model computes", name)};
  Dims found;
  for (const double v : *data(input)) found.push_back(bounded(v));
  return found;
}

Dims Call::image_dims(const NetValue& v) const {
  const Shape& s = shape(v);
  const Dims all{s.d, s.h, s.w};
  return {all.end() - std::ptrdiff_t(v.rank - 2), all.end()};
}

std::size_t Call::channel_axis(const NetValue& v) const {
  return v.form == Form::channels_last ? v.rank - 1 : 1;
}

Dims Call::dims(const NetValue& v) const {
  const Shape& s = shape(v);
  if (v.form == Form::line) return {s.elements()};
  const Dims image = image_dims(v);
  Dims dims{s.n};
  switch (v.form) {
    case Form::flat:
      dims.push_back(s.c * s.pixels());
      return dims;
    case Form::grouped:
      dims.insert(dims.end(), {v.groups, s.c / v.groups * s.pixels()});
      return dims;
    case Form::plain:
      dims.push_back(s.c);
      break;
    case Form::apart:
      dims.insert(dims.end(), {v.groups, s.c / v.groups});
      break;
    case Form::shuffled:
      dims.insert(dims.end(), {s.c / v.groups, v.groups});
      break;
    case Form::channels_last:
    case Form::line:
      break;
  }
  dims.insert(dims.end(), image.begin(), image.end());
  if (v.form == Form::channels_last) dims.push_back(s.c);
  return dims;
}

const Dims& Call::output_dims() const {
  const auto v = known().find(node.output(0));
  if (v == known().end() || !v->second.complete())
    throw Lacking{"to sizes that the model computes"};
  return *v->second.dims;
}

const Node* Call::only_reader(const std::string& value) const {
  const auto found = t_.readers_.find(value);
  return found != t_.readers_.end() && found->second.size() == 1 ? found->second.front() : nullptr;
}

bool Call::is_last() const {
  std::string value = node.output(0);
  while (value != t_.output_) {
    const Node* const next = only_reader(value);
    if (!next || next->op_type() != "Identity" || next->output_size() != 1) return false;
    value = next->output(0);
  }
  return only_reader(value) == nullptr && t_.readers_.at(value).size() == 1;
}

NodeId Call::add(Layer layer, std::vector<NodeId> inputs, const std::string& name) {
  if (t_.graph_.nodes().size() >= most_layers)
    throw InputError(fmt::format("more than {} layers", most_layers));
  const std::string& base = name.empty() ? name_of(node) : name;
  const NodeId id = t_.graph_.add(t_.unique(base.empty() ? node.op_type() : base), std::move(layer),
                                  std::move(inputs));
  if (t_.graph_.nodes()[id].shape.c > most_channels)
    contradict(fmt::format("makes {} channels: expected at most {}", t_.graph_.nodes()[id].shape.c,
                           most_channels));
  return id;
}

void Call::put(const std::string& name, NetValue v) {
  // The layer and the file's own inference must agree; a file may claim other sizes, or a batch
  // that a Reshape has fixed.
  if (const auto said = known().find(name); v.pad_begin.empty() && said != known().end() &&
                                            said->second.complete() &&
                                            *said->second.dims != dims(v))
    contradict(fmt::format(
        "gives {} here, but {} in the model, whose batch may be fixed: expected the same",
        fmt::join(dims(v), "x"), fmt::join(*said->second.dims, "x")));
  t_.values_[name] = std::move(v);
}

void Call::contradict(const std::string& what) const {
  throw InputError(fmt::format("{}: {}", describe(node), what));
}

}  // namespace convlab::nets::onnx_reader
