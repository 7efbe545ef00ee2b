#include "autotune/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "conv/problem_text.h"
#include "conv/transposed.h"
#include "recurrent/problem_text.h"

namespace convlab {

ConvProblem with_layouts(ConvProblem problem, Layouts layouts) {
  problem.x_layout = layouts.first;
  problem.y_layout = layouts.second;
  return problem;
}

Pass Problem::pass() const {
  return std::visit([](const auto& p) { return p.pass; }, any_);
}
DType Problem::dtype() const {
  return std::visit([](const auto& p) { return p.dtype; }, any_);
}
std::int64_t Problem::batch() const {
  return std::visit([](const auto& p) { return p.n; }, any_);
}

void Problem::set_pass(Pass pass, bool training) {
  std::visit([&](auto& p) { p.pass = pass; }, any_);
  if (auto* const layer = std::get_if<RecurrentProblem>(&any_))
    layer->training = training && pass == Pass::forward;
}
bool Problem::set_recompute() {
  auto* const layer = std::get_if<RecurrentProblem>(&any_);
  if (!layer || layer->saved_values() == 0) return false;
  if (layer->pass == Pass::forward && !layer->training) return false;
  return layer->recompute = true;
}
void Problem::set_dtype(DType dtype) {
  std::visit([&](auto& p) { p.dtype = dtype; }, any_);
}
void Problem::set_batch(std::int64_t batch) {
  std::visit([&](auto& p) { p.n = batch; }, any_);
}

double Problem::flops() const {
  return std::visit([](const auto& p) { return p.flops(); }, any_);
}

double Problem::elements() const {
  if (const ConvProblem* const p = conv())
    return double(p->x_desc().elements()) + double(p->y_desc().elements()) +
           double(p->filter_elements());
  const RecurrentProblem& p = *recurrent();
  const bool saves = p.training || p.pass != Pass::forward;
  return double(p.x_elements()) + double(p.y_elements()) + double(p.weights_elements()) +
         2.0 * double(p.state_elements()) * (p.has_cell_state() ? 2 : 1) +
         (saves ? double(p.activations_elements()) : 0) +
         (p.pass != Pass::forward ? double(p.dgates_elements()) + double(p.y_elements()) : 0);
}

Problem Problem::with_layouts(Layouts layouts) const {
  if (const ConvProblem* const p = conv()) return convlab::with_layouts(*p, layouts);
  return *this;
}

void validate(const Problem& problem) {
  if (problem.conv())
    validate(*problem.conv());
  else
    validate(*problem.recurrent());
}

std::string to_text(const Problem& problem) {
  return problem.conv() ? to_text(*problem.conv()) : to_text(*problem.recurrent());
}

std::string extras_of(const Problem& problem) {
  std::vector<std::string_view> parts;
  const auto add = [&](bool has, std::string_view part) {
    if (has) parts.push_back(part);
  };
  if (const RecurrentProblem* const p = problem.recurrent()) {
    add(p->training, "training");
    add(p->recompute, "recompute");
  } else {
    const ConvProblem& conv = *problem.conv();
    add(conv.accumulate, "accumulate");
    add(conv.epilogue.bias, "bias");
    add(conv.epilogue.residual, "residual");
    if (conv.epilogue.activation) parts.push_back(to_string(*conv.epilogue.activation));
  }
  return fmt::format("{}", fmt::join(parts, "+"));
}

std::string LayerProblem::text() const {
  return transposed ? to_transposed_text(*problem.conv()) : to_text(problem);
}
Pass LayerProblem::pass() const {
  return transposed ? convlab::transposed(problem.pass()) : problem.pass();
}
void LayerProblem::set_pass(Pass pass, bool training) {
  problem.set_pass(transposed ? convlab::transposed(pass) : pass, training);
}

LayerProblem parse_layer(std::string_view text, std::vector<std::string>& warnings) {
  if (begins_with_cell(text)) return parse_recurrent_problem(text, warnings);
  if (!is_transposed_text(text)) return parse_problem(text, warnings);
  LayerProblem layer = parse_transposed_problem(text, warnings);
  layer.transposed = true;
  layer.set_pass(Pass::forward);
  return layer;
}
LayerProblem parse_layer(std::string_view text) {
  std::vector<std::string> ignored;
  return parse_layer(text, ignored);
}

}  // namespace convlab
