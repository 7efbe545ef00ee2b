// Random numbers determined by a few words, such as a seed, an epoch and an image, independent of
// the thread and of the order of draws.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace convlab::nets {

// splitmix64 (Steele, Lea & Flood 2014) from a state that is a hash of the words.
class Draws {
 public:
  explicit Draws(std::initializer_list<std::uint64_t> words) {
    for (const std::uint64_t word : words) state_ = mix(state_ + golden_ratio) ^ mix(word);
  }
  std::uint64_t next() { return mix(state_ += golden_ratio); }
  double uniform() { return double(next() >> 11) / double(std::uint64_t(1) << 53); }  // [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // [0, count), count < 2^32: the bias is below count / 2^64.
  std::int64_t below(std::int64_t count) { return next() % std::uint64_t(count); }

 private:
  static constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u;
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  std::uint64_t state_ = 0;
};

}  // namespace convlab::nets
