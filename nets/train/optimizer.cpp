#include "nets/train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <type_traits>

#include "conv/error.h"
#include "conv/text/names.h"

namespace convlab::nets {
namespace {

constexpr std::array<std::string_view, 3> names{"sgd", "adam", "adamw"};

// Every number of a rule except Adam's step, which its net counts.
template <class Rule, class Visit>
void visit_numbers(Rule& rule, Visit visit) {
  visit("rate", rule.rate);
  if constexpr (requires { rule.momentum; }) {
    visit("momentum", rule.momentum);
    visit("nesterov", rule.nesterov);
  } else {
    visit("beta1", rule.beta1);
    visit("beta2", rule.beta2);
    visit("epsilon", rule.epsilon);
  }
  visit("weight_decay", rule.weight_decay);
}

}  // namespace

UpdateRule make_rule(const std::string& name) {
  switch (index_of_name("optimizer", name, names)) {
    case 0:
      return SgdDesc{.rate = 0.01, .momentum = 0.9};
    case 1:
      return AdamDesc{};
    default:
      return AdamDesc{.weight_decay = 0.01, .decoupled = true};
  }
}

std::string rule_name(const UpdateRule& rule) {
  const auto* adam = std::get_if<AdamDesc>(&rule);
  return std::string(names[!adam ? 0 : adam->decoupled ? 2 : 1]);
}

void validate(const UpdateRule& rule) {
  if (const auto* adam = std::get_if<AdamDesc>(&rule)) return validate(*adam);
  const SgdDesc& sgd = std::get<SgdDesc>(rule);
  validate(sgd, &sgd);  // its net allocates the velocity
}

double rate_of(const UpdateRule& rule) {
  return std::visit([](const auto& r) { return r.rate; }, rule);
}

UpdateRule with_rate(UpdateRule rule, double rate) {
  std::visit([rate](auto& r) { r.rate = rate; }, rule);
  return rule;
}

std::string to_string(const UpdateRule& rule) {
  std::string text = rule_name(rule);
  const auto append = [&text](const char* name, const auto& number) {
    text += fmt::format(",{}={}", name, double(number));
  };
  std::visit([&append](const auto& r) { visit_numbers(r, append); }, rule);
  return text;
}

UpdateRule parse_rule(const std::string& text) {
  std::size_t at = std::min(text.find(','), text.size());
  UpdateRule rule = make_rule(text.substr(0, at));
  const auto read = [&](const char* name, auto& number) {
    const std::string before = fmt::format(",{}=", name);
    if (text.compare(at, before.size(), before) != 0)
      throw InputError(fmt::format("optimizer '{}': expected {} next", text, name));
    double value = 0;
    const auto [stop, error] =
        std::from_chars(text.data() + at + before.size(), text.data() + text.size(), value);
    if (error != std::errc())
      throw InputError(fmt::format("optimizer '{}': {} is not a number", text, name));
    using Number = std::remove_reference_t<decltype(number)>;
    if (std::is_same_v<Number, bool> && value != 0 && value != 1)
      throw InputError(fmt::format("optimizer '{}': {} is {}: expected 0 or 1", text, name, value));
    number = Number(value);
    at = std::size_t(stop - text.data());
  };
  std::visit([&read](auto& r) { visit_numbers(r, read); }, rule);
  if (at != text.size())
    throw InputError(fmt::format("optimizer '{}': '{}' has no place here", text, text.substr(at)));
  validate(rule);
  return rule;
}

}  // namespace convlab::nets
