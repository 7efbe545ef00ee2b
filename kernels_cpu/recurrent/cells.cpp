#include "kernels_cpu/recurrent/cells.h"

#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/recurrent/cells.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/simd/relu-inl.h"
#include "kernels_cpu/simd/tanh-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Values of one unit lie H apart: gate g of a row at g * h.
template <class T, class At>
struct Units {
  At at;
  std::int64_t h;

  HWY_INLINE VectorOf<T> Load(const T* from, int value = 0) const {
    return at.Load(from + value * h);
  }
  HWY_INLINE void Store(VectorOf<T> v, T* to, int value = 0) const { at.Store(v, to + value * h); }
};

template <class T>
HWY_INLINE VectorOf<T> One() {
  return hn::Set(VectorTag<T>(), T(1));
}
// v (1 - v), the sigmoid's derivative at its value v; 1 - v^2, that of tanh.
template <class V>
HWY_INLINE V SigmoidSlope(V v) {
  return hn::NegMulAdd(v, v, v);
}
template <class V>
HWY_INLINE V TanhSlope(V v) {
  return hn::NegMulAdd(v, v, hn::Set(hn::DFromV<V>(), 1));
}

// ---- Forward ----

template <class T>
struct ForwardRow {
  const T *of_x, *of_h, *b_ih, *b_hh, *before;
  T *hidden, *c, *saved;
  std::int64_t h;

  template <RecurrentCell kCell, class At>
  HWY_INLINE void Run(At at, std::int64_t j) const {
    using V = VectorOf<T>;
    const Units<T, At> units{at, h};
    const auto of_input = [&](int g) HWY_ATTR {
      return hn::Add(units.Load(of_x + j, g), units.Load(b_ih + j, g));
    };
    const auto of_hidden = [&](int g) HWY_ATTR {
      return hn::Add(units.Load(of_h + j, g), units.Load(b_hh + j, g));
    };
    const auto sum = [&](int g) HWY_ATTR { return hn::Add(of_input(g), of_hidden(g)); };
    V next;
    if constexpr (kCell == RecurrentCell::rnn_tanh) {
      next = Tanh(sum(0));
    } else if constexpr (kCell == RecurrentCell::rnn_relu) {
      next = Relu(sum(0));
    } else if constexpr (kCell == RecurrentCell::gru) {
      const V r = Sigmoid(sum(0)), z = Sigmoid(sum(1)), q = of_hidden(2);
      const V n = Tanh(hn::MulAdd(r, q, of_input(2)));
      if (saved != nullptr) {
        units.Store(r, saved + j, 0);
        units.Store(z, saved + j, 1);
        units.Store(n, saved + j, 2);
        units.Store(q, saved + j, 3);
      }
      next = hn::MulAdd(z, hn::Sub(units.Load(before + j), n), n);  // (1 - z) n + z h
    } else {
      const V i = Sigmoid(sum(0)), f = Sigmoid(sum(1)), g = Tanh(sum(2)), o = Sigmoid(sum(3));
      const V state = hn::MulAdd(f, units.Load(c + j), hn::Mul(i, g));
      units.Store(state, c + j);
      if (saved != nullptr) {
        units.Store(i, saved + j, 0);
        units.Store(f, saved + j, 1);
        units.Store(g, saved + j, 2);
        units.Store(o, saved + j, 3);
        units.Store(state, saved + j, 4);
      }
      next = hn::Mul(o, Tanh(state));
    }
    if (hidden != nullptr) units.Store(next, hidden + j);
  }
};

// f(std::integral_constant<RecurrentCell, cell>()).
template <class F>
HWY_INLINE void WithCell(RecurrentCell cell, F&& f) {
  switch (cell) {
    case RecurrentCell::rnn_tanh:
      return f(std::integral_constant<RecurrentCell, RecurrentCell::rnn_tanh>());
    case RecurrentCell::rnn_relu:
      return f(std::integral_constant<RecurrentCell, RecurrentCell::rnn_relu>());
    case RecurrentCell::gru:
      return f(std::integral_constant<RecurrentCell, RecurrentCell::gru>());
    case RecurrentCell::lstm:
      return f(std::integral_constant<RecurrentCell, RecurrentCell::lstm>());
  }
}

template <class T>
const T* RowOf(const void* first, std::int64_t row, std::int64_t step) {
  return first == nullptr ? nullptr : static_cast<const T*>(first) + row * step;
}
template <class T>
T* RowOf(void* first, std::int64_t row, std::int64_t step) {
  return first == nullptr ? nullptr : static_cast<T*>(first) + row * step;
}

// Values saved of a unit.
constexpr std::int64_t SavedOf(RecurrentCell cell) {
  return cell == RecurrentCell::lstm ? 5 : cell == RecurrentCell::gru ? 4 : 0;
}

template <class T>
void Forward(const CellForward& cells, Range rows, Range units) {
  const std::int64_t h = cells.h, sums = gates_of(cells.cell) * h;
  const auto* const b_ih = static_cast<const T*>(cells.b_ih);
  const auto* const b_hh = static_cast<const T*>(cells.b_hh);
  WithCell(cells.cell, [&](auto cell) HWY_ATTR {
    for (std::int64_t n = rows.begin; n < rows.end; ++n) {
      const ForwardRow<T> row{RowOf<T>(cells.of_x, n, sums),
                              RowOf<T>(cells.of_h, n, sums),
                              b_ih,
                              b_hh,
                              RowOf<T>(cells.before, n, cells.before_step),
                              RowOf<T>(cells.hidden, n, cells.hidden_step),
                              RowOf<T>(cells.c, n, h),
                              RowOf<T>(cells.saved, n, SavedOf(cells.cell) * h),
                              h};
      ForEachVector<T>(units.size(), [&](auto at, std::int64_t j) HWY_ATTR {
        row.template Run<cell.value>(at, units.begin + j);
      });
    }
  });
}

// ---- Backward ----

template <class T>
struct BackwardRow {
  const T *dhidden, *state, *saved;
  T *dh, *dc, *dgates, *recurrent_dgates;
  std::int64_t h;

  template <RecurrentCell kCell, class At>
  HWY_INLINE void Run(At at, std::int64_t j) const {
    using V = VectorOf<T>;
    const Units<T, At> units{at, h};
    const auto value = [&](int k) HWY_ATTR { return units.Load(saved + j, k); };
    const V d = hn::Add(units.Load(dh + j), units.Load(dhidden + j));
    const V of_state = units.Load(state + j);
    if constexpr (kCell == RecurrentCell::rnn_tanh) {
      units.Store(hn::Mul(d, TanhSlope(of_state)), dgates + j);
    } else if constexpr (kCell == RecurrentCell::rnn_relu) {
      units.Store(ReluGradient(of_state, d), dgates + j);
    } else if constexpr (kCell == RecurrentCell::gru) {
      const V r = value(0), z = value(1), n = value(2), q = value(3);
      const V dz = hn::Mul(hn::Mul(d, hn::Sub(of_state, n)), SigmoidSlope(z));
      const V dn = hn::Mul(hn::Mul(d, hn::Sub(One<T>(), z)), TanhSlope(n));
      const V dr = hn::Mul(hn::Mul(dn, q), SigmoidSlope(r));
      units.Store(dr, dgates + j, 0);
      units.Store(dz, dgates + j, 1);
      units.Store(dn, dgates + j, 2);
      units.Store(dr, recurrent_dgates + j, 0);
      units.Store(dz, recurrent_dgates + j, 1);
      units.Store(hn::Mul(dn, r), recurrent_dgates + j, 2);
      units.Store(hn::Mul(d, z), dh + j);
    } else {
      const V i = value(0), f = value(1), g = value(2), o = value(3), c = Tanh(value(4));
      const V d_c = hn::MulAdd(hn::Mul(d, o), TanhSlope(c), units.Load(dc + j));
      units.Store(hn::Mul(hn::Mul(d_c, g), SigmoidSlope(i)), dgates + j, 0);
      units.Store(hn::Mul(hn::Mul(d_c, of_state), SigmoidSlope(f)), dgates + j, 1);
      units.Store(hn::Mul(hn::Mul(d_c, i), TanhSlope(g)), dgates + j, 2);
      units.Store(hn::Mul(hn::Mul(d, c), SigmoidSlope(o)), dgates + j, 3);
      units.Store(hn::Mul(d_c, f), dc + j);
    }
  }
};

template <class T>
void Backward(const CellBackward& cells, Range rows, Range units) {
  const std::int64_t h = cells.h, sums = gates_of(cells.cell) * h;
  WithCell(cells.cell, [&](auto cell) HWY_ATTR {
    for (std::int64_t n = rows.begin; n < rows.end; ++n) {
      const BackwardRow<T> row{RowOf<T>(cells.dhidden, n, cells.dhidden_step),
                               RowOf<T>(cells.state, n, cells.state_step),
                               RowOf<T>(cells.saved, n, SavedOf(cells.cell) * h),
                               RowOf<T>(cells.dh, n, h),
                               RowOf<T>(cells.dc, n, h),
                               RowOf<T>(cells.dgates, n, sums),
                               RowOf<T>(cells.recurrent_dgates, n, sums),
                               h};
      ForEachVector<T>(units.size(), [&](auto at, std::int64_t j) HWY_ATTR {
        row.template Run<cell.value>(at, units.begin + j);
      });
    }
  });
}

// So many vectors of a row at a time: rows lie far apart, and a line of each would come from
// another page.
template <class T, int kVecs, class At>
HWY_INLINE void SumColumns(At at, const T* from, std::int64_t rows, std::int64_t step, T* to) {
  constexpr std::int64_t kLanes = hn::MaxLanes(VectorTag<T>());
  VectorOf<T> sums[kVecs];
  for (auto& sum : sums) sum = hn::Zero(VectorTag<T>());
  for (std::int64_t row = 0; row < rows; ++row)
    for (int j = 0; j < kVecs; ++j)
      sums[j] = hn::Add(sums[j], at.Load(from + row * step + j * kLanes));
  for (int j = 0; j < kVecs; ++j) at.Store(sums[j], to + j * kLanes);
}

template <class T>
void Sum(const T* from, std::int64_t rows, std::int64_t step, Range columns, T* to) {
  constexpr int kVecs = 8;
  constexpr std::int64_t kWide = kVecs * hn::MaxLanes(VectorTag<T>());
  std::int64_t i = columns.begin;
  for (; i + kWide <= columns.end; i += kWide)
    SumColumns<T, kVecs>(WholeVector(), from + i, rows, step, to + i);
  ForEachVector<T>(columns.end - i, [&](auto at, std::int64_t j) HWY_ATTR {
    SumColumns<T, 1>(at, from + i + j, rows, step, to + i + j);
  });
}

void RunForward(const CellForward& cells, Range rows, Range units) {
  with_type(cells.dtype, [&](auto zero) { Forward<decltype(zero)>(cells, rows, units); });
}
void RunBackward(const CellBackward& cells, Range rows, Range units) {
  with_type(cells.dtype, [&](auto zero) { Backward<decltype(zero)>(cells, rows, units); });
}
void SumRows(DType dtype, const void* from, std::int64_t rows, std::int64_t step, Range columns,
             void* to) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    Sum(static_cast<const T*>(from), rows, step, columns, static_cast<T*>(to));
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(RunForward);
HWY_EXPORT(RunBackward);
HWY_EXPORT(SumRows);

void run_cells(const CellForward& cells, Range rows, Range units) {
  HWY_DYNAMIC_DISPATCH(RunForward)(cells, rows, units);
}
void run_cells(const CellBackward& cells, Range rows, Range units) {
  HWY_DYNAMIC_DISPATCH(RunBackward)(cells, rows, units);
}
void sum_rows(DType dtype, const void* from, std::int64_t rows, std::int64_t step, Range columns,
              void* to) {
  HWY_DYNAMIC_DISPATCH(SumRows)(dtype, from, rows, step, columns, to);
}

}  // namespace convlab::cpu
#endif
