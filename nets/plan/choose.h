// Chooses layouts and algorithms of a whole net together. It minimises the expected time of an
// iteration, including layout conversions and filter packing, under one workspace limit.
//
// Each step may work in several layouts, each at a cost. If a step writes its value in a layout
// other than a reader's, the value is converted once for all readers in that layout, and each
// reader's gradient is converted back. This is a partitioned Boolean quadratic problem over the
// steps (Anderson & Gregg 2018, arXiv:1710.01079), solved by autotune/pbqp.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autotune/result.h"
#include "autotune/store/store.h"
#include "conv/types/math_type.h"
#include "nets/algos.h"
#include "nets/plan/plan.h"

namespace convlab::nets {

struct ChooseOptions {
  Mode mode = Mode::training;
  DType dtype = DType::f32;
  std::optional<double> max_error{};  // nullopt: default_max_error of the type
  // Limit in bytes on the largest workspace, packed filters included. In inference it also limits
  // how much the filters that stay packed between runs exceed their plain size. nullopt: in
  // training a sixth of the weights and activations (96 MiB at least); in inference each of the two
  // may take an eighth of the filters (1 MiB at least), and a workspace also the memory free beside
  // the activations; recurrent layers have no limit. A layer that nothing fits exceeds a default.
  std::optional<std::int64_t> workspace_max{};
  bool deterministic = false;
  std::optional<Layout> layout{};               // of everything except the input
  std::vector<std::string> algos{}, exclude{};  // as TuneOptions
  std::vector<MathType> maths{};                // as TuneOptions
  CacheMode cache = CacheMode::hot;
  bool input_gradient = false;         // as NetOptions: the first layers need backward_data as well
  Layout input_layout = Layout::nchw;  // in which the input is given: nchw or nhwc
  std::optional<Layout> output_layout{};  // in which the output is read; nullopt: in any
};

struct Chosen {
  NetPlan plan;
  // Layers (and passes) missing from the store: their times are predictions.
  std::vector<std::string> untuned;
  bool optimal = true;  // by these costs no plan is better; false: the search was cut short
};

// Uses the store's measurements (dropped candidates too: they are correct, but slower than the
// best). With store null, or for problems missing from it, uses predictions. A tight limit may
// split the batch of a convolution. Permanently packed filters cost one price per byte, the lowest
// that keeps them within the limit (a Lagrange multiplier: no plan that takes no more memory is
// faster). Throws InputError when a convolution has no candidate within the limits, with the
// smallest workspace that would do. A recurrent layer's algorithm with a format of its own does all
// passes or none. Among algos and exclude, names that are known only for the one kind of layer
// leave the other kind alone.
Chosen choose_plan(const Graph&, const ChooseOptions&, const NetAlgos&, Device&,
                   const Store* store);

}  // namespace convlab::nets
