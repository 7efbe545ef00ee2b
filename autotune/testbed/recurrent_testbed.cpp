#include "autotune/testbed/recurrent_testbed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "autotune/testbed/verify.h"
#include "conv/error.h"
#include "conv/types/element_type.h"
#include "recurrent/reference.h"

namespace convlab {
namespace {

using std::int64_t;
using Evaluate = ReferenceCase::Evaluate;
using Values = std::vector<double>;

RecurrentProblem with_pass(RecurrentProblem p, Pass pass) {
  p.pass = pass;
  p.training = pass == Pass::forward;
  return p;
}

// The passes whose results a pass reads, and itself.
int passes_needed(Pass pass) { return 1 + int(pass); }

// Part of an array, [blocks][N][width]: all arrays are such parts, one after the other, but
// weights.
struct Part {
  int64_t blocks = 0, width = 0;
};
using Parts = std::vector<Part>;

struct Shapes {
  Parts x, y, state, activations, dgates;

  explicit Shapes(const RecurrentProblem& p)
      : x{{p.t, p.i}}, y{{p.t, p.directions() * p.h}}, state{{p.layers * p.directions(), p.h}} {
    for (int64_t ld = 0; ld < p.layers * p.directions(); ++ld) {
      if (!p.recompute) activations.push_back({p.t, p.saved_values() * p.h});
      for (int i = 0; i < (p.cell == RecurrentCell::gru ? 2 : 1); ++i)
        dgates.push_back({p.t, p.gates() * p.h});
    }
    for (int64_t layer = 0; layer + 1 < p.layers; ++layer)
      activations.push_back({p.t, p.directions() * p.h});
  }
};

// A batch of n rows that repeats those of `values`.
Values repeated(const Values& values, const Parts& parts, int64_t rows, int64_t n) {
  if (rows == n || values.empty()) return values;
  Values all;
  all.reserve(values.size() / std::size_t(rows) * std::size_t(n));
  auto block = values.begin();
  for (const Part& part : parts)
    for (int64_t b = 0; b < part.blocks; ++b, block += rows * part.width)
      for (int64_t i = 0; i < n; ++i)
        all.insert(all.end(), block + (i % rows) * part.width, block + (i % rows + 1) * part.width);
  return all;
}

GuardedBuffer upload(DType dtype, const Values& values, Device& device, Stream& stream) {
  if (values.empty()) return {};
  return with_element_type(dtype, [&]<class T>(T) {
    std::vector<T> typed(values.size());
    std::transform(values.begin(), values.end(), typed.begin(), [](double v) { return T(v); });
    const ConstSpan bytes = std::as_bytes(std::span(typed));
    GuardedBuffer buffer(bytes.size(), device, stream);
    device.copy_to_device(buffer.data(), bytes, stream);
    stream.synchronize();
    return buffer;
  });
}

Values download(DType dtype, const GuardedBuffer& buffer, Device& device, Stream& stream) {
  return with_element_type(dtype, [&]<class T>(T) {
    std::vector<T> typed(buffer.span().size() / sizeof(T));
    device.copy_to_host(std::as_writable_bytes(std::span(typed)), buffer.data(), stream);
    stream.synchronize();
    return Values(typed.begin(), typed.end());
  });
}

// What a pass writes, and what the reference says of it.
struct Output {
  const char* name;
  Parts parts;  // empty: weights
  const Values* expected;
  GuardedBuffer buffer;
};

class RecurrentTestbed : public Testbed {
 public:
  RecurrentTestbed(const RecurrentProblem& problem, std::uint64_t seed, Evaluate evaluate,
                   Device& device, Stream& stream)
      : problem_(problem),
        device_(device),
        stream_(stream),
        rows_(distinct_rows(problem, evaluate)) {
    validate(problem);
    RecurrentProblem few = problem;
    few.n = rows_;
    const Shapes shapes(few);
    const auto values = [&](int64_t count, double size) {
      Values v = random_values(count, DType::f64, seed + ++drawn_ * 0x100000001u, DataKind::normal);
      for (double& value : v) value *= size;
      return rounded(std::move(v));
    };
    const auto put = [&](const Values& v, const Parts& parts) {
      return upload(problem.dtype, repeated(v, parts, rows_, problem.n), device, stream);
    };
    // Weights of a size that keeps states within bounds.
    const Values x = values(few.x_elements(), 1),
                 weights = values(few.weights_elements(),
                                  1 / std::sqrt(double(std::max(few.h, few.input_of(0))))),
                 h0 = values(few.state_elements(), 0.5), dy = values(few.y_elements(), 1),
                 dhn = values(few.state_elements(), 1),
                 c0 = values(few.has_cell_state() ? few.state_elements() : 0, 0.5),
                 dcn = values(few.has_cell_state() ? few.state_elements() : 0, 1);
    RecurrentInput in{
        .x = x, .weights = weights, .h0 = h0, .c0 = c0, .dy = dy, .dhn = dhn, .dcn = dcn};
    Values y, activations, dgates;
    if (problem.pass != Pass::forward) {
      RecurrentOutput out = reference_of(with_pass(few, Pass::forward), in);
      y = rounded(std::move(out.out));
      activations = rounded(std::move(out.activations));
      in.y = y;
      in.activations = activations;
    }
    if (problem.pass == Pass::backward_filter) {
      dgates = rounded(reference_of(with_pass(few, Pass::backward_data), in).dgates);
      dgates_ = put(dgates, shapes.dgates);
      weigh(dgates, shapes.dgates);
      in.dgates = dgates;
    }
    expected_ = reference_of(few, in);

    x_ = put(x, shapes.x);
    weights_ = upload(problem.dtype, weights, device, stream);
    h0_ = put(h0, shapes.state);
    c0_ = put(c0, shapes.state);
    if (problem.pass != Pass::forward) {
      y_ = put(y, shapes.y);
      activations_ = put(activations, shapes.activations);
      dy_ = put(dy, shapes.y);
      dhn_ = put(dhn, shapes.state);
      dcn_ = put(dcn, shapes.state);
    }
    add_output(problem.pass == Pass::forward         ? "y"
               : problem.pass == Pass::backward_data ? "dx"
                                                     : "dweights",
               problem.pass == Pass::forward         ? shapes.y
               : problem.pass == Pass::backward_data ? shapes.x
                                                     : Parts{},
               expected_.out);
    if (problem.pass == Pass::backward_filter) return;
    const bool forward = problem.pass == Pass::forward;
    add_output(forward ? "hn" : "dh0", shapes.state, expected_.out_h);
    add_output(forward ? "cn" : "dc0", shapes.state, expected_.out_c);
    if (forward)
      add_output("activations", shapes.activations, expected_.activations);
    else
      add_output("dgates", shapes.dgates, expected_.dgates);
  }

  bool sampled() const override { return false; }
  std::unique_ptr<PlannedRun> plan(const AlgoRef&, const Candidate&) override;

 private:
  friend class RecurrentRun;
  static constexpr std::size_t saved = 3;  // the place of activations or dgates among the outputs

  Values rounded(Values values) const {
    if (problem_.dtype == DType::f32)
      for (double& v : values) v = double(float(v));
    return values;
  }
  // Multiplies each row by how often it occurs.
  void weigh(Values& values, const Parts& parts) const {
    auto row = values.begin();
    for (const Part& part : parts)
      for (int64_t i = 0; i < part.blocks * rows_; ++i)
        for (int64_t j = 0; j < part.width; ++j)
          *row++ *= double((problem_.n - i % rows_ + rows_ - 1) / rows_);
  }
  void add_output(const char* name, Parts parts, const Values& expected) {
    const int64_t n = parts.empty() ? 1 : problem_.n, rows = parts.empty() ? 1 : rows_;
    const std::size_t elements = expected.size() / std::size_t(rows) * std::size_t(n);
    outputs_.push_back(
        {name, std::move(parts), &expected,
         GuardedBuffer(elements * std::size_t(size_of(problem_.dtype)), device_, stream_)});
  }

  // What an algorithm reads and writes. `activations` and `dgates`: of its own format, or null.
  RecurrentArgs args(std::byte* activations, std::byte* dgates) const {
    RecurrentArgs a;
    a.x = x_.data(), a.weights = weights_.data(), a.h0 = h0_.data(), a.c0 = c0_.data();
    a.y = y_.data(), a.dy = dy_.data(), a.dhn = dhn_.data(), a.dcn = dcn_.data();
    a.activations = activations ? activations : activations_.data();
    a.dgates = dgates ? dgates : dgates_.data();
    a.out = outputs_[0].buffer.data();
    if (outputs_.size() <= saved) return a;
    a.out_h = outputs_[1].buffer.data(), a.out_c = outputs_[2].buffer.data();
    a.out_activations = activations ? activations : outputs_[saved].buffer.data();
    a.out_dgates = dgates ? dgates : outputs_[saved].buffer.data();
    return a;
  }
  std::vector<ConstSpan> memory() const {
    std::vector<ConstSpan> spans;
    for (const GuardedBuffer* b : inputs()) spans.push_back(b->span());
    for (const Output& o : outputs_) spans.push_back(o.buffer.span());
    return spans;
  }
  std::array<const GuardedBuffer*, 10> inputs() const {
    return {&x_, &weights_, &h0_, &c0_, &y_, &activations_, &dy_, &dhn_, &dcn_, &dgates_};
  }

  void poison() {
    for (Output& o : outputs_) device_.fill(o.buffer.span(), poison_byte, stream_);
  }
  // The largest error of any output. own_format: what is saved is not the problem's to judge.
  CheckResult judge(double max_error, bool own_format) const {
    for (const GuardedBuffer* b : inputs())
      if (!b->intact(device_, stream_))
        return {Status::failed, "wrote past the end of an input", INFINITY};
    CheckResult worst;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Output& o = outputs_[i];
      if (!o.buffer.intact(device_, stream_))
        return {Status::failed, fmt::format("wrote past the end of {}", o.name), INFINITY};
      if ((own_format && i == saved) || o.expected->empty()) continue;
      const CheckResult one = judge(o, max_error);
      if (one.rel_error > worst.rel_error || one.status == Status::failed) worst = one;
      if (worst.status == Status::failed) return worst;
    }
    return worst;
  }
  CheckResult judge(const Output& o, double max_error) const {
    const Values got = download(problem_.dtype, o.buffer, device_, stream_);
    const auto broken =
        std::find_if(got.begin(), got.end(), [](double v) { return !std::isfinite(v); });
    if (broken != got.end())
      return {Status::failed,
              fmt::format("element {} of {} is {}", broken - got.begin(), o.name,
                          std::isnan(*broken) ? "NaN or was not written" : "infinite"),
              INFINITY};
    const Values all =
        o.parts.empty() ? *o.expected : repeated(*o.expected, o.parts, rows_, problem_.n);
    return judge_error(rel_error(got, all), max_error, [&] {
      std::size_t worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i)
        if (std::abs(got[i] - all[i]) > std::abs(got[worst] - all[worst])) worst = i;
      return fmt::format("element {} of {}: {:.6g} instead of {:.6g}", worst, o.name, got[worst],
                         all[worst]);
    });
  }

  RecurrentProblem problem_;
  Device& device_;
  Stream& stream_;
  int64_t rows_;
  std::uint64_t drawn_ = 0;
  RecurrentOutput expected_;  // of the distinct rows
  GuardedBuffer x_, weights_, h0_, c0_, y_, activations_, dy_, dhn_, dcn_, dgates_;
  std::vector<Output> outputs_;
  GuardedBuffer workspace_;  // shared by the candidates in turn
};

class RecurrentRun : public PlannedRun {
 public:
  RecurrentRun(const AlgoRef& algo, const Config& config, RecurrentTestbed& bed)
      : bed_(bed),
        plan_(algo.recurrent()->plan(bed.problem_, config, bed.device_)),
        note_(algo.note(bed.problem_, config, bed.device_)),
        packed_(plan_->packed_weights_bytes(), bed.device_, bed.stream_) {
    const RecurrentProblem& p = bed.problem_;
    const bool training = p.training || p.pass != Pass::forward;
    const std::optional<SavedBytes> own =
        training ? algo.recurrent()->own_format(p, bed.device_) : std::nullopt;
    if (!own) return;
    own_format_ = true;
    activations_ =
        GuardedBuffer(std::max<std::size_t>(own->activations, 1), bed.device_, bed.stream_);
    dgates_ = GuardedBuffer(std::max<std::size_t>(own->dgates, 1), bed.device_, bed.stream_);
    for (const Pass pass : all_passes) {
      if (pass == p.pass) break;
      run_earlier(*algo.recurrent(), with_pass(p, pass), config);
    }
  }

  std::size_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  std::size_t packed_bytes() const override { return plan_->packed_weights_bytes(); }
  std::string note() const override { return note_; }
  void pack() override {
    if (packed_.data()) plan_->pack_weights(bed_.weights_.span(), packed_.span(), bed_.stream_);
  }
  void prepare() override {
    bed_.workspace_.resize(plan_->workspace_bytes(), bed_.device_, bed_.stream_);
  }
  void run(PhaseRecorder* phases) override {
    prepare();
    RecurrentArgs args = bed_.args(activations_.data(), dgates_.data());
    if (packed_.data()) args.weights = packed_.data();
    args.phases = phases;
    plan_->run(args, bed_.workspace_.span(), bed_.stream_);
  }
  std::vector<ConstSpan> memory() const override {
    std::vector<ConstSpan> spans = bed_.memory();
    spans.insert(spans.end(),
                 {packed_.span(), bed_.workspace_.span(), activations_.span(), dgates_.span()});
    return spans;
  }

  CheckResult check(double max_error) override {
    Device& device = bed_.device_;
    Stream& stream = bed_.stream_;
    prepare();
    device.fill(packed_.span(), poison_byte, stream);
    device.fill(bed_.workspace_.span(), poison_byte, stream);
    bed_.poison();
    pack();
    run(nullptr);
    stream.synchronize();
    const std::pair<const char*, const GuardedBuffer*> guarded[] = {
        {"the packed weights", &packed_},
        {"the workspace", &bed_.workspace_},
        {"its activations", &activations_},
        {"its dgates", &dgates_}};
    for (const auto& [name, buffer] : guarded)
      if (!buffer->intact(device, stream))
        return {Status::failed, fmt::format("wrote past the end of {}", name), INFINITY};
    return bed_.judge(max_error, own_format_);
  }

 private:
  // An earlier pass, for what it saves. Its outputs are not kept.
  void run_earlier(const RecurrentAlgo& algo, const RecurrentProblem& p, const Config& config) {
    Device& device = bed_.device_;
    Stream& stream = bed_.stream_;
    const auto plan = algo.plan(p, config, device);
    const GuardedBuffer packed(plan->packed_weights_bytes(), device, stream),
        workspace(plan->workspace_bytes(), device, stream),
        out(std::size_t(std::max(p.x_bytes(), p.y_bytes())), device, stream);
    RecurrentArgs args = bed_.args(activations_.data(), dgates_.data());
    args.out = out.data();
    args.out_h = args.out_c = nullptr;
    args.out_activations = activations_.data();
    args.out_dgates = dgates_.data();
    if (packed.data()) {
      plan->pack_weights(bed_.weights_.span(), packed.span(), stream);
      args.weights = packed.data();
    }
    plan->run(args, workspace.span(), stream);
    stream.synchronize();
  }

  RecurrentTestbed& bed_;
  std::unique_ptr<RecurrentPlan> plan_;
  std::string note_;
  GuardedBuffer packed_;
  bool own_format_ = false;
  GuardedBuffer activations_, dgates_;  // of its own format
};

std::unique_ptr<PlannedRun> RecurrentTestbed::plan(const AlgoRef& algo, const Candidate& c) {
  return std::make_unique<RecurrentRun>(algo, c.config, *this);
}

}  // namespace

int64_t distinct_rows(const RecurrentProblem& p, Evaluate evaluate) {
  const double most_macs = evaluate == Evaluate::whole ? full_reference_limit : 2e7;
  const double row_macs = passes_needed(p.pass) * p.flops() / 2 / double(p.n);
  const auto rows = int64_t(std::clamp(most_macs / row_macs, 1.0, double(p.n)));
  return rows == p.n || rows % 2 == 1 ? rows : rows - 1;
}

double recurrent_reference_flops(const RecurrentProblem& p) {
  return passes_needed(p.pass) * p.flops() / double(p.n) *
         double(distinct_rows(p, Evaluate::whole));
}

std::unique_ptr<Testbed> make_recurrent_testbed(const RecurrentProblem& problem, std::uint64_t seed,
                                                Evaluate evaluate, Device& device, Stream& stream) {
  return std::make_unique<RecurrentTestbed>(problem, seed, evaluate, device, stream);
}

}  // namespace convlab
