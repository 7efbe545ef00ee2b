// Products of packed weights. A thread owns some hidden units, of all rows or of a group's: it
// computes their sums, all gates of them, and their cells, so that a step has one barrier, behind
// which everybody's h_t is there.
//
// In backward_data a step's part first multiplies the dgates of the step before, which all threads
// have written by then, and so gets dh of its own units; their cells give the next dgates.
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "kernels_cpu/device/spin_barrier.h"
#include "kernels_cpu/gemm/panels.h"
#include "kernels_cpu/recurrent/cells.h"
#include "kernels_cpu/recurrent/strategies.h"

namespace convlab::cpu {
namespace {

// Rows of inputs that are multiplied at a time: enough for full tiles many times over, and their
// sums stay in the caches until their steps.
constexpr std::int64_t input_rows = 512;
// Steps of fewer rows are summed in two halves of depth: see multiply_step.
constexpr std::int64_t rows_in_halves = 16;

struct Weights {
  PanelShape w, u;
  std::int64_t w_at = 0, u_at = 0, biases_at = 0, bytes = 0;
};

class PanelStrategy : public HostStrategy {
 public:
  PanelStrategy(const RecurrentProblem& p, const DeviceInfo& device, bool resident)
      : pass_(p.pass),
        recompute_(p.recompute && p.saved_values() > 0),
        l2_bytes_(device.l2_bytes),
        threads_(device.threads),
        resident_(resident) {}

  std::int64_t scratch_bytes(const LayerSizes& l) const override {
    if (pass_ == Pass::backward_filter)
      return filter_bytes(l, l.in) + filter_bytes(l, l.h) +
             threads_ * copied_a_bytes(filter_shape(l, l.h));
    if (pass_ == Pass::backward_data && !recompute_) return 0;
    return sums_bytes(l, chunk_of(l) * l.n) + sums_bytes(l, l.n);
  }

  std::int64_t packed_bytes(const LayerSizes& l) const override {
    switch (pass_) {
      case Pass::forward:
        return forward_weights(l).bytes;
      case Pass::backward_data:
        return recompute_ ? forward_at(l) + forward_weights(l).bytes : backward_weights(l).bytes;
      case Pass::backward_filter:
        return 0;
    }
    return 0;
  }

  void pack(const LayerSizes& l, const void* weights, std::byte* packed, Stream&) const override {
    const std::byte *const w = l.at(weights, 0), *const u = l.at(weights, l.w_hh());
    if (pass_ == Pass::backward_data) {
      const Weights to = backward_weights(l);
      pack(to.w, {w, l.in, 1, 0}, packed + to.w_at);
      pack(to.u, {u, l.h, 1, 0}, packed + to.u_at);
      if (!recompute_) return;
      packed += forward_at(l);
    }
    const Weights to = forward_weights(l);
    pack(to.w, {w, 1, l.in, l.h * l.in}, packed + to.w_at);
    pack(to.u, {u, 1, l.h, l.h * l.h}, packed + to.u_at);
    std::memcpy(packed + to.biases_at, l.at(weights, l.b_ih()), std::size_t(2 * l.bytes(l.sums())));
  }

  void forward(const LayerForward& l) const override {
    const Weights weights = forward_weights(l);
    const std::byte* const packed = l.weights_at + (l.recompute ? forward_at(l) : 0);
    std::byte *const of_x = l.scratch, *const of_h = of_x + sums_bytes(l, chunk_of(l) * l.n);
    const std::int64_t chunk = chunk_of(l), chunks = ceil_div(l.t, chunk);
    // Each chunk of steps has a part for its inputs, and one for each of its steps.
    run_parts(l.t + chunks, [&](std::int64_t part, std::int64_t thread, std::int64_t threads) {
      const Share own = share_of(l, weights.u, thread, threads);
      const std::int64_t first = part / (chunk + 1) * chunk, last = std::min(l.t, first + chunk);
      const std::int64_t first_time = std::min(l.time(first), l.time(last - 1));
      if (part % (chunk + 1) == 0) {
        const PhaseScope phase(l.phases, 0);
        PanelProduct product{.a = l.at(l.inputs, first_time * l.n * l.in),
                             .row_step = l.in,
                             .b = packed + weights.w_at,
                             .c = of_x,
                             .c_step = l.sums(),
                             .part_step = l.h};
        // Own units' panels are a multiple of these.
        const std::int64_t ratio = weights.u.panel_columns / weights.w.panel_columns;
        const Range panels{own.panels.begin * ratio,
                           std::min(weights.w.panels(), own.panels.end * ratio)};
        if (own.rows.size() == l.n) {
          set_after(product, packed + weights.u_at, weights.u, own.panels);
          multiply_panels(weights.w, product, {0, (last - first) * l.n}, panels);
        } else {
          for (std::int64_t row = 0; row < (last - first) * l.n; row += l.n)
            multiply_panels(weights.w, product, {row + own.rows.begin, row + own.rows.end}, panels);
        }
        return;
      }
      const PhaseScope phase(l.phases, l.recompute ? 0 : 1);
      const std::int64_t i = first + part % (chunk + 1) - 1, t = l.time(i);
      void* const hidden = l.recompute ? nullptr : l.hidden_at(t);
      multiply_step(weights.u,
                    {.a = l.before(i),
                     .row_step = l.before_step(i),
                     .b = packed + weights.u_at,
                     .c = of_h,
                     .c_step = l.sums(),
                     .part_step = l.h},
                    own, {hidden, l.hidden_step});
      CellForward cells = forward_cells(l, i, l.at(of_x, (t - first_time) * l.n * l.sums()), of_h);
      cells.b_ih = packed + weights.biases_at;
      cells.b_hh = packed + weights.biases_at + l.bytes(l.sums());
      run_cells(cells, own.rows, weights.u.columns_of(own.panels));
    });
  }

  void backward_data(const LayerBackward& l) const override {
    const Weights weights = backward_weights(l);
    const bool gru = l.cell == RecurrentCell::gru;
    void* const recurrent = gru ? l.recurrent_dgates : l.dgates;
    // T + 1 parts of the steps, and perhaps one of the inputs' gradient.
    const std::int64_t parts = l.t + (l.dinputs == nullptr ? 1 : 2);
    run_parts(parts, [&](std::int64_t part, std::int64_t thread, std::int64_t threads) {
      if (part == l.t + 1) {
        const PhaseScope phase(l.phases, 1);
        multiply_share(weights.w,
                       {.a = l.dgates,
                        .row_step = l.sums(),
                        .b = l.weights_at + weights.w_at,
                        .c = l.dinputs,
                        .c_step = l.in,
                        .add = l.add_inputs},
                       l.rows(), thread, threads);
        return;
      }
      const PhaseScope phase(l.phases, 0);
      const Share own = share_of(l, weights.u, thread, threads);
      const std::int64_t i = l.t - 1 - part;
      if (part > 0)
        multiply_step(
            weights.u,
            {.a = l.at(recurrent, l.time(i + 1) * l.n * l.sums()),
             .row_step = l.sums(),
             .b = l.weights_at + weights.u_at,
             .c = l.dh,
             .c_step = l.h,
             .add = gru},
            own,
            i >= 0 ? Written{l.at(l.dgates, l.time(i) * l.n * l.sums()), l.sums(), l.gates, l.h}
                   : Written{});
      if (i >= 0) run_cells(backward_cells(l, i), own.rows, weights.u.columns_of(own.panels));
    });
  }

  // dW = dgates^T x, where rows of x are packed; U's likewise with h_{t-1}.
  void backward_filter(const LayerFilter& l) const override {
    const PhaseScope phase(l.phases, 0);
    const PanelShape w = filter_shape(l, l.in), u = filter_shape(l, l.h);
    std::byte *const inputs = l.scratch, *const before = inputs + filter_bytes(l, l.in),
                     *const copies = before + filter_bytes(l, l.h);
    // h_{t-1} is h0 at the first step, and else the hidden state of another time.
    const std::int64_t rows = l.rows();
    const Range first = l.reversed ? Range{rows - l.n, rows} : Range{0, l.n},
                others = l.reversed ? Range{0, rows - l.n} : Range{l.n, rows};
    const void* const hidden = l.reversed && l.t > 1 ? l.hidden_at(1) : l.hidden;
    run_parts(2, [&](std::int64_t part, std::int64_t thread, std::int64_t threads) {
      if (part == 0) {
        pack_panels(w, {l.inputs, l.in, 1, 0}, share(w.panels(), thread, threads), {0, rows},
                    inputs);
        const Range own = share(u.panels(), thread, threads);
        pack_panels(u, {l.h0, l.h, 1, 0}, own, first, before);
        pack_panels(u, {hidden, l.hidden_step, 1, 0}, own, others, before);
        return;
      }
      const auto multiply = [&](const PanelShape& shape, const void* dgates, const void* packed,
                                void* c) {
        multiply_share(shape,
                       {.a = dgates,
                        .row_step = 1,
                        .depth_step = l.sums(),
                        .b = packed,
                        .c = c,
                        .c_step = shape.columns,
                        .copied_a = copies + thread * copied_a_bytes(shape)},
                       l.sums(), thread, threads);
      };
      multiply(w, l.dgates, inputs, l.dweights);
      multiply(u, l.recurrent_dgates, before, l.at(l.dweights, l.w_hh()));
      const Range own = share(l.sums(), thread, threads);
      std::byte *const b_ih = l.at(l.dweights, l.b_ih()), *const b_hh = l.at(l.dweights, l.b_hh());
      sum_rows(l.dtype, l.dgates, rows, l.sums(), own, b_ih);
      if (l.cell == RecurrentCell::gru)
        sum_rows(l.dtype, l.recurrent_dgates, rows, l.sums(), own, b_hh);
      else
        std::memcpy(l.at(b_hh, own.begin), l.at(b_ih, own.begin), std::size_t(l.bytes(own.size())));
    });
  }

 private:
  // part(index, thread, threads) for each index, which all threads have finished before the next.
  template <class Part>
  void run_parts(std::int64_t parts, const Part& part) const {
    if (resident_) {
      SpinBarrier barrier;
#pragma omp parallel num_threads(threads_)
      {
        const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        for (std::int64_t i = 0; i < parts; ++i) {
          part(i, thread, threads);
          barrier.wait(threads);
        }
      }
    } else {
      for (std::int64_t i = 0; i < parts; ++i) {
#pragma omp parallel num_threads(threads_)
        part(i, omp_get_thread_num(), omp_get_num_threads());
      }
    }
  }

  // A thread's part of each step: rows of the batch, and panels of U for some units of all gates.
  struct Share {
    Range rows, panels;
  };
  Share share_of(const LayerSizes& l, const PanelShape& u, std::int64_t thread,
                 std::int64_t threads) const {
    const std::int64_t groups = row_groups(l, threads), members = threads / groups;
    return {share(l.n, thread / members, groups), share(u.panels(), thread % members, members)};
  }
  // Groups of threads, each with rows of its own. Rows do not depend on each other, so that no h_t
  // moves between groups; but a core reads more of U, which has to stay in its L2.
  std::int64_t row_groups(const LayerSizes& l, std::int64_t threads) const {
    constexpr std::int64_t least_rows = 8;
    const std::int64_t u = l.bytes(l.sums() * l.h);
    for (std::int64_t groups = threads; groups > 1; --groups)
      if (threads % groups == 0 && l.n >= least_rows * groups &&
          u * groups / threads <= l2_bytes_ / 2)
        return groups;
    return 1;
  }

  // U follows on a product of inputs. Several gates have their panels in several places.
  static void set_after(PanelProduct& product, const std::byte* packed_u, const PanelShape& u,
                        Range panels) {
    if (u.parts > 1) return;
    const std::int64_t panel_bytes = u.depth * u.panel_columns * size_of(u.dtype);
    product.after = packed_u + panels.begin * panel_bytes;
    product.after_bytes = panels.size() * panel_bytes;
  }

  // What the cells of a step write, in parts like C.
  struct Written {
    void* data = nullptr;
    std::int64_t row_step = 0, parts = 1, part_step = 0;
  };

  // The products of a thread's part of a step.
  //
  // Other threads have just written most of A, and each of its lines takes as long as a barrier. So
  // a thread begins with the half of depth that has its own units, and prefetches the other half
  // meanwhile. Two chunks may be summed in either order. What the cells write is prefetched too:
  // other cores may have its lines, and the next barrier would wait for them.
  static void multiply_step(const PanelShape& u, PanelProduct product, const Share& own,
                            const Written& written) {
    Range chunks{0, u.chunks()};
    const bool halves = chunks.size() == 2 && !product.add;
    const std::int64_t mine = 2 * own.panels.begin * u.panel_columns < u.depth ? 0 : 1;
    const auto prefetch = [&](Range depths, auto* line) {
      for_each_line(product.a, product.row_step, own.rows, depths, u.dtype, line);
    };
    if (halves)
      chunks = {mine, mine + 1};
    else
      prefetch({0, u.depth}, prefetch_into_l2);
    for (std::int64_t panel = own.panels.begin; panel < own.panels.end; ++panel) {
      if (halves) {
        const Range others = u.depths_of(1 - mine),
                    some = share(others.size(), panel - own.panels.begin, own.panels.size());
        prefetch({others.begin + some.begin, others.begin + some.end}, prefetch_into_l1);
      }
      const Range units = u.columns_of({panel, panel + 1});
      for (std::int64_t part = 0; part < written.parts; ++part) {
        const std::int64_t at = part * written.part_step;
        for_each_line(written.data, written.row_step, own.rows, {at + units.begin, at + units.end},
                      u.dtype, prefetch_for_writing);
      }
      multiply_panels(u, product, own.rows, {panel, panel + 1}, chunks);
    }
    if (!halves) return;
    product.add = true;
    multiply_panels(u, product, own.rows, own.panels, {1 - mine, 2 - mine});
  }

  // f(line) for the lines of these elements of rows.
  template <class F>
  static void for_each_line(const void* data, std::int64_t row_step, Range rows, Range elements,
                            DType dtype, const F& f) {
    constexpr std::int64_t line = 64;
    if (data == nullptr) return;
    const std::int64_t size = size_of(dtype);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const auto* const from = static_cast<const std::byte*>(data) + row * row_step * size;
      for (std::int64_t at = elements.begin * size; at < elements.end * size; at += line)
        f(from + at);
    }
  }
  static void prefetch_into_l1(const std::byte* line) { __builtin_prefetch(line, 0, 3); }
  static void prefetch_into_l2(const std::byte* line) { __builtin_prefetch(line, 0, 2); }
  static void prefetch_for_writing(const std::byte* line) {
#if defined(__x86_64__)
    // __builtin_prefetch would read it, unless all x86 processors had this instruction.
    asm volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
  }

  static std::int64_t sums_bytes(const LayerSizes& l, std::int64_t rows) {
    return round_up(l.bytes(rows * l.sums()), 64);
  }
  // Steps whose inputs are multiplied at a time.
  static std::int64_t chunk_of(const LayerSizes& l) {
    return std::clamp<std::int64_t>(ceil_div(input_rows, l.n), 1, l.t);
  }

  Weights place(const PanelShape& w, const PanelShape& u, std::int64_t biases) const {
    Weights weights{w, u};
    weights.u_at = round_up(w.bytes(), 64);
    weights.biases_at = weights.u_at + round_up(u.bytes(), 64);
    weights.bytes = round_up(weights.biases_at + biases, 64);
    return weights;
  }
  Weights forward_weights(const LayerSizes& l) const {
    const PanelShape u = step_shape(l, l.h, l.gates);
    return place(panel_shape(l.dtype, chunk_of(l) * l.n, l.in, l.h, l.gates, threads_, u.vectors),
                 u, 2 * l.bytes(l.sums()));
  }
  Weights backward_weights(const LayerSizes& l) const {
    return place(panel_shape(l.dtype, l.rows(), l.sums(), l.in, 1, threads_),
                 step_shape(l, l.sums(), 1), 0);
  }
  // Where backward_data has the weights for computing saved values again.
  std::int64_t forward_at(const LayerSizes& l) const {
    return pass_ == Pass::backward_data ? backward_weights(l).bytes : 0;
  }
  PanelShape step_shape(const LayerSizes& l, std::int64_t depth, std::int64_t parts) const {
    const std::int64_t groups = row_groups(l, threads_);
    PanelShape shape = panel_shape(l.dtype, l.n / groups, depth, l.h, parts, threads_ / groups);
    if (l.n < rows_in_halves) shape.least_chunks = 2;
    return shape;
  }
  PanelShape filter_shape(const LayerSizes& l, std::int64_t columns) const {
    return panel_shape(l.dtype, l.sums(), l.rows(), columns, 1, threads_);
  }

  std::int64_t filter_bytes(const LayerSizes& l, std::int64_t columns) const {
    return round_up(filter_shape(l, columns).bytes(), 64);
  }

  void pack(const PanelShape& shape, const PanelSource& source, void* to) const {
#pragma omp parallel num_threads(threads_)
    pack_panels(shape, source, share(shape.panels(), omp_get_thread_num(), omp_get_num_threads()),
                {0, shape.depth}, to);
  }

  Pass pass_;
  bool recompute_;
  std::int64_t l2_bytes_;
  int threads_;
  bool resident_;
};

}  // namespace

std::unique_ptr<LayerStrategy> make_panel_strategy(const RecurrentProblem& p,
                                                   const DeviceInfo& device, bool resident) {
  return std::make_unique<PanelStrategy>(p, device, resident);
}

}  // namespace convlab::cpu
