#include "autotune/testbed/verify.h"

#include <fmt/format.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "autotune/limits.h"
#include "autotune/race/loss.h"
#include "conv/error.h"
#include "conv/optional/scanning_device.h"
#include "conv/types/element_type.h"

namespace convlab {
namespace {

constexpr std::byte guard_byte{0xCB};

// splitmix64: a counter-based generator, so that threads may fill a tensor in any order.
std::uint64_t hash(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// From the sum of four uniform 16-bit numbers: mean 0, variance 1, magnitude at most 3.47. Each
// process of a race draws its data again, and the logarithms and cosines of a true N(0, 1) take ten
// times as long.
double nearly_normal(std::uint64_t bits) {
  const std::uint64_t low = 0x0000FFFF0000FFFFu;
  const std::uint64_t pairs = (bits & low) + ((bits >> 16) & low);
  const auto sum = std::int64_t((pairs & 0xFFFFFFFFu) + (pairs >> 32));
  constexpr double mean = 2 * 65535.0, deviation = 65536 / std::numbers::sqrt3;
  return double(sum - std::int64_t(mean)) / deviation;
}

double round_to(DType dtype, double v) {
  return with_element_type(dtype, [v](auto type) { return double(decltype(type)(v)); });
}

// Calls visit(plain index, position in memory) for every element except padding lanes.
template <class Visit>
void for_each_element(const TensorDesc& t, const Visit& visit) {
#pragma omp parallel for collapse(2)
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t c = 0; c < t.c; ++c)
      for (std::int64_t h = 0; h < t.h; ++h)
        for (std::int64_t w = 0; w < t.w; ++w)
          visit(((n * t.c + c) * t.h + h) * t.w + w, t.offset(n, c, h, w));
}

template <class T>
std::vector<std::byte> to_memory(std::span<const double> plain, const TensorDesc& desc) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(desc.elements()) * sizeof(T));
  T* memory = reinterpret_cast<T*>(bytes.data());
  for_each_element(
      desc, [&](std::int64_t from, std::int64_t to) { memory[to] = T(plain[std::size_t(from)]); });
  return bytes;
}

std::vector<std::byte> to_memory(DType dtype, std::span<const double> plain,
                                 const TensorDesc& desc) {
  return with_element_type(dtype,
                           [&](auto type) { return to_memory<decltype(type)>(plain, desc); });
}

// KCTRS and bias as tensors, so that one description serves all operands.
TensorDesc filter_desc(const ConvProblem& f) { return {f.k, f.c / f.groups, f.t * f.r, f.s}; }

TensorDesc output_desc(const ConvProblem& f) {
  return f.pass == Pass::forward         ? f.y_desc()
         : f.pass == Pass::backward_data ? f.x_desc()
                                         : filter_desc(f);
}

GuardedBuffer upload(DType dtype, std::span<const double> plain, const TensorDesc& desc,
                     Device& device, Stream& stream) {
  const std::vector<std::byte> bytes = to_memory(dtype, plain, desc);
  GuardedBuffer buffer(bytes.size(), device, stream);
  device.copy_to_device(buffer.data(), bytes, stream);
  stream.synchronize();
  return buffer;
}

// The i-th element in plain order: its position in memory, and in a message.
std::int64_t offset_of(const TensorDesc& desc, std::int64_t i) {
  const std::int64_t w = i % desc.w, h = i / desc.w % desc.h, c = i / (desc.w * desc.h) % desc.c;
  return desc.offset(i / (desc.w * desc.h * desc.c), c, h, w);
}
std::string place_of(const TensorDesc& desc, std::int64_t i) {
  return fmt::format("({}, {}, {}, {})", i / (desc.w * desc.h * desc.c),
                     i / (desc.w * desc.h) % desc.c, i / desc.w % desc.h, i % desc.w);
}

// Poison left, infinities, and padding lanes that are not zero.
template <class T>
std::optional<CheckResult> find_broken(std::span<const T> memory, const TensorDesc& desc) {
  std::int64_t not_finite = 0;
#pragma omp parallel for reduction(+ : not_finite)
  for (std::int64_t i = 0; i < desc.elements(); ++i)
    not_finite += !std::isfinite(double(memory[i]));
  for (std::int64_t i = 0; not_finite > 0 && i < desc.n * desc.c * desc.h * desc.w; ++i)
    if (const double value(memory[offset_of(desc, i)]); !std::isfinite(value))
      return CheckResult{Status::failed,
                         fmt::format("output {} is {}", place_of(desc, i),
                                     std::isnan(value) ? "NaN or was not written" : "infinite"),
                         INFINITY};
  for (std::int64_t n = 0; n < desc.n; ++n)
    for (std::int64_t c = desc.c; c < desc.padded_c(); ++c)
      for (std::int64_t h = 0; h < desc.h; ++h)
        for (std::int64_t w = 0; w < desc.w; ++w)
          if (double(memory[desc.offset(n, c, h, w)]) != 0)
            return CheckResult{Status::failed,
                               fmt::format("padding lane ({}, {}, {}, {}) is not zero", n, c, h, w),
                               INFINITY};
  return {};
}

// got: the outputs at the reference's indices.
CheckResult judge_values(std::span<const double> got, const TensorDesc& desc,
                         const ReferenceCase& reference, double max_error) {
  const double error = rel_error(got, reference.expected());
  return judge_error(error, max_error, [&] {
    std::size_t worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      if (std::abs(got[i] - reference.expected()[i]) >
          std::abs(got[worst] - reference.expected()[worst]))
        worst = i;
    return fmt::format("{}: {:.6g} instead of {:.6g}", place_of(desc, reference.indices()[worst]),
                       got[worst], reference.expected()[worst]);
  });
}

template <class T>
std::vector<double> to_double(std::span<const T> memory, std::span<const std::int64_t> places) {
  std::vector<double> values(places.size());
#pragma omp parallel for
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = double(memory[places[i]]);
  return values;
}

}  // namespace

std::vector<double> random_values(std::int64_t count, DType dtype, std::uint64_t seed,
                                  DataKind kind) {
  std::vector<double> values(static_cast<std::size_t>(count));
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = hash(hash(seed) + std::uint64_t(i));
    const double v = kind == DataKind::small_integers ? double(bits % 5) - 2 : nearly_normal(bits);
    values[std::size_t(i)] = round_to(dtype, v);
  }
  return values;
}

CheckResult judge_error(double error, double max_error, const std::function<std::string()>& worst) {
  if (error <= max_error) return {Status::ok, "", error};
  // The error of a wrong result is about the result's own size; a smaller one is rounding.
  if (error <= 0.01 || error <= 100 * max_error)
    return {Status::inaccurate,
            fmt::format("rel_error {:.2e} is above the limit {:.2e}", error, max_error), error};
  return {Status::failed,
          fmt::format("wrong result: rel_error {:.2e}, worst at {}", error, worst()), error};
}

ReferenceCase::ReferenceCase(const ConvProblem& problem, std::uint64_t seed, DataKind kind,
                             Evaluate evaluate)
    : problem_(problem) {
  validate(problem);
  const ConvProblem& f = problem_;
  const auto values = [&](std::int64_t count, std::uint64_t stream) {
    return random_values(count, f.dtype, hash(seed) + stream, kind);
  };
  const TensorDesc x = f.x_desc(), y = f.y_desc();
  const std::int64_t x_count = x.n * x.c * x.h * x.w, y_count = y.n * y.c * y.h * y.w;
  if (f.pass != Pass::backward_data) x_ = values(x_count, 1);
  if (f.pass != Pass::backward_filter) w_ = values(f.filter_elements(), 2);
  if (f.pass != Pass::forward) dy_ = values(y_count, 3);
  if (f.epilogue.bias) bias_ = values(f.k, 4);
  if (f.epilogue.residual) residual_ = values(y_count, 5);
  if (f.accumulate) {
    const TensorDesc out = output_desc(f);
    out_ = values(out.n * out.c * out.h * out.w, 6);
  }
  input_ = {.x = x_, .w = w_, .dy = dy_, .bias = bias_, .residual = residual_, .out = out_};

  if (evaluate == Evaluate::nothing) return;
  const bool few = evaluate == Evaluate::sample;
  sampled_ = few || f.flops() / 2 > full_reference_limit;
  const double sample_macs = few ? 2e6 : 2e8;
  const std::int64_t least = few ? 200 : 1000;
  const TensorDesc out = output_desc(f);
  const double per_output = f.flops() / 2 / double(out.n * out.c * out.h * out.w);
  indices_ = sampled_
                 ? sample_outputs(f, std::max(least, std::int64_t(sample_macs / per_output)), seed)
                 : all_outputs(f);
  expected_ = reference_of(f, input_, indices_);
}

GuardedBuffer::GuardedBuffer(std::size_t bytes, Device& device, Stream& stream) {
  resize(bytes, device, stream);
}

void GuardedBuffer::resize(std::size_t bytes, Device& device, Stream& stream) {
  if (bytes == bytes_) return;
  protect(false);
  if (buffer_.bytes() < bytes + 2 * guard) {
    buffer_ = {};  // frees the old one first, since both may not fit
    bytes_ = 0;
    buffer_ = device.allocate(bytes + 2 * guard);
  }
  bytes_ = bytes;
  const std::vector<std::byte> zone(guard, guard_byte);
  device.copy_to_device(buffer_.data(), zone, stream);
  device.copy_to_device(data() + bytes, zone, stream);
  stream.synchronize();
  protect(true);
}

GuardedBuffer::~GuardedBuffer() { protect(false); }

void GuardedBuffer::protect([[maybe_unused]] bool on) const {
  if (!buffer_.data()) return;
  if (on) {
    ASAN_POISON_MEMORY_REGION(buffer_.data(), guard);
    ASAN_POISON_MEMORY_REGION(data() + bytes_, guard);
  } else {
    ASAN_UNPOISON_MEMORY_REGION(buffer_.data(), bytes_ + 2 * guard);
  }
}

bool GuardedBuffer::intact(Device& device, Stream& stream) const {
  if (!buffer_.data()) return true;
  std::array<std::byte, 2 * guard> zones;
  protect(false);
  device.copy_to_host(std::span(zones).first(guard), buffer_.data(), stream);
  device.copy_to_host(std::span(zones).last(guard), data() + bytes_, stream);
  stream.synchronize();
  protect(true);
  return std::all_of(zones.begin(), zones.end(), [](std::byte b) { return b == guard_byte; });
}

Operands::Operands(const ReferenceCase& reference, const ConvProblem& problem, Device& device,
                   Stream& stream)
    : problem_(problem), device_(device), stream_(stream) {
  ConvProblem plain = problem;
  plain.x_layout = reference.problem().x_layout;
  plain.y_layout = reference.problem().y_layout;
  if (plain != reference.problem())
    throw InputError(fmt::format("operands of {} {} cannot be those of {} {}", to_text(problem),
                                 to_string(problem.pass), to_text(reference.problem()),
                                 to_string(reference.problem().pass)));
  const ReferenceInput& in = reference.input();
  const auto put = [&](std::span<const double> plain, const TensorDesc& desc) {
    return plain.empty() ? GuardedBuffer{} : upload(problem.dtype, plain, desc, device, stream);
  };
  x_ = put(in.x, problem.x_desc());
  w_ = put(in.w, filter_desc(problem));
  dy_ = put(in.dy, problem.y_desc());
  bias_ = put(in.bias, TensorDesc{1, problem.k, 1, 1});
  residual_ = put(in.residual, problem.y_desc());
  if (!in.out.empty()) initial_out_ = to_memory(problem.dtype, in.out, output_desc(problem));
  out_ = GuardedBuffer(static_cast<std::size_t>(problem.output_bytes()), device, stream);
  poison_output();
}

ConvArgs Operands::args() const {
  return {.x = x_.data(),
          .w = w_.data(),
          .dy = dy_.data(),
          .bias = bias_.data(),
          .residual = residual_.data(),
          .out = out_.data()};
}

std::vector<ConstSpan> Operands::memory() const {
  return {x_.span(), w_.span(), dy_.span(), bias_.span(), residual_.span(), out_.span()};
}

void Operands::poison_output() {
  if (initial_out_.empty()) return device_.fill(out_.span(), poison_byte, stream_);
  device_.copy_to_device(out_.data(), initial_out_, stream_);
  stream_.synchronize();
}

CheckResult Operands::judge(const ReferenceCase& reference, double max_error) const {
  const std::pair<const char*, const GuardedBuffer*> guarded[] = {
      {"x", &x_},           {"w", &w_}, {"dy", &dy_}, {"bias", &bias_}, {"residual", &residual_},
      {"the output", &out_}};
  for (const auto& [name, buffer] : guarded)
    if (!buffer->intact(device_, stream_))
      return {Status::failed, fmt::format("wrote past the end of {}", name), INFINITY};
  const TensorDesc desc = output_desc(problem_);
  std::vector<std::int64_t> places(reference.indices().size());
#pragma omp parallel for
  for (std::size_t i = 0; i < places.size(); ++i)
    places[i] = offset_of(desc, reference.indices()[i]);
  // From a card only the sample comes home, unless something is to be found in the rest.
  auto* const scanner = dynamic_cast<ScanningDevice*>(&device_);
  const bool stays = scanner && reference.sampled() && desc.padded_c() == desc.c &&
                     scanner->count_not_finite(problem_.dtype, out_.span(), stream_) == 0;
  return with_element_type(problem_.dtype, [&]<class T>(T) {
    if (stays) {
      std::vector<T> sample(places.size());
      scanner->gather(problem_.dtype, out_.data(), places,
                      std::as_writable_bytes(std::span(sample)), stream_);
      const std::vector<double> got(sample.begin(), sample.end());
      return judge_values(got, desc, reference, max_error);
    }
    if (!host_out_.data()) host_out_ = device_.allocate_pinned(out_.span().size());
    device_.copy_to_host(host_out_.span(), out_.data(), stream_);
    stream_.synchronize();
    const std::span<const T> memory(host_out_.as<T>(), host_out_.bytes() / sizeof(T));
    if (const auto broken = find_broken(memory, desc)) return *broken;
    return judge_values(to_double(memory, places), desc, reference, max_error);
  });
}

Trial::Trial(const ConvAlgo& algo, const Config& config, Operands& operands,
             GuardedBuffer& workspace, Device& device, Stream& stream)
    : operands_(operands),
      device_(device),
      stream_(stream),
      plan_(algo.plan(operands.problem(), config, device)),
      packed_(plan_->packed_filter_bytes(), device, stream),
      workspace_(workspace) {}

void Trial::pack() {
  if (packed_.data()) plan_->pack_filter(operands_.filter(), packed_.span(), stream_);
}

void Trial::prepare() { workspace_.resize(plan_->workspace_bytes(), device_, stream_); }

void Trial::run(PhaseRecorder* phases) {
  prepare();
  ConvArgs args = operands_.args();
  if (packed_.data()) args.w = packed_.data();
  args.phases = phases;
  plan_->run(args, workspace_.span(), stream_);
}

std::vector<ConstSpan> Trial::memory() const {
  std::vector<ConstSpan> spans = operands_.memory();
  spans.insert(spans.end(), {packed_.span(), workspace_.span()});
  return spans;
}

CheckResult Trial::check(const ReferenceCase& reference, double max_error) {
  prepare();
  device_.fill(packed_.span(), poison_byte, stream_);
  device_.fill(workspace_.span(), poison_byte, stream_);
  operands_.poison_output();
  pack();
  run();
  stream_.synchronize();
  if (!packed_.intact(device_, stream_))
    return {Status::failed, "wrote past the end of the packed filter", INFINITY};
  if (!workspace_.intact(device_, stream_))
    return {Status::failed, "wrote past the end of the workspace", INFINITY};
  return operands_.judge(reference, max_error);
}

CheckResult check_candidate(const ConvAlgo& algo, const ConvProblem& problem, const Config& config,
                            const ReferenceCase& reference, Device& device, Stream& stream,
                            double max_error) {
  validate_limits(max_error, {});
  if (const auto refusal = algo.refuse(problem, device))
    return {Status::refused, refusal->reason(), 0};
  try {
    Operands operands(reference, problem, device, stream);
    GuardedBuffer workspace;
    return Trial(algo, config, operands, workspace, device, stream).check(reference, max_error);
  } catch (const std::exception&) {
    const Loss loss = loss_by(std::current_exception());
    return {loss.status, loss.reason, loss.status == Status::refused ? 0 : INFINITY};
  }
}

}  // namespace convlab
