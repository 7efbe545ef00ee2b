#include "autotune/race/worker.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "autotune/race/loss.h"
#include "autotune/store/row.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

using nlohmann::json;

constexpr const char* worker_argument = "__worker";

std::string line_of(const json& j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The problem and the candidate travel as a row of the store.
json row_of(const Problem& problem, const Candidate& c) {
  StoreRow row;
  row.problem = problem;
  row.candidate = c;
  for (std::vector<double>* of_the_race :
       {&row.candidate.samples_ms, &row.candidate.process_ms, &row.candidate.process_pack_ms})
    of_the_race->clear();
  return to_json(row);
}

// The worker's side: one device, and one problem after another, each started by `open`.
class Server {
 public:
  Server(LineChannel& channel, const Algos& algos, const DeviceMaker& make_device)
      : channel_(channel), algos_(algos), make_device_(make_device) {}

  void serve() {
    std::string line;
    while (channel_.receive(line, -1) == Heard::line) {
      json answer;
      try {
        answer = handle(json::parse(line));
      } catch (const CandidateLost& lost) {
        answer = {{"lost", to_string(lost.status)}, {"reason", lost.what()}};
      } catch (const InputError& e) {
        answer = {{"error", e.what()}, {"kind", "input"}};
      } catch (const OutOfMemory& e) {
        answer = {{"error", e.what()}, {"kind", "memory"}};
      } catch (const DeviceLost& e) {
        // This process cannot do more.
        channel_.send(line_of(
            {{"lost", to_string(Status::failed)}, {"reason", e.what()}, {"device_lost", true}}));
        return;
      } catch (const std::bad_alloc&) {
        answer = {{"error", "out of memory for the reference"}, {"kind", "memory"}};
      } catch (const std::exception& e) {
        answer = {{"error", e.what()}, {"kind", ""}};
      }
      if (!channel_.send(line_of(answer))) return;
    }
  }

 private:
  json handle(const json& request) {
    const auto op = request.at("op").get<std::string>();
    StoreRow row = row_from_json(request.at("row"));
    Candidate& c = row.candidate;
    if (op == "open") {
      runner_.reset();
      if (!device_)
        device_ = make_device_({.kind = request.at("kind"),
                                .index = request.at("index"),
                                .isa = request.at("isa"),
                                .threads = c.threads});
      RunnerOptions options;
      options.problem = row.problem;
      options.cache = c.cache;
      options.seed = request.at("seed");
      options.evaluate = request.at("evaluate");
      if (!request.at("max_error").is_null()) options.max_error = request.at("max_error");
      if (!request.at("workspace_max").is_null())
        options.workspace_max = request.at("workspace_max").get<std::int64_t>();
      runner_ = std::make_unique<LocalRunner>(options, algos_, *device_);
      return {{"done", true}};
    }
    if (op == "prepare") {
      runner_->prepare(c);
      return {{"row", to_json(row)}};
    }
    if (op == "sample") {
      const Sample sample = runner_->sample(c, request.at("timed"), request.at("runs"));
      return {{"seconds", sample.seconds}, {"lost_share", sample.lost}};
    }
    if (op == "release") {
      runner_->release(c);
      return {{"done", true}};
    }
    throw Error(fmt::format("unknown request '{}'", op));
  }

  LineChannel& channel_;
  const Algos& algos_;
  const DeviceMaker& make_device_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<LocalRunner> runner_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device_only(const DeviceChoice& choice) {
  if (choice.kind != DeviceKind::cpu)
    throw InputError(
        "this program's workers know no device but the CPU: its main() must give "
        "convlab::worker_main a DeviceMaker (autotune/worker.h)");
  return make_cpu_device({.threads = choice.threads, .isa = choice.isa});
}

bool is_worker() { return std::getenv(child_variable) != nullptr; }

std::optional<int> worker_main(int argc, const char* const* argv,
                               const RegistryMaker& make_registry, const DeviceMaker& make_device) {
  if (argc != 2 || std::string_view(argv[1]) != worker_argument) return {};
  settle_as_child();
  exit_when_the_machine_fails();
  const Algos algos = make_registry();
  LineChannel channel(child_fd);
  if (!channel.send(R"({"ready":true})")) return 1;
  Server(channel, algos, make_device).serve();
  return 0;
}

double patience_s(double timeout_s, const DeviceInfo& device) {
  return device.compiles_kernels ? timeout_s + 120 : timeout_s;
}

WorkerRunner::WorkerRunner(const RunnerOptions& options, const DeviceInfo& device, double timeout_s,
                           std::function<bool()> stop, std::unique_ptr<ChildProcess>* spare)
    : options_(options),
      device_(device),
      timeout_s_(patience_s(timeout_s, device)),
      stop_(std::move(stop)),
      spare_(spare) {}

WorkerRunner::~WorkerRunner() {
  if (spare_ && worker_ && trusted_) *spare_ = std::move(worker_);
}

void WorkerRunner::lose_worker() {
  worker_.reset();
  prepared_.clear();
}

// Sends one request to a running worker. Any failure counts against the current candidate.
json WorkerRunner::ask_running(const json& request, double limit_s) {
  std::string line;
  Heard heard = Heard::end;
  // Time taken by other programs does not count against the candidate: each of its runnable threads
  // may use half of the limit in CPU time.
  const double used_before_s = worker_->cpu_s();
  const auto is_starved = [&] {
    return worker_->cpu_s() - used_before_s < worker_->runnable_threads() * limit_s / 2;
  };
  constexpr int most_limits = 20;
  int limits = 0;
  if (worker_->channel().send(line_of(request))) do
      heard = worker_->channel().receive(line, limit_s, stop_);
    while (heard == Heard::timeout &&
           (worker_->is_halted() || (is_starved() && ++limits < most_limits)));
  if (heard == Heard::line) {
    const json answer = json::parse(line);
    if (answer.contains("error")) {
      const auto what = answer.at("error").get<std::string>();
      if (answer.at("kind") == "input") throw InputError(what);
      if (answer.at("kind") == "memory") throw OutOfMemory(what);
      throw EnvironmentError(what);
    }
    if (answer.contains("lost")) {
      const Status status = parse_status(answer.at("lost").get<std::string>());
      trusted_ &= status != Status::failed;
      if (answer.contains("device_lost")) lose_worker();
      throw CandidateLost(status, answer.at("reason"));
    }
    return answer;
  }
  const std::optional<int> end = worker_->end();
  killed_ = end && WIFSIGNALED(*end);
  lose_worker();
  if (heard == Heard::stopped) throw CandidateLost(Status::dropped, "stopped");
  if (heard == Heard::timeout)
    throw CandidateLost(Status::timeout, fmt::format("no answer within {:.3g} s", limit_s));
  const Loss loss = end ? loss_by_end(*end) : Loss{Status::failed, "its process did not end"};
  throw CandidateLost(loss.status, loss.reason);
}

void WorkerRunner::start_process() {
  if (is_worker())
    throw EnvironmentError(
        "a worker process tried to start another: main() must call convlab::worker_main first "
        "thing (autotune/worker.h)");
  constexpr double start_limit_s = 60;  // no candidate's fault
  worker_ = std::make_unique<ChildProcess>(worker_argument);
  std::string line;
  const Heard heard = worker_->channel().receive(line, start_limit_s, stop_);
  if (heard != Heard::line || line != R"({"ready":true})") {
    const std::optional<int> end = worker_->end();
    worker_.reset();
    if (heard == Heard::stopped) throw CandidateLost(Status::dropped, "stopped");
    throw EnvironmentError(
        fmt::format("the worker process did not report itself ready ({}): main() must call "
                    "convlab::worker_main first thing (autotune/worker.h)",
                    end ? loss_by_end(*end).reason : "it did not answer"));
  }
}

void WorkerRunner::start() {
  trusted_ = true;
  if (spare_ && *spare_)
    worker_ = std::move(*spare_);
  else
    start_process();
  try {
    open();
  } catch (const CandidateLost& lost) {
    if (lost.status == Status::dropped) throw;  // stopped
    const std::string what = fmt::format("the worker process could not make ready for {}: {}",
                                         to_text(options_.problem), lost.what());
    if (killed_ && lost.status == Status::refused) throw OutOfMemory(what);
    throw EnvironmentError(what);
  }
}

void WorkerRunner::open() {
  constexpr double start_limit_s = 60;  // for a sleeping device
  const json none = nullptr;
  // The worker evaluates the reference during this call, with plain loops.
  const double expected_s =
      options_.evaluate == ReferenceCase::Evaluate::whole ? reference_s(options_.problem) : 0;
  Candidate any;
  any.threads = device_.threads;
  any.cache = options_.cache;
  ask_running({{"op", "open"},
               {"row", row_of(options_.problem, any)},
               {"kind", device_.kind},
               {"index", device_.index},
               {"isa", device_.isa},
               {"seed", options_.seed},
               {"evaluate", options_.evaluate},
               {"max_error", std::isfinite(options_.max_error) ? json(options_.max_error) : none},
               {"workspace_max", options_.workspace_max ? json(*options_.workspace_max) : none}},
              start_limit_s + limit_s(expected_s));
}

json WorkerRunner::ask(const json& request, double expected_s) {
  if (!worker_) start();
  return ask_running(request, limit_s(expected_s));
}

double WorkerRunner::limit_s(double expected_s) const {
  constexpr double patience = 100;
  return timeout_s_ + patience * expected_s;
}

void WorkerRunner::prepare_in_worker(Candidate& c) {
  const json answer = ask({{"op", "prepare"}, {"row", row_of(options_.problem, c)}}, 10e-3 * c.ms);
  c = row_from_json(answer.at("row")).candidate;
  trusted_ &= c.status != Status::failed;
  if (c.status == Status::ok) prepared_.insert(candidate_key(c));
}

void WorkerRunner::prepare(Candidate& c) { prepare_in_worker(c); }

Sample WorkerRunner::sample(const Candidate& c, Timed timed, int runs) {
  if (!worker_ || !prepared_.contains(candidate_key(c))) {
    Candidate again = c;
    prepare_in_worker(again);
    if (again.status != Status::ok) throw CandidateLost(again.status, again.reason);
  }
  const json answer = ask(
      {{"op", "sample"}, {"row", row_of(options_.problem, c)}, {"timed", timed}, {"runs", runs}},
      1e-3 * c.ms * (runs + 1));
  return {answer.at("seconds"), answer.at("lost_share")};
}

void WorkerRunner::release(const Candidate& c) {
  if (!worker_ || prepared_.erase(candidate_key(c)) == 0) return;
  try {
    ask_running({{"op", "release"}, {"row", row_of(options_.problem, c)}}, timeout_s_);
  } catch (const CandidateLost&) {
    // It crashed while exiting, and its memory was freed with the process.
  }
}

}  // namespace convlab
