#include "autotune/tuner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include "autotune/ceilings.h"
#include "autotune/disturbance.h"
#include "autotune/limits.h"
#include "autotune/provenance.h"
#include "autotune/race.h"
#include "autotune/runner.h"
#include "conv/bytes.h"
#include "conv/error.h"
#include "conv/names.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, 3> mode_names{"heuristic", "race", "exhaustive"};

// To be run still: its time is a prediction.
bool is_open(const Candidate& c) { return c.status == Status::ok && c.predicted; }
bool is_measured(const Candidate& c) { return c.status == Status::ok && !c.predicted; }

// One problem to be tuned, which may be several layers.
struct Entry {
  ConvProblem problem;             // in NCHW
  std::vector<std::size_t> items;  // of the caller's list
  std::int64_t count = 0;          // how often it counts in the totals
  std::vector<Candidate> candidates;
  struct Prediction {
    double ms = 0, bound_ms = 0;  // no run can be faster than the bound
  };
  std::map<std::string, Prediction> predictions;  // by candidate_key
  std::optional<double> earlier_ms;               // of the chosen, when an earlier run knew one
  std::optional<Finals> finals;
  bool visited = false;
  bool interrupted = false;  // stopped before all candidates had their turn
  bool disturbed = false;    // nothing could be measured, for other programs
  bool finished = false;
};

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
        stop_(stop) {
    make_registry(registry_);
    algos_ = admitted_algos(registry_, device.info().kind, options.algos, options.exclude);
    for (const TuneItem& item : items) training_ |= item.layer.problem.pass != Pass::forward;
  }

  TuneTable run() {
    collect_entries();
    if (!entries_.empty()) ceilings_ = ceilings_of(device_.info());
    for (Entry& entry : entries_) enumerate(entry);
    if (options_.mode != TuneMode::heuristic) {
      require_taken();
      try {
        recall();
      } catch (const StoreInterrupted&) {
        // Stopped: what is known by now is the result.
      }
      load_.look(cpu_s());
      try {
        for (std::size_t i = 0; i < entries_.size() && !stopped();) {
          i = screen_group(i);
          run_finals();
          if (race_again()) run_finals();
          for (Entry& entry : entries_)
            if (entry.visited) finish(entry);
        }
      } catch (...) {
        // Processes that ran are stored even if no other can be started.
        for (Entry& entry : entries_)
          if (!entry.finished) {
            for (Candidate& c : entry.candidates) set_rates(entry.problem, c);
            record_finals(entry);
          }
        throw;
      }
    }
    return table();
  }

 private:
  void collect_entries() {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const NamedProblem& layer = items_[i].layer;
      const ConvProblem problem = with_layouts(layer.problem, {Layout::nchw, Layout::nchw});
      validate(problem);
      require_memory(problem);
      auto entry = std::find_if(entries_.begin(), entries_.end(),
                                [&](const Entry& e) { return e.problem == problem; });
      if (entry == entries_.end()) {
        entries_.emplace_back();
        entry = entries_.end() - 1;
        entry->problem = problem;
      }
      entry->items.push_back(i);
      if (!(items_[i].first_layer && problem.pass == Pass::backward_data))
        entry->count += layer.count;
    }
  }

  // The least that one candidate takes: all tensors once on the device, and in double for the
  // reference.
  void require_memory(const ConvProblem& problem) const {
    const double elements = double(problem.x_desc().elements()) +
                            double(problem.y_desc().elements()) + double(problem.filter_elements());
    const double needed = elements * double(sizeof(double) + std::size_t(size_of(problem.dtype)));
    const double there = double(device_.info().memory_bytes);
    if (there > 0 && needed > there)
      throw InputError(fmt::format("{} needs {} of memory, there are {}: use a smaller batch",
                                   to_text(problem), show_bytes(std::int64_t(needed)),
                                   show_bytes(std::int64_t(there))));
  }

  std::vector<Layouts> layout_pairs(const ConvProblem& problem) const {
    return convlab::layout_pairs(problem, options_.layout, device_.info());
  }

  double max_error(const ConvProblem& problem) const {
    return options_.max_error.value_or(default_max_error(problem.dtype));
  }
  bool count_packing(const ConvProblem& problem) const {
    return training_ && problem.pass != Pass::backward_filter;
  }

  // Every algorithm in every layout it takes, with its predicted time.
  void enumerate(Entry& entry) {
    for (const ConvAlgo* algo : algos_) {
      std::vector<Candidate> refused;
      bool taken = false;
      for (const Layouts& layouts : layout_pairs(entry.problem)) {
        const ConvProblem problem = with_layouts(entry.problem, layouts);
        if (const std::optional<Refusal> refusal = algo->refuse(problem, device_)) {
          Candidate c = new_candidate(*algo, layouts, options_.cache, device_.info());
          c.status = Status::refused;
          c.reason = refusal->reason;
          refused.push_back(std::move(c));
          continue;
        }
        taken = true;
        for (Config& config : algo->configs(problem, device_))
          add_candidate(entry, *algo, problem, std::move(config));
      }
      if (!taken && !refused.empty()) entry.candidates.push_back(best_refusal(refused));
    }
  }

  bool takes(const ConvAlgo& algo, ConvProblem problem) const {
    for (const Layouts& layouts : layout_pairs(problem))
      if (!algo.refuse(with_layouts(problem, layouts), device_)) return true;
    return false;
  }

  void require_taken() const {
    for (const Entry& entry : entries_)
      for (const Candidate& c : entry.candidates)
        if (c.status != Status::refused) return;
    std::vector<std::string_view> others;
    for (const DType dtype : all_dtypes) {
      const bool taken = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        ConvProblem problem = entry.problem;
        problem.dtype = dtype;
        return std::any_of(algos_.begin(), algos_.end(),
                           [&](const ConvAlgo* algo) { return takes(*algo, problem); });
      });
      if (taken) others.push_back(to_string(dtype));
    }
    if (others.empty()) return;
    throw InputError(fmt::format(
        "no algorithm takes {} in {} on {}: expected {}", to_text(entries_.front().problem),
        to_string(entries_.front().problem.dtype), device_.info().name, fmt::join(others, " or ")));
  }

  void add_candidate(Entry& entry, const ConvAlgo& algo, const ConvProblem& problem,
                     Config config) {
    Candidate c;
    if (options_.deterministic && !algo.deterministic(problem, config)) {
      c = new_candidate(algo, {problem.x_layout, problem.y_layout}, options_.cache, device_.info());
      c.config = std::move(config);
      c.status = Status::refused;
      c.reason = "results may differ from run to run";
    } else {
      c = predicted_candidate(algo, problem, std::move(config), options_.cache, device_, ceilings_);
      WorkEstimate work = algo.work(problem, c.config, device_);
      for (PhaseWork& phase : work.phases) phase.efficiency = std::max(phase.efficiency, 1.0);
      entry.predictions[candidate_key(c)] = {
          c.ms, predict_ms(work, problem, options_.cache, device_.info(), ceilings_)};
    }
    set_rates(problem, c);
    entry.candidates.push_back(std::move(c));
  }

  // An algorithm that takes the problem in no layout says why once. Where layouts are refused for
  // different reasons, the one that is not about the layout would remain if the layout were right.
  static Candidate best_refusal(const std::vector<Candidate>& refused) {
    for (const Candidate& c : refused) {
      const bool about_layout = c.reason.find("layout") != std::string::npos ||
                                c.reason.find(to_string(c.x_layout)) != std::string::npos ||
                                c.reason.find(to_string(c.y_layout)) != std::string::npos;
      if (!about_layout) return c;
    }
    return refused.front();
  }

  void set_rates(ConvProblem problem, Candidate& c) const {
    if (c.ms <= 0) return;
    problem = with_layouts(problem, {c.x_layout, c.y_layout});
    c.eff_gflops = problem.flops() / c.ms / 1e6;
    c.exec_gflops = algo_of(c).work(problem, c.config, device_).flops() / c.ms / 1e6;
  }

  const ConvAlgo& algo_of(const Candidate& c) const {
    return registry_.get(device_.info().kind, c.algo);
  }

  // Takes what the store knows. Its rows were made under any limits; ours are applied here.
  void recall() {
    if (!store_) return;
    for (const Entry& entry : entries_)
      if (const auto [errors, fresh] = errors_.try_emplace(entry.problem.dtype); fresh)
        for (const Candidate& c : store_->worst_errors(entry.problem.dtype)) errors->second.note(c);
    std::size_t rows = 0, failed = 0;
    for (Entry& entry : entries_) {
      const std::vector<Candidate> enumerated = entry.candidates;
      std::set<std::string> races;  // of the measured, by when they were recorded
      for (const ConvAlgo* algo : algos_) {
        const Store::Found found =
            store_->lookup(entry.problem, options_.cache, device_.info(), algo->info());
        std::map<std::string, std::size_t> known;
        for (std::size_t i = 0; i < found.candidates.size(); ++i)
          known.insert_or_assign(candidate_key(found.candidates[i]), i);
        for (Candidate& c : entry.candidates) {
          const auto row =
              c.algo == algo->info().id && is_open(c) ? known.find(candidate_key(c)) : known.end();
          if (row == known.end()) continue;
          Candidate remembered = found.candidates[row->second];
          if (!apply_limits(remembered, max_error(entry.problem), options_.workspace_max)) continue;
          const bool fails =
              remembered.status == Status::failed || remembered.status == Status::timeout;
          if (fails && options_.retry_failed) continue;
          failed += fails && !options_.fresh;
          c = std::move(remembered);
          if (is_measured(c)) races.insert(found.dates[row->second]);
          rows += !options_.fresh;
        }
      }
      // Processes of different races do not pair: with another choice of algorithms some of these
      // have been raced without the others.
      if (races.size() > 1)
        for (Candidate& c : entry.candidates)
          if (is_measured(c)) {
            reopen(c);
            rows -= !options_.fresh;
          }
      const Decision known = decide(entry.candidates, count_packing(entry.problem));
      if (known.chosen && known.verdict != Verdict::predicted && known.verdict != Verdict::unsure)
        entry.earlier_ms = entry.candidates[*known.chosen].ms;
      if (options_.fresh)
        entry.candidates = enumerated;
      else
        rows -= reopen_unsettled(entry);
    }
    progress_.resumed(rows, failed);
  }

  // A row stays dropped while one that ran to the end beats it: the best of then may be out of
  // bounds now. Noise is left some room, so that a rerun of the same does not run again.
  std::size_t reopen_unsettled(Entry& entry) const {
    constexpr double room = 0.9, predicted_room = 0.7;
    const RaceOptions race = race_options(entry);
    const double best = best_measured(entry);
    const bool exhaustive = options_.mode == TuneMode::exhaustive;
    // The runner-up of a race whose winner is out has no rival but those that were dropped.
    const bool alone =
        std::count_if(entry.candidates.begin(), entry.candidates.end(), is_measured) == 1;
    std::size_t reopened = 0;
    for (Candidate& c : entry.candidates) {
      const double beaten_at = best * (c.predicted ? predicted_room * race.prune_factor : room);
      const bool dropped =
          c.status == Status::dropped && (exhaustive || alone || cost(entry, c) < beaten_at);
      const bool too_few =
          is_measured(c) &&
          (c.process_ms.empty() || (exhaustive && c.process_ms.size() < least_processes));
      if (!dropped && !too_few) continue;
      reopen(c);
      ++reopened;
    }
    return reopened;
  }

  static void reopen(Candidate& c) {
    c.status = Status::ok;
    c.reason.clear();
    c.samples_ms.clear();
    c.process_ms.clear();
    c.process_pack_ms.clear();
    c.predicted = true;  // by its own measured time, if it has one
  }

  double cost(const Entry& entry, const Candidate& c) const {
    return cost_ms(c, count_packing(entry.problem));
  }

  double best_measured(const Entry& entry) const {
    double best = infinity;
    for (const Candidate& c : entry.candidates)
      if (is_measured(c)) best = std::min(best, cost(entry, c));
    return best;
  }

  RaceOptions race_options(const Entry& entry) const {
    RaceOptions race = options_.mode == TuneMode::exhaustive ? exhaustive_race() : RaceOptions{};
    // A card's ceilings are its data sheet's and know nothing of occupancy.
    if (device_.info().kind == DeviceKind::cuda) race.prune_factor *= 4;
    race.seed = options_.seed;
    race.count_packing = count_packing(entry.problem);
    return race;
  }

  bool stopped() const { return (stop_ && *stop_) || elapsed_s() > deadline_s_; }

  double elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  // Problems are screened for so long, and go through their finals together: often enough that
  // whoever stops a long run has finished rows, and seldom enough that starting processes costs
  // little. Of a budget the finals keep their share: what is screened and never confirmed is worth
  // little. Returns how many have been screened, of all.
  std::size_t screen_group(std::size_t done) {
    constexpr double long_enough_s = 20, share = 0.5;
    const double budget_s = options_.budget_s.value_or(infinity);
    const double group_end_s =
        elapsed_s() + std::min(long_enough_s, share * (budget_s - elapsed_s()));
    deadline_s_ = options_.budget_s ? group_end_s : infinity;
    while (Entry* const entry = next_entry()) {
      progress_.begin(items_[entry->items.front()], done++, entries_.size());
      screen_entry(*entry);
      if (elapsed_s() > group_end_s) break;
    }
    deadline_s_ = budget_s;
    return done;
  }

  // In the order given; under a budget, where most may be gained.
  Entry* next_entry() {
    if (stopped()) return nullptr;
    Entry* next = nullptr;
    for (Entry& entry : entries_) {
      if (entry.visited) continue;
      if (!next || (options_.budget_s && remaining_gain(entry) > remaining_gain(*next)))
        next = &entry;
    }
    if (next) next->visited = true;
    return next;
  }

  // What the candidates not yet run might save, if they ran at the machine's ceilings.
  double remaining_gain(const Entry& entry) const {
    double chosen = infinity, bound = infinity;
    bool measured = best_measured(entry) < infinity;
    for (const Candidate& c : entry.candidates) {
      if (is_open(c)) bound = std::min(bound, entry.predictions.at(candidate_key(c)).bound_ms);
      if (measured ? is_measured(c) : is_open(c)) chosen = std::min(chosen, c.ms);
    }
    return bound < chosen && chosen < infinity ? double(entry.count) * (chosen - bound) : 0;
  }

  void screen_entry(Entry& entry) {
    const RaceOptions race_opts = race_options(entry);
    const auto ended = [&](const Candidate& c) { record(entry, c); };
    // What is already known prunes as a fresh measurement would (see race): two that are measured.
    double reach = 0;
    for (const Candidate& c : entry.candidates)
      if (is_measured(c) && cost(entry, c) == best_measured(entry))
        reach = std::max(cost(entry, c), entry.predictions.at(candidate_key(c)).ms);
    const auto measured =
        std::count_if(entry.candidates.begin(), entry.candidates.end(), is_measured);
    for (Candidate& c : entry.candidates)
      if (measured > 1 && is_open(c) && c.ms > race_opts.prune_factor * reach) {
        c.status = Status::dropped;
        c.reason = fmt::format("predicted {:.1f} times the best, not run", c.ms / reach);
        ended(c);
      }
    if (std::none_of(entry.candidates.begin(), entry.candidates.end(), is_open)) {
      const Decision known = decide(entry.candidates, count_packing(entry.problem));
      if (known.verdict == Verdict::unsure) entry.finals.emplace(entry.candidates, race_opts);
      return;
    }
    reopen_incumbents(entry, race_opts.finalists);

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
    for (const Candidate& c : racing) errors_[entry.problem.dtype].note(c);
    std::move(racing.begin(), racing.end(), first_open);
    const bool any_open = std::any_of(entry.candidates.begin(), entry.candidates.end(), is_open);
    entry.interrupted = any_open && stopped();
    entry.disturbed = any_open && !stopped() && best_measured(entry) == infinity;
    entry.finals.emplace(entry.candidates, race_opts);
  }

  // Process by process, each through all problems that are open still.
  void run_finals() {
    const auto is_running = [](const Entry& e) { return e.finals && e.finals->open(); };
    for (std::size_t process = 1; !stopped(); ++process) {
      const auto open = std::count_if(entries_.begin(), entries_.end(), is_running);
      if (open == 0) break;
      progress_.process(process, std::size_t(open));
      worker_.reset();
      for (Entry& entry : entries_) {
        if (!is_running(entry) || stopped()) continue;
        try {
          const auto runner = make_runner(entry.problem, ReferenceCase::Evaluate::sample);
          entry.finals->run_process(*runner, sampler_,
                                    [&](const Candidate& c) { record(entry, c); });
        } catch (const OutOfMemory&) {
          entry.finals->give_up();
        }
        if (!is_running(entry) && !contradiction(entry)) finish(entry);
      }
    }
  }

  // What contradicts something known is raced once more, from the start, before it is believed.
  bool race_again() {
    bool any = false;
    for (Entry& entry : entries_) {
      if (entry.finished || !entry.finals || stopped()) continue;
      const std::optional<std::string> why =
          entry.disturbed ? std::optional<std::string>("other programs disturbed it all along")
                          : contradiction(entry);
      if (!why) continue;
      progress_.again(items_[entry.items.front()], *why);
      const std::vector<Candidate> first = entry.candidates;
      for (Candidate& c : entry.candidates)
        if (!c.predicted && (c.status == Status::ok || c.status == Status::dropped)) reopen(c);
      screen_entry(entry);
      any = true;
      if (!entry.disturbed && !stopped()) continue;
      // The second race did not come off: the first is what is known.
      entry.candidates = first;
      entry.disturbed = best_measured(entry) == infinity;
      entry.finals.emplace(entry.candidates, race_options(entry));
      entry.finals->give_up();
    }
    return any;
  }

  std::optional<std::string> contradiction(const Entry& entry) const {
    const Decision decision = decide(entry.candidates, count_packing(entry.problem));
    if (!decision.chosen || decision.verdict == Verdict::predicted) return {};
    const Candidate& chosen = entry.candidates[*decision.chosen];
    const auto over_prediction = [&](const Candidate& c) {
      return c.ms / entry.predictions.at(candidate_key(c)).ms;
    };
    std::vector<double> others;
    for (const Candidate& c : entry.candidates)
      if (&c != &chosen && !c.predicted && (is_measured(c) || c.status == Status::dropped))
        others.push_back(over_prediction(c));
    constexpr double far = 3;
    if (others.size() > 2 && over_prediction(chosen) > far * median(others))
      return fmt::format("it takes {:.1f} times its prediction, its rivals {:.1f} times theirs",
                         over_prediction(chosen), median(others));

    constexpr double above = 1.05;
    const double work = algo_of(chosen)
                            .work(with_layouts(entry.problem, {chosen.x_layout, chosen.y_layout}),
                                  chosen.config, device_)
                            .flops();
    const double gflops = work / chosen.ms / 1e6, peak = ceilings_.flops(entry.problem.dtype) / 1e9;
    if (device_.info().kind == DeviceKind::cpu && gflops > above * peak)
      return fmt::format("{:.0f} GFLOP/s are above the machine's peak of {:.0f}", gflops, peak);

    constexpr double changed = 1.15;
    if (entry.earlier_ms &&
        std::max(chosen.ms / *entry.earlier_ms, *entry.earlier_ms / chosen.ms) > changed)
      return fmt::format("{:.3g} ms now, {:.3g} ms in an earlier run", chosen.ms,
                         *entry.earlier_ms);

    constexpr double slow_pass = 2.5;
    for (const Entry& other : entries_) {
      ConvProblem same_pass = other.problem;
      same_pass.pass = entry.problem.pass;
      if (&other == &entry || !(same_pass == entry.problem)) continue;
      const double best = best_measured(other);
      if (chosen.ms > slow_pass * best)
        return fmt::format("{:.3g} ms, where {} takes {:.3g} ms", chosen.ms,
                           to_string(other.problem.pass), best);
    }
    return {};
  }

  // Nothing more changes in it.
  void finish(Entry& entry) {
    if (entry.finished) return;
    for (Candidate& c : entry.candidates) set_rates(entry.problem, c);
    record_finals(entry);
    if (entry.finals && !entry.finals->open())
      for (const Candidate& c : entry.candidates)
        if (raced(c)) progress_.ended(with_layouts(entry.problem, {c.x_layout, c.y_layout}), c);
    entry.finished = true;
    progress_.end(result(entry, entry.items.front()), ++finished_, entries_.size());
  }

  static bool raced(const Candidate& c) { return is_measured(c) && !c.process_ms.empty(); }

  void record_finals(const Entry& entry) {
    if (!store_ || !entry.finals) return;
    std::vector<StoreRow> rows;
    for (const Candidate& c : entry.candidates)
      if (raced(c) || (c.status == Status::dropped && !c.predicted))
        rows.push_back({.problem = with_layouts(entry.problem, {c.x_layout, c.y_layout}),
                        .fingerprint = fingerprint(device_.info(), algo_of(c).info()),
                        .candidate = c,
                        .commit = {},
                        .date = {}});
    remember([&](Store& store) { store.record(rows); });
  }

  // Without its store a run still has its table.
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

  // Ratios are paired within a race: the best of an earlier one run again beside the newcomers.
  void reopen_incumbents(Entry& entry, std::size_t most) const {
    std::vector<Candidate*> incumbents;
    for (Candidate& c : entry.candidates)
      if (is_measured(c)) incumbents.push_back(&c);
    std::sort(incumbents.begin(), incumbents.end(), [&](const Candidate* a, const Candidate* b) {
      return cost(entry, *a) < cost(entry, *b);
    });
    for (std::size_t i = 0; i < incumbents.size(); ++i) {
      if (i < most) {
        reopen(*incumbents[i]);
        continue;
      }
      incumbents[i]->status = Status::dropped;
      incumbents[i]->reason = fmt::format("not among the fastest {} of an earlier race", most);
    }
  }

  std::unique_ptr<CandidateRunner> make_runner(const ConvProblem& problem,
                                               ReferenceCase::Evaluate evaluate) {
    // The error of a few outputs is over or under that of all, which was judged before.
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

  void record(const Entry& entry, const Candidate& ended) {
    Candidate c = ended;
    set_rates(entry.problem, c);
    const ConvProblem problem = with_layouts(entry.problem, {c.x_layout, c.y_layout});
    // A refusal depends on limits and on the memory of the moment.
    if (c.status != Status::refused)
      remember([&](Store& store) { store.record(problem, device_.info(), algo_of(c).info(), c); });
    progress_.ended(problem, c);
  }

  LayerResult result(const Entry& entry, std::size_t item) const {
    LayerResult r;
    r.layer = items_[item].layer;
    r.first_layer = items_[item].first_layer;
    r.candidates = entry.candidates;
    if (const auto known = errors_.find(entry.problem.dtype); known != errors_.end())
      known->second.apply(r.candidates, max_error(entry.problem));
    if (best_measured(entry) < infinity)
      for (Candidate& c : r.candidates)
        if (is_open(c)) {
          c.status = Status::dropped;
          c.reason = entry.interrupted ? "not tried: stopped before its turn"
                                       : "other programs disturbed every sample";
        }
    const auto rank = [&](const Candidate& c) {
      const int group = c.status == Status::ok ? 0 : c.status == Status::dropped ? 1 : 2;
      return std::tuple(group, group < 2 ? cost(entry, c) : 0.0);
    };
    std::stable_sort(r.candidates.begin(), r.candidates.end(),
                     [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
    const Decision decision = decide(r.candidates, count_packing(entry.problem));
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
    t.disturbances = {sampler_.samples(), sampler_.disturbed(), load.others, load.stolen};
    t.store_error = store_error_;
    t.layers.resize(items_.size());
    for (const Entry& entry : entries_) {
      for (std::size_t item : entry.items) t.layers[item] = result(entry, item);
      if (options_.mode == TuneMode::heuristic) continue;
      const bool racing = entry.finals && entry.finals->open();
      t.complete &= entry.visited && !entry.interrupted && !racing;
      t.remaining_gain += remaining_gain(entry);
    }
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
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  AlgoRegistry registry_;
  std::vector<const ConvAlgo*> algos_;    // that the options admit
  std::unique_ptr<ChildProcess> worker_;  // between two problems
  bool training_ = false;                 // a backward pass is asked for
  Ceilings ceilings_;
  std::vector<Entry> entries_;
  Sampler sampler_{[this] { return stopped(); }};
  LoadMeter load_;
  std::map<DType, KnownErrors> errors_;
  double deadline_s_ = infinity;  // for what goes on now
  std::size_t finished_ = 0;
};

}  // namespace

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

Totals totals(const TuneTable& table, std::optional<Pass> pass) {
  Totals t;
  for (const LayerResult& layer : table.layers) {
    const Pass its = layer.layer.problem.pass;
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
