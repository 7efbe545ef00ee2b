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

void refuse_unknown_algo(std::string_view name, const std::vector<const AlgoInfo*>& known,
                         bool families) {
  std::vector<std::string_view> ids;
  std::set<std::string_view> names;
  for (const AlgoInfo* info : known) {
    ids.push_back(info->id);
    if (families && !info->family.empty()) names.insert(info->family);
  }
  const std::string or_family =
      names.empty() ? "" : fmt::format(", or a family: {}", fmt::join(names, ", "));
  throw InputError(fmt::format("unknown algorithm '{}': expected one of {}{}", name,
                               fmt::join(ids, ", "), or_family));
}

}  // namespace convlab
