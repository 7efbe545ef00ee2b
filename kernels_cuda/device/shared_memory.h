// Shared memory of a block: 48 KB on all cards, by request 99 on sm_86 and 89, 163 on sm_80, 227 on
// sm_90. Registers are 65,536 a block and multiprocessor on each: launch bounds keep to them.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "conv/algo.h"
#include "conv/error.h"

namespace convlab::cuda {

inline bool fits_block(std::int64_t bytes, const DeviceInfo& card) {
  return bytes <= card.block_shared_bytes;
}

inline std::optional<Refusal> refuse_shared_memory(std::int64_t bytes, const DeviceInfo& card) {
  if (fits_block(bytes, card)) return {};
  return Refusal{Field::device, fmt::format("{} bytes of shared memory a block", bytes),
                 fmt::to_string(card.block_shared_bytes)};
}

// For a config that the algorithm does not list for this card.
inline void require_shared_memory(std::string_view algo, const Config& config, std::int64_t bytes,
                                  const DeviceInfo& card) {
  if (!fits_block(bytes, card))
    throw InputError(
        fmt::format("{}: '{}' needs {} bytes of shared memory a block, the card has {}", algo,
                    config.text(), bytes, card.block_shared_bytes));
}

// The most that each of so many blocks of a multiprocessor may have. The system takes 1 KB of each
// block, and the card has that much beside the largest one.
inline std::int64_t shared_bytes_of(int blocks, const DeviceInfo& card) {
  return (card.block_shared_bytes + 1024) / blocks - 1024;
}

}  // namespace convlab::cuda
