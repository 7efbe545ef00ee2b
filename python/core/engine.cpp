#include "engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "autotune/candidates.h"
#include "autotune/measure/ceilings.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "nets/plan/conv_choice.h"
#include "nets/run/step_work.h"

namespace convlab::python {
namespace {

// More plans than a net has layers and passes; each holds little memory, but is compared in each
// call.
constexpr std::size_t most_plans = 256;

std::size_t aligned(std::size_t bytes) { return std::size_t(round_up(std::int64_t(bytes), 64)); }

ConvProblem fused_problem(ConvProblem problem, const Epilogue& fused) {
  problem.epilogue = fused;
  return problem;
}

// The cheapest of the algorithms and the layouts in which they work, conversions included.
class Choice {
 public:
  Choice(const ConvProblem& problem, const nets::ChooseOptions& options, const Algos& algos,
         Device& device, const Store* store)
      : problem_(problem),
        device_(device),
        ceilings_(ceilings_of(device)),
        choices_(options, algos.conv, device, ceilings_, store) {
    choose();
    // Every algorithm takes an activation or has it left to others, but not every one a bias.
    if (!best && !problem_.epilogue.empty()) {
      problem_.epilogue = {};
      choose();
    }
  }

  std::optional<nets::ConvChoice> best;
  Layouts layouts{Layout::nchw, Layout::nchw};
  const Epilogue& epilogue() const { return problem_.epilogue; }

 private:
  void choose() {
    // A larger workspace would be fast only until memory runs out; the batch is split instead.
    const nets::MemoryTerms terms{.workspace = device_.info().memory_bytes / 4};
    double least = 0;
    // The store may have measured what this algorithm cannot do here; then predictions decide.
    for (const bool guess : {false, true}) {
      for (const Layouts& pair : layout_pairs(problem_, {}, device_.info())) {
        const auto found = choices_.best(problem_, pair, terms, guess);
        if (!found) continue;
        const double ms = found->cost + conversion_ms(pair);
        if (best && ms >= least) continue;
        best = found, least = ms, layouts = pair;
      }
      if (best) return;
    }
  }

  double conversion_ms(const Layouts& pair) const {
    const ConvProblem inner = with_layouts(problem_, pair);
    double ms = 0;
    const auto add = [&](const TensorDesc& from, const TensorDesc& to) {
      if (from.layout == to.layout) return;
      const double bytes =
          double(from.elements() + to.elements()) * double(size_of(problem_.dtype));
      ms += predict_ms(nets::convert_work(from, to, problem_.dtype), problem_.dtype, bytes,
                       CacheMode::hot, device_.info(), ceilings_);
    };
    add(problem_.x_desc(), inner.x_desc());
    add(problem_.y_desc(), inner.y_desc());
    return ms;
  }

  ConvProblem problem_;
  Device& device_;
  const Ceilings& ceilings_;
  nets::ConvChoices choices_;
};

}  // namespace

PreparedConv::PreparedConv(const ConvProblem& problem, std::string asked, nets::PassPlan plan,
                           Layouts layouts, const Epilogue& fused, const ConvAlgo& algo,
                           Device& device)
    : problem_(problem),
      inner_(with_layouts(problem, layouts)),
      asked_(std::move(asked)),
      plan_(std::move(plan)),
      conv_(algo, fused_problem(inner_, fused), plan_, device),
      converts_x_(problem.x_layout != layouts.first),
      converts_y_(problem.y_layout != layouts.second) {
  inner_.epilogue = fused;
  const std::size_t workspace = std::max(
      conv_.workspace_bytes(), fused.bias == problem.epilogue.bias
                                   ? 0
                                   : device.ops().workspace_bytes(inner_.dtype, inner_.y_desc()));
  packed_at_ = aligned(workspace);
  x_at_ = packed_at_ + aligned(conv_.packed_bytes());
  y_at_ = x_at_ + (converts_x_ ? aligned(std::size_t(inner_.x_bytes())) : 0);
  scratch_bytes_ = y_at_ + (converts_y_ ? aligned(std::size_t(inner_.y_bytes())) : 0);
}

void PreparedConv::run(ConvArgs args, Span scratch, Device& device) const {
  const std::unique_ptr<Stream> stream = device.make_stream();
  const LayerOps& ops = device.ops();
  const DType dtype = problem_.dtype;
  const TensorDesc x = inner_.x_desc(), y = inner_.y_desc();
  std::byte* const packed = scratch.data() + packed_at_;
  std::byte* const own_x = scratch.data() + x_at_;
  std::byte* const own_y = scratch.data() + y_at_;
  void* const out = args.out;
  if (converts_x_ && args.x != nullptr) {
    ops.convert_layout(dtype, problem_.x_desc(), args.x, x, own_x, *stream);
    args.x = own_x;
  }
  if (converts_y_ && args.dy != nullptr) {
    ops.convert_layout(dtype, problem_.y_desc(), args.dy, y, own_y, *stream);
    args.dy = own_y;
  }
  const bool converts_out = problem_.pass == Pass::forward         ? converts_y_
                            : problem_.pass == Pass::backward_data ? converts_x_
                                                                   : false;
  if (converts_out) args.out = problem_.pass == Pass::forward ? own_y : own_x;
  if (conv_.packed_bytes() > 0)
    conv_.pack({static_cast<const std::byte*>(args.w), std::size_t(problem_.filter_bytes())},
               packed, *stream);
  const Span workspace = scratch.first(packed_at_);
  conv_.run(args, packed, workspace, *stream);
  if (problem_.epilogue.bias && !inner_.epilogue.bias)
    ops.bias_forward(dtype, y, args.out, args.bias, args.out, workspace, *stream);
  if (problem_.epilogue.activation && !inner_.epilogue.activation)
    ops.activation_forward(dtype, *problem_.epilogue.activation, y, args.out, args.out, *stream);
  if (!converts_out) return;
  if (problem_.pass == Pass::forward)
    ops.convert_layout(dtype, y, args.out, problem_.y_desc(), out, *stream);
  else
    ops.convert_layout(dtype, x, args.out, problem_.x_desc(), out, *stream);
}

Buffer ScratchPool::take(std::size_t bytes, Device& device) {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      Buffer buffer = std::move(free_.back());
      free_.pop_back();
      if (buffer.bytes() >= bytes) return buffer;
    }
  }
  return device.allocate(bytes);
}

void ScratchPool::give(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffer));
}

void ScratchPool::clear() {
  const std::lock_guard lock(mutex_);
  free_.clear();
}

Engine& Engine::get() {
  // Never destroyed: threads of the interpreter may still call while the process ends.
  static auto* const engine = new Engine();  // NOLINT(cppcoreguidelines-owning-memory)
  if (engine->process_ != getpid())
    throw EnvironmentError(
        "this process was forked from one that had used convlab, whose threads it lacks: start it "
        "by "
        "multiprocessing's 'spawn' or 'forkserver'");
  return *engine;
}

Engine::Engine() : device_(make_cpu_device()), process_(getpid()) {
  append_cpu_algos(algos_.conv);
  append_cpu_recurrent_algos(algos_.recurrent);
}

Device& Engine::device(int threads) {
  if (threads == device_->info().threads) return *device_;
  const std::lock_guard lock(devices_mutex_);
  std::unique_ptr<Device>& known = devices_[threads];
  if (!known) known = make_cpu_device({.threads = threads, .isa = device_->info().isa});
  return *known;
}

const Store* Engine::store() {
  if (!store_)
    if (const auto path = Store::default_path(); !path.empty() && Store::exists(path))
      store_.emplace(path, Store::Open::existing);
  return store_ ? &*store_ : nullptr;
}

std::shared_ptr<const PreparedConv> Engine::find(const ConvProblem& problem,
                                                 const std::string& algo) {
  const std::lock_guard lock(plans_mutex_);
  const auto at = std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) {
    return plan->problem() == problem && plan->asked() == algo;
  });
  if (at == plans_.end()) return nullptr;
  plans_.splice(plans_.begin(), plans_, at);
  return plans_.front();
}

std::shared_ptr<const PreparedConv> Engine::prepared(const ConvProblem& problem,
                                                     const std::string& algo) {
  if (auto plan = find(problem, algo)) return plan;
  const std::lock_guard planning(planning_);
  if (auto plan = find(problem, algo)) return plan;  // another thread has made it meanwhile
  auto plan = prepare(problem, algo);
  const std::lock_guard lock(plans_mutex_);
  plans_.push_front(plan);
  if (plans_.size() > most_plans) plans_.pop_back();
  return plan;
}

std::shared_ptr<const PreparedConv> Engine::prepare(const ConvProblem& problem,
                                                    const std::string& algo) {
  // Algorithms divide such sizes into blocks, of which they count no more than fit in memory.
  const double bytes =
      double(problem.x_bytes()) + double(problem.y_bytes()) + double(problem.filter_bytes());
  if (const double memory = double(device_->info().memory_bytes); bytes > memory)
    throw OutOfMemory(fmt::format("{} needs {:.3g} GB for its tensors, but this machine has {:.3g}",
                                  to_text(problem), bytes / 1e9, memory / 1e9));
  nets::ChooseOptions options;
  options.dtype = problem.dtype;
  // Each call packs the filter, which may have changed: its time counts, as in training.
  options.mode = nets::Mode::training;
  if (!algo.empty()) options.algos = {algo};
  Choice choice(problem, options, algos_, *device_, store());
  if (!choice.best) {
    std::string reasons;
    for (const ConvAlgo* const a : admitted_algos(algos_.conv, DeviceKind::cpu, options.algos, {}))
      for (const Layouts& layouts : layout_pairs(problem, {}, device_->info()))
        if (const auto refusal = a->refuse(with_layouts(problem, layouts), *device_);
            refusal && refusal->field != Field::layout) {
          reasons +=
              fmt::format("{}{} {}", reasons.empty() ? "" : "; ", a->info().id, refusal->reason());
          break;
        }
    throw InputError(fmt::format("no algorithm takes {} ({}, {}): {}", to_text(problem),
                                 to_string(problem.pass), to_string(problem.dtype),
                                 reasons.empty() ? "all failed or need too much memory" : reasons));
  }
  const ConvAlgo& chosen = algos_.conv.get(DeviceKind::cpu, choice.best->plan.algo);
  ConvProblem inner = with_layouts(problem, choice.layouts);
  inner.epilogue = choice.epilogue();
  const auto refused = [&] {
    return nets::BatchedConv::refuse(chosen, inner, choice.best->plan, *device_).has_value();
  };
  if (refused()) inner.epilogue.activation.reset();
  if (refused()) inner.epilogue = {};
  return std::make_shared<PreparedConv>(problem, algo, choice.best->plan, choice.layouts,
                                        inner.epilogue, chosen, *device_);
}

std::vector<std::shared_ptr<const PreparedConv>> Engine::plans() {
  const std::lock_guard lock(plans_mutex_);
  return {plans_.begin(), plans_.end()};
}

void Engine::forget() {
  const std::lock_guard planning(planning_);
  const std::lock_guard lock(plans_mutex_);
  plans_.clear();
  store_.reset();
  scratch_.clear();
}

}  // namespace convlab::python
