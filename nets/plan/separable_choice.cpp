#include "nets/plan/separable_choice.h"

#include <algorithm>
#include <string>

#include "conv/refusals.h"

namespace convlab::nets {
namespace {

// The joined step's product is one of channel blocks, whatever its layout.
ChooseOptions in_any_layout(ChooseOptions options) {
  options.layout.reset();
  return options;
}

}  // namespace

SeparableChoices::SeparableChoices(const Graph& graph, const std::vector<Step>& steps,
                                   const ChooseOptions& options, const AlgoRegistry& registry,
                                   Device& device, const Ceilings& ceilings, const Store* store)
    : graph_(graph),
      layout_(options.layout),
      any_layout_(in_any_layout(options)),
      convs_(any_layout_, registry, device, ceilings, store),
      blocked_(blocked_layout(device.info())),
      device_(dynamic_cast<SeparableDevice*>(&device)) {
  if (device_ != nullptr && options.mode == Mode::inference && options.dtype == DType::f32)
    all_ = separable_steps(graph, steps);
}

bool SeparableChoices::takes_in(std::size_t step) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const SeparableSteps& s) { return s.depthwise == step; });
}

std::optional<ConvChoice> SeparableChoices::best(const SeparableSteps& steps, Layout layout,
                                                 const MemoryTerms& terms, double moving_ms) {
  if (layout_ && *layout_ != layout) return {};
  const SeparableProblem problem =
      separable_problem(graph_, steps.joined, any_layout_.dtype, layout);
  const std::optional<double> first = convs_.least_ms(problem.depthwise, "depthwise"),
                              second = convs_.least_ms(
                                  with_layouts(problem.pointwise, {blocked_, blocked_}),
                                  "implicit_gemm");
  if (!first || !second) return {};
  const std::optional<Bytes>& bytes = this->bytes(problem, steps.joined.node);
  if (!bytes || bytes->workspace > terms.workspace) return {};
  // Of measured times most is arithmetic, which remains, so that at most a tenth is saved. A
  // predicted one is a roof, often that of the memory. In nhwc y moves through a buffer instead.
  const bool measured = convs_.tuned(problem.depthwise) && convs_.tuned(problem.pointwise);
  const double both = *first + *second, least = both * (measured ? 0.9 : 0.5),
               ms = layout == blocked_ ? std::max(both - moving_ms, least) : both;
  return ConvChoice{.plan = {.algo = std::string(separable_algo), .config = {}, .ms = ms},
                    .cost = ms + terms.ms_per_byte * double(bytes->growth),
                    .workspace = bytes->workspace,
                    .growth = bytes->growth};
}

const std::optional<SeparableChoices::Bytes>& SeparableChoices::bytes(
    const SeparableProblem& problem, NodeId node) {
  const auto [known, is_new] = bytes_.try_emplace({node, problem.pointwise.x_layout});
  if (!is_new || device_->refuse(problem)) return known->second;
  const auto plan = device_->plan(problem);
  const std::int64_t filters = problem.depthwise.filter_bytes() + problem.pointwise.filter_bytes();
  known->second = {std::int64_t(plan->workspace_bytes()),
                   std::max<std::int64_t>(0, std::int64_t(plan->packed_filter_bytes()) - filters)};
  return known->second;
}

}  // namespace convlab::nets
