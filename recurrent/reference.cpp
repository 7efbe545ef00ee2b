#include "recurrent/reference.h"

#include <fmt/format.h>

#include <cmath>

#include "conv/error.h"
#include "conv/math/relu.h"

namespace convlab {
namespace {

using std::int64_t;

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

// A part of an array; null stands for zeros that are only read.
const double* from(std::span<const double> array, int64_t offset) {
  return array.empty() ? nullptr : array.data() + offset;
}
double at(const double* array, int64_t i) { return array == nullptr ? 0 : array[i]; }

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
    for (int64_t n = 0; n < p_.n; ++n) {
      std::vector<double> c(std::size_t(p_.h), 0.0);
      for (int64_t j = 0; j < p_.h; ++j) c[std::size_t(j)] = at(from(in.c0, state_at(n)), j);
      for (int64_t i = 0; i < p_.t; ++i) {
        const int64_t t = step(i);
        const double *x = inputs + (t * p_.n + n) * in_, *h = previous(in, hidden, i, n);
        double* const to =
            saved == nullptr ? nullptr : saved + (t * p_.n + n) * p_.saved_values() * p_.h;
        for (int64_t j = 0; j < p_.h; ++j) {
          double of_x[4], of_h[4];
          for (int64_t g = 0; g < g_; ++g) {
            const int64_t row = g * p_.h + j;
            of_x[g] = b[row], of_h[g] = b_hh[row];
            for (int64_t k = 0; k < in_; ++k) of_x[g] += w[row * in_ + k] * x[k];
            for (int64_t k = 0; k < p_.h; ++k) of_h[g] += u[row * p_.h + k] * at(h, k);
          }
          hidden[hidden_at(t, n) + j] =
              unit(of_x, of_h, at(h, j), c[std::size_t(j)], to == nullptr ? nullptr : to + j);
        }
      }
      for (int64_t j = 0; j < p_.h; ++j) {
        out.out_h[std::size_t(state_at(n) + j)] = hidden[hidden_at(step(p_.t - 1), n) + j];
        if (p_.has_cell_state()) out.out_c[std::size_t(state_at(n) + j)] = c[std::size_t(j)];
      }
    }
  }

  // Gradients with respect to the sums, in dgates, and to the inputs, which are added.
  void backward_data(const RecurrentInput& in, const double* hidden, const double* saved,
                     const double* dhidden, double* dgates, double* recurrent_dgates,
                     double* dinputs, RecurrentOutput& out) const {
    const double *w = from(in.weights, p_.weights_offset(layer_, direction_)),
                 *u = from(in.weights, p_.w_hh_offset(layer_, direction_));
    for (int64_t n = 0; n < p_.n; ++n) {
      std::vector<double> dh(std::size_t(p_.h)), dc(std::size_t(p_.h));
      for (int64_t j = 0; j < p_.h; ++j) {
        dh[std::size_t(j)] = at(from(in.dhn, state_at(n)), j);
        dc[std::size_t(j)] = at(from(in.dcn, state_at(n)), j);
      }
      for (int64_t i = p_.t - 1; i >= 0; --i) {
        const int64_t t = step(i), place = t * p_.n + n, values = p_.saved_values() * p_.h;
        const double* const h_before = previous(in, hidden, i, n);
        double *const dx = dgates + place * g_ * p_.h, *const du =
                                                           recurrent_dgates + place * g_ * p_.h;
        for (int64_t j = 0; j < p_.h; ++j) {
          const double c_before = !p_.has_cell_state() ? 0
                                  : i > 0 ? saved[(step(i - 1) * p_.n + n) * values + 4 * p_.h + j]
                                          : at(from(in.c0, state_at(n)), j);
          double& d = dh[std::size_t(j)];
          d += dhidden[hidden_at(t, n) + j];
          d = unit_gradient(d, dc[std::size_t(j)], hidden[hidden_at(t, n) + j], at(h_before, j),
                            c_before, saved == nullptr ? nullptr : saved + place * values + j,
                            dx + j, du + j);
        }
        for (int64_t row = 0; row < g_ * p_.h; ++row) {
          for (int64_t k = 0; k < in_; ++k) dinputs[place * in_ + k] += dx[row] * w[row * in_ + k];
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
    for (int64_t i = 0; i < p_.t; ++i)
      for (int64_t n = 0; n < p_.n; ++n) {
        const int64_t place = step(i) * p_.n + n;
        const double* const h = previous(in, hidden, i, n);
        for (int64_t row = 0; row < g_ * p_.h; ++row) {
          const double dx = dgates[place * g_ * p_.h + row],
                       dr = recurrent[place * g_ * p_.h + row];
          for (int64_t k = 0; k < in_; ++k) dw[row * in_ + k] += dx * inputs[place * in_ + k];
          for (int64_t k = 0; k < p_.h; ++k) du[row * p_.h + k] += dr * at(h, k);
          db[row] += dx;
          db_hh[row] += dr;
        }
      }
  }

 private:
  // h_t of a unit from the sums of its gates; updates c. Saved values lie H apart.
  double unit(const double* of_x, const double* of_h, double h, double& c, double* saved) const {
    const auto sum = [&](int g) { return of_x[g] + of_h[g]; };
    const auto save = [&](std::initializer_list<double> values) {
      for (const double v : values) {
        if (saved == nullptr) return;
        *saved = v;
        saved += p_.h;
      }
    };
    switch (p_.cell) {
      case RecurrentCell::rnn_tanh:
        return std::tanh(sum(0));
      case RecurrentCell::rnn_relu:
        return relu(sum(0));
      case RecurrentCell::gru: {
        const double r = sigmoid(sum(0)), z = sigmoid(sum(1)), q = of_h[2];
        const double n = std::tanh(of_x[2] + r * q);
        save({r, z, n, q});
        return (1 - z) * n + z * h;
      }
      case RecurrentCell::lstm: {
        const double i = sigmoid(sum(0)), f = sigmoid(sum(1)), g = std::tanh(sum(2)),
                     o = sigmoid(sum(3));
        c = f * c + i * g;
        save({i, f, g, o, c});
        return o * std::tanh(c);
      }
    }
    return 0;
  }

  // The gradients of a unit's sums from that of h, d; updates dc. Returns what reaches h_{t-1}
  // without U.
  double unit_gradient(double d, double& dc, double h, double h_before, double c_before,
                       const double* saved, double* dx, double* du) const {
    const auto value = [&](int k) { return saved[k * p_.h]; };
    const auto put = [&](int g, double of_x, double of_h) {
      dx[g * p_.h] = of_x;
      du[g * p_.h] = of_h;
    };
    switch (p_.cell) {
      case RecurrentCell::rnn_tanh:
        put(0, d * (1 - h * h), d * (1 - h * h));
        return 0;
      case RecurrentCell::rnn_relu: {
        const double passed = h <= 0 ? 0 : d;
        put(0, passed, passed);
        return 0;
      }
      case RecurrentCell::gru: {
        const double r = value(0), z = value(1), n = value(2), q = value(3);
        const double dn = d * (1 - z) * (1 - n * n), dz = d * (h_before - n) * z * (1 - z),
                     dr = dn * q * r * (1 - r);
        put(0, dr, dr);
        put(1, dz, dz);
        put(2, dn, dn * r);
        return d * z;
      }
      case RecurrentCell::lstm: {
        const double i = value(0), f = value(1), g = value(2), o = value(3),
                     c = std::tanh(value(4));
        const double d_o = d * c * o * (1 - o);
        dc += d * o * (1 - c * c);
        const double di = dc * g * i * (1 - i), df = dc * c_before * f * (1 - f),
                     dg = dc * i * (1 - g * g);
        put(0, di, di);
        put(1, df, df);
        put(2, dg, dg);
        put(3, d_o, d_o);
        dc *= f;
        return 0;
      }
    }
    return 0;
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
  out.out = zeros(p.x_elements());
  out.out_h = zeros(p.state_elements());
  out.out_c = zeros(p.has_cell_state() ? p.state_elements() : 0);
  out.dgates = zeros(p.dgates_elements());
  const auto hidden = hidden_states(saving, activations, in.y.data());
  std::vector<double> dhidden(in.dy.begin(), in.dy.end());
  for (int64_t layer = p.layers - 1; layer >= 0; --layer) {
    std::vector<double> dinputs = zeros(p.t * p.n * p.input_of(layer));
    for (int64_t direction = 0; direction < p.directions(); ++direction)
      Cells(p, layer, direction)
          .backward_data(
              in, hidden[std::size_t(layer)], activations + saving.saved_offset(layer, direction),
              dhidden.data(), out.dgates.data() + p.dgates_offset(layer, direction),
              out.dgates.data() + p.recurrent_dgates_offset(layer, direction), dinputs.data(), out);
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
