// A range of items, and how threads and blocks share them. Internal.
#pragma once

#include <cstdint>

namespace convlab::cpu {

struct Range {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
};

// Part `index` of `parts` nearly equal ones of [0, count).
inline Range share(std::int64_t count, std::int64_t index, std::int64_t parts) {
  return {count * index / parts, count * (index + 1) / parts};
}

}  // namespace convlab::cpu
