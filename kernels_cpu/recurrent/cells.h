// What a recurrent step does besides its products: from the sums of its gates to its hidden states,
// and back. Internal.
//
// Pointers are to the first row of the batch; rows lie *_step elements apart, or as their
// comments say.
#pragma once

#include <cstdint>

#include "kernels_cpu/device/range.h"
#include "recurrent/problem.h"

namespace convlab::cpu {

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
void run_cells(const CellForward&, Range rows, Range units);

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
void run_cells(const CellBackward&, Range rows, Range units);

// to[column] = sum over rows of from[row][column], rows `step` apart.
void sum_rows(DType, const void* from, std::int64_t rows, std::int64_t step, Range columns,
              void* to);

}  // namespace convlab::cpu
