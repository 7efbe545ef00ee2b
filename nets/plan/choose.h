// Layouts and algorithms of a whole net, chosen together: the least expected time of an iteration,
// layout conversions and filter packing included, under one workspace limit.
//
// Each step may work in several layouts, each at a cost; where a step leaves its value in another
// layout than a reader wants, the value is converted, once for all readers that want it so, and
// each reader's gradient is converted back. That is a partitioned Boolean quadratic problem over
// the steps (Anderson & Gregg 2018, arXiv:1710.01079), solved by autotune/pbqp.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autotune/result.h"
#include "autotune/store/store.h"
#include "conv/registry.h"
#include "nets/plan/plan.h"

namespace convlab::nets {

struct ChooseOptions {
  Mode mode = Mode::training;
  DType dtype = DType::f32;
  std::optional<double> max_error{};  // nullopt: default_max_error of the type
  // Bytes of the largest workspace, packed filters included, and in inference of what filters take
  // that stay packed between runs, beyond their plain size. nullopt: in training a sixth of the
  // weights and activations (96 MiB at least); in inference each of the two may take an eighth of
  // the filters (1 MiB at least), and a workspace what lies free beside the activations as well.
  std::optional<std::int64_t> workspace_max{};
  bool deterministic = false;
  std::optional<Layout> layout{};               // of everything but the input
  std::vector<std::string> algos{}, exclude{};  // as TuneOptions
  CacheMode cache = CacheMode::hot;
  bool input_gradient = false;  // as NetOptions: the first layers need backward_data as well
};

struct Chosen {
  NetPlan plan;
  // Convolutions (and passes) of which the store knows nothing: their times are predictions.
  std::vector<std::string> untuned;
  bool optimal = true;  // by these costs nothing is better; false: the search was cut short
};

// By what the store has measured (dropped candidates too: those are right, but slower than the
// best); with store null, or for problems it does not know, by predictions. Under a tight limit the
// batch of a convolution may be split. Packed filters that stay are bought at one price a byte, the
// least that keeps them within the limit (a Lagrange multiplier: no other plan is faster that takes
// no more than this one). Throws InputError when a convolution has no candidate within the limits,
// with the smallest workspace that would do.
Chosen choose_plan(const Graph&, const ChooseOptions&, const AlgoRegistry&, Device&,
                   const Store* store);

}  // namespace convlab::nets
