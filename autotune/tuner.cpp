#include "autotune/tuner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "autotune/candidates.h"
#include "autotune/contradiction.h"
#include "autotune/enumeration.h"
#include "autotune/limits.h"
#include "autotune/measure/ceilings.h"
#include "autotune/measure/disturbance.h"
#include "autotune/race/race.h"
#include "autotune/race/runner.h"
#include "autotune/race/worker.h"
#include "autotune/shard.h"
#include "autotune/store/provenance.h"
#include "conv/error.h"
#include "conv/text/names.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, 3> mode_names{"heuristic", "race", "exhaustive"};

class Tuner {
 public:
  Tuner(const std::vector<TuneItem>& items, const TuneOptions& options,
        const RegistryMaker& make_registry, Device& device, Store* store, TuneProgress* progress,
        const std::atomic<bool>* stop)
      : items_(items),
        options_(options),
        device_(device),
        store_(store),
        progress_(progress ? *progress : silent_),
        stop_(stop),
        registry_(make_registry()),
        algos_(admitted_algos(algos_for(items, registry_, device.info().kind), options.algos,
                              options.exclude)) {}

  TuneTable run() {
    entries_ = entries_of(items_, device_.info());
    if (options_.shard) keep_shard(*options_.shard);
    if (!entries_.empty()) ceilings_ = ceilings_of(device_, stop_);
    // Under a budget, a slow-to-list algorithm is asked when its problem's turn comes.
    const bool quick = options_.budget_s.value_or(0) > 0;
    for (TuningEntry& entry : entries_) enumeration_.fill(entry, quick);
    if (quick && !Enumeration::any_taken(entries_))
      for (TuningEntry& entry : entries_) enumeration_.fill(entry);
    if (!options_.lists_refusals) enumeration_.require_taken(entries_);
    if (options_.mode != TuneMode::heuristic) {
      try {
        recall();
      } catch (const StoreInterrupted&) {
        // Stopped: the results so far are returned.
      }
      load_.look(cpu_s());
      try {
        for (std::size_t i = 0; i < entries_.size() && !stopped();) {
          i = screen_group(i);
          run_finals();
          if (race_again()) run_finals();
          for (TuningEntry& entry : entries_)
            if (entry.visited) finish(entry);
        }
      } catch (...) {
        // Results of completed processes are stored even if no other process can be started.
        for (TuningEntry& entry : entries_)
          if (!entry.finished) {
            set_rates(entry);
            record_measured(entry);
          }
        throw;
      }
    }
    return table();
  }

 private:
  // Drops the entries of other shards. What was derived from all of them stays: whether packing
  // counts must not depend on the shard.
  void keep_shard(const Shard& shard) {
    if (shard.index < 1 || shard.index > shard.count)
      throw InputError(
          fmt::format("shard {}/{}: expected one from 1/N to N/N", shard.index, shard.count));
    if (shard.count > std::int64_t(entries_.size()))
      throw InputError(
          fmt::format("shard {}/{} of {} problems and passes: expected at most {} shards",
                      shard.index, shard.count, entries_.size(), entries_.size()));
    ceilings_ = nominal_ceilings(device_.info());
    std::vector<double> costs;
    for (TuningEntry& entry : entries_) {
      enumeration_.fill(entry, true);
      costs.push_back(tuning_cost_s(entry, race_options(entry).prune_factor));
    }
    const std::vector<std::int64_t> shards = balanced_shards(costs, shard.count);
    const bool training = std::any_of(entries_.begin(), entries_.end(),
                                      [](const TuningEntry& e) { return e.count_packing; });
    shard_ = {shard.index, shard.count, 0, entries_.size(), training};
    std::vector<TuningEntry> kept;
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (shards[i] == shard.index - 1) kept.push_back(std::move(entries_[i]));
    entries_ = std::move(kept);
    shard_->problems = entries_.size();
  }

  double max_error(const Problem& problem) const {
    return options_.max_error.value_or(default_max_error(problem.dtype()));
  }
  AlgoRef algo_of(const TuningEntry& entry, const Candidate& c) const {
    return registry_.get(entry.problem, device_.info().kind, c.algo);
  }

  // Reads the store's rows. They were made under any limits; this run's limits are applied here.
  void recall() {
    if (!store_) return;
    for (const TuningEntry& entry : entries_)
      if (const auto [errors, fresh] = errors_.try_emplace(entry.problem.dtype()); fresh)
        for (const Candidate& c : store_->worst_errors(entry.problem.dtype()))
          errors->second.note(c);
    std::size_t rows = 0, failed = 0;
    for (TuningEntry& entry : entries_) recall(entry, rows, failed);
    progress_.resumed(rows, failed);
  }

  // Adds to `rows` the rows that need no rerun, and to `failed` those of them that failed.
  void recall(TuningEntry& entry, std::size_t& rows, std::size_t& failed) {
    const std::vector<Candidate> enumerated = entry.candidates;
    entry.known.clear();
    std::set<std::string> races;  // of the measured rows, by recording date
    for (const AlgoRef& algo : algos_) {
      if (!algo.is_for(entry.problem)) continue;
      const Store::Found found =
          store_->lookup(entry.problem, options_.cache, device_.info(), algo.info());
      if (entry.unlisted && algo.is_slow_to_list())
        enumeration_.add_known(entry, algo, found.candidates);
      std::map<std::string, std::size_t> known;
      for (std::size_t i = 0; i < found.candidates.size(); ++i)
        known.insert_or_assign(candidate_key(found.candidates[i]), i);
      for (Candidate& c : entry.candidates) {
        const auto row =
            c.algo == algo.info().id && is_open(c) ? known.find(candidate_key(c)) : known.end();
        if (row == known.end()) continue;
        Candidate remembered = found.candidates[row->second];
        if (!apply_limits(remembered, max_error(entry.problem), options_.workspace_max)) continue;
        if (remembered.predicted) remembered.ms = c.ms;  // by the current ceilings
        const bool fails =
            remembered.status == Status::failed || remembered.status == Status::timeout;
        if (fails && options_.retry_failed) continue;
        failed += fails && !options_.fresh;
        c = std::move(remembered);
        if (is_measured(c)) races.insert(found.dates[row->second]);
        rows += !options_.fresh;
      }
    }
    // Processes of different races cannot be paired: under another choice of algorithms some of
    // these were raced without the others.
    if (races.size() > 1)
      for (Candidate& c : entry.candidates)
        if (is_measured(c)) {
          c.process_ms.clear();
          c.process_pack_ms.clear();
          entry.known.push_back(c);
          reopen(c);
          rows -= !options_.fresh;
        }
    // Pruned by an old prediction: the reason is restated with the current ceilings.
    if (const double best = entry.best_measured(); best < infinity)
      for (Candidate& c : entry.candidates)
        if (c.status == Status::dropped && c.predicted) c.reason = why_pruned(c.ms / best);
    const Decision known = decide_among_measured(entry.candidates, entry.count_packing);
    if (known.chosen && known.verdict != Verdict::predicted && known.verdict != Verdict::unsure)
      entry.earlier_ms = entry.candidates[*known.chosen].ms;
    if (options_.fresh) {
      entry.candidates = enumerated;
      entry.known.clear();
    } else {
      rows -= entry.reopen_unsettled(race_options(entry).prune_factor,
                                     options_.mode == TuneMode::exhaustive);
    }
  }

  RaceOptions race_options(const TuningEntry& entry) const {
    RaceOptions race = options_.mode == TuneMode::exhaustive ? exhaustive_race() : RaceOptions{};
    // A card's ceilings come from its data sheet and ignore occupancy.
    if (device_.info().kind == DeviceKind::cuda) race.prune_factor *= 4;
    race.seed = options_.seed;
    race.count_packing = entry.count_packing;
    return race;
  }

  bool stopped() const { return (stop_ && *stop_) || elapsed_s() > deadline_s_; }

  double elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - options_.start).count();
  }

  // Problems are screened for a fixed time and then go through their finals together. This is often
  // enough that a long run that is stopped has finished rows, and seldom enough that starting
  // processes costs little. The finals keep a share of a budget, since screening without finals is
  // worth little. Returns the total number of problems screened.
  std::size_t screen_group(std::size_t done) {
    constexpr double long_enough_s = 20, share = 0.5;
    const double budget_s = options_.budget_s.value_or(infinity);
    const double share_end_s = elapsed_s() + share * (budget_s - elapsed_s());
    const double group_end_s = std::min(elapsed_s() + long_enough_s, share_end_s);
    deadline_s_ = share_end_s;  // a group may end within an entry; a budget's share may not
    while (TuningEntry* const entry = next_entry()) {
      progress_.begin(items_[entry->items.front()], done++, entries_.size());
      if (entry->unlisted && !stopped()) list(*entry);
      screen_entry(*entry);
      if (elapsed_s() > group_end_s) break;
    }
    deadline_s_ = budget_s;
    return done;
  }

  // Lists every algorithm's candidates, and reads the store.
  void list(TuningEntry& entry) {
    enumeration_.fill(entry);
    std::size_t rows = 0, failed = 0;
    if (store_) try {
        recall(entry, rows, failed);
      } catch (const StoreInterrupted&) {
        // Stopped: screening checks for it too.
      }
  }

  // In the given order; under a budget, by largest possible gain.
  TuningEntry* next_entry() {
    if (stopped()) return nullptr;
    TuningEntry* next = nullptr;
    for (TuningEntry& entry : entries_) {
      if (entry.visited) continue;
      if (!next || (options_.budget_s && entry.remaining_gain() > next->remaining_gain()))
        next = &entry;
    }
    if (next) next->visited = true;
    return next;
  }

  void screen_entry(TuningEntry& entry) {
    const RaceOptions race_opts = race_options(entry);
    const auto ended = [&](const Candidate& c) { record(entry, c); };
    // Known times prune as fresh measurements would (see race): two measured ones are needed.
    double reach = 0;
    for (const Candidate& c : entry.candidates)
      if (is_measured(c) && entry.cost(c) == entry.best_measured())
        reach = std::max(entry.cost(c), entry.prediction(c).ms);
    const std::size_t measured = entry.measured();
    for (Candidate& c : entry.candidates)
      if (measured > 1 && is_open(c) && c.ms > race_opts.prune_factor * reach) {
        c.status = Status::dropped;
        c.reason = why_pruned(c.ms / reach);
        ended(c);
      }
    if (!entry.any_open()) {
      const Decision known = decide(entry.candidates, entry.count_packing);
      if (known.verdict == Verdict::unsure) entry.finals.emplace(entry.candidates, race_opts);
      return;
    }
    if (entry.best_measured() < infinity) entry.known = entry.candidates;
    entry.reopen_incumbents(race_opts.finalists);
    const auto first_open = std::partition(entry.candidates.begin(), entry.candidates.end(),
                                           [](const Candidate& c) { return !is_open(c); });
    std::vector<Candidate> racing(first_open, entry.candidates.end());
    try {
      const auto runner = make_runner(entry.problem, ReferenceCase::Evaluate::whole);
      screen(racing, *runner, sampler_, race_opts, ended);
    } catch (const OutOfMemory& e) {
      for (Candidate& c : racing)
        if (is_open(c)) {
          c.status = Status::refused;
          c.reason = e.what();
        }
    }
    for (const Candidate& c : racing) errors_[entry.problem.dtype()].note(c);
    std::move(racing.begin(), racing.end(), first_open);
    const bool any_open = entry.any_open();
    entry.interrupted = any_open && stopped();
    entry.disturbed = any_open && !stopped() && entry.best_measured() == infinity;
    if (entry.restore_known()) return;  // the store has all of it
    entry.finals.emplace(entry.candidates, race_opts);
    record_measured(entry);
  }

  // Process by process; each goes through all problems that are still open.
  void run_finals() {
    const auto is_running = [](const TuningEntry& e) { return e.finals && e.finals->open(); };
    for (std::size_t process = 1; !stopped(); ++process) {
      const auto open = std::count_if(entries_.begin(), entries_.end(), is_running);
      if (open == 0) break;
      progress_.process(process, std::size_t(open));
      worker_.reset();
      for (TuningEntry& entry : entries_) {
        if (!is_running(entry) || stopped()) continue;
        try {
          const auto runner = make_runner(entry.problem, ReferenceCase::Evaluate::sample);
          entry.finals->run_process(*runner, sampler_,
                                    [&](const Candidate& c) { record(entry, c); });
        } catch (const OutOfMemory&) {
          entry.finals->give_up();
        }
        if (!is_running(entry) && !contradiction_of(entry)) finish(entry);
      }
    }
  }

  // A result that contradicts other knowledge is raced once more, from the start, before it is
  // believed.
  bool race_again() {
    bool any = false;
    for (TuningEntry& entry : entries_) {
      if (entry.finished || !(entry.finals || entry.disturbed) || stopped()) continue;
      const std::optional<std::string> why =
          entry.disturbed ? std::optional<std::string>("other programs disturbed it all along")
                          : contradiction_of(entry);
      if (!why) continue;
      progress_.again(items_[entry.items.front()], *why);
      const std::vector<Candidate> first = entry.candidates;
      const bool stored = !entry.finals;
      entry.known.clear();  // `first` is newer than the store's rows
      for (Candidate& c : entry.candidates)
        if (!c.predicted && (c.status == Status::ok || c.status == Status::dropped)) reopen(c);
      screen_entry(entry);
      any = true;
      if (!entry.disturbed && !stopped()) continue;
      // The second race gave no result: the first one stands.
      entry.candidates = first;
      entry.disturbed = entry.best_measured() == infinity;
      entry.finals.reset();
      if (stored) continue;
      entry.finals.emplace(entry.candidates, race_options(entry));
      entry.finals->give_up();
    }
    return any;
  }

  std::optional<std::string> contradiction_of(const TuningEntry& entry) const {
    return contradiction(entry, entries_, registry_, device_, ceilings_);
  }

  void set_rates(TuningEntry& entry) const {
    for (Candidate& c : entry.candidates)
      convlab::set_rates(c, as_run(entry.problem, c), algo_of(entry, c), device_);
  }

  // The entry is final.
  void finish(TuningEntry& entry) {
    if (entry.finished) return;
    set_rates(entry);
    record_measured(entry);
    if (entry.finals && !entry.finals->open())
      for (const Candidate& c : entry.candidates)
        if (raced(c)) progress_.ended(as_run(entry.problem, c), c);
    entry.finished = true;
    progress_.end(result(entry, entry.items.front()), ++finished_, entries_.size());
  }

  static bool raced(const Candidate& c) { return is_measured(c) && !c.process_ms.empty(); }

  // In one transaction: their common date shows that they ran in the same processes.
  void record_measured(const TuningEntry& entry) {
    if (!store_ || !entry.finals) return;
    std::vector<StoreRow> rows;
    for (const Candidate& c : entry.candidates)
      if (is_measured(c) || (c.status == Status::dropped && !c.predicted))
        rows.push_back({.problem = as_run(entry.problem, c),
                        .fingerprint = fingerprint(device_.info(), algo_of(entry, c).info()),
                        .candidate = c,
                        .commit = {},
                        .date = {}});
    remember([&](Store& store) { store.record(rows); });
  }

  // If the store fails, the run continues without it.
  void remember(const std::function<void(Store&)>& write) {
    if (!store_) return;
    try {
      write(*store_);
    } catch (const Error& e) {
      store_ = nullptr;
      store_error_ = e.what();
      progress_.store_lost(store_error_);
    }
  }

  double cpu_s() const { return own_cpu_s() + (worker_ ? worker_->cpu_s() : 0); }

  std::unique_ptr<CandidateRunner> make_runner(const Problem& problem,
                                               ReferenceCase::Evaluate evaluate) {
    // The error of a few outputs may be above or below that of all, which was judged before.
    const double slack = evaluate == ReferenceCase::Evaluate::sample ? 4 : 1;
    const RunnerOptions options{.problem = problem,
                                .cache = options_.cache,
                                .seed = options_.seed,
                                .max_error = slack * max_error(problem),
                                .workspace_max = options_.workspace_max,
                                .evaluate = evaluate};
    if (!options_.in_process)
      return std::make_unique<WorkerRunner>(
          options, device_.info(), options_.timeout_s, [this] { return stopped(); }, &worker_);
    try {
      return std::make_unique<LocalRunner>(options, registry_, device_);
    } catch (const std::bad_alloc&) {
      throw OutOfMemory("out of memory for the reference");
    }
  }

  void record(const TuningEntry& entry, const Candidate& ended) {
    Candidate c = ended;
    const Problem problem = as_run(entry.problem, c);
    const AlgoRef algo = algo_of(entry, c);
    convlab::set_rates(c, problem, algo, device_);
    // A refusal depends on limits and on the memory free at the time.
    if (c.status != Status::refused)
      remember([&](Store& store) { store.record(problem, device_.info(), algo.info(), c); });
    progress_.ended(problem, c);
  }

  LayerResult result(const TuningEntry& entry, std::size_t item) const {
    LayerResult r;
    r.layer = items_[item].layer;
    r.first_layer = items_[item].first_layer;
    r.log_ms = items_[item].log_ms;
    r.candidates = entry.candidates;
    const auto known = errors_.find(entry.problem.dtype());
    (known != errors_.end() ? known->second : KnownErrors())
        .apply(r.candidates, max_error(entry.problem));
    const bool any_measured = entry.best_measured() < infinity;
    const auto rank = [&](const Candidate& c) {
      const bool dropped = c.status == Status::dropped || (any_measured && is_open(c));
      const int group = dropped ? 1 : c.status == Status::ok ? 0 : 2;
      return std::tuple(group, group < 2 ? entry.cost(c) : 0.0);
    };
    std::stable_sort(r.candidates.begin(), r.candidates.end(),
                     [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
    // Its fwd is the convolution's bwd_d, and the reasons name the convolution's pass and sizes.
    if (r.layer.transposed)
      for (Candidate& c : r.candidates)
        if (c.status == Status::refused) c.reason = "its convolution: " + c.reason;
    const Decision decision = decide(r.candidates, entry.count_packing);
    if (any_measured)
      for (Candidate& c : r.candidates)
        if (is_open(c)) {
          c.status = Status::dropped;
          c.reason = entry.interrupted || !entry.visited ? "not tried: stopped before its turn"
                                                         : "other programs disturbed every sample";
        }
    r.chosen = decision.chosen;
    r.verdict = decision.verdict;
    r.ratio = decision.ratio;
    if (r.verdict == Verdict::predicted && entry.disturbed) {
      r.verdict = Verdict::unsure;
      r.reason = "other programs disturbed every sample: its time is a prediction";
      return r;
    }
    r.reason = r.verdict == Verdict::none
                   ? why_none(r.candidates, max_error(entry.problem), options_.workspace_max)
                   : decision.reason;
    return r;
  }

  TuneTable table() {
    TuneTable t;
    t.provenance = collect_provenance(device_.info());
    const LoadMeter::Load load = load_.look(cpu_s());
    t.disturbances = {sampler_.samples(), sampler_.disturbed(), load.others, load.stolen,
                      sysconf(_SC_NPROCESSORS_ONLN)};
    t.store_error = store_error_;
    t.shard = shard_;
    std::map<std::size_t, LayerResult> layers;  // by item
    for (TuningEntry& entry : entries_) {
      if (!entry.visited) entry.restore_known();
      for (std::size_t item : entry.items) layers[item] = result(entry, item);
      if (options_.mode == TuneMode::heuristic) continue;
      const bool racing = entry.finals && entry.finals->open();
      t.complete &=
          !entry.interrupted && !racing && (entry.visited || !(entry.any_open() || entry.unlisted));
      t.remaining_gain += entry.remaining_gain();
    }
    for (auto& [item, layer] : layers) t.layers.push_back(std::move(layer));
    return t;
  }

  static constexpr double infinity = std::numeric_limits<double>::infinity();

  const std::vector<TuneItem>& items_;
  const TuneOptions& options_;
  Device& device_;
  Store* store_;
  std::string store_error_;
  TuneProgress silent_;
  TuneProgress& progress_;
  const std::atomic<bool>* stop_;
  Algos registry_;
  std::vector<AlgoRef> algos_;            // admitted by the options
  std::unique_ptr<ChildProcess> worker_;  // kept between two problems
  Ceilings ceilings_;
  const Enumeration enumeration_{options_, algos_, device_, ceilings_};
  std::vector<TuningEntry> entries_;
  std::optional<TableShard> shard_;
  Sampler sampler_{[this] { return stopped(); }};
  LoadMeter load_;
  std::map<DType, KnownErrors> errors_;
  double deadline_s_ = infinity;  // of the current activity
  std::size_t finished_ = 0;
};

}  // namespace

std::vector<AlgoRef> algos_for(const std::vector<TuneItem>& items, const Algos& algos,
                               DeviceKind kind) {
  std::vector<AlgoRef> found;
  for (const AlgoRef& algo : algos.for_device(kind))
    if (std::any_of(items.begin(), items.end(),
                    [&](const TuneItem& item) { return algo.is_for(item.layer.problem); }))
      found.push_back(algo);
  return found;
}

std::string_view to_string(TuneMode mode) { return mode_names[std::size_t(mode)]; }

TuneMode parse_tune_mode(std::string_view text) {
  return TuneMode(index_of_name("tuning mode", text, mode_names));
}

double default_max_error(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 1e-4;
    case DType::f16:
      return 1e-2;
    case DType::bf16:
      return 5e-2;
  }
  return 0;
}

TuneTable tune(const std::vector<TuneItem>& items, const TuneOptions& options,
               const RegistryMaker& make_registry, Device& device, Store* store,
               TuneProgress* progress, const std::atomic<bool>* stop) {
  validate_limits(options.max_error, options.workspace_max);
  if ((options.budget_s && !(*options.budget_s >= 0)) || !(options.timeout_s > 0))
    throw InputError(fmt::format("a budget of {} s, {} s to answer: expected positive numbers",
                                 options.budget_s.value_or(0), options.timeout_s));
  return Tuner(items, options, make_registry, device, store, progress, stop).run();
}

TuneTotals totals(const TuneTable& table, std::optional<Pass> pass) {
  TuneTotals t;
  for (const LayerResult& layer : table.layers) {
    const Pass its = layer.layer.pass();
    if (pass && *pass != its) continue;
    if (layer.first_layer && its == Pass::backward_data) continue;
    if (!layer.chosen) {
      ++t.layers_without;
      continue;
    }
    const Candidate& c = layer.candidates[*layer.chosen];
    const double count = double(layer.layer.count);
    t.chosen_ms += count * c.ms;
    t.pack_ms += count * c.pack_ms;
    t.convert_ms += count * c.convert_ms;
  }
  return t;
}

}  // namespace convlab
