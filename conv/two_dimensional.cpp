#include "conv/two_dimensional.h"

#include <fmt/format.h>

namespace convlab {

std::optional<ConvProblem> without_depth(const ConvProblem& p) {
  if (!p.has_depth()) return p;
  const bool column = p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_h == 0 &&
                      p.pad_w == 0 && p.p == p.h && p.q == p.w;
  if (!column) return std::nullopt;
  ConvProblem flat = p;
  flat.d = flat.t = flat.z = flat.stride_d = flat.dilation_d = flat.dilation_w = 1;
  flat.pad_d = 0;
  flat.h = p.d, flat.r = p.t, flat.p = p.z;
  flat.stride_h = p.stride_d, flat.pad_h = p.pad_d, flat.dilation_h = p.dilation_d;
  flat.w = p.h * p.w, flat.q = p.p * p.q;
  return flat;
}

std::optional<Refusal> refuse_depth(const ConvProblem& p) {
  if (!p.has_depth()) return {};
  return Refusal{Field::depth, "images without depth",
                 fmt::format("a depth of {}, and {} taps there", p.d, p.t)};
}

std::optional<Refusal> TwoDimensional::refuse(const ConvProblem& p, Device& device) const {
  const std::optional<ConvProblem> flat = without_depth(p);
  return flat ? ForwardingAlgo::refuse(*flat, device) : refuse_depth(p);
}
std::vector<Config> TwoDimensional::configs(const ConvProblem& p, Device& device) const {
  return ForwardingAlgo::configs(without_depth(p).value(), device);
}
bool TwoDimensional::deterministic(const ConvProblem& p, const Config& config) const {
  return ForwardingAlgo::deterministic(without_depth(p).value(), config);
}
WorkEstimate TwoDimensional::work(const ConvProblem& p, const Config& config,
                                  Device& device) const {
  return ForwardingAlgo::work(without_depth(p).value(), config, device);
}
std::unique_ptr<ConvPlan> TwoDimensional::plan(const ConvProblem& p, const Config& config,
                                               Device& device) const {
  return ForwardingAlgo::plan(without_depth(p).value(), config, device);
}

}  // namespace convlab
