#include "nets/plan/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <variant>

#include "autotune/candidates.h"
#include "autotune/limits.h"
#include "autotune/measure/ceilings.h"
#include "autotune/pbqp.h"
#include "conv/error.h"
#include "conv/refusals.h"
#include "conv/transposed.h"
#include "nets/plan/conv_choice.h"
#include "nets/plan/recurrent_choice.h"
#include "nets/plan/separable_choice.h"
#include "nets/run/half_values.h"
#include "nets/run/step_work.h"

namespace convlab::nets {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

using Names = std::vector<std::string>;

bool is_named(const Names& names, const AlgoInfo& info) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return convlab::is_named(info, name); });
}

template <class Algo>
bool knows(const BasicRegistry<Algo>& registry, DeviceKind kind, const std::string& name) {
  const std::vector<const Algo*> all = registry.for_device(kind);
  return std::any_of(all.begin(), all.end(),
                     [&](const Algo* algo) { return convlab::is_named(algo->info(), name); });
}

// Without names that only algorithms of recurrent layers have.
ChooseOptions for_convolutions(ChooseOptions options, const NetAlgos& algos, DeviceKind kind) {
  for (Names* names : {&options.algos, &options.exclude})
    std::erase_if(*names, [&](const std::string& name) {
      return algos.recurrent != nullptr && knows(*algos.recurrent, kind, name) &&
             !knows(algos.conv, kind, name);
    });
  return options;
}

std::vector<const RecurrentAlgo*> admitted_recurrent(const ChooseOptions& options,
                                                     const NetAlgos& algos, DeviceKind kind) {
  if (algos.recurrent == nullptr) return {};
  Names only;
  for (const std::string& name : options.algos)
    if (knows(*algos.recurrent, kind, name)) only.push_back(name);
  std::vector<const RecurrentAlgo*> admitted;
  for (const RecurrentAlgo* algo : algos.recurrent->for_device(kind))
    if ((only.empty() || is_named(only, algo->info())) && !is_named(options.exclude, algo->info()))
      admitted.push_back(algo);
  return admitted;
}

// One way to run a step.
struct Alternative {
  StepPlan plan;
  double ms = 0;                           // without converting inputs into its layouts
  double cost = 0;                         // ms plus the price of growth
  std::int64_t workspace = 0, growth = 0;  // bytes of convolutions, as in ConvChoice
  bool joined = false;                     // one step with its neighbours (nets/separable.h)
};

// The result of one set of alternatives.
struct Solution {
  MemoryTerms terms;
  PbqpSolution pbqp;
  double ms = 0;
  std::int64_t workspace = 0, growth = 0;  // the maximum; the sum
};

class Planner {
 public:
  Planner(const Graph& graph, const ChooseOptions& options, const NetAlgos& algos, Device& device,
          const Store* store)
      : graph_(graph),
        options_(options),
        for_convolutions_(for_convolutions(options, algos, device.info().kind)),
        recurrent_(admitted_recurrent(options, algos, device.info().kind)),
        whole_device_(device),
        device_(device.info()),
        ceilings_(ceilings_of(device)),
        store_(store),
        convs_(for_convolutions_, algos.conv, device, ceilings_, store),
        steps_(steps_of(graph, options.mode)),
        separables_(graph, steps_, for_convolutions_, algos.conv, device, ceilings_, store) {
    find_values();
    find_room();
  }

  Chosen choose() {
    const PbqpSolution solution = solve_at(terms()).pbqp;
    Chosen result;
    result.optimal = solution.optimal;
    NetPlan& plan = result.plan;
    plan.net = graph_.name();
    plan.batch = graph_.batch();
    plan.mode = options_.mode;
    plan.dtype = options_.dtype;
    plan.deterministic = options_.deterministic;
    plan.workspace_max = options_.workspace_max;
    plan.threads = device_.threads;
    plan.machine = plan_machine(device_);
    for (std::size_t i = 0; i < steps_.size(); ++i)
      plan.steps.push_back(alternatives_[i][solution.chosen[i]].plan);
    add_conversions(plan);
    join(plan, solution.chosen);
    result.untuned = untuned();
    return result;
  }

 private:
  bool training() const { return options_.mode == Mode::training; }
  const Node& node_of(const Step& step) const { return graph_.nodes()[step.node]; }

  // Whether a step's tensors are in cache depends on all work of the net in between.
  double predict(const WorkEstimate& work) const {
    return predict_ms(work, options_.dtype, net_bytes_, options_.cache, device_, ceilings_);
  }

  // ---- Values: each step's output, and its readers ----

  void find_values() {
    readers_ = readers_of(graph_, steps_);
    writer_.resize(graph_.nodes().size());
    wants_gradient_ = training() ? wanted_gradients(graph_, steps_, options_.input_gradient)
                                 : std::vector<bool>(graph_.nodes().size());
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      writer_[step.output] = i;
      const TensorDesc value = tensor_desc(graph_.nodes()[step.output].shape, Layout::nchw);
      net_bytes_ += double(value.elements() + graph_.parameters(node_of(step))) *
                    double(size_of(options_.dtype));
    }
  }

  std::vector<bool> wants_dx(const Step& step) const {
    std::vector<bool> wants;
    for (NodeId input : step.inputs) wants.push_back(wants_gradient_[input]);
    return wants;
  }

  // The layout in which a step reads its j-th input: an epilogue adds a residual in y's layout.
  static Layout reads(const Step& step, std::size_t j, const StepPlan& plan) {
    return step.residual && j + 1 == step.inputs.size() ? plan.y_layout : plan.x_layout;
  }

  // ---- Memory ----

  // Without the padding of layouts.
  std::int64_t value_bytes(NodeId value) const {
    return tensor_desc(graph_.nodes()[value].shape, Layout::nchw).elements() *
           size_of(options_.dtype);
  }

  // The memory free beside the live values of each step, compared with the net's fullest moment: a
  // workspace of this size costs nothing. It is approximate, since padded layouts are not chosen
  // yet.
  void find_room() {
    std::vector<std::int64_t> live(steps_.size(), 0);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const NodeId value = steps_[i].output;
      const std::size_t last = readers_[value].empty() ? i : readers_[value].back();
      for (std::size_t j = i; j <= last; ++j) live[j] += value_bytes(value);
    }
    const std::int64_t fullest = *std::max_element(live.begin(), live.end());
    for (const std::int64_t bytes : live) room_.push_back(fullest - bytes);
  }

  // Training's default.
  std::int64_t training_limit() const {
    return std::max(std::int64_t(net_bytes_ / 6), std::int64_t{96 << 20});
  }

  // The terms under which a plan keeps to the limits, the fastest of those tried.
  MemoryTerms terms() {
    if (training()) {
      return {.workspace = options_.workspace_max.value_or(training_limit()), .ms_per_byte = 0};
    }
    if (!options_.workspace_max) {
      const std::int64_t limit = std::max<std::int64_t>(filter_bytes() / 8, 1 << 20);
      const auto within = [&](const Solution& s) { return s.growth <= limit; };
      const std::optional<Solution> found = cheapest(limit, within);
      return found ? found->terms : MemoryTerms{limit, dearest};
    }
    // The split of the limit between workspace and permanently packed filters.
    const std::int64_t limit = *options_.workspace_max;
    const auto within = [&](const Solution& s) { return s.workspace + s.growth <= limit; };
    std::optional<Solution> best;
    for (const std::int64_t workspace : {limit, limit / 2, limit / 4}) {
      std::optional<Solution> found = cheapest(workspace, within);
      if (found && (!best || found->ms < best->ms)) best = std::move(found);
      if (best && best->terms.ms_per_byte == 0) break;  // packed filters need no more room
    }
    if (best) return best->terms;
    const Solution least = solve_at({limit, dearest});
    throw InputError(fmt::format(
        "net {}: no plan is known whose workspace and packed filters take less than {} bytes: "
        "expected a limit of that or more, not {}",
        graph_.name(), least.workspace + least.growth, limit));
  }

  static constexpr double dearest = 1e-3;  // ms a byte

  // The least price of growth at which the solution is `within`, by bisection on a logarithmic
  // scale.
  template <class Within>
  std::optional<Solution> cheapest(std::int64_t workspace, const Within& within) {
    if (!complete_at({workspace, dearest})) return {};
    Solution found = solve_at({workspace, 0});
    if (within(found)) return found;
    double low = 1e-10, high = dearest;
    if (!within(found = solve_at({workspace, high}))) return {};
    for (int i = 0; i < 10; ++i) {
      const double middle = std::sqrt(low * high);
      Solution s = solve_at({workspace, middle});
      const bool enough = within(s);
      (enough ? high : low) = middle;
      if (enough && s.ms <= found.ms) found = std::move(s);
    }
    return found;
  }

  bool complete_at(const MemoryTerms& terms) {
    make_alternatives(terms);
    return std::none_of(alternatives_.begin(), alternatives_.end(),
                        [](const auto& of_step) { return of_step.empty(); });
  }

  Solution solve_at(const MemoryTerms& terms) {
    if (!complete_at(terms))
      for (std::size_t i = 0; i < steps_.size(); ++i)
        if (alternatives_[i].empty()) fail(steps_[i]);
    Solution s{terms, solve(pbqp())};
    s.ms = s.pbqp.cost;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Alternative& a = alternatives_[i][s.pbqp.chosen[i]];
      s.ms += a.ms - a.cost;
      s.growth += a.growth;
      s.workspace = std::max(s.workspace, a.workspace);
    }
    return s;
  }

  std::int64_t filter_bytes() const {
    std::int64_t bytes = 0;
    for (const Step& step : steps_)
      if (is_convolution(node_of(step).layer))
        bytes += graph_.parameters(node_of(step)) * size_of(options_.dtype);
    return bytes;
  }

  // ---- Alternatives of a step ----

  void make_alternatives(const MemoryTerms& terms) {
    alternatives_.clear();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (std::holds_alternative<Recurrent>(node_of(steps_[i]).layer)) {
        const auto [known, is_new] = recurrent_alternatives_.try_emplace(i);
        if (is_new) known->second = alternative_of_recurrent(steps_[i]);
        alternatives_.push_back({known->second.alternative});
        continue;
      }
      if (!is_convolution(node_of(steps_[i]).layer)) {
        alternatives_.push_back(alternatives_of(steps_[i]));
        continue;
      }
      const bool ours = !options_.workspace_max;  // the default limit, not the user's
      MemoryTerms here = terms;
      if (ours && !training()) here.workspace += room_[i];
      alternatives_.push_back(alternatives_of_conv(steps_[i], here));
      if (alternatives_[i].empty() && ours)
        alternatives_[i] = alternatives_of_conv(steps_[i], {unbounded_bytes, terms.ms_per_byte});
    }
    add_joined(terms);
  }

  // ---- Depthwise separable convolutions ----

  // All steps of a joined one have such an alternative. The last one's does the work.
  void add_joined(const MemoryTerms& terms) {
    for (const SeparableSteps& s : separables_.all()) {
      const NodeId between = steps_[s.depthwise].output;
      const auto size = double(value_bytes(between));
      const double moving_ms = predict({{{"", 0, size, size, 1}}});
      MemoryTerms here = terms;
      // What is free beside the depthwise step, whose output y takes the place of.
      if (!options_.workspace_max)
        here.workspace += std::max<std::int64_t>(
            0, room_[s.depthwise] + value_bytes(between) - value_bytes(steps_[s.pointwise].output));
      for (const Layout layout : {Layout::nhwc, blocked_layout(device_)}) {
        const std::optional<ConvChoice> choice = separables_.best(s, layout, here, moving_ms);
        if (!choice) continue;
        joined_alternative(s.depthwise, layout);
        Alternative& last = joined_alternative(s.pointwise, layout);
        last.plan.passes[std::size_t(Pass::forward)] = choice->plan;
        last.ms = choice->plan.ms;
        last.cost = choice->cost;
        last.workspace = choice->workspace;
        last.growth = choice->growth;
      }
    }
  }

  Alternative& joined_alternative(std::size_t step, Layout layout) {
    Alternative& a = alternatives_[step].emplace_back();
    a.joined = true;
    a.plan.layer = node_of(steps_[step]).name;
    a.plan.x_layout = a.plan.y_layout = layout;
    return a;
  }

  // Leaves out the steps that joined ones take in.
  void join(NetPlan& plan, const std::vector<std::size_t>& chosen) const {
    for (const SeparableSteps& s : separables_.all())
      if (alternatives_[s.pointwise][chosen[s.pointwise]].joined)
        plan.steps[s.pointwise].convert_ms += plan.steps[s.depthwise].convert_ms;
    std::vector<StepPlan> rest;
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (!separables_.takes_in(i) || !alternatives_[i][chosen[i]].joined)
        rest.push_back(std::move(plan.steps[i]));
    plan.steps = std::move(rest);
  }

  std::vector<Alternative> alternatives_of(const Step& step) {
    std::vector<Alternative> found;
    for (const Layouts& layouts : layouts_of(step)) found.push_back(alternative(step, layouts));
    return found;
  }

  std::vector<Layouts> layouts_of(const Step& step) const {
    const Layer& layer = node_of(step).layer;
    constexpr Layouts plain{Layout::nchw, Layout::nchw};
    if (std::holds_alternative<Input>(layer))
      return {{options_.input_layout, options_.input_layout}};
    if (needs_nchw(layer)) return {plain};
    // For single pixels all layouts are equal except for padding.
    const auto is_pixel = [&](NodeId id) { return graph_.nodes()[id].shape.pixels() == 1; };
    if (is_pixel(step.node) && is_pixel(step.inputs[0])) return {plain};

    std::vector<Layout> offered{Layout::nchw, Layout::nhwc};
    if (device_.kind == DeviceKind::cpu) offered.push_back(blocked_layout(device_));
    if (options_.layout) offered = {*options_.layout};
    // These copy channels, which works between any two layouts.
    const bool copies = std::holds_alternative<Concat>(layer) ||
                        std::holds_alternative<PadChannels>(layer) ||
                        std::holds_alternative<Slice>(layer);
    std::vector<Layouts> pairs;
    for (const Layout x : offered)
      for (const Layout y : offered)
        if (copies || x == y) pairs.emplace_back(x, y);
    return pairs;
  }

  Alternative alternative(const Step& step, Layouts layouts) const {
    const WorkEstimate other = other_work(graph_, step, options_.mode, options_.dtype,
                                          layouts.first, layouts.second, wants_dx(step));
    Alternative a;
    a.plan.layer = node_of(step).name;
    a.plan.x_layout = layouts.first;
    a.plan.y_layout = layouts.second;
    a.cost = a.ms = a.plan.other_ms = predict(other);
    return a;
  }

  // ---- Recurrent layers ----

  struct RecurrentAlternative {
    Alternative alternative;
    std::vector<Pass> untuned;
  };

  // In the one layout that they work in, under the user's limit or training's default. That one
  // gives way where nothing keeps to it.
  RecurrentAlternative alternative_of_recurrent(const Step& step) const {
    const Node& node = node_of(step);
    RecurrentProblem problem = graph_.recurrent_problem(node);
    problem.dtype = options_.dtype;
    problem.input_gradient = wants_gradient_[step.inputs[0]];
    Alternative a = alternative(step, {Layout::nchw, Layout::nchw});
    const auto choose = [&](std::int64_t limit) {
      return choose_recurrent(problem, recurrent_, options_, limit, net_bytes_, whole_device_,
                              ceilings_, store_);
    };
    auto choice =
        choose(options_.workspace_max.value_or(training() ? training_limit() : unbounded_bytes));
    if (!choice && !options_.workspace_max && training()) choice = choose(unbounded_bytes);
    if (!choice)
      throw InputError(fmt::format(
          "net {}, layer {}: no algorithm that is admitted takes {} in {} in all of its passes{}: "
          "admit more algorithms{}",
          graph_.name(), node.name, to_text(problem), to_string(options_.dtype),
          options_.workspace_max
              ? fmt::format(" within {} bytes of workspace", *options_.workspace_max)
              : "",
          options_.workspace_max ? " or workspace" : ""));
    a.plan.passes = choice->passes;
    a.ms += choice->ms;
    a.cost = a.ms;
    a.workspace = choice->workspace;
    return {std::move(a), choice->untuned};
  }

  // ---- Convolutions ----

  // A convolution step's problem in each pass that is needed. A transposed one's are those of the
  // convolution whose gradient it is, which adds no bias.
  std::vector<ConvProblem> problems_of(const Step& step) const {
    ConvProblem forward = graph_.conv_problem(node_of(step));
    forward.dtype = options_.dtype;
    if (is_transposed(node_of(step).layer)) return transposed_problems_of(step, forward);
    std::vector<ConvProblem> problems{forward};
    problems[0].epilogue = {.bias = step.batch_norm || std::get<Conv>(node_of(step).layer).bias,
                            .residual = step.residual,
                            .activation = step.activation};
    if (!training()) return problems;
    forward.pass = Pass::backward_filter;
    problems.push_back(forward);
    forward.pass = Pass::backward_data;
    if (wants_gradient_[step.inputs[0]]) problems.push_back(forward);
    return problems;
  }

  std::vector<ConvProblem> transposed_problems_of(const Step& step, ConvProblem problem) const {
    std::vector<ConvProblem> problems;
    const auto add = [&](Pass pass) {
      problem.pass = transposed(pass);
      problems.push_back(problem);
    };
    add(Pass::forward);
    if (training()) add(Pass::backward_filter);
    if (training() && wants_gradient_[step.inputs[0]]) add(Pass::backward_data);
    return problems;
  }

  // The layer's pass that a problem of problems_of() computes, and the layer's layouts for a
  // problem's.
  Pass pass_of(const Step& step, const ConvProblem& problem) const {
    return is_transposed(node_of(step).layer) ? transposed(problem.pass) : problem.pass;
  }
  Layouts of_layer(const Step& step, Layouts layouts) const {
    if (is_transposed(node_of(step).layer)) std::swap(layouts.first, layouts.second);
    return layouts;
  }

  std::vector<Layouts> layouts_of_conv(const Step& step) const {
    return layout_pairs(graph_.conv_problem(node_of(step)), options_.layout, device_);
  }

  // Alternatives with every pass measured, or else any available; none if the terms allow none.
  std::vector<Alternative> alternatives_of_conv(const Step& step, const MemoryTerms& terms) {
    for (const bool guess : {false, true}) {
      std::vector<Alternative> found;
      for (const Layouts& layouts : layouts_of_conv(step)) {
        Alternative a = alternative(step, of_layer(step, layouts));
        bool complete = true;
        for (const ConvProblem& problem : problems_of(step)) {
          std::optional<ConvChoice> pass = convs_.best(problem, layouts, terms, guess);
          if (!(complete = pass.has_value())) break;
          a.ms += pass->plan.ms;
          a.cost += pass->cost;
          a.growth += pass->growth;
          a.workspace = std::max(a.workspace, pass->workspace);
          a.plan.passes[std::size_t(pass_of(step, problem))] = std::move(pass->plan);
        }
        if (complete) found.push_back(std::move(a));
      }
      if (!found.empty()) return found;
    }
    return {};
  }

  // The least workspace with which a convolution can run, with all passes in the same layouts.
  std::optional<std::int64_t> least_workspace(const Step& step) {
    std::optional<std::int64_t> least;
    for (const Layouts& layouts : layouts_of_conv(step)) {
      std::optional<std::int64_t> most = 0;
      for (const ConvProblem& problem : problems_of(step)) {
        const std::optional<std::int64_t> bytes = convs_.least_workspace(problem, layouts);
        most = most && bytes ? std::optional(std::max(*most, *bytes)) : std::nullopt;
      }
      if (most) least = least ? std::min(*least, *most) : *most;
    }
    return least;
  }

  std::string written(const Step& step) const {
    const ConvProblem problem = graph_.conv_problem(node_of(step));
    return is_transposed(node_of(step).layer) ? to_transposed_text(problem) : to_text(problem);
  }

  [[noreturn]] void fail(const Step& step) {
    const std::string where =
        fmt::format("net {}, layer {}", graph_.name(), graph_.nodes()[step.node].name);
    if (!least_workspace(step))
      throw InputError(fmt::format(
          "{}: no algorithm that is admitted takes {} in {} in all of its passes: admit more "
          "algorithms, layouts or error",
          where, written(step), to_string(options_.dtype)));
    std::int64_t needed = 0;
    const Step* who = &step;
    for (const Step& other : steps_) {
      if (!is_convolution(node_of(other).layer)) continue;
      const std::int64_t bytes = least_workspace(other).value_or(0);
      if (bytes > needed) needed = bytes, who = &other;
    }
    throw InputError(fmt::format(
        "{}: no algorithm works within {} bytes of workspace: expected {} or more, which layer {} "
        "needs",
        where, options_.workspace_max.value_or(0), needed, node_of(*who).name));
  }

  std::vector<std::string> untuned() {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Node& node = node_of(steps_[i]);
      const auto add = [&](Pass pass) {
        names.push_back(fmt::format("{} {}", node.name, to_string(pass)));
      };
      if (is_convolution(node.layer))
        for (const ConvProblem& problem : problems_of(steps_[i]))
          if (!convs_.tuned(problem)) add(pass_of(steps_[i], problem));
      if (std::holds_alternative<Recurrent>(node.layer))
        for (const Pass pass : recurrent_alternatives_.at(i).untuned) add(pass);
    }
    return names;
  }

  // ---- Conversions ----

  double convert_ms(const Shape& shape, Layout from, Layout to) const {
    return predict(convert_work(tensor_desc(shape, from), tensor_desc(shape, to), options_.dtype));
  }

  // The time to convert a gradient from a reader's layout. If another reader has written one
  // before, it is added.
  double gradient_ms(NodeId value, Layout written, Layout read) const {
    if (!wants_gradient_[value]) return 0;
    const Shape& shape = graph_.nodes()[value].shape;
    const double ms = convert_ms(shape, read, written);
    if (ms == 0 || readers_[value].size() <= 1) return ms;
    return ms + predict(add_work(tensor_desc(shape, written), options_.dtype));
  }

  // One node per step. A value with one reader is an edge between its two steps. A value with
  // several readers is a separate node, whose alternatives combine the layout it is written in with
  // those it is converted to. So a conversion that serves two readers counts once.
  PbqpProblem pbqp() const {
    PbqpProblem problem;
    for (const std::vector<Alternative>& alternatives : alternatives_) {
      problem.nodes.emplace_back();
      for (const Alternative& a : alternatives) problem.nodes.back().push_back(a.cost);
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const NodeId value = steps_[i].output;
      if (readers_[value].size() == 1)
        problem.edges.push_back(edge(value));
      else if (readers_[value].size() > 1)
        add_shared_value(problem, value);
      else
        add_reading(problem.nodes[i], i);
    }
    return problem;
  }

  // The time to convert the output to the layout in which it is read, and its gradient back.
  void add_reading(std::vector<double>& cost, std::size_t step) const {
    if (!options_.output_layout) return;
    const NodeId value = steps_[step].output;
    for (std::size_t a = 0; a < cost.size(); ++a) {
      const Layout written = alternatives_[step][a].plan.y_layout;
      cost[a] += convert_ms(graph_.nodes()[value].shape, written, *options_.output_layout) +
                 gradient_ms(value, written, *options_.output_layout);
    }
  }

  PbqpEdge edge(NodeId value) const {
    const std::size_t writer = writer_[value], reader = readers_[value][0];
    const bool kept = separables_.takes_in(writer);
    PbqpEdge e{writer, reader, {}};
    for (const Alternative& from : alternatives_[writer])
      for (const Alternative& to : alternatives_[reader]) {
        const Layout written = from.plan.y_layout, read = read_layout(value, reader, to.plan);
        if (kept && (from.joined || to.joined)) {
          const bool both = from.joined && to.joined && written == read;
          e.cost.push_back(both ? 0 : infinity);
          continue;
        }
        e.cost.push_back(convert_ms(graph_.nodes()[value].shape, written, read) +
                         gradient_ms(value, written, read));
      }
    return e;
  }

  Layout read_layout(NodeId value, std::size_t reader, const StepPlan& plan) const {
    const std::vector<NodeId>& inputs = steps_[reader].inputs;
    const auto j = std::size_t(std::find(inputs.begin(), inputs.end(), value) - inputs.begin());
    return reads(steps_[reader], j, plan);
  }

  // The layout in which a value is written, and those it is in after conversions.
  struct Availability {
    Layout written;
    std::set<Layout> there;
  };

  void add_shared_value(PbqpProblem& problem, NodeId value) const {
    const Shape& shape = graph_.nodes()[value].shape;
    const std::size_t writer = writer_[value], node = problem.nodes.size();
    std::set<Layout> written, wanted;
    for (const Alternative& a : alternatives_[writer]) written.insert(a.plan.y_layout);
    for (const std::size_t reader : readers_[value])
      for (const Alternative& a : alternatives_[reader])
        wanted.insert(read_layout(value, reader, a.plan));

    std::vector<Availability> availabilities;
    problem.nodes.emplace_back();
    for (const Layout from : written) {
      std::vector<Layout> others(wanted.begin(), wanted.end());
      std::erase(others, from);
      for (std::size_t subset = 0; subset < std::size_t(1) << others.size(); ++subset) {
        Availability a{from, {from}};
        double ms = 0;
        for (std::size_t i = 0; i < others.size(); ++i)
          if (subset >> i & 1) {
            a.there.insert(others[i]);
            ms += convert_ms(shape, from, others[i]);
          }
        availabilities.push_back(std::move(a));
        problem.nodes.back().push_back(ms);
      }
    }

    PbqpEdge from{writer, node, {}};
    for (const Alternative& w : alternatives_[writer])
      for (const Availability& a : availabilities)
        from.cost.push_back(w.plan.y_layout == a.written ? 0 : infinity);
    problem.edges.push_back(std::move(from));
    for (const std::size_t reader : readers_[value]) {
      PbqpEdge to{node, reader, {}};
      for (const Availability& a : availabilities)
        for (const Alternative& r : alternatives_[reader]) {
          const Layout read = read_layout(value, reader, r.plan);
          to.cost.push_back(a.there.count(read) ? gradient_ms(value, a.written, read) : infinity);
        }
      problem.edges.push_back(std::move(to));
    }
  }

  // The first reader that needs a conversion does it.
  void add_conversions(NetPlan& plan) const {
    std::set<std::pair<NodeId, Layout>> there;
    for (std::size_t i = 0; i < steps_.size(); ++i)
      for (std::size_t j = 0; j < steps_[i].inputs.size(); ++j) {
        const NodeId value = steps_[i].inputs[j];
        const Layout written = plan.steps[writer_[value]].y_layout,
                     read = reads(steps_[i], j, plan.steps[i]);
        if (there.insert({value, read}).second)
          plan.steps[i].convert_ms += convert_ms(graph_.nodes()[value].shape, written, read);
        plan.steps[i].convert_ms += gradient_ms(value, written, read);
      }
  }

  const Graph& graph_;
  const ChooseOptions& options_;
  const ChooseOptions for_convolutions_;
  const std::vector<const RecurrentAlgo*> recurrent_;  // those admitted
  Device& whole_device_;
  const DeviceInfo device_;
  const Ceilings& ceilings_;
  const Store* store_;
  ConvChoices convs_;
  std::vector<Step> steps_;
  SeparableChoices separables_;
  std::vector<std::vector<std::size_t>> readers_;       // of a value, by node
  std::vector<std::size_t> writer_;                     // of a value, by node
  std::vector<bool> wants_gradient_;                    // a value, by node
  std::vector<std::int64_t> room_;                      // bytes, by step
  double net_bytes_ = 0;                                // of all values and parameters
  std::vector<std::vector<Alternative>> alternatives_;  // by step
  // By step: terms do not change them.
  std::map<std::size_t, RecurrentAlternative> recurrent_alternatives_;
};

}  // namespace

Chosen choose_plan(const Graph& graph, const ChooseOptions& options, const NetAlgos& algos,
                   Device& device, const Store* store) {
  require_type(graph, options.dtype, device);
  validate_limits(options.max_error, options.workspace_max);
  (void)graph.batch();  // throws if it has no layers
  for (const Layout layout : {options.input_layout, options.output_layout.value_or(Layout::nchw)})
    if (is_blocked(layout))
      throw InputError(fmt::format("net {}: an input or output in {}: expected nchw or nhwc",
                                   graph.name(), to_string(layout)));
  return Planner(graph, options, algos, device, store).choose();
}

}  // namespace convlab::nets
