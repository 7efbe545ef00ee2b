// Tests of matrix units, hardware and emulated.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "conv/algo.h"
#include "conv/types/half.h"
#include "kernels_cpu/cpu.h"

namespace convlab {

// A variable of the environment for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    set(value);
  }
  Variable(const Variable&) = delete;
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) const { value ? setenv(name_, value, 1) : unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

// CONVLAB_AMX and CONVLAB_AVX512_BF16 for as long as it lives.
class UnitWanted {
 public:
  explicit UnitWanted(const char* amx, const char* dots = "off")
      : amx_("CONVLAB_AMX", amx), dots_("CONVLAB_AVX512_BF16", dots) {}

 private:
  Variable amx_, dots_;
};

// What a plan computes from normal values on two threads, in f32 or bf16, with the units in force.
// Value 0 of x and of dy is `first`, if there is one.
inline std::vector<float> result_of(const ConvAlgo& algo, const ConvProblem& p,
                                    const Config& config, const std::string& isa = "avx512",
                                    std::optional<float> first = {}) {
  const bool in_bf16 = p.dtype == DType::bf16;
  const auto device = make_cpu_device({.threads = 2, .isa = isa});
  const auto stream = device->make_stream();
  const auto plan = algo.plan(p, config, *device);
  const auto values = [&](std::int64_t bytes, unsigned seed) {
    Buffer buffer = device->allocate(std::size_t(bytes));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    if (in_bf16)
      for (std::size_t i = 0; i < std::size_t(bytes) / 2; ++i)
        buffer.as<BFloat16>()[i] = BFloat16(normal(random));
    else
      for (std::size_t i = 0; i < std::size_t(bytes) / 4; ++i)
        buffer.as<float>()[i] = normal(random);
    return buffer;
  };
  const Buffer x = values(p.x_bytes(), 1), w = values(p.filter_bytes(), 2);
  const Buffer dy = values(p.y_bytes(), 3);
  if (first) x.as<float>()[0] = dy.as<float>()[0] = *first;
  const Buffer packed = device->allocate(plan->packed_filter_bytes());
  const Buffer workspace = device->allocate(plan->workspace_bytes());
  const Buffer out = device->allocate(std::size_t(p.output_bytes()));
  if (packed.bytes() > 0) plan->pack_filter(w.span(), packed.span(), *stream);
  plan->run({.x = x.data(), .w = packed.data(), .dy = dy.data(), .out = out.data()},
            workspace.span(), *stream);
  if (!in_bf16) return {out.as<float>(), out.as<float>() + p.output_bytes() / 4};
  std::vector<float> wide;
  for (std::int64_t i = 0; i < p.output_bytes() / 2; ++i)
    wide.push_back(float(double(out.as<BFloat16>()[i])));
  return wide;
}

inline std::vector<float> result_on(const char* amx, const ConvAlgo& algo, const ConvProblem& p,
                                    const Config& config, const std::string& isa = "avx512",
                                    std::optional<float> first = {}) {
  const UnitWanted unit(amx);
  return result_of(algo, p, config, isa, first);
}

}  // namespace convlab
