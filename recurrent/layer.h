// One layer and direction of a recurrent problem, and how a strategy runs it; a plan goes through
// all of them. Shared by the backends. Internal.
#pragma once

#include <cstddef>
#include <memory>

#include "recurrent/algo.h"

namespace convlab {

// What a step does besides its products: from the sums of its gates to its hidden states, and back.
// Pointers are to the first row of the batch; rows lie *_step elements apart, or as their comments
// say.
struct CellForward {
  DType dtype = DType::f32;
  RecurrentCell cell = RecurrentCell::rnn_tanh;
  std::int64_t h = 0;
  const void *of_x = nullptr, *of_h = nullptr;  // W x and U h: rows of G*H
  const void *b_ih = nullptr, *b_hh = nullptr;
  const void* before = nullptr;  // h_{t-1}: gru
  std::int64_t before_step = 0;
  void* hidden = nullptr;  // h_t; null: not stored
  std::int64_t hidden_step = 0;
  void* c = nullptr;      // lstm: c_{t-1}, becomes c_t; rows of H
  void* saved = nullptr;  // rows of S*H, or null
};
struct CellBackward {
  DType dtype = DType::f32;
  RecurrentCell cell = RecurrentCell::rnn_tanh;
  std::int64_t h = 0;
  const void* dhidden = nullptr;  // gradient of h_t from what reads it as output
  std::int64_t dhidden_step = 0;
  void* dh = nullptr;           // from step t + 1; gru: becomes what reaches h_{t-1} without U
  void* dc = nullptr;           // lstm: from step t + 1, becomes that for c_{t-1}; rows of H
  const void* state = nullptr;  // an rnn's h_t, a gru's h_{t-1}, an lstm's c_{t-1}
  std::int64_t state_step = 0;
  const void* saved = nullptr;                          // rows of S*H
  void *dgates = nullptr, *recurrent_dgates = nullptr;  // rows of G*H; the latter only of a gru
};

// The sizes of a layer and direction. Arrays are pointers to elements of `dtype`.
struct LayerSizes {
  DType dtype = DType::f32;
  RecurrentCell cell = RecurrentCell::rnn_tanh;
  std::int64_t t = 1, n = 1, in = 1, h = 1, gates = 1;
  std::int64_t saved_values = 0;
  std::int64_t hidden_step = 1;  // from row to row of hidden states: D*H
  bool reversed = false;

  LayerSizes(const RecurrentProblem& p, std::int64_t layer, std::int64_t direction)
      : dtype(p.dtype),
        cell(p.cell),
        t(p.t),
        n(p.n),
        in(p.input_of(layer)),
        h(p.h),
        gates(p.gates()),
        saved_values(p.saved_values()),
        hidden_step(p.directions() * p.h),
        reversed(direction == 1) {}

  std::int64_t sums() const { return gates * h; }  // of a row
  std::int64_t rows() const { return t * n; }      // of all steps
  // The time of the step that comes as number i.
  std::int64_t time(std::int64_t i) const { return reversed ? t - 1 - i : i; }

  std::int64_t bytes(std::int64_t elements) const { return elements * size_of(dtype); }
  // From an element of an array on; null stays null.
  const std::byte* at(const void* array, std::int64_t element) const {
    return array == nullptr ? nullptr : static_cast<const std::byte*>(array) + bytes(element);
  }
  std::byte* at(void* array, std::int64_t element) const {
    return array == nullptr ? nullptr : static_cast<std::byte*>(array) + bytes(element);
  }
  // Positions within the layer's and direction's part of weights.
  std::int64_t w_hh() const { return sums() * in; }
  std::int64_t b_ih() const { return w_hh() + sums() * h; }
  std::int64_t b_hh() const { return b_ih() + sums(); }
  std::int64_t weights() const { return b_hh() + sums(); }
};

// What is read before the first step: h0 [N][H]. What a pass needs besides.
struct LayerRun : LayerSizes {
  using LayerSizes::LayerSizes;
  const std::byte* weights_at = nullptr;  // as stored, or what `pack` wrote
  const void* inputs = nullptr;           // [T][N][in]
  const void* h0 = nullptr;
  void* hidden = nullptr;  // [T][N], rows hidden_step apart; only forward writes it
  std::byte* scratch = nullptr;
  PhaseRecorder* phases = nullptr;
  Stream* stream = nullptr;

  void* hidden_at(std::int64_t time) const { return at(hidden, time * n * hidden_step); }
  // h_{t-1} of the step that comes as number i, and the distance of its rows.
  const void* before(std::int64_t i) const { return i > 0 ? hidden_at(time(i - 1)) : h0; }
  std::int64_t before_step(std::int64_t i) const { return i > 0 ? hidden_step : h; }
};

struct LayerForward : LayerRun {
  using LayerRun::LayerRun;
  void* c = nullptr;       // lstm: [N][H], c0 before and cn after
  void* saved = nullptr;   // [T][N][S*H], or null
  bool recompute = false;  // hidden is known, and only `saved` is written
};

struct LayerBackward : LayerRun {
  using LayerRun::LayerRun;
  const void* c0 = nullptr;           // lstm: [N][H]
  const void* saved = nullptr;        // [T][N][S*H]
  const void* dhidden = nullptr;      // like hidden
  void *dh = nullptr, *dc = nullptr;  // [N][H]: dhn, dcn before and dh0, dc0 after
  void *dgates = nullptr, *recurrent_dgates = nullptr;  // [T][N][G*H]; the latter only of a gru
  void* dinputs = nullptr;                              // [T][N][in]; null: not needed
  bool add_inputs = false;                              // to those of the other direction
};

// The cells of the step that comes as number i. Biases are where problem.h has them.
CellForward forward_cells(const LayerForward&, std::int64_t i, const void* of_x, const void* of_h);
CellBackward backward_cells(const LayerBackward&, std::int64_t i);

struct LayerFilter : LayerRun {
  using LayerRun::LayerRun;
  const void *dgates = nullptr, *recurrent_dgates = nullptr;  // the same but of a gru
  void* dweights = nullptr;
};

// How one layer and direction is run. Phases: 0 of forward is the product of the inputs, 1 the
// steps; of backward_data 0 the steps and 1 the product for the inputs' gradient; backward_filter
// has one.
class LayerStrategy {
 public:
  virtual ~LayerStrategy() = default;
  virtual std::int64_t scratch_bytes(const LayerSizes&) const = 0;
  virtual std::int64_t packed_bytes(const LayerSizes&) const { return 0; }
  virtual void pack(const LayerSizes&, const void* /*weights*/, std::byte* /*packed*/,
                    Stream&) const {}
  virtual void forward(const LayerForward&) const = 0;
  virtual void backward_data(const LayerBackward&) const = 0;
  virtual void backward_filter(const LayerFilter&) const = 0;
  // Rows of so many bytes in the device's memory, which lie so far apart; zeros if `from` is null.
  virtual void copy_rows(std::byte* to, std::int64_t to_step, const std::byte* from,
                         std::int64_t from_step, std::int64_t row_bytes, std::int64_t rows,
                         Stream&) const = 0;
};

std::unique_ptr<RecurrentPlan> make_layered_plan(const RecurrentProblem&,
                                                 std::unique_ptr<LayerStrategy>);

}  // namespace convlab
