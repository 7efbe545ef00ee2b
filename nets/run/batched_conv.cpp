#include "nets/run/batched_conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/listed_config.h"
#include "conv/types/arithmetic_type.h"
#include "nets/run/arena.h"

namespace convlab::nets {
namespace {

// The problems of the parts in order; all but the first two and the last equal the second.
std::vector<ConvProblem> parts_of(const ConvProblem& whole, const PassPlan& plan) {
  const std::int64_t images = plan.images > 0 ? std::min(plan.images, whole.n) : whole.n;
  std::vector<ConvProblem> parts;
  for (std::int64_t image = 0; image < whole.n; image += images) {
    ConvProblem part = whole;
    part.n = std::min(images, whole.n - image);
    part.accumulate |= whole.pass == Pass::backward_filter && image > 0;
    parts.push_back(part);
  }
  return parts;
}

// The config is for parts of this many images; a smaller last part may be too small for it, and
// then uses the algorithm's default.
std::unique_ptr<ConvPlan> make_part(const ConvAlgo& algo, const ConvProblem& part,
                                    const Config& config, std::int64_t images, Device& device) {
  try {
    return plan_listed(algo, part, config, device);
  } catch (const InputError&) {
    if (part.n == images) throw;
    return algo.plan(part, algo.configs(part, device).front(), device);
  }
}

template <class T>
T* at_image(T* data, std::int64_t bytes, std::int64_t images, std::int64_t image) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return data == nullptr ? nullptr : static_cast<Byte*>(data) + bytes / images * image;
}

}  // namespace

bool may_be_in_parts(const ConvProblem& p) {
  return p.pass != Pass::backward_filter || !has_16_bits(p.dtype);
}

std::optional<Refusal> BatchedConv::refuse(const ConvAlgo& algo, const ConvProblem& whole,
                                           const PassPlan& plan, Device& device) {
  const std::vector<ConvProblem> parts = parts_of(whole, plan);
  if (const ConvProblem& part = parts.front();
      parts.size() > 1 && device.info().kind == DeviceKind::cuda && !keeps_alignment(part))
    return Refusal{
        Field::image, fmt::format("parts whose bytes are multiples of {}", operand_alignment),
        fmt::format("{} and {} bytes in {} images", part.x_bytes(), part.y_bytes(), part.n)};
  if (parts.size() > 1 && !may_be_in_parts(whole))
    return Refusal{Field::image,
                   fmt::format("the whole batch at once in {}: a sum of parts would be rounded "
                               "after each",
                               to_string(whole.dtype)),
                   fmt::format("parts of {}", parts.front().n)};
  for (const ConvProblem& part : parts)
    if (auto refusal = algo.refuse(part, device)) return refusal;
  return std::nullopt;
}

BatchedConv::BatchedConv(const ConvAlgo& algo, const ConvProblem& whole, const PassPlan& plan,
                         Device& device) {
  std::int64_t image = 0;
  std::size_t packed = 0;
  const std::vector<ConvProblem> parts = parts_of(whole, plan);
  for (const ConvProblem& problem : parts) {
    const auto known = std::find_if(parts_.begin(), parts_.end(),
                                    [&](const Part& p) { return p.problem == problem; });
    runs_.push_back({std::size_t(known - parts_.begin()), image});
    image += problem.n;
    if (known != parts_.end()) continue;
    parts_.push_back(
        {problem, make_part(algo, problem, plan.config, parts.front().n, device), packed});
    packed += padded(parts_.back().plan->packed_filter_bytes());
  }
}

std::size_t BatchedConv::workspace_bytes() const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) bytes = std::max(bytes, part.plan->workspace_bytes());
  return bytes;
}

std::size_t BatchedConv::packed_bytes() const {
  const Part& last = parts_.back();
  return last.packed_offset + padded(last.plan->packed_filter_bytes());
}

void BatchedConv::pack(ConstSpan w, std::byte* packed, Stream& stream) const {
  for (const Part& part : parts_)
    if (const std::size_t bytes = part.plan->packed_filter_bytes(); bytes > 0)
      part.plan->pack_filter(w, {packed + part.packed_offset, bytes}, stream);
}

void BatchedConv::run(const ConvArgs& whole, const std::byte* packed, Workspace workspace,
                      Stream& stream) const {
  for (const Run& run : runs_) {
    const Part& part = parts_[run.part];
    const ConvProblem& p = part.problem;
    const auto x = [&](auto* data) { return at_image(data, p.x_bytes(), p.n, run.image); };
    const auto y = [&](auto* data) { return at_image(data, p.y_bytes(), p.n, run.image); };
    ConvArgs args = whole;
    args.x = x(whole.x);
    args.dy = y(whole.dy);
    args.residual = y(whole.residual);
    if (p.pass == Pass::forward) args.out = y(whole.out);
    if (p.pass == Pass::backward_data) args.out = x(whole.out);
    if (part.plan->packed_filter_bytes() > 0) args.w = packed + part.packed_offset;
    part.plan->run(args, workspace, stream);
  }
}

}  // namespace convlab::nets
