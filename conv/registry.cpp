#include "conv/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "conv/error.h"

namespace convlab {

bool is_named(const AlgoInfo& info, std::string_view name) {
  if (name.empty()) return false;
  const bool is_id_or_library =
      info.id.starts_with(name) && (info.id.size() == name.size() || info.id[name.size()] == '.');
  return is_id_or_library || name == info.family ||
         (name == "vendor" && info.origin == Origin::vendor);
}

void ConvPlan::pack_filter(ConstSpan, Span, Stream&) const {
  throw Error("pack_filter: this plan takes the filter unpacked (packed_filter_bytes() is 0)");
}

void AlgoRegistry::append(std::unique_ptr<ConvAlgo> algo) {
  if (!algo) throw Error("an algorithm to append is null");
  const AlgoInfo& info = algo->info();
  if (find(info.device, info.id))
    throw Error(fmt::format("algorithm '{}' appended twice", info.id));
  algos_.push_back(std::move(algo));
}

std::vector<const ConvAlgo*> AlgoRegistry::all() const {
  std::vector<const ConvAlgo*> result;
  for (const auto& algo : algos_) result.push_back(algo.get());
  return result;
}

std::vector<const ConvAlgo*> AlgoRegistry::for_device(DeviceKind device) const {
  std::vector<const ConvAlgo*> result;
  for (const auto& algo : algos_)
    if (algo->info().device == device) result.push_back(algo.get());
  return result;
}

const ConvAlgo* AlgoRegistry::find(DeviceKind device, std::string_view id) const {
  for (const auto& algo : algos_)
    if (algo->info().device == device && algo->info().id == id) return algo.get();
  return nullptr;
}

const ConvAlgo& AlgoRegistry::get(DeviceKind device, std::string_view id) const {
  if (const ConvAlgo* algo = find(device, id)) return *algo;
  std::vector<std::string_view> ids;
  for (const ConvAlgo* algo : for_device(device)) ids.push_back(algo->info().id);
  throw InputError(
      fmt::format("unknown algorithm '{}': expected one of {}", id, fmt::join(ids, ", ")));
}

std::vector<const ConvAlgo*> AlgoRegistry::named(DeviceKind device, std::string_view name) const {
  std::vector<const ConvAlgo*> found;
  std::vector<std::string_view> ids;
  std::set<std::string_view> families;
  for (const ConvAlgo* algo : for_device(device)) {
    if (is_named(algo->info(), name)) found.push_back(algo);
    ids.push_back(algo->info().id);
    if (!algo->info().family.empty()) families.insert(algo->info().family);
  }
  if (!found.empty()) return found;
  const std::string or_family =
      families.empty() ? "" : fmt::format(", or a family: {}", fmt::join(families, ", "));
  throw InputError(fmt::format("unknown algorithm '{}': expected one of {}{}", name,
                               fmt::join(ids, ", "), or_family));
}

}  // namespace convlab
