#include "nets/train/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "nets/run/finite.h"
#include "nets/train/optimizer.h"

namespace convlab::nets {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The parameters of a step's layers that are not finite.
std::vector<std::string> broken_parameters(Net& net, const Step& step) {
  std::vector<std::string> layers{net.graph().nodes()[step.node].name};
  if (step.batch_norm) layers.push_back(net.graph().nodes()[*step.batch_norm].name);
  std::vector<std::string> broken;
  std::vector<std::byte> host;
  for (const Parameter& p : net.parameters())
    for (const std::string& layer : layers) {
      if (p.name.substr(0, p.name.rfind('.')) != layer) continue;
      host.resize(std::size_t(p.count * size_of(net.plan().dtype)));
      net.read(p.value, host);
      if (!all_finite(host, net.plan().dtype)) broken.push_back(p.name);
    }
  return broken;
}

}  // namespace

Trainer::Trainer(Net& net, DataLoader& loader, TrainOptions options)
    : net_(net), loader_(loader), options_(std::move(options)) {
  if (options_.epochs < 1)
    throw InputError(fmt::format("{} epochs: expected 1 or more", options_.epochs));
  if (net.plan().mode != Mode::training)
    throw InputError(fmt::format("net {}: training needs a plan for training", net.graph().name()));
  if (loader.batches() < 1) throw InputError("training needs images for at least one batch");
  validate(options_.rule);
  if (rate_of(options_.rule) == 0) throw InputError("a learning rate of 0: expected more than 0");
  const Shape& out = net.graph().nodes().back().shape;
  output_.resize(std::size_t(out.n * out.c * out.h * out.w * size_of(net.plan().dtype)));
  state_.net = net.graph().name();
  state_.batch = net.plan().batch;
  state_.dtype = net.plan().dtype;
  state_.data = options_.data;
  state_.steps = loader.batches();
  state_.seed = options_.seed;
  state_.plan = net.plan();
  state_.rule = options_.rule;
  state_.schedule = options_.schedule;
  state_.epochs = options_.epochs;
  state_.notes = options_.notes;
}

void Trainer::test_with(Net& inference, DataLoader& loader, std::function<bool()> go_on) {
  if (inference.plan().mode != Mode::inference)
    throw InputError(
        fmt::format("net {}: testing needs a plan for inference", inference.graph().name()));
  test_net_ = &inference;
  state_.test_plan = inference.plan();
  test_loader_ = &loader;
  go_on_ = std::move(go_on);
}

void Trainer::resume(const Checkpoint& checkpoint) {
  require_fits(checkpoint, state_);
  restore(checkpoint, options_.rule, net_);
  const TrainingState& from = checkpoint.state;
  state_.epoch = from.epoch;
  state_.step = from.step;
  state_.scores = from.scores;
  state_.best = from.best;
}

bool Trainer::run() {
  saved_s_ = now_s();
  while (state_.epoch < options_.epochs) {
    if (train_epoch() && finish_epoch()) continue;
    save();
    return false;
  }
  return true;
}

// From the current position in the epoch. False: stopped.
bool Trainer::train_epoch() {
  loader_.start(state_.epoch, state_.step);
  while (const Batch* batch = loader_.next()) {
    take_step(*batch);
    ++state_.step;
    if (options_.on_step && !options_.on_step({state_.epoch, options_.epochs, state_.step - 1,
                                               state_.steps, rate_, loss_, state_.scores}))
      return false;
    if (now_s() - saved_s_ >= options_.checkpoint_every_s) save();
  }
  return true;
}

// The loss is checked before the update, so that a non-finite loss never changes the weights.
void Trainer::take_step(const Batch& batch) {
  rate_ =
      rate_of(options_.rule) * options_.schedule.at(state_.epoch * state_.steps + state_.step,
                                                    state_.steps, options_.epochs * state_.steps);
  net_.set_input(batch.input);
  net_.set_labels(batch.labels);
  net_.forward();
  net_.backward();
  loss_ = net_.loss();
  if (!std::isfinite(loss_)) throw Diverged(where_it_diverged(loss_));
  net_.update(with_rate(options_.rule, rate_));
  net_.read_output(output_);
  state_.scores += score(output_, net_.plan().dtype, batch.labels);
}

bool Trainer::finish_epoch() {
  EpochReport report{state_.epoch, options_.epochs, rate_, state_.scores, {}, false};
  if (test_net_ != nullptr) {
    copy_parameters(net_, *test_net_);
    report.test = evaluate(*test_net_, *test_loader_, go_on_);
    if (!report.test) return false;
    if (!std::isfinite(report.test->loss))
      throw Diverged(fmt::format("the loss of the test images is {} after epoch {}",
                                 report.test->loss, state_.epoch + 1));
    report.best = state_.epoch == 0 || report.test->top1_rate() > state_.best;
    if (report.best) state_.best = report.test->top1_rate();
  }
  ++state_.epoch;
  state_.step = 0;
  state_.scores = {};
  save();
  return !options_.on_epoch || options_.on_epoch(report);
}

void Trainer::save() {
  if (!options_.checkpoint.empty()) {
    state_.counters = net_.counters();
    write_checkpoint(options_.checkpoint, net_, state_);
  }
  saved_s_ = now_s();
}

// Runs the batch's forward again, with the same dropout, and checks each step's output.
std::string Trainer::where_it_diverged(double loss) {
  NetCounters counters = net_.counters();
  --counters.forwards;
  net_.set_counters(counters);
  std::string layer;
  std::vector<std::string> broken;
  net_.observe([&](const Step& step, Phase, double, double) {
    if (!layer.empty() || net_.is_output_finite(step)) return;
    layer = net_.graph().nodes()[step.node].name;
    broken = broken_parameters(net_, step);
  });
  net_.forward();
  net_.observe(nullptr);
  const std::string where =
      layer.empty() ? "the loss itself, since all layers' outputs are finite"
      : broken.empty()
          ? fmt::format("layer {} in the forward pass, whose weights are finite", layer)
      : state_.step == 0 && state_.epoch == 0
          ? fmt::format("layer {}, whose {} was so before training", layer, broken.front())
          : fmt::format("layer {}, whose {} the update before has made so", layer, broken.front());
  return fmt::format("the loss is {} in step {} of epoch {}: not finite first is {}",
                     std::isnan(loss) ? "NaN" : "infinite", state_.step + 1, state_.epoch + 1,
                     where);
}

}  // namespace convlab::nets
