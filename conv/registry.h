// The list of algorithms a program knows. Filled explicitly: each backend offers one function,
// append_cpu_algos(AlgoRegistry&), append_cuda_algos(AlgoRegistry&).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "conv/algo.h"

namespace convlab {

// Whether a user's name matches the algorithm: its id, the part of its id before a dot ("cudnn"
// matches "cudnn.fft"), its family, or "vendor" if the algorithm is a vendor's.
bool is_named(const AlgoInfo&, std::string_view name);

class AlgoRegistry {
 public:
  // Throws Error when (device kind, id) is already there.
  void append(std::unique_ptr<ConvAlgo>);

  // In order of appending. Pointers and references are valid for the registry's lifetime.
  std::vector<const ConvAlgo*> all() const;
  std::vector<const ConvAlgo*> for_device(DeviceKind) const;
  const ConvAlgo* find(DeviceKind, std::string_view id) const;  // null when absent
  // Throws InputError naming the ids that exist.
  const ConvAlgo& get(DeviceKind, std::string_view id) const;
  // All that a name matches, in order of appending, at least one. Throws InputError that names the
  // ids and families that exist.
  std::vector<const ConvAlgo*> named(DeviceKind, std::string_view name) const;

 private:
  std::vector<std::unique_ptr<ConvAlgo>> algos_;
};

}  // namespace convlab
