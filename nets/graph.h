// A network as a graph of layers: each layer's operation, shape, parameters and work. Nothing here
// runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "conv/layer_ops.h"
#include "conv/problem.h"
#include "recurrent/problem.h"

namespace convlab::nets {

// N C H W of an activation, or N C D H W in a net of three dimensions. In memory, D H rows
// (conv/types/layout.h). After a fully connected layer, d = h = w = 1.
struct Shape {
  std::int64_t n = 1, c = 1, h = 1, w = 1;
  std::int64_t d = 1;

  constexpr std::int64_t pixels() const { return d * h * w; }  // of a channel
  constexpr std::int64_t elements() const { return n * c * pixels(); }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// ---- Layers. Graph::add refuses invalid sizes. ----

struct Input {
  Shape shape;
};

// A number for height and one for width: {1, 7}; or one for both: 3.
struct PerAxis {
  std::int64_t h, w;

  constexpr PerAxis(std::int64_t both) : h(both), w(both) {}
  constexpr PerAxis(std::int64_t height, std::int64_t width) : h(height), w(width) {}
  friend bool operator==(const PerAxis&, const PerAxis&) = default;
};

// A window's numbers along the depth.
struct DepthWindow {
  std::int64_t kernel = 1, stride = 1, pad = 0, dilation = 1;
  std::int64_t output_pad = 0;  // of a transposed convolution
  // Behind the last slice, as a window's pad_end is below and to the right; `pad` if not said.
  std::optional<std::int64_t> pad_end = {};
  constexpr std::int64_t end() const { return pad_end.value_or(pad); }
  friend bool operator==(const DepthWindow&, const DepthWindow&) = default;
};

// N C H W to N `filters` P Q, where
//   P = (H + pad + pad_end - dilation * (kernel - 1) - 1) / stride + 1,
// rounded down. A dilation of 1 is dense. `pad_end` is the padding below and to the right: like
// `pad`, if not said.
struct Conv {
  std::int64_t filters = 1;
  PerAxis kernel = 1, stride = 1, pad = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  // The weight of a 1x1 filter is K C, as of PyTorch's Linear over the channels of each pixel.
  bool matrix = false;
  // Of a convolution in three dimensions, whose filter is K C/groups T R S. Without it, each slice
  // of the depth is an image of its own.
  std::optional<DepthWindow> depth = {};
  std::optional<PerAxis> pad_end = {};
  constexpr PerAxis end() const { return pad_end.value_or(pad); }
};

// The gradient of a convolution of these sizes, as a layer (conv/transposed.h): N C H W to
// N `filters` P Q, where
//   P = (H - 1) stride - pad - pad_end + dilation * (kernel - 1) + 1 + output_pad.
// The filter has PyTorch's order, C filters/groups R S. output_pad is less than the stride
// or the dilation.
struct ConvTranspose {
  std::int64_t filters = 1;
  PerAxis kernel = 1, stride = 1, pad = 0, output_pad = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  std::optional<DepthWindow> depth = {};  // as of Conv: the filter is C filters/groups T R S
  std::optional<PerAxis> pad_end = {};    // as of Conv
  constexpr PerAxis end() const { return pad_end.value_or(pad); }
};

// Fully connected: reads each image as C*D*H*W values in that order.
struct Linear {
  std::int64_t outputs = 1;
};

// ceil_mode rounds the output size up; a last window that would lie wholly in the far padding is
// left out, as in PyTorch. Averages divide by the window's elements within image and padding, or
// without count_padding by those within the image.
struct Pool {
  enum class Kind : std::uint8_t { max, average } kind = Kind::max;
  PerAxis kernel = 2, stride = 2, pad = 0;
  bool ceil_mode = false;
  DepthWindow depth = {};  // its dilation is 1
  bool count_padding = true;
  std::optional<PerAxis> pad_end = {};  // as of Conv
  constexpr PerAxis end() const { return pad_end.value_or(pad); }
};

struct GlobalAvgPool {};  // N C H W, with any depth, to N C 1 1

// With a scale and a shift per channel; running statistics are buffers, not parameters. They move
// by `momentum` of the way to the batch's in each forward pass of training.
struct BatchNorm {
  double epsilon = 1e-5, momentum = 0.1;
};

// Over the channels of each pixel, with a scale and a shift per channel.
struct LayerNorm {
  double epsilon = 1e-6;
};

// Over the channels of a group and all pixels of an image, with a scale and a shift per channel
// (Wu & He 2018, arXiv:1803.08494). With a group for each channel it is instance norm.
struct GroupNorm {
  std::int64_t groups = 1;
  double epsilon = 1e-5;
};

// A trained factor per channel, at first `initial` (ConvNeXt's layer scale, which has the node's
// name and the shape C 1 1).
struct ChannelScale {
  double initial = 1;
};

// Across channels: x / (k + alpha * sum of x^2 over `size` neighbouring channels)^beta, with alpha
// not divided by size (Krizhevsky et al. 2012, section 3.3).
struct LocalResponseNorm {
  std::int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 2;
};

struct Activation {
  using Kind = ActivationKind;
  Kind kind = Kind::relu;
};

// LayerActivation (conv/layer_ops.h) is a layer too.

// Like LeakyReLU, with a trained slope per channel, at first `initial`.
struct PRelu {
  double initial = 0.25;
};

struct Dropout {
  double p = 0.5;             // probability of zeroing an element
  bool whole_images = false;  // an image instead (stochastic depth; torchvision's mode "row")
};

// Two inputs, N C H W and N C 1 1: each channel of an image times a number of its own.
struct Gate {};

// Appends channels of zeros.
struct PadChannels {
  std::int64_t channels = 1;  // afterwards
};

// `channels` of the input's channels, from `first` on.
struct Slice {
  std::int64_t first = 0, channels = 1;
};

// Channel g * (C / groups) + i goes to i * groups + g.
struct ChannelShuffle {
  std::int64_t groups = 2;
};

// N C f^2 H W to N C fH fW: channel (c f + i) f + j of a pixel goes to row i and column j of a
// block of f x f (Shi et al. 2016, arXiv:1609.05158). Without depth only, as Resize.
struct PixelShuffle {
  std::int64_t factor = 2;
};

// To another height and width, as ResizeDesc (conv/layer_ops.h) says: PyTorch's interpolate to a
// size, align_corners=False. Without depth only, as Recurrent.
struct Resize {
  ResizeKind kind = ResizeKind::nearest;
  std::int64_t h = 1, w = 1;
};

// Reads N C H W as H steps of C*W inputs each (an image's rows, or what another recurrent layer
// wrote), and starts from states of zero. The output is N C H 1 with the hidden states of every
// step, C = hidden units of both directions; or N C 1 1 with those after each direction's last
// step.
struct Recurrent {
  RecurrentCell cell = RecurrentCell::rnn_tanh;
  std::int64_t hidden = 1, layers = 1;
  bool bidirectional = false;
  bool every_step = false;
};

struct Add {};     // two or more inputs of one shape
struct Concat {};  // along C

using Layer = std::variant<Input, Conv, Linear, Pool, GlobalAvgPool, BatchNorm, LocalResponseNorm,
                           Activation, Dropout, Gate, PadChannels, Recurrent, Add, Concat,
                           ConvTranspose, LayerNorm, ChannelScale, Slice, ChannelShuffle, Resize,
                           LayerActivation, PRelu, GroupNorm, PixelShuffle>;

// A convolution or a transposed one: its passes run by algorithms of convolutions.
bool is_convolution(const Layer&);
bool is_transposed(const Layer&);
// Whether the layer works in nchw alone; an input is in it unless a plan says nhwc.
bool needs_nchw(const Layer&);

// ---- The graph ----

using NodeId = std::size_t;  // index into Graph::nodes()

struct Node {
  std::string name;  // unique; torchvision's module names where there is such a net
  Layer layer;
  std::vector<NodeId> inputs;
  Shape shape;  // of the output
};

class Graph {
 public:
  explicit Graph(std::string name) : name_(std::move(name)) {}

  // Appends a node and infers its shape. Throws InputError, naming net and layer, when the inputs
  // do not exist or do not fit the layer, or the name is taken.
  NodeId add(std::string name, Layer, std::vector<NodeId> inputs);

  const std::string& name() const { return name_; }
  const std::vector<Node>& nodes() const { return nodes_; }  // inputs before their users
  // Batch size of the input. Throws InputError for a graph without layers.
  std::int64_t batch() const;
  // The sizes of a Conv node, or the convolution whose gradient a ConvTranspose node is: forward,
  // f32, nchw. Throws InputError for other layers. Every function here that takes a node throws it
  // for a node of another graph.
  ConvProblem conv_problem(const Node&) const;
  // The sizes of a Recurrent node: forward, f32. Throws InputError for other layers.
  RecurrentProblem recurrent_problem(const Node&) const;

  // Trainable values: weights, biases, scales and shifts.
  std::int64_t parameters(const Node&) const;
  std::int64_t parameters() const;
  // PyTorch's shape of a convolution's weight: K C/groups R S, of a ConvTranspose C filters/groups
  // R S; T stands before R if the layer has depth.
  std::vector<std::int64_t> filter_shape(const Node&) const;
  // For one image, of convolutions (padded taps included), fully connected and recurrent layers.
  std::int64_t multiply_adds(const Node&) const;
  std::int64_t multiply_adds() const;

  // The layer that computes the scores: the last one that is a convolution or fully connected.
  // Throws InputError where there is none.
  NodeId head() const;

 private:
  const Shape& input_shape(const Node&) const;
  Shape infer_shape(const Node&) const;

  std::string name_;
  std::vector<Node> nodes_;
};

// ---- A graph's convolutions and recurrent layers, for tuning ----

struct ConvLayer {
  NamedProblem layer;  // forward, f32, nchw; named as the node
  bool first = false;  // no layer with parameters precedes it: training needs no dx here
  // Of a ConvTranspose: the layer is the convolution whose gradient it is.
  bool transposed = false;
};

// Every convolution in the graph's order, each with count 1.
std::vector<ConvLayer> conv_layers(const Graph&);

// Merges layers of equal sizes into one, with the first one's name and place and the sum of counts.
// A net's first layer stays separate, since its totals differ.
std::vector<ConvLayer> merge_equal(const std::vector<ConvLayer>&);

// Every recurrent layer in the graph's order, each with count 1: forward, f32; named as the node.
// Training needs backward_data of the first as well, since backward_filter reads its dgates.
std::vector<NamedRecurrentProblem> recurrent_layers(const Graph&);
std::vector<NamedRecurrentProblem> merge_equal(const std::vector<NamedRecurrentProblem>&);

}  // namespace convlab::nets
