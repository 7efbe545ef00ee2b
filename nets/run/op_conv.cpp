// Convolution through the plan's algorithms. Bias, activation and, in inference, the residual go
// into the epilogue, as far as the algorithm takes them; the rest are separate operations.
//
// In inference a batch norm behind it is folded (conv_weights.h), and the filter is packed once,
// unless the plan packs it in each run to save memory. In training each run packs it, since weights
// change.
#include <fmt/format.h>

#include "conv/error.h"
#include "nets/run/arena.h"
#include "nets/run/batched_conv.h"
#include "nets/run/conv_weights.h"
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
    ConvArgs args;
    args.x = at_.x[0];
    args.w = filter();
    args.bias = bias();
    args.residual = step.residual ? at_.x[1] : nullptr;
    args.out = at_.y;
    const std::byte* packed = at_.constants + filter_at_;
    if (packed_each_run_ > 0) {
      packed = at_.forward_workspace.data();
      forward_->pack({filter(), std::size_t(problem_.filter_bytes())}, at_.forward_workspace.data(),
                     stream);
    }
    forward_->run(args, packed, at_.forward_workspace.subspan(packed_each_run_), stream);
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
    ConvArgs args;
    args.x = at_.x[0];
    args.dy = at_.dy;
    args.out = weights_.weight().gradient;
    filter_->run(args, nullptr, at_.backward_workspace, stream);
  }

  void backward_data(std::uint64_t, Stream& stream) override {
    const std::span packed = at_.backward_workspace.first(data_->packed_bytes());
    data_->pack(bytes_of(weights_.weight()), packed.data(), stream);
    ConvArgs args;
    args.w = weights_.weight().value;
    args.dy = at_.dy;
    args.out = at_.dx[0];
    data_->run(args, packed.data(), at_.backward_workspace.subspan(packed.size()), stream);
  }

  void parameters_changed(Stream& stream) override {
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
  static void add_workspace(std::size_t& workspace, const BatchedConv& conv, std::size_t packed) {
    workspace = std::max(workspace, packed_and_workspace(packed, conv.workspace_bytes()));
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
    add_workspace(needs_.forward_workspace, *forward_, packed_each_run_);
  }

  void make_backward() {
    needs_.backward_filter = needs_.backward_reads_x = true;
    needs_.backward_reads_y = context_.step.activation.has_value();
    ConvProblem p = problem_;
    p.pass = Pass::backward_filter;
    filter_ = make(p);
    add_workspace(needs_.backward_workspace, *filter_, 0);
    if (!wants_dx()) return;
    needs_.backward_data = true;
    p.pass = Pass::backward_data;
    p.accumulate = context_.gradient[0] == Gradient::add;
    if (p.accumulate && refuse(p)) {
      p.accumulate = false;
      needs_.gradient[0] = Gradient::write;
    }
    data_ = make(p);
    add_workspace(needs_.backward_workspace, *data_, data_->packed_bytes());
  }

  // ---- In inference: constants kept between runs ----

  // A folded bias, then the packed filter, or the folded one as KCRS.
  void plan_constants() {
    const bool folds = context_.step.batch_norm.has_value();
    if (folds) filter_at_ = padded(std::size_t(problem_.k * size_of(problem_.dtype)));
    needs_.constants = filter_at_ + (packs_once() ? forward_->packed_bytes()
                                     : folds      ? problem_.filter_bytes()
                                                  : 0);
    if (folds || packs_once()) needs_.folded.push_back(weights_.weight_index());
    if (folds)
      for (const std::size_t i : weights_.indices_of_rest()) needs_.folded.push_back(i);
  }

  bool packs_once() const {
    return !training() && packed_each_run_ == 0 && forward_->packed_bytes() > 0;
  }

  // The KCRS filter, folded if it is to be.
  const std::byte* filter() const {
    const bool folds = !training() && context_.step.batch_norm;
    return folds ? at_.constants + filter_at_ : weights_.weight().value;
  }
  const void* bias() const {
    if (context_.step.batch_norm) return at_.constants;
    return weights_.own_bias() != nullptr ? weights_.own_bias()->value : nullptr;
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
