// A hidden unit's step as kernels run it: those of units.cu, and the persistent one. Internal.
#pragma once

#include "kernels_cuda/kernel.h"
#include "kernels_cuda/layers/layer_work.h"
#include "recurrent/layer.h"
#include "recurrent/unit.h"

namespace convlab::cuda {

// CellForward by its types.
template <class T>
struct ForwardUnits {
  RecurrentCell cell;
  int gates, saved_values;
  std::int64_t h;
  const T *of_x, *of_h, *b_ih, *b_hh, *before;
  T *hidden, *c, *saved;
  std::int64_t before_step, hidden_step;

  explicit ForwardUnits(const CellForward& f)
      : cell(f.cell),
        gates(int(gates_of(f.cell))),
        saved_values(int(saved_values_of(f.cell))),
        h(f.h),
        of_x(static_cast<const T*>(f.of_x)),
        of_h(static_cast<const T*>(f.of_h)),
        b_ih(static_cast<const T*>(f.b_ih)),
        b_hh(static_cast<const T*>(f.b_hh)),
        before(static_cast<const T*>(f.before)),
        hidden(static_cast<T*>(f.hidden)),
        c(static_cast<T*>(f.c)),
        saved(static_cast<T*>(f.saved)),
        before_step(f.before_step),
        hidden_step(f.hidden_step) {}

  // products: U h_{t-1} of the unit's gates.
  __device__ void run(std::int64_t row, std::int64_t j, const T (&products)[4]) const {
    T sums_x[4], sums_h[4], values[5] = {}, state = T(0);
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      sums_x[g] = g < gates ? of_x[(row * gates + g) * h + j] + b_ih[g * h + j] : T(0);
      sums_h[g] = g < gates ? products[g] + b_hh[g * h + j] : T(0);
    }
    if (c != nullptr) state = c[row * h + j];
    const T h_before = cell == RecurrentCell::gru ? before[row * before_step + j] : T(0);
    const T next = unit_forward(cell, sums_x, sums_h, h_before, state, values);
    if (c != nullptr) c[row * h + j] = state;
    if (hidden != nullptr) hidden[row * hidden_step + j] = next;
    if (saved != nullptr)
#pragma unroll
      for (int v = 0; v < 5; ++v)
        if (v < saved_values) saved[(row * saved_values + v) * h + j] = values[v];
  }
};

// CellBackward by its types.
template <class T>
struct BackwardUnits {
  RecurrentCell cell;
  int gates, saved_values;
  std::int64_t h;
  const T *dhidden, *state, *saved;
  T *dh, *dc, *dgates, *recurrent_dgates;
  std::int64_t dhidden_step, state_step;

  explicit BackwardUnits(const CellBackward& b)
      : cell(b.cell),
        gates(int(gates_of(b.cell))),
        saved_values(int(saved_values_of(b.cell))),
        h(b.h),
        dhidden(static_cast<const T*>(b.dhidden)),
        state(static_cast<const T*>(b.state)),
        saved(static_cast<const T*>(b.saved)),
        dh(static_cast<T*>(b.dh)),
        dc(static_cast<T*>(b.dc)),
        dgates(static_cast<T*>(b.dgates)),
        recurrent_dgates(static_cast<T*>(b.recurrent_dgates)),
        dhidden_step(b.dhidden_step),
        state_step(b.state_step) {}

  __device__ void run(std::int64_t row, std::int64_t j) const {
    T values[5], of_x[4] = {}, of_h[4] = {}, d_state = T(0);
#pragma unroll
    for (int v = 0; v < 5; ++v)
      values[v] = v < saved_values ? saved[(row * saved_values + v) * h + j] : T(0);
    if (dc != nullptr) d_state = dc[row * h + j];
    const T passed = unit_backward(cell, dh[row * h + j] + dhidden[row * dhidden_step + j],
                                   state[row * state_step + j], values, d_state, of_x, of_h);
    if (dc != nullptr) dc[row * h + j] = d_state;
    if (cell == RecurrentCell::gru) dh[row * h + j] = passed;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) continue;
      dgates[(row * gates + g) * h + j] = of_x[g];
      if (cell == RecurrentCell::gru) recurrent_dgates[(row * gates + g) * h + j] = of_h[g];
    }
  }
};

}  // namespace convlab::cuda
