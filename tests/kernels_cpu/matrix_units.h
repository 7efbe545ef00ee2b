// Tests of matrix units, hardware and emulated.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/cpu.h"

namespace convlab {

// CONVLAB_AMX for as long as it lives.
class UnitWanted {
 public:
  explicit UnitWanted(const char* wanted) {
    if (const char* const before = std::getenv("CONVLAB_AMX")) before_ = before;
    wanted ? setenv("CONVLAB_AMX", wanted, 1) : unsetenv("CONVLAB_AMX");
  }
  UnitWanted(const UnitWanted&) = delete;
  ~UnitWanted() {
    before_.empty() ? unsetenv("CONVLAB_AMX") : setenv("CONVLAB_AMX", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

// What a plan computes from normal values on two threads, with CONVLAB_AMX as wanted. Value 0 of x
// and of dy is `first`, if there is one.
inline std::vector<float> result_on(const char* wanted, const ConvAlgo& algo, const ConvProblem& p,
                                    const Config& config, const std::string& isa = "avx512",
                                    std::optional<float> first = {}) {
  const UnitWanted unit(wanted);
  const auto device = make_cpu_device({.threads = 2, .isa = isa});
  const auto stream = device->make_stream();
  const auto plan = algo.plan(p, config, *device);
  const auto values = [&](std::int64_t bytes, unsigned seed) {
    Buffer buffer = device->allocate(std::size_t(bytes));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < std::size_t(bytes) / 4; ++i) buffer.as<float>()[i] = normal(random);
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
  return {out.as<float>(), out.as<float>() + p.output_bytes() / 4};
}

}  // namespace convlab
