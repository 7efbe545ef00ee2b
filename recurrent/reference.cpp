#include "recurrent/reference.h"

#include <fmt/format.h>

#include "conv/error.h"
#include "recurrent/unit.h"

namespace convlab {
namespace {

using std::int64_t;

// A part of an array; null stands for zeros that are only read.
const double* from(std::span<const double> array, int64_t offset) {
  return array.empty() ? nullptr : array.data() + offset;
}
double at(const double* array, int64_t i) { return array == nullptr ? 0 : array[i]; }
double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < count; ++k) sum += a[k] * b[k];
  return sum;
}

// One layer and direction.
class Cells {
 public:
  Cells(const RecurrentProblem& p, int64_t layer, int64_t direction)
      : p_(p),
        layer_(layer),
        direction_(direction),
        in_(p.input_of(layer)),
        g_(p.gates()),
        ld_(layer * p.directions() + direction) {}

  // The step that comes as number `i`, and where its hidden states lie in y.
  int64_t step(int64_t i) const { return direction_ == 0 ? i : p_.t - 1 - i; }
  int64_t hidden_at(int64_t t, int64_t n) const {
    return ((t * p_.n + n) * p_.directions() + direction_) * p_.h;
  }
  // h_{t-1} of the step that comes as number i.
  const double* previous(const RecurrentInput& in, const double* hidden, int64_t i,
                         int64_t n) const {
    return i > 0 ? hidden + hidden_at(step(i - 1), n) : from(in.h0, (ld_ * p_.n + n) * p_.h);
  }
  int64_t state_at(int64_t n) const { return (ld_ * p_.n + n) * p_.h; }

  // Hidden states of all steps from the layer's inputs; the values that are saved, unless null.
  void forward(const RecurrentInput& in, const double* inputs, double* hidden, double* saved,
               RecurrentOutput& out) const {
    const double *w = from(in.weights, p_.weights_offset(layer_, direction_)),
                 *u = from(in.weights, p_.w_hh_offset(layer_, direction_)),
                 *b = from(in.weights, p_.b_ih_offset(layer_, direction_)),
                 *b_hh = from(in.weights, p_.b_hh_offset(layer_, direction_));
#pragma omp parallel for
    for (int64_t n = 0; n < p_.n; ++n) {
      std::vector<double> c(std::size_t(p_.h), 0.0);
      for (int64_t j = 0; j < p_.h; ++j) c[std::size_t(j)] = at(from(in.c0, state_at(n)), j);
      for (int64_t i = 0; i < p_.t; ++i) {
        const int64_t t = step(i);
        const double *x = inputs + (t * p_.n + n) * in_, *h = previous(in, hidden, i, n);
        double* const to =
            saved == nullptr ? nullptr : saved + (t * p_.n + n) * p_.saved_values() * p_.h;
        for (int64_t j = 0; j < p_.h; ++j) {
          double of_x[4]{}, of_h[4]{}, values[5]{};
          for (int64_t g = 0; g < g_; ++g) {
            const int64_t row = g * p_.h + j;
            of_x[g] = b[row] + dot(w + row * in_, x, in_);
            of_h[g] = b_hh[row] + (h == nullptr ? 0 : dot(u + row * p_.h, h, p_.h));
          }
          hidden[hidden_at(t, n) + j] =
              unit_forward(p_.cell, of_x, of_h, at(h, j), c[std::size_t(j)], values);
          if (to != nullptr) put(values, p_.saved_values(), to + j);
        }
      }
      for (int64_t j = 0; j < p_.h; ++j) {
        out.out_h[std::size_t(state_at(n) + j)] = hidden[hidden_at(step(p_.t - 1), n) + j];
        if (p_.has_cell_state()) out.out_c[std::size_t(state_at(n) + j)] = c[std::size_t(j)];
      }
    }
  }

  // Gradients with respect to the sums, in dgates, and to the inputs, which are added unless null.
  void backward_data(const RecurrentInput& in, const double* hidden, const double* saved,
                     const double* dhidden, double* dgates, double* recurrent_dgates,
                     double* dinputs, RecurrentOutput& out) const {
    const double *w = from(in.weights, p_.weights_offset(layer_, direction_)),
                 *u = from(in.weights, p_.w_hh_offset(layer_, direction_));
#pragma omp parallel for
    for (int64_t n = 0; n < p_.n; ++n) {
      std::vector<double> dh(std::size_t(p_.h)), dc(std::size_t(p_.h));
      for (int64_t j = 0; j < p_.h; ++j) {
        dh[std::size_t(j)] = at(from(in.dhn, state_at(n)), j);
        dc[std::size_t(j)] = at(from(in.dcn, state_at(n)), j);
      }
      for (int64_t i = p_.t - 1; i >= 0; --i) {
        const int64_t t = step(i), place = t * p_.n + n, values_of_row = p_.saved_values() * p_.h;
        const double* const h_before = previous(in, hidden, i, n);
        double *const dx = dgates + place * g_ * p_.h, *const du =
                                                           recurrent_dgates + place * g_ * p_.h;
        for (int64_t j = 0; j < p_.h; ++j) {
          double state = hidden[hidden_at(t, n) + j], values[5]{}, of_x[4]{}, of_h[4]{};
          if (p_.cell == RecurrentCell::gru) state = at(h_before, j);
          if (p_.has_cell_state())
            state = i > 0 ? saved[(step(i - 1) * p_.n + n) * values_of_row + 4 * p_.h + j]
                          : at(from(in.c0, state_at(n)), j);
          for (int64_t k = 0; k < p_.saved_values(); ++k)
            values[k] = saved[place * values_of_row + k * p_.h + j];
          double& d = dh[std::size_t(j)];
          d = unit_backward(p_.cell, d + dhidden[hidden_at(t, n) + j], state, values,
                            dc[std::size_t(j)], of_x, of_h);
          put(of_x, g_, dx + j);
          put(of_h, g_, du + j);
        }
        for (int64_t row = 0; row < g_ * p_.h; ++row) {
          if (dinputs != nullptr)
            for (int64_t k = 0; k < in_; ++k)
              dinputs[place * in_ + k] += dx[row] * w[row * in_ + k];
          for (int64_t k = 0; k < p_.h; ++k) dh[std::size_t(k)] += du[row] * u[row * p_.h + k];
        }
      }
      for (int64_t j = 0; j < p_.h; ++j) {
        out.out_h[std::size_t(state_at(n) + j)] = dh[std::size_t(j)];
        if (p_.has_cell_state()) out.out_c[std::size_t(state_at(n) + j)] = dc[std::size_t(j)];
      }
    }
  }

  void backward_filter(const RecurrentInput& in, const double* inputs, const double* hidden,
                       double* dweights) const {
    const double *dgates = from(in.dgates, p_.dgates_offset(layer_, direction_)),
                 *recurrent = from(in.dgates, p_.recurrent_dgates_offset(layer_, direction_));
    double *dw = dweights + p_.weights_offset(layer_, direction_),
           *du = dweights + p_.w_hh_offset(layer_, direction_),
           *db = dweights + p_.b_ih_offset(layer_, direction_),
           *db_hh = dweights + p_.b_hh_offset(layer_, direction_);
#pragma omp parallel for
    for (int64_t row = 0; row < g_ * p_.h; ++row)
      for (int64_t i = 0; i < p_.t; ++i)
        for (int64_t n = 0; n < p_.n; ++n) {
          const int64_t place = step(i) * p_.n + n;
          const double* const h = previous(in, hidden, i, n);
          const double dx = dgates[place * g_ * p_.h + row],
                       dr = recurrent[place * g_ * p_.h + row];
          for (int64_t k = 0; k < in_; ++k) dw[row * in_ + k] += dx * inputs[place * in_ + k];
          for (int64_t k = 0; h != nullptr && k < p_.h; ++k) du[row * p_.h + k] += dr * h[k];
          db[row] += dx;
          db_hh[row] += dr;
        }
  }

 private:
  // Values of a unit lie H apart.
  void put(const double* values, std::int64_t count, double* to) const {
    for (int64_t k = 0; k < count; ++k) to[k * p_.h] = values[k];
  }

  const RecurrentProblem& p_;
  int64_t layer_, direction_, in_, g_, ld_;
};

void expect(const char* name, bool used, std::span<const double> data, int64_t count,
            bool optional = false) {
  if (!used || (optional && data.empty())) return;
  if (int64_t(data.size()) != count)
    throw InputError(
        fmt::format("reference: {} has {} elements, expected {}", name, data.size(), count));
}

void check(const RecurrentProblem& p, const RecurrentInput& in) {
  validate(p);
  const bool forward = p.pass == Pass::forward, data = p.pass == Pass::backward_data,
             filter = p.pass == Pass::backward_filter;
  expect("x", !data || p.recompute, in.x, p.x_elements());
  expect("weights", !filter, in.weights, p.weights_elements());
  expect("h0", true, in.h0, p.state_elements(), true);
  expect("c0", p.has_cell_state(), in.c0, p.state_elements(), true);
  expect("y", !forward, in.y, p.y_elements());
  expect("activations", !forward, in.activations, p.activations_elements());
  expect("dy", data, in.dy, p.y_elements());
  expect("dhn", data, in.dhn, p.state_elements(), true);
  expect("dcn", data && p.has_cell_state(), in.dcn, p.state_elements(), true);
  expect("dgates", filter, in.dgates, p.dgates_elements());
}

std::vector<double> zeros(int64_t count) { return std::vector<double>(std::size_t(count), 0.0); }

// The hidden states of each layer: those of the last one are y.
std::vector<const double*> hidden_states(const RecurrentProblem& p, const double* activations,
                                         const double* y) {
  std::vector<const double*> hidden;
  for (int64_t layer = 0; layer < p.layers; ++layer)
    hidden.push_back(layer == p.layers - 1 ? y : activations + p.hidden_offset(layer));
  return hidden;
}

RecurrentOutput forward(const RecurrentProblem& p, const RecurrentInput& in) {
  RecurrentOutput out;
  out.out = zeros(p.y_elements());
  out.out_h = zeros(p.state_elements());
  out.out_c = zeros(p.has_cell_state() ? p.state_elements() : 0);
  std::vector<double> activations = zeros(p.activations_elements());
  const double* inputs = in.x.data();
  for (int64_t layer = 0; layer < p.layers; ++layer) {
    double* const hidden =
        layer == p.layers - 1 ? out.out.data() : activations.data() + p.hidden_offset(layer);
    for (int64_t direction = 0; direction < p.directions(); ++direction)
      Cells(p, layer, direction)
          .forward(in, inputs, hidden,
                   p.recompute || p.saved_values() == 0
                       ? nullptr
                       : activations.data() + p.saved_offset(layer, direction),
                   out);
    inputs = hidden;
  }
  if (p.training) out.activations = std::move(activations);
  return out;
}

RecurrentOutput backward_data(const RecurrentProblem& p, const RecurrentInput& in) {
  std::vector<double> recomputed;
  const double* activations = in.activations.data();
  RecurrentProblem saving = p;
  saving.recompute = false;
  if (p.recompute) {
    saving.pass = Pass::forward;
    saving.training = true;
    recomputed = forward(saving, in).activations;
    activations = recomputed.data();
  }
  RecurrentOutput out;
  out.out_h = zeros(p.state_elements());
  out.out_c = zeros(p.has_cell_state() ? p.state_elements() : 0);
  out.dgates = zeros(p.dgates_elements());
  const auto hidden = hidden_states(saving, activations, in.y.data());
  std::vector<double> dhidden(in.dy.begin(), in.dy.end());
  for (int64_t layer = p.layers - 1; layer >= 0; --layer) {
    const bool needed = layer > 0 || in.needs_dx;
    std::vector<double> dinputs = zeros(needed ? p.t * p.n * p.input_of(layer) : 0);
    for (int64_t direction = 0; direction < p.directions(); ++direction)
      Cells(p, layer, direction)
          .backward_data(in, hidden[std::size_t(layer)],
                         activations + saving.saved_offset(layer, direction), dhidden.data(),
                         out.dgates.data() + p.dgates_offset(layer, direction),
                         out.dgates.data() + p.recurrent_dgates_offset(layer, direction),
                         needed ? dinputs.data() : nullptr, out);
    dhidden = std::move(dinputs);
  }
  out.out = std::move(dhidden);
  return out;
}

RecurrentOutput backward_filter(const RecurrentProblem& p, const RecurrentInput& in) {
  RecurrentOutput out;
  out.out = zeros(p.weights_elements());
  const auto hidden = hidden_states(p, in.activations.data(), in.y.data());
  for (int64_t layer = 0; layer < p.layers; ++layer)
    for (int64_t direction = 0; direction < p.directions(); ++direction)
      Cells(p, layer, direction)
          .backward_filter(in, layer == 0 ? in.x.data() : hidden[std::size_t(layer - 1)],
                           hidden[std::size_t(layer)], out.out.data());
  return out;
}

}  // namespace

RecurrentOutput reference_of(const RecurrentProblem& p, const RecurrentInput& in) {
  check(p, in);
  switch (p.pass) {
    case Pass::forward:
      return forward(p, in);
    case Pass::backward_data:
      return backward_data(p, in);
    case Pass::backward_filter:
      return backward_filter(p, in);
  }
  return {};
}

}  // namespace convlab
