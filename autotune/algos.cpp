#include "autotune/algos.h"

#include <fmt/format.h>

#include "conv/error.h"
#include "conv/optional/slow_listing.h"

namespace convlab {
namespace {

// The products that it executes in this pass, as a share of the pass's own.
double share_of_products(const RecurrentAlgo& algo, const RecurrentProblem& p, const Config& config,
                         Device& device) {
  return algo.work(p, config, device).flops() / p.flops();
}
constexpr double too_few = 0.5, too_many = 1.5;

bool is_training(const RecurrentProblem& p) { return p.training || p.pass != Pass::forward; }

}  // namespace

const ConvAlgo* AlgoRef::conv() const {
  const auto* const algo = std::get_if<const ConvAlgo*>(&any_);
  return algo ? *algo : nullptr;
}
const RecurrentAlgo* AlgoRef::recurrent() const {
  const auto* const algo = std::get_if<const RecurrentAlgo*>(&any_);
  return algo ? *algo : nullptr;
}

bool AlgoRef::is_for(const Problem& problem) const {
  return (conv() != nullptr) == (problem.conv() != nullptr);
}

const AlgoInfo& AlgoRef::info() const {
  return std::visit([](const auto* algo) -> const AlgoInfo& { return algo->info(); }, any_);
}

bool AlgoRef::is_slow_to_list() const {
  return std::visit(
      [](const auto* algo) { return dynamic_cast<const SlowListing*>(algo) != nullptr; }, any_);
}

template <class Call>
auto AlgoRef::call(const Problem& problem, const Call& call) const {
  if (!is_for(problem))
    throw Error(fmt::format("{} was asked about {}", info().id, to_text(problem)));
  return conv() ? call(*conv(), *problem.conv()) : call(*recurrent(), *problem.recurrent());
}

std::optional<Refusal> AlgoRef::refuse(const Problem& problem, Device& device) const {
  std::optional<Refusal> refusal =
      call(problem, [&](const auto& algo, const auto& p) { return algo.refuse(p, device); });
  if (refusal || !recurrent()) return refusal;
  const RecurrentProblem& p = *problem.recurrent();
  if (!is_training(p) || !recurrent()->own_format(p, device)) return {};
  const Config config = recurrent()->configs(p, device).front();
  const double share = share_of_products(*recurrent(), p, config, device);
  if (share >= too_few) return {};
  return Refusal{Field::pass,
                 {},
                 fmt::format("computes {0:.0f}% of {1}'s products in another pass: "
                             "its {1} time alone is not comparable",
                             100 * (1 - share), to_string(p.pass))};
}

std::vector<Config> AlgoRef::configs(const Problem& problem, Device& device) const {
  return call(problem, [&](const auto& algo, const auto& p) { return algo.configs(p, device); });
}

bool AlgoRef::deterministic(const Problem& problem, const Config& config) const {
  return call(problem,
              [&](const auto& algo, const auto& p) { return algo.deterministic(p, config); });
}

WorkEstimate AlgoRef::work(const Problem& problem, const Config& config, Device& device) const {
  return call(problem,
              [&](const auto& algo, const auto& p) { return algo.work(p, config, device); });
}

std::string AlgoRef::note(const Problem& problem, const Config& config, Device& device) const {
  if (!recurrent()) return "";
  const RecurrentProblem& p = *problem.recurrent();
  if (!is_training(p) || !recurrent()->own_format(p, device)) return "";
  const bool more = share_of_products(*recurrent(), p, config, device) > too_many;
  return more ? "bwd_w's products are in this time; its passes run together or not at all"
              : "its passes run together or not at all";
}

std::vector<AlgoRef> Algos::for_device(DeviceKind kind) const {
  std::vector<AlgoRef> all;
  for (const ConvAlgo* algo : conv.for_device(kind)) all.emplace_back(*algo);
  for (const RecurrentAlgo* algo : recurrent.for_device(kind)) all.emplace_back(*algo);
  return all;
}

AlgoRef Algos::get(const Problem& problem, DeviceKind kind, std::string_view id) const {
  if (problem.conv()) return conv.get(kind, id);
  return recurrent.get(kind, id);
}

}  // namespace convlab
