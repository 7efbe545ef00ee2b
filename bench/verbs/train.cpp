#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "bench/options/net_options.h"
#include "bench/options/targets.h"
#include "bench/options/tune_options.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "bench/reports/nets/step_info.h"
#include "bench/reports/nets/train_report.h"
#include "bench/text.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/text/counted.h"
#include "conv/text/text.h"
#include "nets/data/loader.h"
#include "nets/train/optimizer.h"
#include "nets/train/trainer.h"
#include "nets/weights/notes.h"
#include "nets/weights/weights.h"
#include "nets/zoo/zoo.h"

namespace convlab {

using namespace nets;
namespace {

struct Options {
  NetArguments net;
  std::string data, optimizer, schedule;
  std::optional<std::uint64_t> seed;
  std::int64_t epochs = 0;  // 0: the net's usual number
  std::optional<double> rate, momentum, weight_decay;
  bool nesterov = false, sync_batch_norm = false;
  PixelStatistics pixels;
  std::int64_t data_threads = 1;
  ExchangeArguments exchange;
  std::string resume, weights, checkpoint, log;
};

// ---- Settings: from the flags, else the checkpoint, else the usual ones ----

struct Settings {
  std::string data;
  std::int64_t batch = 0, epochs = 0;
  UpdateRule rule;
  Schedule schedule;
  std::uint64_t seed = 1;
};

// The papers' rates, scaled to the batch (Goyal et al. 2017, arXiv:1706.02677): ImageNet, 256
// images: 0.1 with batch norm, 0.01 without. Small images, batch of 128: 0.1 and 0.05. A batch or
// epochs of 0 are usual ones too.
Settings usual_settings(const Graph& net, const std::string& data, std::int64_t batch,
                        std::int64_t epochs) {
  const Shape& x = net.nodes().front().shape;
  const bool small = x.h <= 64;
  const bool normalised = std::any_of(net.nodes().begin(), net.nodes().end(), [](const Node& node) {
    return std::holds_alternative<BatchNorm>(node.layer);
  });
  Settings s;
  s.data = data;
  s.batch = batch > 0 ? batch : small ? 64 : 32;
  s.epochs = epochs > 0                      ? epochs
             : data.starts_with("synthetic") ? 10
             : !small                        ? 90
             : normalised                    ? 100
                                             : 20;
  const double rate = normalised ? 0.1 : small ? 0.05 : 0.01;
  s.rule = SgdDesc{.rate = rate * double(s.batch) / (small ? 128 : 256),
                   .momentum = 0.9,
                   .weight_decay = normalised && !small ? 1e-4 : 5e-4,
                   .nesterov = normalised};
  s.schedule = {.kind = Schedule::Kind::cosine, .warmup = s.epochs > 20 ? 5.0 : 1.0};
  return s;
}

void apply_rule_flags(const Options& o, UpdateRule& rule) {
  if (!o.optimizer.empty() && o.optimizer != rule_name(rule)) rule = make_rule(o.optimizer);
  if (o.rate) rule = with_rate(rule, *o.rate);
  if (o.weight_decay) std::visit([&](auto& r) { r.weight_decay = *o.weight_decay; }, rule);
  if (auto* sgd = std::get_if<SgdDesc>(&rule)) {
    if (o.momentum) sgd->momentum = *o.momentum;
    if (o.nesterov) sgd->nesterov = true;
    if (sgd->momentum == 0) sgd->nesterov = false;
  } else if (o.momentum || o.nesterov) {
    throw InputError(fmt::format("{} has no {}: drop it, or say --optimizer sgd", rule_name(rule),
                                 o.momentum ? "--momentum" : "--nesterov"));
  }
}

Settings settings_of(const Options& o, const std::optional<Checkpoint>& checkpoint,
                     std::int64_t batch) {
  Settings s;
  if (checkpoint) {
    const TrainingState& from = checkpoint->state;
    s = {from.data, batch, from.epochs, from.rule, from.schedule, from.seed};
  } else {
    s = usual_settings(make_net(o.net.common.targets.front(), 1), o.data, batch, o.epochs);
  }
  if (!o.data.empty()) s.data = o.data;
  if (o.epochs > 0) s.epochs = o.epochs;
  if (!o.schedule.empty()) s.schedule = parse_schedule(o.schedule);
  if (!o.schedule.empty() && s.schedule.warmup > double(s.epochs))
    throw InputError(
        fmt::format("--schedule: a warm-up of {} epochs, but there are {}: expected at "
                    "most as many, or more --epochs",
                    s.schedule.warmup, s.epochs));
  if (o.seed) s.seed = *o.seed;
  apply_rule_flags(o, s.rule);
  return s;
}

// ---- --threads: a checkpoint's notes keep the number that was given ----

const std::string threads_note = "threads";

// 0 if --threads was never given.
int asked_threads(const Options& o, const std::optional<Checkpoint>& checkpoint) {
  const CommonOptions& c = o.net.common;
  if (c.threads > 0 || !checkpoint || c.device.kind != DeviceKind::cpu) return c.threads;
  const auto& notes = checkpoint->state.notes;
  const auto found = notes.find(threads_note);
  if (found == notes.end()) return 0;
  return naming(checkpoint->file, [&] { return parse_threads(found->second); });
}

std::map<std::string, std::string> notes_with(int threads, const WeightsNotes& weights) {
  std::map<std::string, std::string> notes = to_metadata(weights);
  if (threads > 0) notes[threads_note] = std::to_string(threads);
  return notes;
}

// ---- Files ----

// Fails early instead of after hours of training.
void require_checkpoint(const Options& o) {
  if (o.checkpoint.empty()) return;
  if (format_of(o.checkpoint) != FileFormat::safetensors)
    throw InputError(fmt::format(
        "--checkpoint: '{}': expected a name that ends in .safetensors, the format it is in",
        o.checkpoint));
  Output(o.checkpoint, "--checkpoint");  // throws if it cannot be written
  std::error_code no_file;
  if (std::filesystem::exists(o.checkpoint) &&
      !std::filesystem::equivalent(o.checkpoint, o.resume, no_file))
    throw InputError(fmt::format(
        "--checkpoint: '{}' is there already: go on with it by --resume, or name another file",
        o.checkpoint));
}

// ---- The verb ----

struct Data {
  std::unique_ptr<Dataset> train, test;
};

// `where` names the source of the data: the flag or a checkpoint.
Data open_data(const std::string& spec, const std::string& where) {
  Data data = naming(where, [&] {
    return Data{open_dataset(spec, Split::train), open_dataset(spec, Split::test)};
  });
  if (data.train->classes() != data.test->classes())
    throw InputError(fmt::format("--data {}: {} classes to train with, but {} others to test with",
                                 spec, data.train->classes().size(), data.test->classes().size()));
  return data;
}

// Files among the data that are skipped, each named once: with held-out images, training and
// testing read the same folders.
std::vector<std::string> skipped_in(const Data& data) {
  std::vector<std::string> notes = data.train->notes();
  for (const std::string& note : data.test->notes())
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  return notes;
}

void require_scores_images(const Graph& net) {
  const Shape& y = net.nodes().back().shape;
  if (y.pixels() > 1)
    throw InputError(
        fmt::format("train: {} scores {} of an image: expected a net that scores images as a "
                    "whole, as resnet18",
                    net.name(), y.d > 1 ? "each voxel" : "each pixel"));
}

// Converts images to the net's input: the usual transform, with the mean and deviation that the
// weights were trained with.
Transform make_transform(const Dataset& dataset, const Graph& graph, Split split, const Options& o,
                         const WeightsNotes& before) {
  const Shape& x = graph.nodes().front().shape;
  Transform transform = usual_transform(dataset, x.c, x.h, x.w, split);
  transform.frames = x.d;
  if (before.transform) normalise(transform, {before.transform->mean, before.transform->deviation});
  normalise(transform, before.pixels, o.weights + ": ");
  normalise(transform, o.pixels);
  return transform;
}

DataLoader make_loader(const Dataset& dataset, const Transform& transform, const Graph& graph,
                       Split split, const Options& o, const Settings& s, DType dtype,
                       Device& device, const Ranks& ranks) {
  const bool train = split == Split::train;
  return DataLoader(dataset, transform,
                    {.batch = batch_of(graph) * ranks.size(),
                     .rank = ranks.rank(),
                     .ranks = ranks.size(),
                     .shuffle = train,
                     .drop_last = train,
                     .seed = s.seed,
                     .threads = int(o.data_threads),
                     .dtype = dtype},
                    device);
}

struct Plans {
  Graph graph;
  NetPlan training, testing;
  std::string advice{};  // as PlannedNet's
};

// The checkpoint's plans, so that training continues bit for bit whatever was tuned meanwhile.
// nullopt if flags request another choice or the plans no longer fit. A message says which.
std::optional<Plans> plans_of(const Checkpoint& checkpoint, const TuneOptions& limits,
                              const Graph& graph, const Device& device) {
  const NetPlan& training = checkpoint.state.plan;
  const NetPlan testing = checkpoint.state.test_plan.value_or(NetPlan());
  std::string why = plan_misfit(training, graph, device.info());
  if (why.empty()) why = plan_misfit(testing, graph, device.info());
  if (limits.max_error || limits.workspace_max || (limits.deterministic && !training.deterministic))
    why = "--max-error, --workspace-max or --deterministic was not given then";
  if (why.empty()) {
    say(fmt::format("layouts and algorithms are those of {}", checkpoint.file));
    return Plans{graph, training, testing};
  }
  say(fmt::format(
      "layouts and algorithms are not those of {}, so that results may differ in their last "
      "digits: {}",
      checkpoint.file, why));
  return std::nullopt;
}

// Checks before anything is planned.
void require_fits(const Checkpoint& checkpoint, const Options& o, const Graph& graph, DType dtype,
                  const Dataset& images, const Ranks& ranks) {
  const Settings s = settings_of(o, checkpoint, batch_of(graph) * ranks.size());
  TrainingState start;
  start.net = graph.name();
  start.batch = s.batch;
  start.dtype = dtype;
  start.data = s.data;
  start.seed = s.seed;
  start.steps = images.size() / s.batch;
  start.rule = s.rule;
  require_fits(checkpoint, start);
}

// `which` names the batch, of all ranks.
void require_enough(const Dataset& images, std::int64_t batch, std::int64_t ranks,
                    const std::string& which) {
  if (batch <= images.size()) return;
  const std::int64_t most = std::max(images.size() / ranks, std::int64_t{1}) * ranks;
  throw InputError(fmt::format("{} is more than the {} images to train with: expected --batch {}{}",
                               which, images.size(), most, most > ranks ? " or less" : ""));
}

// The net, with one output per class, and its plans.
Plans planned(const Options& o, const std::optional<Checkpoint>& checkpoint, const Dataset& images,
              const NetAlgos& algos, Device& device, const Ranks& ranks) {
  NetArguments a = o.net;
  CommonOptions& c = a.common;
  const Graph one = make_net(c.targets.front(), 1, std::int64_t(images.classes().size()));
  c.targets = {one.name()};
  const bool given = !c.batches.empty();
  if (!given && a.plan_file.empty())
    c.batches = {checkpoint ? checkpoint->state.batch : usual_settings(one, o.data, 0, 0).batch};
  for (std::int64_t& batch : c.batches) {
    const std::string which = given ? "--batch" : "a batch of";
    const std::int64_t share = ranks.share(batch, which);
    require_enough(images, batch, ranks.size(), fmt::format("{} {}", which, batch));
    batch = share;
  }
  if (checkpoint && c.dtype == DType::f32) c.dtype = checkpoint->state.dtype;
  if (checkpoint && a.plan_file.empty()) {
    const Graph graph = make_net(one.name(), c.batches.front());
    require_fits(*checkpoint, o, graph, c.dtype, images, ranks);
    if (std::optional<Plans> plans = plans_of(*checkpoint, a.tune, graph, device))
      return *std::move(plans);
  }
  PlannedNet net = planned_net(a, "train", algos, device);
  require_enough(images, net.plan.batch * ranks.size(), ranks.size(),
                 fmt::format("{}: a batch of {}", a.plan_file, net.plan.batch * ranks.size()));
  a.forward_only = true;
  ChooseOptions options = choose_options(a, device);
  options.dtype = net.plan.dtype;
  NetPlan testing = choose_by_store(net.graph, a, options, algos, device).plan;
  return {std::move(net.graph), std::move(net.plan), std::move(testing), std::move(net.advice)};
}

// Rank 0's plans, on all ranks.
Plans plans_of_rank_0(const Ranks& ranks, std::optional<Plans> mine, const Dataset& images,
                      const Device& device) {
  NetPlan plan = ranks.plan_of_rank_0(mine ? &mine->training : nullptr, device);
  NetPlan testing = ranks.plan_of_rank_0(mine ? &mine->testing : nullptr, device);
  if (mine) return *std::move(mine);
  Graph graph = make_net(plan.net, plan.batch, std::int64_t(images.classes().size()));
  require_plan_fits(plan, graph, device.info());
  return {std::move(graph), std::move(plan), std::move(testing)};
}

// Two data sets with the same description differ only in pixels.
std::string description(const Dataset& images) {
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < images.size(); ++i)
    hash = (hash ^ std::uint64_t(images.label(i))) * 0x100000001B3u;
  return fmt::format("{} images of {} classes (labels {:x})", images.size(),
                     images.classes().size(), hash);
}

std::string headline(const Graph& net, const Settings& s, const Data& data, const Device& device,
                     const Ranks& ranks) {
  return fmt::format(
      "{}, {} weights; {}: {} images of {} classes, {} to test; {}, {}{}\n"
      "batch {}, {}, {}, {}, seed {}",
      net.name(), net.parameters(), s.data, data.train->size(), data.train->classes().size(),
      data.test->size(), device.info().name,
      ranks.size() > 1 ? fmt::format("{} ranks with ", ranks.size()) : "",
      counted(device.info().threads, "thread"), s.batch, counted(s.epochs, "epoch"),
      to_string(s.rule), to_string(s.schedule), s.seed);
}

int train(Options o, Ranks& ranks) {
  if (!o.net.common.targets.empty() && is_model(o.net.common.targets.front()))
    throw InputError(fmt::format(
        "train: '{}' is an ONNX model, which has lost what training needs: expected a net by name, "
        "as in `convlab train resnet18`",
        o.net.common.targets.front()));
  if (!o.net.common.targets.empty()) require_net(o.net, "train");
  ranks.require_mpirun_for(o.exchange);
  ranks.require_mpirun_for("--sync-batch-norm", o.sync_batch_norm);
  std::optional<Checkpoint> checkpoint;
  if (!o.resume.empty()) {
    if (!o.weights.empty())
      throw InputError("--resume brings weights along: drop --weights, or start without --resume");
    checkpoint = naming("--resume", [&] { return read_checkpoint(o.resume); });
    if (o.checkpoint.empty()) o.checkpoint = o.resume;
    if (o.net.common.targets.empty()) o.net.common.targets = {checkpoint->state.net};
  }
  require_net(o.net, "train");
  if (o.data.empty() && !checkpoint)
    throw InputError("train: no --data: expected a directory of images, or synthetic");
  if (ranks.speaks()) {
    require_checkpoint(o);
    TrainLog::require_writable(o.log);
  } else {
    o.log.clear();
  }
  const int threads = o.net.common.threads = asked_threads(o, checkpoint);
  ranks.divide_host(o.net.common);
  if (!o.checkpoint.empty() && !is_utf8(o.data))
    throw InputError(fmt::format(
        "--data: '{}' is not UTF-8, as the text in a checkpoint is: name it by another path",
        o.data));
  settings_of(o, checkpoint, 1);  // refuses invalid values before anything is opened
  require_scores_images(make_net(o.net.common.targets.front(), 1));
  std::optional<ArrayReader> weights;
  WeightsNotes before;
  if (checkpoint) before = notes_of(checkpoint->state.notes, o.resume);
  if (!o.weights.empty()) {
    naming("--weights", [&] { weights.emplace(o.weights); });
    before = notes_of(weights->header().metadata, o.weights);
  }

  const std::unique_ptr<Device> device = open_device(o.net.common);
  Algos all;
  append_all_algos(all);
  const NetAlgos algos = all;
  const Data data =
      o.data.empty() ? open_data(checkpoint->state.data, o.resume) : open_data(o.data, "--data");
  naming(o.data.empty() ? o.resume : "--data", [&] {
    require_frames(make_net(o.net.common.targets.front(), 1),
                   o.data.empty() ? checkpoint->state.data : o.data);
  });
  std::optional<Plans> plans;
  ranks.agree();
  if (ranks.communicator()) {
    require_same(*ranks.communicator(), "--data to train with", description(*data.train));
    require_same(*ranks.communicator(), "--data to test with", description(*data.test));
    require_same(*ranks.communicator(), "--sync-batch-norm", o.sync_batch_norm ? "it" : "none");
  }
  if (ranks.speaks()) plans = planned(o, checkpoint, *data.train, algos, *device, ranks);
  ranks.agree();
  if (ranks.communicator()) plans = plans_of_rank_0(ranks, std::move(plans), *data.train, *device);
  const Graph& graph = plans->graph;
  const Settings s = settings_of(o, checkpoint, batch_of(graph) * ranks.size());
  const Transform augmented = make_transform(*data.train, graph, Split::train, o, before),
                  plain = make_transform(*data.test, graph, Split::test, o, before);
  ranks.agree();
  if (ranks.communicator())
    require_same(
        *ranks.communicator(), "--mean and --deviation",
        fmt::format("{} and {}", fmt::join(plain.mean, ","), fmt::join(plain.deviation, ",")));

  NetOptions options{.dropout_seed = s.seed, .first_image = ranks.rank() * batch_of(graph)};
  if (o.sync_batch_norm && ranks.communicator())
    options.all_reduce_sums = [&](std::span<double> sums) { ranks.communicator()->sum(sums); };
  Net net(graph, plans->training, algos, *device, options);
  Net test_net(graph, plans->testing, algos, *device, {.loss = Loss::none});
  net.initialise(s.seed);
  if (weights) load_weights(net, *weights);
  DataLoader loader = make_loader(*data.train, augmented, graph, Split::train, o, s,
                                  net.value_type(), *device, ranks);
  DataLoader test_loader =
      make_loader(*data.test, plain, graph, Split::test, o, s, net.value_type(), *device, ranks);

  TrainLog log(o.log, checkpoint.has_value());
  Output result{std::string()};
  Progress progress;
  std::optional<TrainReporter> reporter;
  std::optional<Scores> test;
  const std::atomic<bool>& stop = stop_on_interrupt();
  ranks.agree();
  Trainer trainer(net, loader,
                  {.epochs = s.epochs,
                   .rule = s.rule,
                   .schedule = s.schedule,
                   .checkpoint = o.checkpoint,
                   .seed = s.seed,
                   .data = s.data,
                   .notes = notes_with(threads, {graph.name(), data.train->classes(), plain}),
                   .communicator = ranks.communicator(),
                   .exchange = ranks.exchange(o.exchange, *device),
                   .on_step =
                       [&](const StepReport& r) {
                         reporter->step(r);
                         return !stop;
                       },
                   .on_epoch =
                       [&](const EpochReport& r) {
                         reporter->epoch(r);
                         test = r.test;
                         return !stop;
                       }});
  const auto testing = [&] {
    reporter->testing();
    return !stop;
  };
  trainer.test_with(test_net, test_loader, testing);
  if (checkpoint) trainer.resume(*checkpoint);
  ranks.begin();
  reporter.emplace(log, progress, loader, s.epochs, trainer.state());
  if (!plans->advice.empty()) say(plans->advice);
  progress.line(headline(graph, s, data, *device, ranks));
  if (trainer.exchange() && !trainer.exchange()->note().empty())
    progress.line(trainer.exchange()->note());
  for (const std::string& note : skipped_in(data)) progress.line(fmt::format("convlab: {}", note));

  const auto kept = [&]() -> std::string {
    return std::filesystem::exists(o.checkpoint)
               ? fmt::format("; {} is as the checkpoint before left it", o.checkpoint)
               : "";
  };
  try {
    trainer.run();
  } catch (const Diverged& error) {
    progress.line(fmt::format("convlab: {}; a lower --lr may help{}", error.what(), kept()));
    return 1;
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(error.what() + kept());
  }
  if (trainer.state().epoch < s.epochs) {
    const DeviceChoice& device_asked = o.net.common.device;
    const std::string on_card = device_asked.kind == DeviceKind::cuda
                                    ? fmt::format(" --device cuda:{}", device_asked.index)
                                    : "";
    progress.line(o.checkpoint.empty()
                      ? "stopped; nothing was kept, for want of --checkpoint FILE"
                      : fmt::format("stopped; to go on: convlab train {} --resume {}{}",
                                    graph.name(), shell_word(o.checkpoint), on_card));
    return interrupted_exit_code;
  }
  if (!test) {
    progress.line(fmt::format("convlab: nothing to train: {} done before; more by --epochs",
                              counted(s.epochs, "epoch was", "epochs were")));
    test = trainer.test();
    if (!test) return interrupted_exit_code;
  }
  if (!o.checkpoint.empty()) progress.line(fmt::format("the weights are in {}", o.checkpoint));
  if (!ranks.speaks()) return 0;
  result.write(fmt::format("top-1 {}, top-5 {}, loss {:.4f} on {} test images\n",
                           show_rate(test->top1_rate()), show_rate(test->top5_rate()),
                           test->mean_loss(), test->images));
  return 0;
}

int run(const Options& o) {
  Ranks ranks;
  return ranks.run("train", [&] { return train(o, ranks); });
}

// A finite number that passes `fits`, which `range` puts in words.
void add_real(CLI::App& app, const std::string& flag, std::optional<double>& value,
              bool (*fits)(double), const char* range, const std::string& description) {
  add_parsed(
      app, flag,
      [&value, fits, range](const std::string& text) {
        value = parse_number(text);
        if (!value || std::isinf(*value) || !fits(*value))
          throw InputError(fmt::format("'{}': expected a number {}", text, range));
      },
      description, "X");
}

}  // namespace

VerbAction declare_train(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  o->net.training_only = true;
  add_net(app, o->net.common, "Images at a time; default: 64 small ones, 32 else");
  add_text(app, "--data", o->data,
           "synthetic[:IMAGES], or a directory: CIFAR-10/100 binary, MNIST IDX (also .gz), or "
           "JPEG and PNG in one folder a class below train/ and test/",
           "DIR");
  add_number(app, "--epochs", o->epochs, 1, 1'000'000, "Times through the data");
  add_real(
      app, "--lr", o->rate, [](double x) { return x > 0; }, "above 0, up to 1.8e308",
      "The highest learning rate");
  add_parsed(
      app, "--schedule",
      [o](const std::string& text) {
        parse_schedule(text);
        o->schedule = text;
      },
      "constant, cosine, or step:30,60 (by ,factor=0.1), each perhaps with ,warmup=5; in epochs",
      "SCHEDULE");
  add_parsed(
      app, "--optimizer",
      [o](const std::string& text) {
        make_rule(text);
        o->optimizer = text;
      },
      "sgd, adam or adamw; default: sgd", "NAME");
  add_real(
      app, "--momentum", o->momentum, [](double x) { return x >= 0 && x < 1; }, "from 0 to below 1",
      "Of sgd; default: 0.9");
  add_flag(app, "--nesterov", o->nesterov, "Nesterov's momentum; default for nets with batch norm");
  add_real(
      app, "--weight-decay", o->weight_decay, [](double x) { return x >= 0; }, "from 0 to 1.8e308",
      "Default: 1e-4 or 5e-4, adamw 0.01");
  add_text(app, "--weights", o->weights, "Start from this file: .safetensors or .npz", "FILE");
  add_text(app, "--checkpoint", o->checkpoint,
           "Keep all that training goes on from here, after each epoch, every 10 minutes and "
           "at Ctrl-C; also the trained weights",
           "FILE.safetensors");
  add_text(app, "--resume", o->resume,
           "Go on from this checkpoint, and keep it up to date; what no flag says is as it "
           "was, and data, seed and batch must be",
           "FILE");
  add_text(app, "--log", o->log, "A row for each epoch", "FILE.csv");
  add_normalisation(app, o->pixels);
  add_limits(app, o->net.tune);
  add_device(app, o->net.common);
  add_number(app, "--data-threads", o->data_threads, 0, most_data_threads,
             "Threads that read and decode images meanwhile; default: 1");
  add_exchange(app, o->exchange);
  add_flag(app, "--sync-batch-norm", o->sync_batch_norm,
           "Batch norm's statistics are those of all ranks' images; default: of a rank's own");
  add_seed(
      app, [o](std::uint64_t seed) { o->seed = seed; },
      "Of weights, dropout, order and augmentation; default: 1");
  add_plan_file(app, o->net);
  add_db(app, o->net.common);
  set_footer(
      app,
      "Trains a net to classify images and says how well it does on others, held out. The net\n"
      "gets as many outputs as the data have classes. Algorithms and layouts come from the tuning\n"
      "store; tune first for the best.\n\n"
      "Examples:\n"
      "  convlab train resnet20 --data synthetic          drawn shapes, no download\n"
      "  convlab train resnet20 --data cifar-10-batches-bin --checkpoint r20.safetensors\n"
      "  convlab train --resume r20.safetensors           after Ctrl-C, or for more --epochs\n"
      "  convlab train lenet --data mnist --optimizer adam --lr 1e-3 --log lenet.csv\n"
      "  convlab train resnet18 --data photos --weights resnet18.safetensors --lr 0.001\n"
      "  mpirun -n 4 convlab train resnet20 --data synthetic   each rank a quarter of the batch\n\n"
      "Not given, epochs, batch, rate and schedule are usual ones for the net: SGD with momentum\n"
      "and a cosine with warm-up, its rate scaled to the batch. The first lines say them.\n"
      "With --deterministic, a run that was stopped and resumed ends with the very bits of one\n"
      "that was not: the checkpoint keeps layouts and algorithms too, until --plan or limits ask\n"
      "for others.\n\n"
      "Exit codes: 1 when the loss or a weight became infinite or NaN, with the step and the "
      "layer;\n"
      "130 when stopped by Ctrl-C, with the checkpoint written.");
  return [o] { return run(*o); };
}

}  // namespace convlab
