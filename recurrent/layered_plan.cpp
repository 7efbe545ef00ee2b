// Goes through layers and directions: what each reads and writes, states, and gradients between
// layers.
#include <algorithm>
#include <vector>

#include "recurrent/layer.h"

namespace convlab {
namespace {

// Places in a buffer, one after the other, each on a line of its own.
class Places {
 public:
  std::int64_t add(std::int64_t bytes) {
    const std::int64_t at = bytes_;
    bytes_ += round_up(bytes, 64);
    return at;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

class LayeredPlan : public RecurrentPlan {
 public:
  LayeredPlan(const RecurrentProblem& p, std::unique_ptr<LayerStrategy> strategy)
      : p_(p), strategy_(std::move(strategy)) {
    std::int64_t scratch = 0;
    Places packed;
    for (std::int64_t layer = 0; layer < p.layers; ++layer)
      for (std::int64_t direction = 0; direction < p.directions(); ++direction) {
        const LayerSizes sizes(p, layer, direction);
        scratch = std::max(scratch, strategy_->scratch_bytes(sizes));
        packed_at_.push_back(packed.add(strategy_->packed_bytes(sizes)));
      }
    packed_bytes_ = packed.bytes();
    const std::int64_t state = p.n * p.h * size_of(p.dtype);
    Places places;
    zeros_ = places.add(state);
    state_h_ = places.add(state);
    state_c_ = places.add(state);
    scratch_ = places.add(scratch);
    if (p.pass == Pass::backward_data && p.recompute)
      saved_ = places.add(p.saved_elements() * size_of(p.dtype));
    // Between layers: hidden states, or their gradients.
    const bool between = p.pass == Pass::backward_data || (p.pass == Pass::forward && !p.training);
    for (std::int64_t i = 0; i < 2; ++i)
      between_[i] = places.add(between && i + 1 < p.layers ? p.y_bytes() : 0);
    bytes_ = places.bytes();
  }

  std::size_t workspace_bytes() const noexcept override { return std::size_t(bytes_); }
  std::size_t packed_weights_bytes() const noexcept override { return std::size_t(packed_bytes_); }

  void pack_weights(ConstSpan weights, Span packed, Stream& stream) const override {
    for_each_layer(false, [&](std::int64_t layer, std::int64_t direction) {
      const LayerSizes sizes(p_, layer, direction);
      strategy_->pack(sizes, sizes.at(weights.data(), p_.weights_offset(layer, direction)),
                      packed.data() + packed_at_[index(layer, direction)], stream);
    });
  }

  void run(const RecurrentArgs& args, Workspace workspace, Stream& stream) const override {
    std::byte* const w = workspace.data();
    copy_state(w + zeros_, nullptr, stream);
    const bool from_last = p_.pass == Pass::backward_data;
    for_each_layer(from_last, [&](std::int64_t layer, std::int64_t direction) {
      switch (p_.pass) {
        case Pass::forward:
          return forward(args, w, stream, layer, direction);
        case Pass::backward_data:
          return backward_data(args, w, stream, layer, direction);
        case Pass::backward_filter:
          return backward_filter(args, w, stream, layer, direction);
      }
    });
  }

 private:
  template <class F>
  void for_each_layer(bool from_last, F f) const {
    for (std::int64_t i = 0; i < p_.layers; ++i)
      for (std::int64_t direction = 0; direction < p_.directions(); ++direction)
        f(from_last ? p_.layers - 1 - i : i, direction);
  }
  std::size_t index(std::int64_t layer, std::int64_t direction) const {
    return std::size_t(layer * p_.directions() + direction);
  }
  std::int64_t state_bytes() const { return p_.n * p_.h * size_of(p_.dtype); }
  void copy_state(void* to, const std::byte* from, Stream& stream) const {
    strategy_->copy_rows(static_cast<std::byte*>(to), 0, from, 0, state_bytes(), 1, stream);
  }

  // The part of h0 and the like that belongs to a layer and direction.
  template <class Byte>
  Byte* state_of(Byte* states, std::int64_t layer, std::int64_t direction) const {
    return states == nullptr ? nullptr
                             : states + std::int64_t(index(layer, direction)) * state_bytes();
  }
  const std::byte* state_or_zeros(const void* states, const std::byte* w, std::int64_t layer,
                                  std::int64_t direction) const {
    return states == nullptr ? w + zeros_
                             : state_of(static_cast<const std::byte*>(states), layer, direction);
  }
  // Where a state that a pass changes lies: in the caller's array, or in the workspace.
  std::byte* state_or(void* states, std::byte* otherwise, std::int64_t layer,
                      std::int64_t direction) const {
    return states == nullptr ? otherwise
                             : state_of(static_cast<std::byte*>(states), layer, direction);
  }

  // Hidden states of a layer. In inference those of inner layers take turns in the workspace.
  void* hidden_of(const RecurrentArgs& args, std::byte* w, std::int64_t layer) const {
    const LayerSizes sizes(p_, layer, 0);
    if (p_.pass == Pass::forward) {
      if (layer == p_.layers - 1) return args.out;
      return p_.training ? sizes.at(args.out_activations, p_.hidden_offset(layer))
                         : w + between_[layer % 2];
    }
    return const_cast<std::byte*>(layer == p_.layers - 1
                                      ? static_cast<const std::byte*>(args.y)
                                      : sizes.at(args.activations, p_.hidden_offset(layer)));
  }

  void set_common(LayerRun& run, const RecurrentArgs& args, std::byte* w, Stream& stream,
                  std::int64_t layer, std::int64_t direction) const {
    run.weights_at = packed_bytes_ > 0 ? static_cast<const std::byte*>(args.weights) +
                                             packed_at_[index(layer, direction)]
                                       : run.at(args.weights, p_.weights_offset(layer, direction));
    run.inputs = layer == 0 ? args.x : hidden_of(args, w, layer - 1);
    run.h0 = state_or_zeros(args.h0, w, layer, direction);
    run.hidden = run.at(hidden_of(args, w, layer), direction * p_.h);
    run.scratch = w + scratch_;
    run.phases = args.phases;
    run.stream = &stream;
  }

  void forward(const RecurrentArgs& args, std::byte* w, Stream& stream, std::int64_t layer,
               std::int64_t direction) const {
    LayerForward run(p_, layer, direction);
    set_common(run, args, w, stream, layer, direction);
    if (p_.training && !p_.recompute && p_.saved_values() > 0)
      run.saved = run.at(args.out_activations, p_.saved_offset(layer, direction));
    if (p_.has_cell_state()) {
      run.c = state_or(args.out_c, w + state_c_, layer, direction);
      copy_state(run.c, state_or_zeros(args.c0, w, layer, direction), stream);
    }
    strategy_->forward(run);
    if (args.out_h == nullptr) return;
    std::byte* const hn = state_of(static_cast<std::byte*>(args.out_h), layer, direction);
    const auto* const last = static_cast<const std::byte*>(run.hidden_at(run.time(p_.t - 1)));
    strategy_->copy_rows(hn, run.bytes(p_.h), last, run.bytes(run.hidden_step), run.bytes(p_.h),
                         p_.n, stream);
  }

  // Saved values of a layer and direction, computed again in the workspace.
  void* recompute(const RecurrentArgs& args, std::byte* w, Stream& stream, std::int64_t layer,
                  std::int64_t direction) const {
    LayerForward run(p_, layer, direction);
    set_common(run, args, w, stream, layer, direction);
    run.recompute = true;
    run.saved = w + saved_;
    if (p_.has_cell_state()) {
      run.c = w + state_c_;
      copy_state(run.c, state_or_zeros(args.c0, w, layer, direction), stream);
    }
    strategy_->forward(run);
    return run.saved;
  }

  void backward_data(const RecurrentArgs& args, std::byte* w, Stream& stream, std::int64_t layer,
                     std::int64_t direction) const {
    LayerBackward run(p_, layer, direction);
    set_common(run, args, w, stream, layer, direction);
    if (p_.saved_values() > 0)
      run.saved = p_.recompute ? recompute(args, w, stream, layer, direction)
                               : run.at(args.activations, p_.saved_offset(layer, direction));
    run.c0 = state_or_zeros(args.c0, w, layer, direction);
    run.dhidden = run.at(
        layer == p_.layers - 1 ? static_cast<const std::byte*>(args.dy) : w + between_[layer % 2],
        direction * p_.h);
    run.dh = state_or(args.out_h, w + state_h_, layer, direction);
    copy_state(run.dh, state_or_zeros(args.dhn, w, layer, direction), stream);
    if (p_.has_cell_state()) {
      run.dc = state_or(args.out_c, w + state_c_, layer, direction);
      copy_state(run.dc, state_or_zeros(args.dcn, w, layer, direction), stream);
    }
    run.dgates = run.at(args.out_dgates, p_.dgates_offset(layer, direction));
    run.recurrent_dgates = run.at(args.out_dgates, p_.recurrent_dgates_offset(layer, direction));
    run.dinputs = layer == 0 ? static_cast<std::byte*>(args.out) : w + between_[(layer - 1) % 2];
    run.add_inputs = direction > 0;
    strategy_->backward_data(run);
  }

  void backward_filter(const RecurrentArgs& args, std::byte* w, Stream& stream, std::int64_t layer,
                       std::int64_t direction) const {
    LayerFilter run(p_, layer, direction);
    set_common(run, args, w, stream, layer, direction);
    run.dgates = run.at(args.dgates, p_.dgates_offset(layer, direction));
    run.recurrent_dgates = run.at(args.dgates, p_.recurrent_dgates_offset(layer, direction));
    run.dweights = run.at(args.out, p_.weights_offset(layer, direction));
    strategy_->backward_filter(run);
  }

  RecurrentProblem p_;
  std::unique_ptr<LayerStrategy> strategy_;
  std::vector<std::int64_t> packed_at_;
  std::int64_t packed_bytes_ = 0, bytes_ = 0;
  std::int64_t zeros_ = 0, state_h_ = 0, state_c_ = 0, scratch_ = 0, saved_ = 0, between_[2] = {};
};

}  // namespace

CellForward forward_cells(const LayerForward& l, std::int64_t i, const void* of_x,
                          const void* of_h) {
  const std::int64_t t = l.time(i);
  return {.dtype = l.dtype,
          .cell = l.cell,
          .h = l.h,
          .of_x = of_x,
          .of_h = of_h,
          .b_ih = l.at(l.weights_at, l.b_ih()),
          .b_hh = l.at(l.weights_at, l.b_hh()),
          .before = l.before(i),
          .before_step = l.before_step(i),
          .hidden = l.recompute ? nullptr : l.hidden_at(t),
          .hidden_step = l.hidden_step,
          .c = l.c,
          .saved = l.at(l.saved, t * l.n * l.saved_values * l.h)};
}

CellBackward backward_cells(const LayerBackward& l, std::int64_t i) {
  const std::int64_t t = l.time(i), row = t * l.n;
  CellBackward cells{.dtype = l.dtype,
                     .cell = l.cell,
                     .h = l.h,
                     .dhidden = l.at(l.dhidden, row * l.hidden_step),
                     .dhidden_step = l.hidden_step,
                     .dh = l.dh,
                     .dc = l.dc,
                     .state = l.hidden_at(t),
                     .state_step = l.hidden_step,
                     .saved = l.at(l.saved, row * l.saved_values * l.h),
                     .dgates = l.at(l.dgates, row * l.sums()),
                     .recurrent_dgates = l.at(l.recurrent_dgates, row * l.sums())};
  if (l.cell == RecurrentCell::gru) {
    cells.state = l.before(i);
    cells.state_step = l.before_step(i);
  } else if (l.cell == RecurrentCell::lstm) {
    const std::int64_t values = l.saved_values * l.h;
    cells.state = i > 0 ? l.at(l.saved, l.time(i - 1) * l.n * values + 4 * l.h) : l.c0;
    cells.state_step = i > 0 ? values : l.h;
  }
  return cells;
}

std::unique_ptr<RecurrentPlan> make_layered_plan(const RecurrentProblem& p,
                                                 std::unique_ptr<LayerStrategy> strategy) {
  return std::make_unique<LayeredPlan>(p, std::move(strategy));
}

}  // namespace convlab
