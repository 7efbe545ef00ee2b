// Convolution through the plan's algorithms. Bias, activation and, in inference, the residual go
// into the epilogue, as far as the algorithm takes them; the rest are separate operations.
//
// In inference a batch norm behind it is folded (conv_weights.h), and the filter is packed once,
// unless the plan packs it in each run to save memory. In training each run packs it, since weights
// change.
//
// In bf16 the f32 weights are rounded first, as often. The gradient of a filter is summed in f32,
// rounded once, and widened.
#include <fmt/format.h>

#include "conv/error.h"
#include "nets/run/arena.h"
#include "nets/run/batched_conv.h"
#include "nets/run/conv_weights.h"
#include "nets/run/half_values.h"
#include "nets/run/op.h"

namespace convlab::nets {
namespace {

class ConvOp : public Op {
 public:
  explicit ConvOp(OpContext context)
      : Op(std::move(context)),
        problem_(problem_of(context_)),
        weights_(context_, context_.step.node, context_.step.batch_norm) {
    make_forward();
    if (training())
      make_backward();
    else
      plan_constants();
    const std::size_t per_channel =
        weights_.has_bias() ? ops().workspace_bytes(problem_.dtype, context_.y) : 0;
    for (std::size_t* bytes : {&needs_.forward_workspace, &needs_.backward_workspace})
      *bytes = std::max(*bytes, per_channel);
  }

  void forward(std::uint64_t, Stream& stream) override {
    const Step& step = context_.step;
    Workspace workspace = at_.forward_workspace;
    const std::byte* const w = filter(workspace, stream);
    ConvArgs args;
    args.x = at_.x[0];
    args.w = w;
    if (fused_.bias) args.bias = fused_bias(workspace, stream);
    args.residual = step.residual ? at_.x[1] : nullptr;
    args.out = at_.y;
    const std::byte* packed = at_.constants + filter_at_;
    if (packed_each_run_ > 0) {
      std::byte* const to = take(workspace, packed_each_run_);
      forward_->pack({w, std::size_t(problem_.filter_bytes())}, to, stream);
      packed = to;
    }
    forward_->run(args, packed, workspace, stream);
    const DType dtype = problem_.dtype;
    const TensorDesc& y = context_.y;
    if (weights_.has_bias() && !fused_.bias)
      ops().bias_forward(dtype, y, at_.y, bias(), at_.y, at_.forward_workspace, stream);
    if (step.residual && !fused_.residual) ops().add(dtype, y, at_.y, at_.x[1], at_.y, stream);
    if (step.activation && !fused_.activation)
      ops().activation_forward(dtype, *step.activation, y, at_.y, at_.y, stream);
  }

  void backward_filter(Stream& stream) override {
    if (const auto kind = context_.step.activation)
      ops().activation_backward(problem_.dtype, *kind, context_.y, at_.y, at_.dy, at_.dy, stream);
    if (weights_.has_bias())
      ops().bias_backward(problem_.dtype, context_.y, at_.dy, weights_.own_bias()->gradient,
                          at_.backward_workspace, stream);
    Workspace workspace = at_.backward_workspace;
    const Parameter& weight = weights_.weight();
    ConvArgs args;
    args.x = at_.x[0];
    args.dy = at_.dy;
    args.out = is_half() ? take(workspace, std::size_t(problem_.filter_bytes())) : weight.gradient;
    filter_->run(args, nullptr, workspace, stream);
    if (is_half())
      widen_values(ops(), problem_.dtype, args.out, weight.gradient, weight.count, stream);
  }

  void backward_data(std::uint64_t, Stream& stream) override {
    Workspace workspace = at_.backward_workspace;
    const std::byte* const w = filter(workspace, stream);
    std::byte* const packed = take(workspace, data_->packed_bytes());
    data_->pack({w, std::size_t(problem_.filter_bytes())}, packed, stream);
    ConvArgs args;
    args.w = w;
    args.dy = at_.dy;
    args.out = at_.dx[0];
    data_->run(args, packed, workspace, stream);
  }

  void parameters_changed(Stream& stream) override {
    if (is_half()) return keep_rounded(stream);
    std::byte* const kept = at_.constants + filter_at_;
    if (!context_.step.batch_norm) {
      if (packs_once()) forward_->pack(bytes_of(weights_.weight()), kept, stream);
      return;
    }
    const Buffer folded = context_.device.allocate(packs_once() ? problem_.filter_bytes() : 0);
    std::byte* const to = packs_once() ? folded.data() : kept;
    weights_.fold(to, at_.constants, stream);
    if (packs_once()) forward_->pack(folded.span(), kept, stream);
    stream.synchronize();
  }

 private:
  static ConvProblem problem_of(const OpContext& context) {
    ConvProblem p = context.graph.conv_problem(context.graph.nodes()[context.step.node]);
    p.dtype = context.dtype;
    p.x_layout = context.x[0].layout;
    p.y_layout = context.y.layout;
    return p;
  }

  // Of a net of the parameters' type.
  ConstSpan bytes_of(const Parameter& p) const {
    return {p.value, std::size_t(p.count * size_of(problem_.dtype))};
  }

  // ---- Planning the passes ----

  const PassPlan& pass_plan(Pass pass) const {
    const auto& plan = context_.plan.passes[std::size_t(pass)];
    if (!plan) throw InputError(fmt::format("the plan has no algorithm for {}", to_string(pass)));
    return *plan;
  }

  std::optional<Refusal> refuse(const ConvProblem& problem) const {
    const PassPlan& plan = pass_plan(problem.pass);
    return BatchedConv::refuse(algo(plan), problem, plan, context_.device);
  }

  const ConvAlgo& algo(const PassPlan& plan) const {
    return context_.algos.conv.get(context_.device.info().kind, plan.algo);
  }

  std::unique_ptr<BatchedConv> make(const ConvProblem& problem) {
    const PassPlan& plan = pass_plan(problem.pass);
    if (const auto refusal = refuse(problem))
      throw InputError(fmt::format("the plan has {} for {}, which refuses x in {} and y in {}: {}",
                                   plan.algo, to_string(problem.pass), to_string(problem.x_layout),
                                   to_string(problem.y_layout), refusal->reason()));
    auto conv = std::make_unique<BatchedConv>(algo(plan), problem, plan, context_.device);
    return conv;
  }
  // Passes of one phase take turns in a workspace. Filters that a run packs are at its start.
  // Before them are rounded weights.
  void add_workspace(std::size_t& workspace, const ConvProblem& problem, const BatchedConv& conv,
                     std::size_t packed) const {
    workspace = std::max(workspace, rounded_weights_bytes(problem, context_.mode) +
                                        packed_and_workspace(packed, conv.workspace_bytes()));
  }

  void make_forward() {
    const Step& step = context_.step;
    ConvProblem p = problem_;
    p.epilogue = {weights_.has_bias(), step.residual, step.activation};
    if (refuse(p)) p.epilogue.activation.reset();
    if (refuse(p)) p.epilogue = {};
    fused_ = p.epilogue;
    forward_ = make(p);
    if (training() || pass_plan(Pass::forward).packs_each_run)
      packed_each_run_ = forward_->packed_bytes();
    add_workspace(needs_.forward_workspace, p, *forward_, packed_each_run_);
  }

  void make_backward() {
    needs_.backward_filter = needs_.backward_reads_x = true;
    needs_.backward_reads_y = context_.step.activation.has_value();
    ConvProblem p = problem_;
    p.pass = Pass::backward_filter;
    filter_ = make(p);
    add_workspace(needs_.backward_workspace, p, *filter_, 0);
    if (!wants_dx()) return;
    needs_.backward_data = true;
    p.pass = Pass::backward_data;
    p.accumulate = context_.gradient[0] == Gradient::add;
    if (p.accumulate && refuse(p)) {
      p.accumulate = false;
      needs_.gradient[0] = Gradient::write;
    }
    data_ = make(p);
    add_workspace(needs_.backward_workspace, p, *data_, data_->packed_bytes());
  }

  // ---- In inference: constants kept between runs ----

  // A bias that is folded or rounded, then the packed filter, or the folded or rounded one as KCRS.
  void plan_constants() {
    const DType bias_type = rounds_bias() ? problem_.dtype : value_type();
    if (keeps_bias()) filter_at_ = padded(std::size_t(problem_.k * size_of(bias_type)));
    needs_.constants = filter_at_ + (packs_once()     ? forward_->packed_bytes()
                                     : keeps_filter() ? std::size_t(problem_.filter_bytes())
                                                      : 0);
    if (keeps_filter() || packs_once()) needs_.folded.push_back(weights_.weight_index());
    if (keeps_bias())
      for (const std::size_t i : weights_.indices_of_rest()) needs_.folded.push_back(i);
  }

  bool packs_once() const {
    return !training() && packed_each_run_ == 0 && forward_->packed_bytes() > 0;
  }

  // An epilogue's bias has the problem's type, that of another operation the parameters'.
  bool rounds_bias() const { return is_half() && fused_.bias; }
  bool keeps_filter() const { return !training() && (weights_.folds() || is_half()); }
  bool keeps_bias() const { return !training() && (weights_.folds() || rounds_bias()); }

  void keep_rounded(Stream& stream) {
    const Parameter& weight = weights_.weight();
    const std::byte* w = weight.value;
    const std::byte* b = weights_.own_bias() != nullptr ? weights_.own_bias()->value : nullptr;
    Buffer folded, rounded;
    if (weights_.folds()) {
      const std::size_t biases_at = padded(std::size_t(weight.count) * sizeof(float));
      folded = context_.device.allocate(biases_at + std::size_t(problem_.k) * sizeof(float));
      std::byte* const biases = rounds_bias() ? folded.data() + biases_at : at_.constants;
      weights_.fold(folded.data(), biases, stream);
      w = folded.data();
      b = biases;
    }
    if (rounds_bias()) round_values(ops(), problem_.dtype, b, at_.constants, problem_.k, stream);
    std::byte* const kept = at_.constants + filter_at_;
    if (packs_once()) rounded = context_.device.allocate(std::size_t(problem_.filter_bytes()));
    std::byte* const to = packs_once() ? rounded.data() : kept;
    round_values(ops(), problem_.dtype, w, to, weight.count, stream);
    if (packs_once()) forward_->pack(rounded.span(), kept, stream);
    stream.synchronize();
  }

  // ---- Weights as the convolutions take them ----

  // The workspace's first bytes. It begins behind them from now on.
  static std::byte* take(Workspace& workspace, std::size_t bytes) {
    std::byte* const taken = workspace.data();
    workspace = workspace.subspan(padded(bytes));
    return taken;
  }
  const std::byte* rounded(const Parameter& p, Workspace& workspace, Stream& stream) const {
    std::byte* const to = take(workspace, std::size_t(p.count * size_of(problem_.dtype)));
    round_values(ops(), problem_.dtype, p.value, to, p.count, stream);
    return to;
  }

  // The KCRS filter.
  const std::byte* filter(Workspace& workspace, Stream& stream) const {
    if (keeps_filter()) return at_.constants + filter_at_;
    if (is_half()) return rounded(weights_.weight(), workspace, stream);
    return weights_.weight().value;
  }
  const std::byte* bias() const {
    if (keeps_bias()) return at_.constants;
    return weights_.own_bias() != nullptr ? weights_.own_bias()->value : nullptr;
  }
  const std::byte* fused_bias(Workspace& workspace, Stream& stream) const {
    return training() && rounds_bias() ? rounded(*weights_.own_bias(), workspace, stream) : bias();
  }

  ConvProblem problem_;  // forward, without an epilogue
  ConvWeights weights_;
  Epilogue fused_;  // what forward_ does
  std::unique_ptr<BatchedConv> forward_, data_, filter_;
  std::size_t filter_at_ = 0;        // offset in the constants
  std::size_t packed_each_run_ = 0;  // bytes that forward packs at the start of its workspace
};

}  // namespace

std::unique_ptr<Op> make_conv_op(OpContext context) {
  if (context.step.depthwise) return make_separable_op(std::move(context));
  return std::make_unique<ConvOp>(std::move(context));
}

}  // namespace convlab::nets
