// Checks one algorithm against the reference, bit for bit on small integers, with every config it
// offers, on one thread and on three.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "autotune/testbed/verify.h"
#include "conv/refusals.h"
#include "kernels_cpu/cpu.h"

namespace convlab {

// In the instruction set's blocked layout, except the tensors that are plain.
inline ConvProblem blocked_problem(const std::string& text, Pass pass, const std::string& isa,
                                   bool plain_x = false) {
  ConvProblem p = parse_problem(text).problem;
  p.pass = pass;
  p.y_layout = blocked_layout(make_cpu_device({.threads = 1, .isa = isa})->info());
  p.x_layout = plain_x ? Layout::nchw : p.y_layout;
  return p;
}

// `change` modifies the configs or adds to them.
inline void expect_exact(
    const ConvAlgo& algo, const ConvProblem& p, const std::string& isa,
    const std::function<void(std::vector<Config>&)>& change = [](std::vector<Config>&) {}) {
  const ReferenceCase reference(p, 7, DataKind::small_integers);
  for (const int threads : {1, 3}) {
    const auto device = make_cpu_device({.threads = threads, .isa = isa});
    const auto stream = device->make_stream();
    const auto refusal = algo.refuse(p, *device);
    ASSERT_FALSE(refusal) << to_text(p) << ' ' << refusal->reason();
    std::vector<Config> configs = algo.configs(p, *device);
    change(configs);
    for (const Config& config : configs) {
      const auto verdict = check_candidate(algo, p, config, reference, *device, *stream, 0.0);
      EXPECT_EQ(verdict.status, Status::ok)
          << to_text(p) << ' ' << to_string(p.pass) << " threads " << threads << " config "
          << config.text() << ": " << verdict.reason;
    }
  }
}

}  // namespace convlab
