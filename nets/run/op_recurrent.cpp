// Recurrent layers through the plan's algorithms.
//
// Algorithms read and write sequences as [T][N][C], which the graph has as N C T W. A transposition
// of the matrix N*C x T*W makes it [T][W][N*C], which is [T][N][C] if W is 1; else a second one, of
// W x N*C in each step, makes it [T][N][C*W]. Gradients go the same way back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "conv/error.h"
#include "nets/run/arena.h"
#include "nets/run/op.h"

namespace convlab::nets {
namespace {

// Parts of one buffer, each at a multiple of 64 bytes.
class Parts {
 public:
  std::size_t add(std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += padded(bytes);
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

class RecurrentOp : public Op {
 public:
  explicit RecurrentOp(OpContext context)
      : Op(std::move(context)), problem_(problem_of(context_)), parameters_(add_parameters()) {
    if (context_.algos.recurrent == nullptr)
      throw InputError(
          "is recurrent, but no algorithms for such layers were given (nets::NetAlgos)");
    require_one_format();
    for (const Pass pass : all_passes)
      if (pass == Pass::forward || training()) plans_[std::size_t(pass)] = make(pass);
    place();
  }

  void forward(std::uint64_t, Stream& stream) override {
    std::byte* const memory = training() ? at_.saved : at_.forward_scratch;
    to_steps(at_.x[0], memory + x_at_, at_.forward_scratch + turned_at_, stream);
    RecurrentArgs args;
    args.x = memory + x_at_;
    args.weights = weights(Pass::forward, at_.forward_workspace, stream);
    args.out = memory + y_at_;
    args.out_activations = training() ? at_.saved + activations_at_ : nullptr;
    plan(Pass::forward).run(args, own_part(Pass::forward, at_.forward_workspace), stream);
    if (every_step())
      transpose(1, problem_.t, row_elements(), memory + y_at_, at_.y, stream);
    else
      for_last_steps([&](const ChannelCopy& units, std::int64_t step) {
        ops().copy_channels(context_.dtype, units, memory + y_at_ + step, at_.y, stream);
      });
  }

  void backward_data(std::uint64_t, Stream& stream) override {
    std::byte* const scratch = at_.backward_scratch;
    std::byte* const dy = scratch + dy_at_;
    if (every_step()) {
      transpose(1, row_elements(), problem_.t, at_.dy, dy, stream);
    } else {
      ops().zero({dy, std::size_t(problem_.y_bytes())}, stream);
      for_last_steps([&](const ChannelCopy& units, std::int64_t step) {
        ops().copy_channels(context_.dtype, units, at_.dy, dy + step, stream);
      });
    }
    RecurrentArgs args;
    args.x = at_.saved + x_at_;
    args.weights = weights(Pass::backward_data, at_.backward_workspace, stream);
    args.y = at_.saved + y_at_;
    args.activations = at_.saved + activations_at_;
    args.dy = dy;
    args.out = wants_dx() ? scratch + dx_at_ : nullptr;
    args.out_dgates = scratch + dgates_at_;
    plan(Pass::backward_data)
        .run(args, own_part(Pass::backward_data, at_.backward_workspace), stream);
    if (wants_dx()) from_steps(scratch + dx_at_, at_.dx[0], scratch + turned_back_at_, stream);
  }

  void backward_filter(Stream& stream) override {
    RecurrentArgs args;
    args.x = at_.saved + x_at_;
    args.y = at_.saved + y_at_;
    args.activations = at_.saved + activations_at_;
    args.dgates = at_.backward_scratch + dgates_at_;
    args.out = parameter(parameters_).gradient;
    plan(Pass::backward_filter).run(args, at_.backward_workspace, stream);
  }

  void parameters_changed(Stream& stream) override {
    if (needs_.constants > 0)
      plan(Pass::forward).pack_weights(given_weights(), {at_.constants, needs_.constants}, stream);
  }

 private:
  static RecurrentProblem problem_of(const OpContext& context) {
    RecurrentProblem p = context.graph.recurrent_problem(context.graph.nodes()[context.step.node]);
    p.dtype = context.dtype;
    return p;
  }

  // Under PyTorch's names. All are one array, as algorithms take it. Returns the first one's index.
  std::size_t add_parameters() {
    const std::string& name = context_.graph.nodes()[context_.step.node].name;
    const Initial initial{Initial::Kind::recurrent, problem_.h, problem_.h};
    const std::int64_t sums = problem_.gates() * problem_.h;
    const std::size_t first = context_.parameters.list().size();
    for (std::int64_t layer = 0; layer < problem_.layers; ++layer)
      for (std::int64_t direction = 0; direction < problem_.directions(); ++direction) {
        const auto add = [&](const char* what, std::vector<std::int64_t> shape) {
          std::string key =
              fmt::format("{}.{}_l{}{}", name, what, layer, direction > 0 ? "_reverse" : "");
          if (context_.parameters.list().size() == first)
            context_.parameters.add(std::move(key), std::move(shape), initial);
          else
            context_.parameters.add_joined(std::move(key), std::move(shape), initial);
        };
        add("weight_ih", {sums, problem_.input_of(layer)});
        add("weight_hh", {sums, problem_.h});
        add("bias_ih", {sums});
        add("bias_hh", {sums});
      }
    return first;
  }

  // ---- Planning the passes ----

  RecurrentProblem in_pass(Pass pass) const {
    RecurrentProblem p = problem_;
    p.pass = pass;
    p.training = training() && pass == Pass::forward;
    return p;
  }

  const PassPlan& pass_plan(Pass pass) const {
    const auto& plan = context_.plan.passes[std::size_t(pass)];
    if (!plan) throw InputError(fmt::format("the plan has no algorithm for {}", to_string(pass)));
    if (plan->images != 0 && plan->images != problem_.n)
      throw InputError(fmt::format("the plan takes {} of {} images at a time in {}: expected all",
                                   plan->images, problem_.n, to_string(pass)));
    return *plan;
  }
  const RecurrentAlgo& algo(Pass pass) const {
    return context_.algos.recurrent->get(context_.device.info().kind, pass_plan(pass).algo);
  }

  std::unique_ptr<RecurrentPlan> make(Pass pass) const {
    const RecurrentProblem p = in_pass(pass);
    if (const auto refusal = algo(pass).refuse(p, context_.device))
      throw InputError(fmt::format("the plan has {} for {}, which refuses it: {}",
                                   algo(pass).info().id, to_string(pass), refusal->reason()));
    const Config& config = pass_plan(pass).config;
    const std::vector<Config> listed = algo(pass).configs(p, context_.device);
    if (std::find(listed.begin(), listed.end(), config) == listed.end()) {
      std::vector<std::string> texts;
      for (const Config& known : listed) texts.push_back(fmt::format("'{}'", known.text()));
      throw InputError(fmt::format("{} has no config '{}' for {} here: expected {}",
                                   algo(pass).info().id, config.text(), to_string(pass),
                                   fmt::join(texts, " or ")));
    }
    return algo(pass).plan(p, config, context_.device);
  }

  // Passes read what an algorithm with a format of its own wrote only if it is the same algorithm.
  void require_one_format() const {
    if (!training()) return;
    for (const Pass pass : all_passes)
      for (const Pass other : all_passes)
        if (&algo(pass) != &algo(other) && !algo(pass).refuse(in_pass(pass), context_.device) &&
            algo(pass).own_format(in_pass(pass), context_.device))
          throw InputError(fmt::format(
              "the plan has {} for {} and {} for {}: the former reads and writes a format of its "
              "own, and takes all passes or none",
              algo(pass).info().id, to_string(pass), algo(other).info().id, to_string(other)));
  }

  const RecurrentPlan& plan(Pass pass) const { return *plans_[std::size_t(pass)]; }

  // ---- Memory ----

  void place() {
    const auto x = std::size_t(problem_.x_bytes()), y = std::size_t(problem_.y_bytes());
    const std::size_t turned = two_transpositions() ? x : 0;
    Parts kept, scratch;
    Parts& sequences = training() ? kept : scratch;
    x_at_ = sequences.add(x);
    y_at_ = sequences.add(y);
    turned_at_ = scratch.add(turned);
    if (!training()) {
      needs_.constants = plan(Pass::forward).packed_weights_bytes();
      for (std::size_t i = parameters_;
           needs_.constants > 0 && i < context_.parameters.list().size(); ++i)
        needs_.folded.push_back(i);
    }
    needs_.forward_workspace = workspace_of(Pass::forward);
    if (training()) place_backward(kept, turned);
    needs_.saved = kept.bytes();
    needs_.forward_scratch = scratch.bytes();
  }

  void place_backward(Parts& kept, std::size_t turned) {
    SavedBytes saved{std::size_t(in_pass(Pass::forward).activations_bytes()),
                     std::size_t(problem_.dgates_bytes())};
    if (const auto own = algo(Pass::forward).own_format(in_pass(Pass::forward), context_.device))
      saved = *own;
    activations_at_ = kept.add(saved.activations);
    Parts scratch;
    dgates_at_ = scratch.add(saved.dgates);
    dx_at_ = scratch.add(wants_dx() ? std::size_t(problem_.x_bytes()) : 0);
    dy_at_ = scratch.add(std::size_t(problem_.y_bytes()));
    turned_back_at_ = scratch.add(wants_dx() ? turned : 0);
    needs_.backward_scratch = scratch.bytes();
    needs_.backward_workspace =
        std::max(workspace_of(Pass::backward_data), workspace_of(Pass::backward_filter));
    needs_.backward_data = needs_.backward_filter = needs_.filter_last = true;
    if (wants_dx()) needs_.gradient[0] = Gradient::write;
  }

  // As they are stored.
  ConstSpan given_weights() const {
    return {parameter(parameters_).value, std::size_t(problem_.weights_bytes())};
  }
  // Packed in each run, at the start of the pass's workspace: training changes the weights.
  std::size_t packed_each_run(Pass pass) const {
    const bool packs = training() && pass != Pass::backward_filter;
    return packs ? plan(pass).packed_weights_bytes() : 0;
  }
  std::size_t workspace_of(Pass pass) const {
    return packed_and_workspace(packed_each_run(pass), plan(pass).workspace_bytes());
  }
  Workspace own_part(Pass pass, Workspace workspace) const {
    return workspace.subspan(padded(packed_each_run(pass)));
  }
  // As a pass takes them. In inference they were packed once.
  const std::byte* weights(Pass pass, Workspace workspace, Stream& stream) const {
    if (plan(pass).packed_weights_bytes() == 0) return given_weights().data();
    if (!training()) return at_.constants;
    const Span packed = workspace.first(packed_each_run(pass));
    plan(pass).pack_weights(given_weights(), packed, stream);
    return packed.data();
  }

  // ---- Sequences ----

  bool every_step() const { return context_.layer<Recurrent>().every_step; }
  std::int64_t row_elements() const { return problem_.n * problem_.directions() * problem_.h; }
  bool two_transpositions() const { return context_.x[0].w > 1; }

  // So many matrices of rows x columns, each transposed.
  void transpose(std::int64_t count, std::int64_t rows, std::int64_t columns, const void* from,
                 void* to, Stream& stream) const {
    const TensorDesc nchw{count, rows, columns, 1, Layout::nchw};
    TensorDesc nhwc = nchw;
    nhwc.layout = Layout::nhwc;
    ops().convert_layout(context_.dtype, nchw, from, nhwc, to, stream);
  }

  void to_steps(const std::byte* x, std::byte* steps, std::byte* turned, Stream& stream) const {
    const TensorDesc& d = context_.x[0];
    transpose(1, d.n * d.c, d.h * d.w, x, two_transpositions() ? turned : steps, stream);
    if (two_transpositions()) transpose(d.h, d.w, d.n * d.c, turned, steps, stream);
  }
  void from_steps(const std::byte* steps, std::byte* x, std::byte* turned, Stream& stream) const {
    const TensorDesc& d = context_.x[0];
    if (two_transpositions()) transpose(d.h, d.n * d.c, d.w, steps, turned, stream);
    transpose(1, d.h * d.w, d.n * d.c, two_transpositions() ? turned : steps, x, stream);
  }

  // f(which units, offset in a sequence) of each direction's last step; the reverse one's is at 0.
  template <class F>
  void for_last_steps(F f) const {
    const TensorDesc units{problem_.n, problem_.directions() * problem_.h, 1, 1, Layout::nchw};
    for (std::int64_t direction = 0; direction < problem_.directions(); ++direction) {
      const std::int64_t step = direction == 0 ? problem_.t - 1 : 0, first = direction * problem_.h;
      f(ChannelCopy{units, units, first, first, problem_.h},
        step * row_elements() * size_of(context_.dtype));
    }
  }

  RecurrentProblem problem_;                             // forward, without training
  std::size_t parameters_;                               // index of the first
  std::array<std::unique_ptr<RecurrentPlan>, 3> plans_;  // by Pass
  // Offsets: in `saved`, in inference in forward_scratch,
  std::size_t x_at_ = 0, y_at_ = 0, activations_at_ = 0;
  std::size_t turned_at_ = 0;                                               // in forward_scratch,
  std::size_t dgates_at_ = 0, dx_at_ = 0, dy_at_ = 0, turned_back_at_ = 0;  // in backward_scratch
};

}  // namespace

std::unique_ptr<Op> make_recurrent_op(OpContext context) {
  return std::make_unique<RecurrentOp>(std::move(context));
}

}  // namespace convlab::nets
