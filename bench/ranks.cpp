#include "bench/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "autotune/store/build_info.h"
#include "bench/options/targets.h"
#include "bench/output.h"
#include "conv/error.h"
#include "conv/text/counted.h"
#include "conv/text/names.h"
#include "conv/text/text.h"
#include "kernels_cpu/device/cpu_limits.h"
#include "kernels_cuda/cuda.h"
#include "nets/zoo/zoo.h"

namespace convlab {

using namespace nets;
namespace {

int exit_code_of(const std::exception& error) {
  return dynamic_cast<const InputError*>(&error) ? 2 : 3;
}

// Whatever processors mpirun has bound this rank to.
int cores_of_host() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (long i = 0; i < sysconf(_SC_NPROCESSORS_ONLN); ++i) CPU_SET(i, &all);
  return usable_cores(all);
}

}  // namespace

void add_exchange(CLI::App& app, ExchangeArguments& o) {
  add_parsed(
      app, "--exchange", [&o](const std::string& text) { o.strategy = parse_strategy(text); },
      "How ranks under mpirun average gradients: overlapped (while backward computes), after "
      "(backward), or server (through rank 0); default: overlapped",
      "HOW");
  add_bytes(app, "--bucket", o.bucket,
            "Gradients that travel at a time: 0 (each parameter alone), 4M; default: by the "
            "network's latency and bandwidth");
  add_parsed(
      app, "--compress",
      [&o](const std::string& text) {
        index_of_name("compression", text, std::array<std::string_view, 1>{"bf16"});
        o.bf16 = true;
      },
      "bf16: rounds gradients on their way, which halves them", "TYPE");
}

Ranks::Ranks() : by_mpirun_(mpi_place()), place_(mpi_place().value_or(MpiPlace())) {
  if (place_.size == 1) return;
  communicator_ = mpi_communicator();
  communicator_->patience.tell = say_in_any_case;
}

void Ranks::require_mpirun_for(const std::string& flag, bool given) const {
  if (given && !by_mpirun_)
    throw InputError(fmt::format(
        "{} is about several ranks: drop it, or start them, as in `mpirun -n 2 convlab ...`",
        flag));
}

void Ranks::require_mpirun_for(const ExchangeArguments& a) const {
  require_mpirun_for("--exchange", a.strategy.has_value());
  require_mpirun_for("--bucket", a.bucket.has_value());
  require_mpirun_for("--compress", a.bf16);
}

std::int64_t Ranks::share(std::int64_t batch, const std::string& flag) const {
  const std::int64_t n = size(), below = batch / n * n;
  if (batch % n != 0)
    throw InputError(fmt::format("{} {} does not divide among {} ranks: expected {}{}", flag, batch,
                                 n, below > 0 ? fmt::format("{} or ", below) : "",
                                 std::uint64_t(below) + std::uint64_t(n)));
  return batch / n;
}

void Ranks::divide_host(CommonOptions& o) const {
  if (size() == 1) return;
  if (o.device.kind == DeviceKind::cuda) {
    const int cards = cuda_device_count(), there = std::max(0, cards - o.device.index);
    if (cards > 0 && place_.host_size > there)  // without any, opening one says why
      throw InputError(fmt::format(
          "--device cuda:{}: this host has {} ranks and {} from there on: expected one each",
          o.device.index, place_.host_size, counted(there, "card")));
    o.device.index += place_.host_rank;
    return;
  }
  if (o.threads > 0) return;
  const int share = std::max(1, cores_of_host() / place_.host_size), usable = usable_cores();
  o.threads = std::min(share, usable);
  if (o.threads < share)
    say(
        fmt::format("mpirun has bound each rank to {}, of {} that are its share: "
                    "--bind-to none undoes that",
                    counted(usable, "core"), share));
}

// Within a host an exchange copies memory, which is no faster beside computation on the same core.
// Over a network it mostly waits.
ExchangeOptions Ranks::exchange(const ExchangeArguments& a, const Device& device) const {
  const int threads = device.info().threads;
  const bool waits = device.info().kind != DeviceKind::cpu || place_.host_size < place_.size;
  const bool spare_core = usable_cores() > threads && cores_of_host() > threads * place_.host_size;
  return {.strategy = a.strategy.value_or(Strategy::overlapped),
          .bucket_bytes = a.bucket ? std::max<std::int64_t>(*a.bucket, 1) : 0,
          .bf16 = a.bf16,
          .own_thread = waits || spare_core};
}

NetPlan Ranks::plan_of_rank_0(const NetPlan* mine, const Device& device) const {
  require_same(*communicator_, "the machine", plan_machine(device.info()));
  require_same(*communicator_, "--threads", std::to_string(device.info().threads));
  const std::string text = communicator_->broadcast(mine ? to_json(*mine) : "");
  return mine ? *mine : plan_from_json(text, "rank 0's plan");
}

PlannedNet Ranks::planned_net(const NetArguments& a, const std::string& verb, const NetAlgos& algos,
                              Device& device) {
  std::optional<PlannedNet> mine;
  if (speaks()) mine.emplace(convlab::planned_net(a, verb, algos, device));
  if (size() == 1) return *std::move(mine);
  agree();
  const NetPlan plan = plan_of_rank_0(mine ? &mine->plan : nullptr, device);
  if (mine) return *std::move(mine);
  Graph graph =
      is_model(plan.net) ? net_of_target(a.common, plan.batch) : make_net(plan.net, plan.batch);
  require_plan_fits(plan, graph, device.info());
  return {std::move(graph), plan};
}

int Ranks::run(const std::string& name, const std::function<int()>& verb) {
  if (!communicator_) return verb();
  try {
    try {
      agree();
      require_same(*communicator_, "convlab's build", build_info().commit);
      require_same(*communicator_, "the verb", name);
      return verb();
    } catch (const AlreadySaid&) {
      throw;
    } catch (const std::exception& error) {
      // What the others wait in; not for one that no longer answers.
      if (preparing_ && !dynamic_cast<const RankLost*>(&error))
        settle(fmt::format("{}{}", exit_code_of(error), error.what()));
      if (rank() > 0 && communicator_->has_abandoned()) {
        be_silent(false);
        say(printable(fmt::format("rank {}: {}", rank(), error.what())));
        throw AlreadySaid(exit_code_of(error));
      }
      throw;
    }
  } catch (...) {
    communicator_->abandon("");
    throw;
  }
}

void Ranks::agree() {
  if (communicator_) settle("");
}

void Ranks::begin() {
  agree();
  preparing_ = false;
}

// Ranks that failed bring their exit code and what happened.
void Ranks::settle(const std::string& mine) {
  const std::vector<std::string> all = communicator_->all_gather(mine);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& s) { return !s.empty(); });
  if (first == all.end()) return;
  if (const int failed = int(first - all.begin()); failed == rank()) {
    be_silent(false);
    say(printable(failed == 0 ? first->substr(1)
                              : fmt::format("rank {}: {}", failed, first->substr(1))));
  }
  throw AlreadySaid(first->front() - '0');
}

}  // namespace convlab
