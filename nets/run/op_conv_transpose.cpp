// Transposed convolution through the plan's algorithms: each pass is one of the convolution whose
// gradient the layer is (conv/transposed.h), whose x has the layout of the layer's y. Bias is a
// separate operation, since no backward_data has an epilogue.
#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/transposed.h"
#include "nets/run/batched_conv.h"
#include "nets/run/op.h"

namespace convlab::nets {
namespace {

class ConvTransposeOp : public Op {
 public:
  explicit ConvTransposeOp(OpContext context)
      : Op(std::move(context)), problem_(problem_of(context_)) {
    const ConvProblem& p = problem_;
    const Node& node = context_.graph.nodes()[context_.step.node];
    const std::string& name = node.name;
    weight_ = context_.parameters.add(name + ".weight", context_.graph.filter_shape(node),
                                      initial_weights(context_.graph, context_.step.node));
    has_bias_ = context_.layer<ConvTranspose>().bias;
    if (has_bias_) bias_ = context_.parameters.add(name + ".bias", {p.c}, {});

    forward_ = make(Pass::forward, needs_.forward_workspace);
    if (training() || plan_of(Pass::forward).packs_each_run)
      needs_.forward_scratch = forward_->packed_bytes();
    else
      needs_.constants = forward_->packed_bytes();
    if (needs_.constants > 0) needs_.folded.push_back(weight_);
    if (training()) make_backward();
    if (!has_bias_) return;
    const std::size_t per_channel = ops().workspace_bytes(p.dtype, context_.y);
    for (std::size_t* bytes : {&needs_.forward_workspace, &needs_.backward_workspace})
      *bytes = std::max(*bytes, per_channel);
  }

  void forward(std::uint64_t, Stream& stream) override {
    const std::byte* packed = at_.constants;
    if (needs_.forward_scratch > 0) {
      forward_->pack(weight(), at_.forward_scratch, stream);
      packed = at_.forward_scratch;
    }
    ConvArgs args;
    args.dy = at_.x[0];
    args.w = weight().data();
    args.out = at_.y;
    forward_->run(args, packed, at_.forward_workspace, stream);
    if (has_bias_)
      ops().bias_forward(problem_.dtype, context_.y, at_.y, parameter(bias_).value, at_.y,
                         at_.forward_workspace, stream);
  }

  void backward_filter(Stream& stream) override {
    if (has_bias_)
      ops().bias_backward(problem_.dtype, context_.y, at_.dy, parameter(bias_).gradient,
                          at_.backward_workspace, stream);
    ConvArgs args;
    args.x = at_.dy;
    args.dy = at_.x[0];
    args.out = parameter(weight_).gradient;
    filter_->run(args, nullptr, at_.backward_workspace, stream);
  }

  void backward_data(std::uint64_t, Stream& stream) override {
    data_->pack(weight(), at_.backward_scratch, stream);
    ConvArgs args;
    args.x = at_.dy;
    args.w = weight().data();
    args.out = at_.dx[0];
    data_->run(args, at_.backward_scratch, at_.backward_workspace, stream);
  }

  void parameters_changed(Stream& stream) override {
    if (needs_.constants > 0) forward_->pack(weight(), at_.constants, stream);
  }

 private:
  static ConvProblem problem_of(const OpContext& context) {
    ConvProblem p = context.graph.conv_problem(context.graph.nodes()[context.step.node]);
    p.dtype = context.dtype;
    p.x_layout = context.y.layout;
    p.y_layout = context.x[0].layout;
    return p;
  }

  ConstSpan weight() const {
    return {parameter(weight_).value, std::size_t(problem_.filter_bytes())};
  }

  // By the layer's pass, as problems are made.
  const PassPlan& plan_of(Pass pass) const {
    const auto& plan = context_.plan.passes[std::size_t(pass)];
    if (!plan) throw InputError(fmt::format("the plan has no algorithm for {}", to_string(pass)));
    return *plan;
  }

  std::optional<Refusal> refuse(Pass pass, const ConvProblem& problem) const {
    return BatchedConv::refuse(algo(pass), problem, plan_of(pass), context_.device);
  }
  const ConvAlgo& algo(Pass pass) const {
    return context_.algos.conv.get(context_.device.info().kind, plan_of(pass).algo);
  }

  std::unique_ptr<BatchedConv> make(Pass pass, std::size_t& workspace) {
    ConvProblem problem = problem_;
    problem.pass = transposed(pass);
    if (pass == Pass::backward_data) {
      problem.accumulate = context_.gradient[0] == Gradient::add;
      if (problem.accumulate && refuse(pass, problem)) {
        problem.accumulate = false;
        needs_.gradient[0] = Gradient::write;
      }
    }
    if (const auto refusal = refuse(pass, problem))
      throw InputError(fmt::format("the plan has {} for {}, which refuses x in {} and y in {}: {}",
                                   plan_of(pass).algo, to_string(pass),
                                   to_string(context_.x[0].layout), to_string(context_.y.layout),
                                   refusal->reason()));
    auto conv = std::make_unique<BatchedConv>(algo(pass), problem, plan_of(pass), context_.device);
    workspace = std::max(workspace, conv->workspace_bytes());
    return conv;
  }

  void make_backward() {
    needs_.backward_filter = needs_.backward_reads_x = true;
    filter_ = make(Pass::backward_filter, needs_.backward_workspace);
    if (!wants_dx()) return;
    needs_.backward_data = true;
    data_ = make(Pass::backward_data, needs_.backward_workspace);
    needs_.backward_scratch = data_->packed_bytes();
  }

  ConvProblem problem_;  // the convolution, forward
  std::size_t weight_ = 0, bias_ = 0;
  bool has_bias_ = false;
  std::unique_ptr<BatchedConv> forward_, data_, filter_;
};

}  // namespace

std::unique_ptr<Op> make_conv_transpose_op(OpContext context) {
  return std::make_unique<ConvTransposeOp>(std::move(context));
}

}  // namespace convlab::nets
