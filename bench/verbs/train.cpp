#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "bench/options/net_options.h"
#include "bench/options/tune_options.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "bench/reports/nets/step_info.h"
#include "bench/text.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
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

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Options {
  NetArguments net;
  std::string data, optimizer, schedule;
  std::optional<std::uint64_t> seed;
  std::int64_t epochs = 0;  // 0: the net's usual number
  std::optional<double> rate, momentum, weight_decay;
  bool nesterov = false;
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
// images: 0.1 with batch norm, 0.01 without. Small images, batch of 128: 0.1 and 0.05.
Settings usual_settings(const Graph& net, const std::string& data, std::int64_t batch) {
  const Shape& x = net.nodes().front().shape;
  const bool small = x.h <= 64;
  const bool normalised = std::any_of(net.nodes().begin(), net.nodes().end(), [](const Node& node) {
    return std::holds_alternative<BatchNorm>(node.layer);
  });
  Settings s;
  s.data = data;
  s.batch = batch > 0 ? batch : small ? 64 : 32;
  s.epochs = data.starts_with("synthetic") ? 10 : !small ? 90 : normalised ? 100 : 20;
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
    s = usual_settings(make_net(o.net.common.targets.front(), 1), o.data, batch);
  }
  if (!o.data.empty()) s.data = o.data;
  if (o.epochs > 0) s.epochs = o.epochs;
  if (!o.schedule.empty()) s.schedule = parse_schedule(o.schedule);
  if (o.seed) s.seed = *o.seed;
  apply_rule_flags(o, s.rule);
  return s;
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

// One row per epoch, written when it ends: whole or not at all.
class Log {
 public:
  // Writes nothing. Throws InputError if no log can be written.
  static void require_writable(const std::string& file) {
    if (file.empty() || file == "-") return;
    const std::filesystem::path path(file);
    std::error_code none;
    const bool is_folder = std::filesystem::is_directory(path, none);
    if (!is_folder && access(file.c_str(), W_OK) == 0) return;
    const int error = is_folder ? EISDIR : errno;
    const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
    if (error == ENOENT && access(folder.c_str(), W_OK) == 0) return;
    throw InputError(fmt::format("--log: cannot write '{}': {}", file, std::strerror(error)));
  }
  Log(const std::string& file, bool append) : path_(file) {
    if (file.empty()) return;
    if (path_ == "-") path_ = "/dev/stdout";
    std::error_code error;
    is_new_ = !std::filesystem::exists(path_, error);
    const bool fresh = !append || is_new_;
    stream_.open(path_, fresh && file != "-" ? std::ios::trunc : std::ios::app);
    if (!stream_)
      throw InputError(fmt::format("--log: cannot write '{}': {}", file, std::strerror(errno)));
    if (std::filesystem::is_regular_file(path_)) rows_end_ = std::filesystem::file_size(path_);
    if (fresh) write("epoch,rate,loss,top1,test_loss,test_top1,test_top5,images_per_s,t_io_s,s\n");
  }
  void write(const std::string& line) {
    if (path_.empty()) return;
    stream_ << line << std::flush;
    if (!stream_) {
      const int error = errno;
      drop_half_row();
      throw EnvironmentError(
          fmt::format("--log: cannot write '{}': {}", path_, std::strerror(error)));
    }
    if (rows_end_) *rows_end_ += line.size();
  }

 private:
  void drop_half_row() {
    if (!rows_end_) return;
    stream_.close();  // tries once more to write the rest
    std::error_code ignored;
    if (is_new_ && *rows_end_ == 0)
      std::filesystem::remove(path_, ignored);
    else
      std::filesystem::resize_file(path_, *rows_end_, ignored);
  }

  std::string path_;
  std::ofstream stream_;
  bool is_new_ = false;
  std::optional<std::uintmax_t> rows_end_;  // nullopt for a device or a pipe
};

// ---- Progress messages ----

std::string show_time(double seconds) {
  const auto s = std::int64_t(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

std::string show_rate(double share) { return fmt::format("{:.2f}%", 100 * share); }

class Reporter {
 public:
  Reporter(Log& log, Progress& progress, const DataLoader& loader, std::int64_t epochs,
           const TrainingState& start)
      : log_(log), progress_(progress), loader_(loader) {
    total_ = (epochs - start.epoch) * start.steps - start.step;
    before_ = start.scores.images;
  }

  void step(const StepReport& r) {
    ++done_;
    for (; named_ < loader_.bad_images().size(); ++named_)
      progress_.line(fmt::format("skipped {}", loader_.bad_images()[named_]));
    if (seconds_since(told_) < (progress_.has_terminal() ? 0.1 : 10)) return;
    told_ = Clock::now();
    const std::string text =
        fmt::format("epoch {}/{}: loss {:.4f}, top-1 {}, {:.0f} images/s, t_io {:.1f}%, {} left",
                    r.epoch + 1, r.epochs, r.scores.mean_loss(), show_rate(r.scores.top1_rate()),
                    images_per_s(r.scores), 100 * io_s() / seconds_since(epoch_begin_),
                    show_time(seconds_since(begin_) / double(done_) * double(total_ - done_)));
    progress_.step(std::size_t(done_), std::size_t(total_), text);
  }

  // The training part of an epoch has ended, and its test begins.
  void testing() {
    if (trained_s_ > 0) return;
    trained_s_ = seconds_since(epoch_begin_);
    trained_io_s_ = io_s();
  }

  void epoch(const EpochReport& r) {
    const double images_per_s = double(r.train.images - before_) / trained_s_;
    std::string text = fmt::format("epoch {}/{}: loss {:.4f}, top-1 {}", r.epoch + 1, r.epochs,
                                   r.train.mean_loss(), show_rate(r.train.top1_rate()));
    if (r.test)
      text += fmt::format("; test loss {:.4f}, top-1 {}{}", r.test->mean_loss(),
                          show_rate(r.test->top1_rate()), r.best ? " (best)" : "");
    progress_.line(fmt::format("{}; {:.0f} images/s, t_io {:.1f}%, {}", text, images_per_s,
                               100 * trained_io_s_ / trained_s_, show_time(trained_s_)));
    if (!r.ranks.empty()) ranks(r);
    if (trained_io_s_ > 0.05 * trained_s_)
      progress_.line(fmt::format(
          "reading images was not hidden: {:.1f} s of that; more --data-threads may help",
          trained_io_s_));
    const Scores test = r.test.value_or(Scores());
    log_.write(fmt::format("{},{},{},{},{},{},{},{:.1f},{:.3f},{:.3f}\n", r.epoch + 1, r.rate,
                           r.train.mean_loss(), r.train.top1_rate(), test.mean_loss(),
                           test.top1_rate(), test.top5_rate(), images_per_s, trained_io_s_,
                           trained_s_));
    epoch_begin_ = Clock::now();
    io_before_s_ = loader_.waited_s();
    trained_s_ = trained_io_s_ = 0;
    before_ = 0;
  }

 private:
  // The exchange, and the rank that the others waited for most.
  void ranks(const EpochReport& r) {
    const auto slowest = std::max_element(
        r.ranks.begin(), r.ranks.end(),
        [](const RankTime& a, const RankTime& b) { return a.waited_for_s < b.waited_for_s; });
    const double hidden = std::max(0.0, r.communicated_s - r.exposed_s);
    progress_.line(fmt::format(
        "exchange {:.1f} s, {:.0f}% of it hidden; {:.1f} s waited for rank {}{}", r.communicated_s,
        100 * hidden / std::max(r.communicated_s, 1e-9), slowest->waited_for_s,
        slowest - r.ranks.begin(),
        slowest->waited_for_s > std::max(1.0, 0.1 * trained_s_) ? ", which is slow" : ""));
  }

  double io_s() const { return loader_.waited_s() - io_before_s_; }
  double images_per_s(const Scores& scores) const {
    return double(scores.images - before_) / seconds_since(epoch_begin_);
  }

  Log& log_;
  Progress& progress_;
  const DataLoader& loader_;
  std::int64_t total_ = 0, done_ = 0;  // steps, of this run
  std::int64_t before_ = 0;            // images of the epoch that another run processed
  std::size_t named_ = 0;              // bad images
  Clock::time_point begin_ = Clock::now(), epoch_begin_ = begin_, told_ = begin_;
  double io_before_s_ = 0, trained_s_ = 0, trained_io_s_ = 0;
};

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

// Converts images to the net's input: the usual transform, with the mean and deviation that the
// weights were trained with.
Transform make_transform(const Dataset& dataset, const Graph& graph, Split split, const Options& o,
                         const WeightsNotes& before) {
  const Shape& x = graph.nodes().front().shape;
  Transform transform = usual_transform(dataset, x.c, x.h, x.w, split);
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

// The net, with one output per class, and its plans.
Plans planned(const Options& o, const std::optional<Checkpoint>& checkpoint, const Dataset& images,
              const AlgoRegistry& registry, Device& device, const Ranks& ranks) {
  NetArguments a = o.net;
  CommonOptions& c = a.common;
  const Graph one = make_net(c.targets.front(), 1, std::int64_t(images.classes().size()));
  c.targets = {one.name()};
  const bool given = !c.batches.empty();
  if (!given && a.plan_file.empty())
    c.batches = {checkpoint ? checkpoint->state.batch : usual_settings(one, o.data, 0).batch};
  for (std::int64_t& batch : c.batches)
    batch = ranks.share(batch, given ? "--batch" : "a batch of");
  if (checkpoint && c.dtype == DType::f32) c.dtype = checkpoint->state.dtype;
  if (checkpoint && a.plan_file.empty()) {
    const Graph graph = make_net(one.name(), c.batches.front());
    require_fits(*checkpoint, o, graph, c.dtype, images, ranks);
    if (std::optional<Plans> plans = plans_of(*checkpoint, a.tune, graph, device))
      return *std::move(plans);
  }
  PlannedNet net = planned_net(a, "train", registry, device);
  if (net.plan.mode != Mode::training)
    throw InputError(fmt::format("{}: the plan is for {}, expected one for training", a.plan_file,
                                 to_string(net.plan.mode)));
  a.forward_only = true;
  ChooseOptions options = choose_options(a, device);
  options.dtype = net.plan.dtype;
  NetPlan testing = choose_by_store(net.graph, a, options, registry, device).plan;
  return {std::move(net.graph), std::move(net.plan), std::move(testing)};
}

// Rank 0's plans, on all ranks.
Plans plans_of_rank_0(const Ranks& ranks, std::optional<Plans> mine, const Dataset& images,
                      const Device& device) {
  NetPlan plan = ranks.plan_of_rank_0(mine ? &mine->training : nullptr);
  NetPlan testing = ranks.plan_of_rank_0(mine ? &mine->testing : nullptr);
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
      "{}, {} weights; {}: {} images of {} classes, {} to test; {}, {}{} threads\n"
      "batch {}, {} epochs, {}, {}, seed {}",
      net.name(), net.parameters(), s.data, data.train->size(), data.train->classes().size(),
      data.test->size(), device.info().name,
      ranks.size() > 1 ? fmt::format("{} ranks with ", ranks.size()) : "", device.info().threads,
      s.batch, s.epochs, to_string(s.rule), to_string(s.schedule), s.seed);
}

int train(Options o, Ranks& ranks) {
  std::optional<Checkpoint> checkpoint;
  if (!o.resume.empty()) {
    if (!o.weights.empty())
      throw InputError("--resume brings weights along: drop --weights, or start without --resume");
    checkpoint = naming("--resume", [&] { return read_checkpoint(o.resume); });
    if (o.checkpoint.empty()) o.checkpoint = o.resume;
    if (o.net.common.targets.empty()) o.net.common.targets = {checkpoint->state.net};
  }
  if (o.net.common.targets.empty())
    throw InputError(
        "train: no net: expected one, as in `convlab train resnet20 --data synthetic`");
  if (o.data.empty() && !checkpoint)
    throw InputError("train: no --data: expected a directory of images, or synthetic");
  if (ranks.speaks()) {
    require_checkpoint(o);
    Log::require_writable(o.log);
  } else {
    o.log.clear();
  }
  ranks.divide_threads(o.net.common);
  if (!o.checkpoint.empty() && !is_utf8(o.data))
    throw InputError(fmt::format(
        "--data: '{}' is not UTF-8, as the text in a checkpoint is: name it by another path",
        o.data));
  settings_of(o, checkpoint, 1);  // refuses invalid values before anything is opened
  std::optional<ArrayReader> weights;
  WeightsNotes before;
  if (checkpoint) before = notes_of(checkpoint->state.notes, o.resume);
  if (!o.weights.empty()) {
    naming("--weights", [&] { weights.emplace(o.weights); });
    before = notes_of(weights->header().metadata, o.weights);
  }

  const std::unique_ptr<Device> device = open_device(o.net.common);
  AlgoRegistry registry;
  append_all_algos(registry);
  const Data data =
      o.data.empty() ? open_data(checkpoint->state.data, o.resume) : open_data(o.data, "--data");
  std::optional<Plans> plans;
  ranks.agree();
  if (ranks.communicator()) {
    require_same(*ranks.communicator(), "--data to train with", description(*data.train));
    require_same(*ranks.communicator(), "--data to test with", description(*data.test));
  }
  if (ranks.speaks()) plans = planned(o, checkpoint, *data.train, registry, *device, ranks);
  ranks.agree();
  if (ranks.communicator()) plans = plans_of_rank_0(ranks, std::move(plans), *data.train, *device);
  const Graph& graph = plans->graph;
  const DType dtype = plans->training.dtype;
  const Settings s = settings_of(o, checkpoint, batch_of(graph) * ranks.size());
  const Transform augmented = make_transform(*data.train, graph, Split::train, o, before),
                  plain = make_transform(*data.test, graph, Split::test, o, before);

  Net net(graph, plans->training, registry, *device,
          {.dropout_seed = s.seed + (std::uint64_t(ranks.rank()) << 32)});
  Net test_net(graph, plans->testing, registry, *device, {.loss = Loss::none});
  net.initialise(s.seed);
  if (weights) load_weights(net, *weights);
  DataLoader loader =
      make_loader(*data.train, augmented, graph, Split::train, o, s, dtype, *device, ranks);
  DataLoader test_loader =
      make_loader(*data.test, plain, graph, Split::test, o, s, dtype, *device, ranks);

  Log log(o.log, checkpoint.has_value());
  Output result{std::string()};
  Progress progress;
  std::optional<Reporter> reporter;
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
                   .notes = to_metadata({graph.name(), data.train->classes(), plain}),
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
  progress.line(headline(graph, s, data, *device, ranks));
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
    progress.line(o.checkpoint.empty()
                      ? "stopped; nothing was kept, for want of --checkpoint FILE"
                      : fmt::format("stopped; to go on: convlab train {} --resume {}", graph.name(),
                                    shell_word(o.checkpoint)));
    return interrupted_exit_code;
  }
  if (!test) {
    progress.line(
        fmt::format("convlab: all {} epochs were done before: more by --epochs", s.epochs));
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
  return ranks.run([&] { return train(o, ranks); });
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
