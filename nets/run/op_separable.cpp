// A depthwise separable convolution as one step, which the device computes. Both filters are folded
// and packed once.
#include <fmt/format.h>

#include "conv/error.h"
#include "nets/run/arena.h"
#include "nets/run/conv_weights.h"
#include "nets/run/op.h"
#include "nets/separable.h"

namespace convlab::nets {
namespace {

class SeparableOp : public Op {
 public:
  explicit SeparableOp(OpContext context)
      : Op(std::move(context)),
        problem_(separable_problem(context_.graph, context_.step, context_.dtype,
                                   context_.plan.x_layout)),
        depthwise_(context_, context_.step.depthwise->node, context_.step.depthwise->batch_norm),
        pointwise_(context_, context_.step.node, context_.step.batch_norm) {
    auto* const device = dynamic_cast<SeparableDevice*>(&context_.device);
    problem_.pointwise.y_layout = context_.y.layout;
    if (device == nullptr)
      throw InputError(fmt::format("the plan has {}, which this device lacks", separable_algo));
    if (const auto refusal = device->refuse(problem_))
      throw InputError(
          fmt::format("the plan has {}, which refuses: {}", separable_algo, refusal->reason()));
    const PassPlan& pass = *context_.plan.passes[std::size_t(Pass::forward)];
    if (!pass.config.values().empty() || pass.images != 0 || pass.packs_each_run)
      throw InputError(
          fmt::format("the plan has {} with '{}', {} images a run{}: expected no config, and the "
                      "whole batch (0), packed once",
                      separable_algo, pass.config.text(), pass.images,
                      pass.packs_each_run ? ", packed in each" : ""));
    plan_ = device->plan(problem_);
    needs_.forward_workspace = plan_->workspace_bytes();
    const auto bias_bytes = [&](const ConvProblem& p) {
      return padded(std::size_t(p.k * size_of(p.dtype)));
    };
    second_bias_at_ = bias_bytes(problem_.depthwise);
    filters_at_ = second_bias_at_ + bias_bytes(problem_.pointwise);
    needs_.constants = filters_at_ + plan_->packed_filter_bytes();
    for (const ConvWeights* weights : {&depthwise_, &pointwise_}) {
      needs_.folded.push_back(weights->weight_index());
      if (weights->folds())
        for (const std::size_t i : weights->indices_of_rest()) needs_.folded.push_back(i);
    }
  }

  void forward(std::uint64_t, Stream& stream) override {
    plan_->run({.x = at_.x[0],
                .packed = at_.constants + filters_at_,
                .depthwise_bias = bias(depthwise_, 0),
                .pointwise_bias = bias(pointwise_, second_bias_at_),
                .residual = context_.step.residual ? at_.x[1] : nullptr,
                .out = at_.y},
               at_.forward_workspace, stream);
  }

  void parameters_changed(Stream& stream) override {
    const Folded first(*this, depthwise_, at_.constants, stream);
    const Folded second(*this, pointwise_, at_.constants + second_bias_at_, stream);
    plan_->pack_filters(first.filter, second.filter,
                        {at_.constants + filters_at_, plan_->packed_filter_bytes()}, stream);
    stream.synchronize();
  }

 private:
  // A filter, folded into a buffer if it is to be.
  struct Folded {
    Buffer buffer;
    ConstSpan filter;

    Folded(const SeparableOp& op, const ConvWeights& weights, std::byte* biases, Stream& stream) {
      const Parameter& weight = weights.weight();
      const std::size_t bytes = std::size_t(weight.count * size_of(op.context_.dtype));
      filter = {weight.value, bytes};
      if (!weights.folds()) return;
      buffer = op.context_.device.allocate(bytes);
      weights.fold(buffer.data(), biases, stream);
      filter = buffer.span();
    }
  };

  const void* bias(const ConvWeights& weights, std::size_t at) const {
    if (weights.folds()) return at_.constants + at;
    return weights.own_bias() != nullptr ? weights.own_bias()->value : nullptr;
  }

  SeparableProblem problem_;
  ConvWeights depthwise_, pointwise_;
  std::unique_ptr<SeparablePlan> plan_;
  std::size_t second_bias_at_ = 0, filters_at_ = 0;  // offsets in the constants
};

}  // namespace

std::unique_ptr<Op> make_separable_op(OpContext context) {
  return std::make_unique<SeparableOp>(std::move(context));
}

}  // namespace convlab::nets
