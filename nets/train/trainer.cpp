#include "nets/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "nets/distributed/replicas.h"
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
      host.resize(std::size_t(p.count * size_of(net.value_type())));
      net.read(p.value, host);
      if (!all_finite(host, net.value_type())) broken.push_back(p.name);
    }
  return broken;
}

}  // namespace

Trainer::Trainer(Net& net, DataLoader& loader, TrainOptions options)
    : net_(net),
      loader_(loader),
      options_(std::move(options)),
      communicator_(options_.communicator && options_.communicator->size() > 1
                        ? options_.communicator
                        : nullptr) {
  if (options_.epochs < 1)
    throw InputError(fmt::format("{} epochs: expected 1 or more", options_.epochs));
  if (net.plan().mode != Mode::training)
    throw InputError(fmt::format("net {}: training needs a plan for training", net.graph().name()));
  if (loader.batches() < 1) throw InputError("training needs images for at least one batch");
  validate(options_.rule);
  if (rate_of(options_.rule) == 0) throw InputError("a learning rate of 0: expected more than 0");
  const Shape& out = net.graph().nodes().back().shape;
  output_.resize(std::size_t(out.elements() * size_of(net.value_type())));
  state_.net = net.graph().name();
  state_.batch = net.plan().batch * ranks();
  state_.dtype = net.plan().dtype;
  state_.data = options_.data;
  state_.steps = loader.batches();
  state_.seed = options_.seed;
  state_.plan = net.plan();
  state_.rule = options_.rule;
  state_.schedule = options_.schedule;
  state_.epochs = options_.epochs;
  state_.notes = options_.notes;
  if (communicator_ == nullptr) return;
  const std::pair<const char*, std::string> settings[] = {
      {"net", state_.net},
      {"type", std::string(to_string(state_.dtype))},
      {"batch", std::to_string(state_.batch)},
      {"batches an epoch", std::to_string(state_.steps)},
      {"epochs", std::to_string(state_.epochs)},
      {"optimizer", to_string(state_.rule)},
      {"schedule", to_string(state_.schedule)},
      {"seed", std::to_string(state_.seed)},
      {"data", state_.data}};
  for (const auto& [what, value] : settings) require_same(*communicator_, what, value);
  exchange_ = std::make_unique<GradientExchange>(net_, *communicator_, options_.exchange);
  times_.resize(std::size_t(ranks()));
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
  if (communicator_ == nullptr) return train();
  try {
    all_fail_ = true;
    require_same(*communicator_, "the checkpoint",
                 state_.epoch == 0 && state_.step == 0
                     ? "none"
                     : fmt::format("that of epoch {}, step {}", state_.epoch + 1, state_.step));
    all_fail_ = false;
    net_.start_optimizer(options_.rule);
    broadcast_all(*communicator_, net_);
    return train();
  } catch (const std::exception& error) {
    if (!all_fail_) communicator_->abandon(error.what());
    throw;
  }
}

bool Trainer::train() {
  saved_s_ = now_s();
  while (state_.epoch < options_.epochs) {
    if (train_epoch() && finish_epoch()) continue;
    save();
    return false;
  }
  return true;
}

bool Trainer::all_go_on(bool mine) {
  if (communicator_ == nullptr) return mine;
  const std::vector<std::int64_t> all = communicator_->all_gather(std::int64_t(mine));
  return std::find(all.begin(), all.end(), 0) == all.end();
}

// From the current position in the epoch. False: stopped.
bool Trainer::train_epoch() {
  loader_.start(state_.epoch, state_.step);
  step_begin_s_ = now_s();
  while (const Batch* batch = loader_.next()) {
    take_step(*batch);
    ++state_.step;
    go_on_here_ =
        !options_.on_step || options_.on_step({state_.epoch, options_.epochs, state_.step - 1,
                                               state_.steps, rate_, loss_, state_.scores});
    if (!(communicator_ ? go_on_everywhere_ : go_on_here_)) return false;
    if (now_s() - saved_s_ >= options_.checkpoint_every_s) save();
  }
  return all_go_on(go_on_here_);
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
  Share mine{net_.loss(), now_s() - step_begin_s_, {}, go_on_here_};
  net_.read_output(output_);
  mine.scores = score(output_, net_.value_type(), batch.labels);
  const Scores scores = add_shares(mine);
  net_.update(with_rate(options_.rule, rate_));
  state_.scores += scores;
  step_begin_s_ = now_s();
}

// Of all ranks: averages the gradients and the loss, and sums the scores.
Scores Trainer::add_shares(const Share& mine) {
  if (communicator_ == nullptr) {
    loss_ = mine.loss;
    if (!std::isfinite(loss_)) throw Diverged(where_it_diverged(loss_));
    return mine.scores;
  }
  exchange_->finish();
  const std::vector<Share> all = communicator_->all_gather(mine);
  const auto diverged =
      std::find_if(all.begin(), all.end(), [](const Share& s) { return !std::isfinite(s.loss); });
  if (diverged != all.end()) {
    const int root = int(diverged - all.begin());
    const std::string where = rank() == root ? where_it_diverged(mine.loss) : "";
    const std::string why = communicator_->broadcast(where, root);
    all_fail_ = true;
    throw Diverged(why);
  }
  Scores sum;
  loss_ = 0;
  go_on_everywhere_ = true;
  for (std::size_t r = 0; r < all.size(); ++r) {
    loss_ += all[r].loss / double(all.size());
    sum += all[r].scores;
    go_on_everywhere_ &= all[r].go_on != 0;
    times_[r].busy_s += all[r].busy_s;
  }
  std::vector<double> busy;
  for (const Share& s : all) busy.push_back(s.busy_s);
  const auto slowest = std::max_element(busy.begin(), busy.end());
  const auto last = std::size_t(slowest - busy.begin());
  const double longest = std::exchange(*slowest, 0);
  times_[last].waited_for_s += longest - *std::max_element(busy.begin(), busy.end());
  return sum;
}

bool Trainer::finish_epoch() {
  EpochReport report{state_.epoch, options_.epochs, rate_, state_.scores, {}, false};
  if (communicator_) {
    report_ranks(report);
    broadcast_statistics(*communicator_, net_);
    all_fail_ = true;
    require_equal_weights(*communicator_, net_, fmt::format("after epoch {}", state_.epoch + 1));
    all_fail_ = false;
  }
  if (test_net_ != nullptr) {
    report.test = test();
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
  return all_go_on(!options_.on_epoch || options_.on_epoch(report));
}

std::optional<Scores> Trainer::test() {
  copy_parameters(net_, *test_net_);
  std::optional<Scores> scores = evaluate(*test_net_, *test_loader_, go_on_);
  if (!all_go_on(scores.has_value())) return std::nullopt;
  if (communicator_ == nullptr) return scores;
  Scores sum;
  for (const Scores& s : communicator_->all_gather(*scores)) sum += s;
  return sum;
}

void Trainer::report_ranks(EpochReport& report) {
  report.ranks = std::exchange(times_, std::vector<RankTime>(times_.size()));
  report.communicated_s = exchange_->total_communicated_s() -
                          std::exchange(communicated_before_s_, exchange_->total_communicated_s());
  report.exposed_s =
      exchange_->total_exposed_s() - std::exchange(exposed_before_s_, exchange_->total_exposed_s());
}

void Trainer::save() {
  if (rank() == 0 && !options_.checkpoint.empty()) {
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
