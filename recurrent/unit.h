// One hidden unit of a cell at one step, forward and back, as problem.h defines cells. For float
// and double, on the host and, where nvcc compiles it, on a card. Internal.
#pragma once

#include <cmath>

#include "recurrent/problem.h"

#ifdef __CUDACC__
#define CONVLAB_ALSO_ON_CARD __host__ __device__
#else
#define CONVLAB_ALSO_ON_CARD
#endif

namespace convlab {

template <class T>
CONVLAB_ALSO_ON_CARD inline T sigmoid(T v) {
  return T(1) / (T(1) + std::exp(-v));
}

// h_t from its gates' sums W x + b_ih and U h + b_hh, and from h_{t-1}, which only a gru reads.
// `c` of an lstm becomes c_t. `saved` gets the values that activations have, in their order.
template <class T>
CONVLAB_ALSO_ON_CARD inline T unit_forward(RecurrentCell cell, const T (&of_x)[4],
                                           const T (&of_h)[4], T h, T& c, T (&saved)[5]) {
  switch (cell) {
    case RecurrentCell::rnn_tanh:
      return std::tanh(of_x[0] + of_h[0]);
    case RecurrentCell::rnn_relu: {
      const T sum = of_x[0] + of_h[0];
      return sum < T(0) ? T(0) : sum;  // NaN stays NaN
    }
    case RecurrentCell::gru: {
      const T r = sigmoid(of_x[0] + of_h[0]), z = sigmoid(of_x[1] + of_h[1]), q = of_h[2],
              n = std::tanh(of_x[2] + r * q);
      saved[0] = r, saved[1] = z, saved[2] = n, saved[3] = q;
      return (T(1) - z) * n + z * h;
    }
    case RecurrentCell::lstm: {
      const T i = sigmoid(of_x[0] + of_h[0]), f = sigmoid(of_x[1] + of_h[1]),
              g = std::tanh(of_x[2] + of_h[2]), o = sigmoid(of_x[3] + of_h[3]);
      c = f * c + i * g;
      saved[0] = i, saved[1] = f, saved[2] = g, saved[3] = o, saved[4] = c;
      return o * std::tanh(c);
    }
  }
  return T(0);
}

// The gradients of the sums from d, that of h_t. `state` is an rnn's h_t, a gru's h_{t-1}, an
// lstm's c_{t-1}. `dc` of an lstm becomes that of c_{t-1}. Returns what reaches h_{t-1} without U.
template <class T>
CONVLAB_ALSO_ON_CARD inline T unit_backward(RecurrentCell cell, T d, T state, const T (&saved)[5],
                                            T& dc, T (&of_x)[4], T (&of_h)[4]) {
  const T one(1);
  switch (cell) {
    case RecurrentCell::rnn_tanh:
      of_x[0] = d * (one - state * state);
      break;
    case RecurrentCell::rnn_relu:
      of_x[0] = state <= T(0) ? T(0) : d;
      break;
    case RecurrentCell::gru: {
      const T r = saved[0], z = saved[1], n = saved[2], q = saved[3];
      const T dn = d * (one - z) * (one - n * n), dz = d * (state - n) * z * (one - z),
              dr = dn * q * r * (one - r);
      of_x[0] = of_h[0] = dr, of_x[1] = of_h[1] = dz, of_x[2] = dn, of_h[2] = dn * r;
      return d * z;
    }
    case RecurrentCell::lstm: {
      const T i = saved[0], f = saved[1], g = saved[2], o = saved[3], c = std::tanh(saved[4]);
      dc += d * o * (one - c * c);
      of_x[0] = dc * g * i * (one - i);
      of_x[1] = dc * state * f * (one - f);
      of_x[2] = dc * i * (one - g * g);
      of_x[3] = d * c * o * (one - o);
      dc *= f;
      break;
    }
  }
  for (int gate = 0; gate < 4; ++gate) of_h[gate] = of_x[gate];
  return T(0);
}

}  // namespace convlab
