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

namespace {

ConvProblem flat_where_possible(const ConvProblem& p) { return without_depth(p).value_or(p); }

}  // namespace

std::optional<Refusal> FlatWherePossible::refuse(const ConvProblem& p, Device& device) const {
  return ForwardingAlgo::refuse(flat_where_possible(p), device);
}
std::vector<Config> FlatWherePossible::configs(const ConvProblem& p, Device& device) const {
  return ForwardingAlgo::configs(flat_where_possible(p), device);
}
bool FlatWherePossible::deterministic(const ConvProblem& p, const Config& config) const {
  return ForwardingAlgo::deterministic(flat_where_possible(p), config);
}
WorkEstimate FlatWherePossible::work(const ConvProblem& p, const Config& config,
                                     Device& device) const {
  return ForwardingAlgo::work(flat_where_possible(p), config, device);
}
std::unique_ptr<ConvPlan> FlatWherePossible::plan(const ConvProblem& p, const Config& config,
                                                  Device& device) const {
  return ForwardingAlgo::plan(flat_where_possible(p), config, device);
}

std::optional<Refusal> TwoDimensional::refuse(const ConvProblem& p, Device& device) const {
  return without_depth(p) ? FlatWherePossible::refuse(p, device) : refuse_depth(p);
}

}  // namespace convlab
