// Transposed convolution through the plan's algorithms: each pass is one of the convolution whose
// gradient the layer is (conv/transposed.h), whose x has the layout of the layer's y. Bias is a
// separate operation, since no backward_data has an epilogue. Weights in bf16 are as op_conv.cpp's.
#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/transposed.h"
#include "nets/run/arena.h"
#include "nets/run/batched_conv.h"
#include "nets/run/half_values.h"
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
    const std::size_t packed = forward_->packed_bytes();
    if (is_half()) rounded_ = padded(std::size_t(p.filter_bytes()));
    if (training() || plan_of(Pass::forward).packs_each_run)
      needs_.forward_scratch = rounded_ + packed;
    else
      needs_.constants = packed > 0 ? packed : rounded_;
    if (needs_.constants > 0) needs_.folded.push_back(weight_);
    if (training()) make_backward();
    if (!has_bias_) return;
    const std::size_t per_channel = ops().workspace_bytes(p.dtype, context_.y);
    for (std::size_t* bytes : {&needs_.forward_workspace, &needs_.backward_workspace})
      *bytes = std::max(*bytes, per_channel);
  }

  void forward(std::uint64_t, Stream& stream) override {
    const std::byte* packed = at_.constants;
    const std::byte* w = is_half() ? at_.constants : parameter(weight_).value;
    if (needs_.forward_scratch > 0) {
      std::byte* const to = at_.forward_scratch + rounded_;
      const ConstSpan filter = weight(at_.forward_scratch, stream);
      forward_->pack(filter, to, stream);
      packed = to;
      w = filter.data();
    }
    ConvArgs args;
    args.dy = at_.x[0];
    args.w = w;
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
    const Parameter& p = parameter(weight_);
    ConvArgs args;
    args.x = at_.dy;
    args.dy = at_.x[0];
    args.out = is_half() ? at_.backward_scratch : p.gradient;
    filter_->run(args, nullptr, at_.backward_workspace, stream);
    if (is_half()) widen_values(ops(), problem_.dtype, args.out, p.gradient, p.count, stream);
  }

  void backward_data(std::uint64_t, Stream& stream) override {
    const ConstSpan filter = weight(at_.backward_scratch, stream);
    std::byte* const packed = at_.backward_scratch + rounded_;
    data_->pack(filter, packed, stream);
    ConvArgs args;
    args.x = at_.dy;
    args.w = filter.data();
    args.out = at_.dx[0];
    data_->run(args, packed, at_.backward_workspace, stream);
  }

  void parameters_changed(Stream& stream) override {
    if (needs_.constants == 0) return;
    if (forward_->packed_bytes() == 0) {
      weight(at_.constants, stream);
      return;
    }
    const Buffer rounded = context_.device.allocate(rounded_);
    forward_->pack(weight(rounded.data(), stream), at_.constants, stream);
    stream.synchronize();
  }

 private:
  static ConvProblem problem_of(const OpContext& context) {
    ConvProblem p = context.graph.conv_problem(context.graph.nodes()[context.step.node]);
    p.dtype = context.dtype;
    p.x_layout = context.y.layout;
    p.y_layout = context.x[0].layout;
    return p;
  }

  // The filter in the convolution's type, where it is, or rounded to `room`.
  ConstSpan weight(std::byte* room, Stream& stream) const {
    const Parameter& p = parameter(weight_);
    if (is_half()) round_values(ops(), problem_.dtype, p.value, room, p.count, stream);
    return {is_half() ? room : p.value, std::size_t(problem_.filter_bytes())};
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
    needs_.backward_scratch = rounded_;
    if (!wants_dx()) return;
    needs_.backward_data = true;
    data_ = make(Pass::backward_data, needs_.backward_workspace);
    needs_.backward_scratch += data_->packed_bytes();
  }

  ConvProblem problem_;  // the convolution, forward
  std::size_t weight_ = 0, bias_ = 0;
  bool has_bias_ = false;
  std::size_t rounded_ = 0;  // bytes of a rounded filter, or gradient, at the start of the scratch
  std::unique_ptr<BatchedConv> forward_, data_, filter_;
};

}  // namespace

std::unique_ptr<Op> make_conv_transpose_op(OpContext context) {
  return std::make_unique<ConvTransposeOp>(std::move(context));
}

}  // namespace convlab::nets
