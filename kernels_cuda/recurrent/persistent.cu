// Persistent weights (Diamos et al. 2016): one launch for all steps of a layer and direction, in
// which each block keeps its hidden units' part of U in registers and shared memory. A step costs
// one product of these with the state, which comes from L2, and one barrier of all blocks.
//
// Forward, a block of so many units owns their rows of U, gate by gate, and multiplies them by
// h_{t-1}. Backward, it owns their columns and multiplies them by the step's dgates, which all
// blocks have written; dh of its units needs no other block. Either way it owns `rows` vectors of
// `depth` elements. A warp has four of the vectors and one of `parts` of the depth: lane l has the
// elements l, l + 32, ... of the part, the first chunks of 32 in registers and the others in shared
// memory. Lanes are added up by shuffles, parts in shared memory, in a fixed order.
#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "kernels_cuda/recurrent/algos.h"
#include "kernels_cuda/recurrent/strategies.h"
#include "kernels_cuda/recurrent/unit_kernels.h"
#include "kernels_cuda/together.h"

namespace convlab::cuda {
namespace {

constexpr int warp_rows = 4, most_warps = most_together / 32;
// Chunks of each row in registers: 64 of a thread in f32, 40 in f64, whose sums take twice as many.
constexpr int chunks_in_registers(int element_bytes) { return element_bytes == 4 ? 16 : 5; }

// How a block keeps its part of U.
struct Residence {
  int units, rows, depth;
  int row_groups, parts;  // warps: one for each of both
  int chunks;             // of 32 elements of the depth in a part
  int in_registers;       // chunks
  int blocks, batch;      // rows of the batch that are multiplied at a time

  Residence(const LayerSizes& l, bool forward, int units_of_block)
      : units(units_of_block),
        rows(int(forward ? l.gates : 1) * units),
        depth(int(forward ? l.h : l.sums())),
        row_groups(int(ceil_div(rows, warp_rows))),
        parts(int(std::min<std::int64_t>(most_warps / row_groups, ceil_div(depth, 32)))),
        chunks(int(ceil_div(ceil_div(depth, 32), parts))),
        in_registers(chunks_in_registers(int(size_of(l.dtype)))),
        blocks(int(ceil_div(l.h, units))),
        batch(l.n == 1 ? 1 : 4) {}

  int threads() const { return 32 * row_groups * parts; }
  __host__ __device__ int shared_chunks() const {
    return chunks > in_registers ? chunks - in_registers : 0;
  }
  // In shared memory: the other chunks, then the sums of each part.
  __host__ __device__ int weights_elements() const {
    return row_groups * parts * shared_chunks() * warp_rows * 32;
  }
  std::int64_t shared_bytes(DType dtype) const {
    const std::int64_t sums = std::int64_t(parts) * row_groups * warp_rows * batch;
    return (weights_elements() + sums) * size_of(dtype);
  }
};

// ---- The product ----

template <class T, int batch>
class ResidentRows {
 public:
  // element(row, k) of the block's rows.
  template <class Element>
  __device__ ResidentRows(const Residence& r, T* shared, const Element& element)
      : r_(r),
        lane_(int(threadIdx.x) % 32),
        group_(int(threadIdx.x) / 32 % r.row_groups),
        part_(int(threadIdx.x) / 32 / r.row_groups),
        others_(shared + std::int64_t(threadIdx.x) / 32 * r.shared_chunks() * warp_rows * 32 +
                lane_),
        sums_(shared + r.weights_elements()) {
    const auto load = [&](int chunk, int row) {
      const int k = (part_ * r.chunks + chunk) * 32 + lane_;
      const int of_block = group_ * warp_rows + row;
      return chunk < r.chunks && k < r.depth && of_block < r.rows ? element(of_block, k) : T(0);
    };
#pragma unroll
    for (int chunk = 0; chunk < resident; ++chunk)
#pragma unroll
      for (int row = 0; row < warp_rows; ++row) own_[chunk][row] = load(chunk, row);
    for (int chunk = 0; chunk < r.shared_chunks(); ++chunk)
#pragma unroll
      for (int row = 0; row < warp_rows; ++row)
        others_[(chunk * warp_rows + row) * 32] = load(resident + chunk, row);
  }

  // The products with `batch` vectors, `step` elements apart, of which there are `count` more.
  // All threads call it; a barrier later sum() knows them.
  __device__ void multiply(const T* vectors, std::int64_t step, std::int64_t count) const {
    T sums[warp_rows][batch] = {};
    const int first = part_ * r_.chunks * 32 + lane_;
    const auto add = [&](int chunk, const T(&row)[warp_rows]) {
      const int k = first + chunk * 32;
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const T v = k < r_.depth && b < count ? vectors[b * step + k] : T(0);
#pragma unroll
        for (int i = 0; i < warp_rows; ++i) sums[i][b] += row[i] * v;
      }
    };
#pragma unroll
    for (int chunk = 0; chunk < resident; ++chunk)
      if (chunk < r_.chunks) add(chunk, own_[chunk]);
    for (int chunk = 0; chunk < r_.shared_chunks(); ++chunk) {
      T row[warp_rows];
#pragma unroll
      for (int i = 0; i < warp_rows; ++i)
        row[i] = load_shared<T>(others_ + (chunk * warp_rows + i) * 32);
      add(resident + chunk, row);
    }
#pragma unroll
    for (int i = 0; i < warp_rows; ++i)
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const T sum = warp_sum(sums[i][b]);
        if (lane_ == i * batch + b)
          sums_[((part_ * r_.row_groups + group_) * warp_rows + i) * batch + b] = sum;
      }
  }
  __device__ T sum(int row, int b) const {
    T all = T(0);
    for (int part = 0; part < r_.parts; ++part)
      all += sums_[(part * r_.row_groups * warp_rows + row) * batch + b];
    return all;
  }

 private:
  static constexpr int resident = chunks_in_registers(int(sizeof(T)));
  const Residence& r_;
  const int lane_, group_, part_;
  T own_[resident][warp_rows];
  T* const others_;
  T* const sums_;
};

// ---- The steps ----

// A step's place in arrays of all times.
struct Times {
  std::int64_t t, n;
  bool reversed;

  __device__ std::int64_t of(std::int64_t i) const { return reversed ? t - 1 - i : i; }
};

// Rows known after each step, and those before the first.
template <class T>
struct States {
  const T* at_time_0;
  std::int64_t per_time, step;
  const T* first;
  std::int64_t first_step;
};

template <class T>
struct ForwardSteps {
  ForwardUnits<T> units;  // of time 0
  Times times;
  States<T> hidden;
  const T* u;
  unsigned* arrived;
};

template <class T, int batch>
__global__ void __launch_bounds__(most_together)
    run_forward(const ForwardSteps<T> s, const Residence r) {
  SHARED_DYN(T, shared);
  const int gates = s.units.gates;
  const std::int64_t h = s.units.h, n = s.times.n;
  const std::int64_t unit0 = std::int64_t(blockIdx.x) * r.units;
  const ResidentRows<T, batch> rows(r, shared, [&](int row, int k) {
    const std::int64_t unit = unit0 + row % r.units;
    return unit < h ? s.u[(row / r.units * h + unit) * h + k] : T(0);
  });
  const int unit = int(threadIdx.x) % r.units, of_batch = int(threadIdx.x) / r.units;
  const int at_once = int(blockDim.x) / r.units;
#pragma unroll 1
  for (std::int64_t i = 0; i < s.times.t; ++i) {
    const std::int64_t time = s.times.of(i);
    ForwardUnits<T> step = s.units;
    step.of_x += time * n * gates * h;
    step.before =
        i > 0 ? s.hidden.at_time_0 + s.times.of(i - 1) * s.hidden.per_time : s.hidden.first;
    step.before_step = i > 0 ? s.hidden.step : s.hidden.first_step;
    if (step.hidden != nullptr) step.hidden += time * s.hidden.per_time;
    if (step.saved != nullptr) step.saved += time * n * step.saved_values * h;
#pragma unroll 1
    for (std::int64_t row = 0; row < n; row += batch) {
      rows.multiply(step.before + row * step.before_step, step.before_step, n - row);
      __syncthreads();
      for (int b = of_batch; b < batch && row + b < n && unit0 + unit < h; b += at_once) {
        T products[4];
#pragma unroll
        for (int g = 0; g < 4; ++g)
          products[g] = g < gates ? rows.sum(g * r.units + unit, b) : T(0);
        step.run(row + b, unit0 + unit, products);
      }
      __syncthreads();
    }
    if (i + 1 < s.times.t) wait_for_grid(s.arrived, unsigned(i + 1));
  }
}

template <class T>
struct BackwardSteps {
  BackwardUnits<T> units;  // of time 0
  Times times;
  std::int64_t dhidden_per_time;
  States<T> states;
  bool states_before;  // those of the step before, not the step's own
  const T* u;
  unsigned* arrived;
};

template <class T, int batch>
__global__ void __launch_bounds__(most_together)
    run_backward(const BackwardSteps<T> s, const Residence r) {
  SHARED_DYN(T, shared);
  const std::int64_t h = s.units.h, n = s.times.n, sums = s.units.gates * h;
  const std::int64_t unit0 = std::int64_t(blockIdx.x) * r.units;
  const ResidentRows<T, batch> rows(
      r, shared, [&](int row, int k) { return unit0 + row < h ? s.u[k * h + unit0 + row] : T(0); });
  const int unit = int(threadIdx.x) % r.units, of_batch = int(threadIdx.x) / r.units;
  const int at_once = int(blockDim.x) / r.units;
  const bool gru = s.units.cell == RecurrentCell::gru;
#pragma unroll 1
  for (std::int64_t i = s.times.t - 1; i >= 0; --i) {
    const std::int64_t time = s.times.of(i);
    BackwardUnits<T> step = s.units;
    step.dhidden += time * s.dhidden_per_time;
    if (step.saved != nullptr) step.saved += time * n * step.saved_values * h;
    step.dgates += time * n * sums;
    step.recurrent_dgates += time * n * sums;
    const std::int64_t of_state = s.states_before ? i - 1 : i;
    step.state = of_state >= 0 ? s.states.at_time_0 + s.times.of(of_state) * s.states.per_time
                               : s.states.first;
    step.state_step = of_state >= 0 ? s.states.step : s.states.first_step;
    if (unit0 + unit < h)
      for (std::int64_t row = of_batch; row < n; row += at_once) step.run(row, unit0 + unit);
    wait_for_grid(s.arrived, unsigned(s.times.t - i));
#pragma unroll 1
    for (std::int64_t row = 0; row < n; row += batch) {
      rows.multiply(step.recurrent_dgates + row * sums, sums, n - row);
      __syncthreads();
      for (int b = of_batch; b < batch && row + b < n && unit0 + unit < h; b += at_once) {
        T* const dh = step.dh + (row + b) * h + unit0 + unit;
        *dh = rows.sum(unit, b) + (gru ? *dh : T(0));
      }
      __syncthreads();
    }
  }
}

// ---- The plan ----

class PersistentStrategy : public GemmStrategy {
 public:
  PersistentStrategy(const RecurrentProblem& p, Product product, int units)
      : GemmStrategy(p, product, WeightsForm::as_given, true), units_(units) {}

  std::int64_t scratch_bytes(const LayerSizes& l) const override {
    return GemmStrategy::scratch_bytes(l) + counter_bytes;
  }

 private:
  static constexpr std::int64_t counter_bytes = 64;

  unsigned* cleared_counter(const LayerRun& l) const {
    std::byte* const counter = l.scratch + GemmStrategy::scratch_bytes(l);
    copy_rows(counter, 0, nullptr, 0, counter_bytes, 1, *l.stream);
    return reinterpret_cast<unsigned*>(counter);
  }
  static Times times_of(const LayerSizes& l) { return {l.t, l.n, l.reversed}; }
  // The step of time 0.
  static std::int64_t first_in_memory(const LayerSizes& l) { return l.reversed ? l.t - 1 : 0; }
  template <class T>
  static States<T> hidden_states(const LayerRun& l) {
    return {static_cast<const T*>(l.hidden), l.n * l.hidden_step, l.hidden_step,
            static_cast<const T*>(l.h0), l.h};
  }

  void forward_steps(const LayerForward& l, const void* of_x, void*) const override {
    const Residence r(l, true, units_);
    with_type(l.dtype, [&](auto zero) {
      using T = decltype(zero);
      const ForwardSteps<T> steps{
          ForwardUnits<T>(forward_cells(l, first_in_memory(l), of_x, nullptr)), times_of(l),
          hidden_states<T>(l), reinterpret_cast<const T*>(l.at(l.weights_at, l.w_hh())),
          cleared_counter(l)};
      launch_together(r.batch == 1 ? run_forward<T, 1> : run_forward<T, 4>, unsigned(r.blocks),
                      unsigned(r.threads()), std::size_t(r.shared_bytes(l.dtype)), *l.stream, steps,
                      r);
    });
  }

  void backward_steps(const LayerBackward& l) const override {
    const Residence r(l, false, units_);
    with_type(l.dtype, [&](auto zero) {
      using T = decltype(zero);
      States<T> states = hidden_states<T>(l);
      if (l.cell == RecurrentCell::lstm) {
        const std::int64_t values = l.saved_values * l.h;
        states = {static_cast<const T*>(l.saved) + 4 * l.h, l.n * values, values,
                  static_cast<const T*>(l.c0), l.h};
      }
      const BackwardSteps<T> steps{BackwardUnits<T>(backward_cells(l, first_in_memory(l))),
                                   times_of(l),
                                   l.n * l.hidden_step,
                                   states,
                                   l.saved_values > 0,
                                   reinterpret_cast<const T*>(l.at(l.weights_at, l.w_hh())),
                                   cleared_counter(l)};
      launch_together(r.batch == 1 ? run_backward<T, 1> : run_backward<T, 4>, unsigned(r.blocks),
                      unsigned(r.threads()), std::size_t(r.shared_bytes(l.dtype)), *l.stream, steps,
                      r);
    });
  }

  int units_;
};

// Units of a block: powers of two whose rows fit its warps.
std::vector<int> possible_units(const RecurrentProblem& p) {
  std::vector<int> possible;
  for (int units = warp_rows; p.gates() * units <= most_warps * warp_rows; units *= 2)
    possible.push_back(units);
  return possible;
}

// Why a card does not hold all blocks of so many units at once.
std::optional<Refusal> refuse_units(const RecurrentProblem& p, int units, const DeviceInfo& card) {
  const LayerSizes sizes(p, 0, 0);
  std::vector<Residence> kernels{Residence(sizes, p.pass == Pass::forward, units)};
  if (p.pass == Pass::backward_data && p.recompute && p.saved_values() > 0)
    kernels.emplace_back(sizes, true, units);
  for (const Residence& r : kernels) {
    const std::int64_t shared = r.shared_bytes(p.dtype);
    const std::int64_t resident = resident_blocks(r.threads(), shared, card);
    if (r.blocks > resident)
      return Refusal{
          Field::device,
          fmt::format("{} blocks resident at once, with {} threads and {} bytes of shared "
                      "memory each",
                      r.blocks, r.threads(), shared),
          fmt::format("room for {}", resident)};
  }
  return {};
}

class Persistent : public RecurrentAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{
        .id = "persistent",
        .version = 1,
        .device = DeviceKind::cuda,
        .summary = "recurrent weights stay in registers and shared memory, one barrier a step",
        .libraries = {"cublas"}};
    return info;
  }

  std::optional<Refusal> refuse(const RecurrentProblem& p, Device& device) const override {
    if (auto refusal = refuse_sizes(p)) return refusal;
    if (p.pass == Pass::backward_filter)
      return Refusal{Field::pass, "fwd or bwd_d",
                     "bwd_w, which does not read the recurrent weights: use batched_input"};
    const std::vector<int> possible = possible_units(p);
    if (!fitting_units(p, device.info()).empty()) return {};
    return refuse_units(p, possible.back(), device.info());  // which needs the fewest blocks
  }
  // Small blocks first: more of the card works.
  std::vector<Config> configs(const RecurrentProblem& p, Device& device) const override {
    std::vector<Config> configs;
    for (const int units : fitting_units(p, device.info()))
      for (Config config : product_configs()) {
        config.set("units", units);
        configs.push_back(config);
      }
    return configs;
  }
  bool deterministic(const RecurrentProblem&, const Config&) const override { return true; }
  WorkEstimate work(const RecurrentProblem& p, const Config&, Device& device) const override {
    return recurrent_work(p, device.info(), WeightsForm::as_given, true, true);
  }
  std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem& p, const Config& config,
                                      Device& device) const override {
    config.require_only({"product", "units"});
    const std::int64_t units = config.get("units");
    const std::vector<int> possible = possible_units(p);
    if (std::ranges::find(possible, units) == possible.end())
      throw InputError(fmt::format("persistent: units={}: expected one of {}", units,
                                   fmt::join(possible, ", ")));
    if (const auto refusal = refuse_units(p, int(units), device.info()))
      throw InputError(fmt::format("persistent: units={} {}", units, refusal->reason()));
    return make_layered_plan(
        p, std::make_unique<PersistentStrategy>(p, product_of(config), int(units)));
  }

 private:
  static std::vector<int> fitting_units(const RecurrentProblem& p, const DeviceInfo& card) {
    std::vector<int> fitting = possible_units(p);
    std::erase_if(fitting, [&](int units) { return refuse_units(p, units, card).has_value(); });
    return fitting;
  }
};

}  // namespace

std::unique_ptr<RecurrentAlgo> make_recurrent_persistent() {
  return std::make_unique<Persistent>();
}

}  // namespace convlab::cuda
