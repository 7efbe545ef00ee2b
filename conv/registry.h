// The lists of algorithms a program knows. Filled explicitly: each backend offers functions like
// append_cpu_algos(AlgoRegistry&), append_cuda_algos(AlgoRegistry&).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "conv/algo.h"
#include "conv/error.h"

namespace convlab {

// Whether a user's name matches the algorithm: its id, the part of its id before a dot ("cudnn"
// matches "cudnn.fft"), its family, or "vendor" if the algorithm is a vendor's.
bool is_named(const AlgoInfo&, std::string_view name);

// Throws InputError naming the ids that exist, and perhaps the families.
[[noreturn]] void refuse_unknown_algo(std::string_view name,
                                      const std::vector<const AlgoInfo*>& known, bool families);

// Algo: ConvAlgo, or another kind of operation's with info().
template <class Algo>
class BasicRegistry {
 public:
  // Throws Error when (device kind, id) is already there.
  void append(std::unique_ptr<Algo> algo) {
    if (!algo) throw Error("an algorithm to append is null");
    const AlgoInfo& info = algo->info();
    if (find(info.device, info.id)) throw Error("algorithm '" + info.id + "' appended twice");
    algos_.push_back(std::move(algo));
  }

  // In order of appending. Pointers and references are valid for the registry's lifetime.
  std::vector<const Algo*> all() const {
    std::vector<const Algo*> result;
    for (const auto& algo : algos_) result.push_back(algo.get());
    return result;
  }
  std::vector<const Algo*> for_device(DeviceKind device) const {
    std::vector<const Algo*> result;
    for (const auto& algo : algos_)
      if (algo->info().device == device) result.push_back(algo.get());
    return result;
  }
  const Algo* find(DeviceKind device, std::string_view id) const {  // null when absent
    for (const auto& algo : algos_)
      if (algo->info().device == device && algo->info().id == id) return algo.get();
    return nullptr;
  }
  // Throws InputError naming the ids that exist.
  const Algo& get(DeviceKind device, std::string_view id) const {
    if (const Algo* algo = find(device, id)) return *algo;
    refuse_unknown_algo(id, infos(device), false);
  }
  // All that a name matches, in order of appending, at least one. Throws InputError that names the
  // ids and families that exist.
  std::vector<const Algo*> named(DeviceKind device, std::string_view name) const {
    std::vector<const Algo*> found;
    for (const Algo* algo : for_device(device))
      if (is_named(algo->info(), name)) found.push_back(algo);
    if (found.empty()) refuse_unknown_algo(name, infos(device), true);
    return found;
  }

 private:
  std::vector<const AlgoInfo*> infos(DeviceKind device) const {
    std::vector<const AlgoInfo*> result;
    for (const Algo* algo : for_device(device)) result.push_back(&algo->info());
    return result;
  }

  std::vector<std::unique_ptr<Algo>> algos_;
};

using AlgoRegistry = BasicRegistry<ConvAlgo>;

}  // namespace convlab
