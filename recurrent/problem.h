// One recurrent layer, or several on top of each other: its cell, sizes, pass and element type, and
// the layout of everything that its passes read and write.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "conv/problem.h"

namespace convlab {

// With a(g) = W_g x_t + b_ih(g) + U_g h_{t-1} + b_hh(g), as in PyTorch:
//   rnn_tanh, rnn_relu   h_t = tanh(a), relu(a)
//   gru                  r = sigmoid(a(r)), z = sigmoid(a(z)), q = U_n h_{t-1} + b_hh(n),
//                        n = tanh(W_n x_t + b_ih(n) + r q),   h_t = (1 - z) n + z h_{t-1}
//   lstm                 i, f, o = sigmoid(a(i)), sigmoid(a(f)), sigmoid(a(o)), g = tanh(a(g)),
//                        c_t = f c_{t-1} + i g,   h_t = o tanh(c_t)
enum class RecurrentCell : std::uint8_t { rnn_tanh, rnn_relu, gru, lstm };
inline constexpr std::array all_cells{RecurrentCell::rnn_tanh, RecurrentCell::rnn_relu,
                                      RecurrentCell::gru, RecurrentCell::lstm};
std::string_view to_string(RecurrentCell);   // "rnn", "rnn_relu", "gru", "lstm"
RecurrentCell parse_cell(std::string_view);  // throws InputError

// Gates in memory: r z n of a gru, i f g o of an lstm.
constexpr std::int64_t gates_of(RecurrentCell c) {
  return c == RecurrentCell::lstm ? 4 : c == RecurrentCell::gru ? 3 : 1;
}
// What activations hold of a hidden unit at a step.
constexpr std::int64_t saved_values_of(RecurrentCell c) {
  return c == RecurrentCell::lstm ? 5 : c == RecurrentCell::gru ? 4 : 0;
}

// T steps, batch N, I inputs, H hidden units, L layers, D directions. All data is dense and
// row-major, fixed by the problem, so that each pass of each algorithm can be checked by itself and
// mixed with any other's:
//   x [T][N][I],  y [T][N][D*H]: the forward direction's h_t, then the other's
//   h0, hn, c0, cn [L*D][N][H]: layer by layer, forward direction first; c only of an lstm
//   weights: for each layer and direction w_ih [G*H][in], w_hh [G*H][H], b_ih [G*H], b_hh [G*H],
//            where in is I, and D*H from the second layer on
//   activations: what the backward passes need of the forward pass besides y:
//            for each layer and direction the saved values of each step, [T][N][S*H]
//              gru r z n q,  lstm i f g o c,  rnn none;  none if they are recomputed
//            then for each layer but the last its hidden states, [T][N][D*H]
//   dgates: gradients with respect to the sums a: for each layer and direction
//            [T][N][G*H] of W x + b_ih, then for a gru [T][N][G*H] of U h + b_hh, where n's differs
// The reverse direction steps from T - 1 to 0. Where it stores a step, it stores it at that t.
//
//   forward          x, h0, c0, weights -> y, hn, cn; when training also activations
//   backward_data    dy, dhn, dcn, weights, y, h0, c0, activations -> dx, dh0, dc0, dgates
//                    if recomputing also x
//   backward_filter  x, h0, y, activations (only the hidden states), dgates -> dweights
struct RecurrentProblem {
  Pass pass = Pass::forward;
  DType dtype = DType::f32;  // f32 or f64
  RecurrentCell cell = RecurrentCell::rnn_tanh;
  std::int64_t t = 1, n = 1, i = 1, h = 1;
  std::int64_t layers = 1;
  bool bidirectional = false;
  bool training = false;   // forward only: writes activations
  bool recompute = false;  // activations have no saved values: backward_data computes them again
  bool input_gradient = true;  // backward_data computes dx: decides about the work, not the plan

  constexpr std::int64_t directions() const { return bidirectional ? 2 : 1; }
  constexpr std::int64_t gates() const { return gates_of(cell); }
  constexpr bool has_cell_state() const { return cell == RecurrentCell::lstm; }
  constexpr std::int64_t input_of(std::int64_t layer) const {
    return layer == 0 ? i : directions() * h;
  }

  // Elements.
  constexpr std::int64_t x_elements() const { return t * n * i; }
  constexpr std::int64_t y_elements() const { return t * n * directions() * h; }
  constexpr std::int64_t state_elements() const { return layers * directions() * n * h; }
  constexpr std::int64_t weights_elements() const { return weights_offset(layers, 0); }
  constexpr std::int64_t activations_elements() const { return hidden_offset(layers - 1); }
  constexpr std::int64_t dgates_elements() const { return dgates_offset(layers, 0); }

  // Positions within weights, of one layer and direction.
  constexpr std::int64_t weights_offset(std::int64_t layer, std::int64_t direction) const {
    const std::int64_t first = weights_of(i), other = weights_of(directions() * h);
    return layer == 0 ? direction * first
                      : directions() * (first + (layer - 1) * other) + direction * other;
  }
  constexpr std::int64_t w_hh_offset(std::int64_t layer, std::int64_t direction) const {
    return weights_offset(layer, direction) + gates() * h * input_of(layer);
  }
  constexpr std::int64_t b_ih_offset(std::int64_t layer, std::int64_t direction) const {
    return w_hh_offset(layer, direction) + gates() * h * h;
  }
  constexpr std::int64_t b_hh_offset(std::int64_t layer, std::int64_t direction) const {
    return b_ih_offset(layer, direction) + gates() * h;
  }

  // Saved values of a unit at a step, and their positions within activations.
  constexpr std::int64_t saved_values() const { return saved_values_of(cell); }
  constexpr std::int64_t saved_elements() const {  // of one layer and direction
    return t * n * saved_values() * h;
  }
  constexpr std::int64_t saved_offset(std::int64_t layer, std::int64_t direction) const {
    return (layer * directions() + direction) * saved_elements();
  }
  constexpr std::int64_t hidden_offset(std::int64_t layer) const {
    return (recompute ? 0 : saved_offset(layers, 0)) + layer * y_elements();
  }

  // Positions within dgates. An rnn's and an lstm's recurrent ones are the others.
  constexpr std::int64_t dgates_offset(std::int64_t layer, std::int64_t direction) const {
    return (layer * directions() + direction) * (cell == RecurrentCell::gru ? 2 : 1) * t * n *
           gates() * h;
  }
  constexpr std::int64_t recurrent_dgates_offset(std::int64_t layer, std::int64_t direction) const {
    return dgates_offset(layer, direction) + (cell == RecurrentCell::gru ? t * n * gates() * h : 0);
  }

  constexpr std::int64_t x_bytes() const { return x_elements() * size_of(dtype); }
  constexpr std::int64_t y_bytes() const { return y_elements() * size_of(dtype); }
  constexpr std::int64_t state_bytes() const { return state_elements() * size_of(dtype); }
  constexpr std::int64_t weights_bytes() const { return weights_elements() * size_of(dtype); }
  constexpr std::int64_t activations_bytes() const {
    return activations_elements() * size_of(dtype);
  }
  constexpr std::int64_t dgates_bytes() const { return dgates_elements() * size_of(dtype); }
  // Of one U, which each step of its layer and direction reads.
  constexpr std::int64_t step_bytes() const { return gates() * h * h * size_of(dtype); }
  // Of the first layer's W in all directions.
  constexpr std::int64_t input_weights_bytes() const {
    return directions() * gates() * h * i * size_of(dtype);
  }
  // Of the U of all layers and directions.
  constexpr std::int64_t recurrent_bytes() const { return layers * directions() * step_bytes(); }

  // Whether a product takes or gives the first layer's inputs.
  constexpr bool has_input_product() const { return pass != Pass::backward_data || input_gradient; }
  // Work of the products, a multiply-add as 2, without what is recomputed:
  // 2 T N D G H (in + H), summed over layers. The same in every pass, except that dx may be left
  // out.
  constexpr double flops() const {
    const double of_inputs =
        double(has_input_product() ? i : 0) + double(layers - 1) * double(directions() * h);
    return 2.0 * double(t) * double(n) * double(directions() * gates()) * double(h) *
           (of_inputs + double(layers) * double(h));
  }
  friend constexpr bool operator==(const RecurrentProblem&, const RecurrentProblem&) = default;

 private:
  constexpr std::int64_t weights_of(std::int64_t in) const {
    return gates() * h * (in + h) + 2 * gates() * h;
  }
};

// Throws InputError naming the field when a size is invalid, when an array's size overflows 2^62
// bytes, for training outside of forward, or for another type than f32 and f64. Every parser calls
// it; algorithms may rely on it.
void validate(const RecurrentProblem&);

// The text form: the cell, then the sizes as oneDNN's benchdnn has them (l, t, mb, slc inputs, dhc
// hidden units; sic and dic are dhc), then perhaps the directions, then perhaps a name:
//   lstm:l2t32mb16sic512slc256dhc512dic512:bin"encoder*2"
// Sizes only, no pass and no type. Omitted: l and t are 1, mb is 2; sic, slc, dhc and dic are
// equal, so that one of them is enough; `_` is ignored. Throws InputError that quotes the text and
// says at which character it is wrong.
struct NamedRecurrentProblem {
  RecurrentProblem problem;
  std::string name;
  std::int64_t count = 1;
  friend bool operator==(const NamedRecurrentProblem&, const NamedRecurrentProblem&) = default;
};
NamedRecurrentProblem parse_recurrent_problem(std::string_view text);
// Whether a text is of a recurrent problem: it begins with a cell and a colon. A digit behind them
// makes it a net's name, as in rnn:28-128-10.
bool is_recurrent_text(std::string_view text);
// Canonical text, with all sizes in fixed order: equal sizes give equal text, and parsing it gives
// them back. Used as the key of the tuning store.
std::string to_text(const RecurrentProblem&);
std::string to_text(const NamedRecurrentProblem&);

}  // namespace convlab
