#include "nets/train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <string_view>

#include "conv/error.h"

namespace convlab::nets {
namespace {

constexpr std::array<std::string_view, 3> kind_names{"constant", "cosine", "step"};

[[noreturn]] void fail(const std::string& text, const std::string& why) {
  throw InputError(fmt::format(
      "schedule '{}': {}; expected constant, cosine or step:30,60, perhaps with ,warmup=5", text,
      why));
}

double parse_number(const std::string& text, std::string_view part) {
  double value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size() || !(value >= 0) ||
      std::isinf(value))
    fail(text, fmt::format("'{}' is not a number from 0 on", part));
  return value;
}

}  // namespace

double Schedule::at(std::int64_t iteration, std::int64_t iterations_per_epoch,
                    std::int64_t iterations) const {
  if (iteration < 0 || iteration >= iterations || iterations_per_epoch < 1)
    throw InputError(fmt::format("schedule: there is no iteration {} of {}, {} an epoch", iteration,
                                 iterations, iterations_per_epoch));
  const double per_epoch = double(iterations_per_epoch), i = double(iteration);
  const double rising = std::min(std::round(warmup * per_epoch), double(iterations));
  if (i < rising) return (i + 1) / rising;
  switch (kind) {
    case Kind::constant:
      break;
    case Kind::cosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * (i - rising) / (double(iterations) - rising)));
    case Kind::step:
      return std::pow(
          factor, double(std::count_if(milestones.begin(), milestones.end(),
                                       [&](double m) { return i >= std::round(m * per_epoch); })));
  }
  return 1;
}

Schedule parse_schedule(const std::string& text) {
  Schedule schedule;
  const std::size_t colon = text.find(':');
  std::size_t at = std::min(colon, text.find(','));
  const std::string name = text.substr(0, at);
  const auto kind = std::find(kind_names.begin(), kind_names.end(), name);
  if (kind == kind_names.end()) fail(text, fmt::format("'{}' is unknown", name));
  schedule.kind = Schedule::Kind(kind - kind_names.begin());
  const bool steps = schedule.kind == Schedule::Kind::step;
  if (at == colon && colon != text.npos && !steps)
    fail(text, fmt::format("{} takes no epochs", name));
  bool options = false;
  while (at < text.size()) {
    const std::size_t next = std::min(text.find(',', at + 1), text.size());
    const std::string part = text.substr(at + 1, next - at - 1);
    at = next;
    const std::size_t equal = part.find('=');
    const std::string key = part.substr(0, equal);
    if (equal == part.npos) {
      if (!steps || options) fail(text, fmt::format("'{}' has no place here", part));
      schedule.milestones.push_back(parse_number(text, part));
      continue;
    }
    options = true;
    const double value = parse_number(text, std::string_view(part).substr(equal + 1));
    if (key == "warmup")
      schedule.warmup = value;
    else if (key == "factor" && steps && value <= 1)
      schedule.factor = value;
    else if (key == "factor" && steps)
      fail(text, fmt::format("a factor of {} is above 1", value));
    else
      fail(text, fmt::format("'{}' is not one of its options", key));
  }
  if (steps && schedule.milestones.empty()) fail(text, "it has no epochs at which to step");
  if (!std::is_sorted(schedule.milestones.begin(), schedule.milestones.end()))
    fail(text, "its epochs do not ascend");
  return schedule;
}

std::string to_string(const Schedule& s) {
  std::string text(kind_names[std::size_t(s.kind)]);
  if (s.kind == Schedule::Kind::step) {
    text += fmt::format(":{}", fmt::join(s.milestones, ","));
    if (s.factor != Schedule().factor) text += fmt::format(",factor={}", s.factor);
  }
  if (s.warmup != 0) text += fmt::format(",warmup={}", s.warmup);
  return text;
}

}  // namespace convlab::nets
