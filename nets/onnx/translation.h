// An ONNX graph as a net: each node that computes becomes a layer, or nothing. A rule
// (operators, pooling, activations and reshaping.cpp) translates the nodes of one operator.
#pragma once

#include <onnx/onnx_pb.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "nets/graph.h"
#include "nets/onnx/constants.h"
#include "nets/onnx/model.h"
#include "nets/onnx/written_out.h"

namespace convlab::nets::onnx_reader {

// How the model's dimensions of a value come from the net's N C D H W. The values themselves are
// the same, so that reordering nodes compute nothing.
enum class Form : std::uint8_t {
  plain,          // N C and the last axes of the image
  flat,           // N and all others as one
  channels_last,  // N, the image, C
  line,           // all in one
  grouped,        // N G and all others as one
  apart,          // N G C/G and the image
  shuffled        // N C/G G and the image
};

struct NetValue {
  NodeId id = 0;
  Form form = Form::plain;
  std::size_t rank = 4;     // of the model's dimensions; of apart and shuffled, before that
  std::int64_t groups = 1;  // of grouped, apart and shuffled
  Dims pad_begin = {}, pad_end = {};  // zeros around the image that no layer has added; or empty
};

// A parameter of the net: the model's constant, of which each element becomes factor * element or,
// inverted, its reciprocal; or `value` everywhere. One element stands for all.
struct Source {
  std::string parameter;
  Dims shape;
  std::optional<Constant> from = {};
  double value = 0;
  double factor = 1;
  bool inverted = false;
};

// Thrown by a rule: nets have no layer for such a node. `why` follows the operator's name.
struct Lacking {
  std::string why;
};

class Translation {
 public:
  // `graph` and the model outlive it. run() throws InputError; it lists all nodes without a layer.
  Translation(const onnx::ModelProto&, const OnnxSizes&, const Folder&, Graph& graph);
  void run();

  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<std::string>& notes() const { return known_.notes; }

 private:
  friend class Call;

  void mark_needed();
  void add_input();
  void translate(const Node&);
  void stand_in(const Node&);
  void refuse_lacking() const;
  void finish();
  std::string unique(const std::string& name);

  const onnx::GraphProto& model_;
  Known known_;
  const Folder& folder_;
  Graph& graph_;
  std::string output_;
  Constants constants_;
  std::vector<const Node*> needed_;  // in the file's order
  Readers readers_;
  WrittenOutActivations written_out_;
  std::unordered_map<std::string, NetValue> values_;
  std::unordered_set<std::string> unknown_;   // behind a node without a layer
  std::unordered_set<const Node*> absorbed_;  // by the layer before
  std::vector<std::pair<std::string, std::vector<std::string>>> lacking_;  // operator, nodes
  std::unordered_map<std::string, int> names_;
  std::vector<Source> sources_;
};

// One node and what its rule may ask and do.
class Call {
 public:
  Call(Translation& t, const Node& node) : node(node), t_(t) {}

  const Node& node;

  Call at(const Node& other) const { return {t_, other}; }
  bool has(int i) const { return i < node.input_size() && !node.input(i).empty(); }
  // What the net computes; nullptr for others. value() throws Lacking instead.
  const NetValue* find_value(int i) const;
  const NetValue& value(int i) const;
  const NetValue& image(int i) const;  // a plain one
  // nullptr for what is not a constant. weight() throws Lacking, with the name of its part.
  const Constant* find_constant(int i) const;
  const Constant& weight(int i, const char* part) const;
  const Values& known() const { return t_.known_.values; }
  const std::optional<std::vector<double>>& data(int i) const;  // of a small constant
  std::vector<double> elements(const Constant&) const;          // of a large one too
  // Attribute in older opsets, input since; empty: neither. Throws Lacking where it is computed.
  Dims sizes(const char* name, int input) const;

  const Shape& shape(const NetValue& v) const { return t_.graph_.nodes()[v.id].shape; }
  Dims dims(const NetValue&) const;        // as the model sees it, without the padding
  Dims image_dims(const NetValue&) const;  // its last axes
  std::size_t channel_axis(const NetValue&) const;
  const Dims& output_dims() const;  // by inference. Throws Lacking where unknown.

  const Node* only_reader(const std::string& value) const;
  bool is_read(const std::string& value) const { return t_.readers_.contains(value); }
  // Follows from here only to the model's output.
  bool is_last() const;
  void absorb(const Node& next) { t_.absorbed_.insert(&next); }

  // Appends a layer, named as the node, or by another name of the model's. Returns its id.
  NodeId add(Layer, std::vector<NodeId> inputs, const std::string& name = "");
  const std::string& name_of_layer(NodeId id) const { return t_.graph_.nodes()[id].name; }
  const Graph& graph() const { return t_.graph_; }
  void source(Source s) { t_.sources_.push_back(std::move(s)); }
  void put(NetValue v) { put(node.output(0), std::move(v)); }
  void put(const std::string& name, NetValue v);
  void note(std::string text) { t_.known_.notes.push_back(std::move(text)); }

  [[noreturn]] void contradict(const std::string& what) const;

 private:
  Translation& t_;
};

using Rule = void (*)(Call&);
using Rules = std::unordered_map<std::string, Rule>;
void add_layer_rules(Rules&);       // operators.cpp
void add_pooling_rules(Rules&);     // pooling.cpp
void add_activation_rules(Rules&);  // activations.cpp
void add_reshaping_rules(Rules&);   // reshaping.cpp
const Rules& translation_rules();

// The last axes of an image as the net has them: those in front are 1 or 0.
struct Axes {
  std::int64_t d, h, w;

  Axes(const Dims& sizes, std::int64_t otherwise) : d(otherwise), h(otherwise), w(otherwise) {
    const std::array<std::int64_t*, 3> all{&d, &h, &w};
    for (std::size_t i = 0; i < sizes.size() && i < 3; ++i) *all[3 - sizes.size() + i] = sizes[i];
  }
  PerAxis plane() const { return {h, w}; }
};

// The window over an image around which zeros are still to come (NetValue), as part of the window's
// padding. Throws Lacking where it takes less than nothing.
Window window_with_padding(const Call&, const NetValue&, const Dims& kernel);

// factor * x + shift in every channel, as a layer of the node.
NetValue affine(Call&, const NetValue& x, double factor, double shift);

// A number or one a channel, of a constant beside an image, broadcast as ONNX does.
bool is_per_channel(const Call&, const NetValue&, const Constant&);
// The same layer applied to a value in any form.
void elementwise(Call&, const NetValue&, Layer);

}  // namespace convlab::nets::onnx_reader
