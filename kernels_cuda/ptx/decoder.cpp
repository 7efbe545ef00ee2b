#include "kernels_cuda/ptx/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

namespace convlab::ptx {
namespace {

constexpr std::array<std::pair<std::string_view, Type>, 18> types{{
    {"pred", Type::pred},
    {"b8", Type::b8},
    {"b16", Type::b16},
    {"b32", Type::b32},
    {"b64", Type::b64},
    {"u8", Type::u8},
    {"u16", Type::u16},
    {"u32", Type::u32},
    {"u64", Type::u64},
    {"s8", Type::s8},
    {"s16", Type::s16},
    {"s32", Type::s32},
    {"s64", Type::s64},
    {"f16", Type::f16},
    {"bf16", Type::bf16},
    {"tf32", Type::tf32},
    {"f32", Type::f32},
    {"f64", Type::f64},
}};

constexpr std::array<std::string_view, specials> special_names{
    "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
    "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};

std::string_view trimmed(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

// At commas outside of braces.
std::vector<std::string_view> split(std::string_view s) {
  std::vector<std::string_view> parts;
  s = trimmed(s);
  if (s.empty()) return parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= s.size(); ++i) {
    if (i == s.size() || (s[i] == ',' && depth == 0)) {
      parts.push_back(trimmed(s.substr(begin, i - begin)));
      begin = i + 1;
    } else if (s[i] == '{' || s[i] == '(') {
      ++depth;
    } else if (s[i] == '}' || s[i] == ')') {
      --depth;
    }
  }
  return parts;
}

template <class T>
std::optional<T> parse_digits(std::string_view s, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, base);
  if (error != std::errc() || end != s.data() + s.size() || s.empty()) return {};
  return value;
}

std::optional<std::int64_t> parse_integer(std::string_view s) {
  const bool negative = s.starts_with('-');
  if (negative) s.remove_prefix(1);
  const auto value = s.starts_with("0x")
                         ? parse_digits<std::uint64_t>(s.substr(2), 16)
                         : parse_digits<std::uint64_t>(s, s.starts_with('0') ? 8 : 10);
  if (!value) return {};
  return std::int64_t(negative ? 0 - *value : *value);
}

bool is_float(Type type) { return type == Type::f32 || type == Type::f64; }

}  // namespace

std::optional<Type> parse_type(std::string_view name) {
  for (const auto& [each, type] : types)
    if (each == name) return type;
  return {};
}

std::uint32_t size_of(Type type) {
  switch (type) {
    case Type::pred:
      return 0;
    case Type::b8:
    case Type::u8:
    case Type::s8:
      return 1;
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
      return 2;
    case Type::b32:
    case Type::u32:
    case Type::s32:
    case Type::f32:
    case Type::tf32:
      return 4;
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return 8;
  }
  return 0;
}

// --- Names

Names::Names() : scopes_(1) {
  for (const std::string_view name : special_names) declare(std::string(name), Type::u32);
}

Register Names::allocate(std::uint32_t bytes, std::uint32_t count) {
  const Register first{end_, bytes};
  // A predicate's 4 bytes take a vector's place too, so that all are aligned.
  end_ += count * std::max(32 * bytes, 64u);
  return first;
}

void Names::declare(const std::string& name, Type type) {
  scopes_.back()[name] = {allocate(size_of(type), 1), 0};
}
void Names::declare(const std::string& name, Type type, std::uint32_t count) {
  scopes_.back()[name] = {allocate(size_of(type), count), count};
}
void Names::bind(const std::string& name, Register reg) { scopes_.back()[name] = {reg, 0}; }

std::optional<Register> Names::find(std::string_view name) const {
  std::string_view stem = name;
  while (!stem.empty() && stem.back() >= '0' && stem.back() <= '9') stem.remove_suffix(1);
  const auto number = parse_digits<std::uint32_t>(name.substr(stem.size()));
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->find(name); found != scope->end() && found->second.count == 0)
      return found->second.first;
    if (!number) continue;
    const auto found = scope->find(stem);
    if (found == scope->end() || *number >= found->second.count) continue;
    Register reg = found->second.first;
    reg.at += *number * std::max(32 * reg.bytes, 64u);
    return reg;
  }
  return {};
}

std::optional<std::uint64_t> Names::symbol(std::string_view name) const {
  const auto found = symbols_.find(name);
  if (found == symbols_.end()) return {};
  return found->second;
}

Register Names::constant(std::uint64_t bits, std::uint32_t bytes) {
  const auto [at, is_new] = constants_.try_emplace({bits, bytes});
  if (is_new) at->second = allocate(bytes, 1);
  return at->second;
}

std::vector<std::byte> Names::registers() const {
  std::vector<std::byte> file(end_, std::byte(0xff));
  for (const auto& [value, reg] : constants_) {
    const std::uint64_t bits = value.first;
    if (reg.bytes == 0) std::memcpy(&file[reg.at], &bits, 4);
    for (std::size_t lane = 0; lane < 32 && reg.bytes > 0; ++lane)
      std::memcpy(&file[reg.at + lane * reg.bytes], &bits, reg.bytes);
  }
  return file;
}

// --- Decoder

Decoder::Decoder(std::string_view text, Names& names) : text_(text), names_(names) {
  const std::size_t blank = std::min(text.find_first_of(" \t\n"), text.size());
  std::string_view opcode = text.substr(0, blank);
  operands_ = split(text.substr(blank));
  for (std::size_t dot; (dot = opcode.find('.')) != opcode.npos; opcode.remove_prefix(dot + 1))
    parts_.push_back(opcode.substr(0, dot));
  parts_.push_back(opcode);
}

bool Decoder::take(std::string_view modifier) {
  const bool is_next = next_part_ < parts_.size() && parts_[next_part_] == modifier;
  next_part_ += is_next;
  return is_next;
}
void Decoder::require(std::string_view modifier) {
  if (!take(modifier)) unknown();
}
Type Decoder::next_type() const {
  const auto type = next_part_ < parts_.size() ? parse_type(parts_[next_part_]) : std::nullopt;
  if (!type) unknown();
  return *type;
}
Type Decoder::type() {
  const Type type = next_type();
  ++next_part_;
  return type;
}

std::optional<Type> Decoder::take_bits() {
  if (take("b16")) return Type::u16;
  if (take("b32")) return Type::u32;
  if (take("b64")) return Type::u64;
  return {};
}

std::string_view Decoder::operand() {
  if (next_operand_ == operands_.size()) refuse("an operand is missing");
  return operands_[next_operand_++];
}
std::string_view Decoder::word() { return operand(); }
bool Decoder::has_vector() const {
  return next_operand_ < operands_.size() && operands_[next_operand_].starts_with('{');
}

bool Decoder::next_is_register() const {
  return next_operand_ < operands_.size() && names_.find(operands_[next_operand_]).has_value();
}

std::uint32_t Decoder::next_bytes() const {
  if (next_operand_ == operands_.size()) return 0;
  const auto reg = names_.find(operands_[next_operand_]);
  return reg ? reg->bytes : 0;
}

Register Decoder::parse(std::string_view s, Type type) const {
  if (const auto reg = names_.find(s)) {
    if (reg->bytes != size_of(type)) refuse(fmt::format("{} has {} bytes", s, reg->bytes));
    return *reg;
  }
  if (s.starts_with("0f") || s.starts_with("0d")) {
    const bool is_double = s[1] == 'd';
    const auto bits = parse_digits<std::uint64_t>(s.substr(2), 16);
    if (!bits || !is_float(type) || size_of(type) != (is_double ? 8u : 4u) ||
        s.size() != 2 + 2 * size_of(type))
      refuse(fmt::format("{} is no constant of this type", s));
    return names_.constant(*bits, size_of(type));
  }
  if (const auto value = parse_integer(s); value && !is_float(type)) {
    if (type == Type::pred) return names_.constant(*value ? ~0u : 0, 0);
    const std::uint32_t bytes = size_of(type);
    const std::uint64_t mask = bytes == 8 ? ~0ull : (1ull << 8 * bytes) - 1;
    return names_.constant(std::uint64_t(*value) & mask, bytes);
  }
  if (const auto address = names_.symbol(s); address && !is_float(type))
    return names_.constant(*address, size_of(type));
  refuse(fmt::format("{} is not declared", s));
}

Register Decoder::to(Type type) {
  const std::string_view s = operand();
  const auto reg = names_.find(s);
  if (!reg || reg->bytes != size_of(type)) refuse(fmt::format("{} cannot take the result", s));
  return *reg;
}
Register Decoder::from(Type type) { return parse(operand(), type); }

std::vector<Register> Decoder::registers() {
  const bool vector = has_vector();
  std::string_view s = operand();
  if (vector && !s.ends_with('}')) refuse(fmt::format("{} has no end", s));
  std::vector<Register> all;
  for (const std::string_view each : split(vector ? s.substr(1, s.size() - 2) : s)) {
    const auto reg = names_.find(each);
    if (!reg) refuse(fmt::format("{} is no register", each));
    all.push_back(*reg);
  }
  return all;
}

std::vector<Register> Decoder::to_vector(Type type, std::size_t count) {
  std::vector<Register> all = registers();
  if (all.size() != count) refuse(fmt::format("{} registers in place of {}", all.size(), count));
  for (const Register& reg : all)
    if (reg.bytes != size_of(type)) refuse(fmt::format("a register has {} bytes", reg.bytes));
  return all;
}
std::vector<Register> Decoder::from_vector(Type type, std::size_t count) {
  return to_vector(type, count);
}

Register Decoder::address(std::int64_t& offset) {
  std::string_view s = operand();
  if (!s.starts_with('[') || !s.ends_with(']')) refuse(fmt::format("{} is no address", s));
  s = trimmed(s.substr(1, s.size() - 2));
  offset = 0;
  if (const std::size_t plus = s.find('+'); plus != s.npos) {
    const auto value = parse_integer(trimmed(s.substr(plus + 1)));
    if (!value) refuse(fmt::format("{} has no offset", s));
    offset = *value;
    s = trimmed(s.substr(0, plus));
  }
  if (const auto reg = names_.find(s)) {
    if (reg->bytes != 4 && reg->bytes != 8) refuse(fmt::format("{} holds no address", s));
    return *reg;
  }
  if (const auto symbol = names_.symbol(s)) return names_.constant(*symbol, 8);
  refuse(fmt::format("{} is not declared", s));
}

std::optional<Register> Decoder::parameter_register() {
  if (next_operand_ == operands_.size()) return {};
  std::string_view s = operands_[next_operand_];
  if (!s.starts_with('[') || !s.ends_with(']')) return {};
  s = s.substr(1, s.size() - 2);
  if (s.ends_with("+0")) s.remove_suffix(2);
  if (s.starts_with('%')) return {};
  if (names_.find(s.substr(0, s.find('+'))) && s.find('+') != s.npos)
    refuse("a part of a parameter");
  const auto reg = names_.find(s);
  if (reg) ++next_operand_;
  return reg;
}

std::uint32_t Decoder::number() {
  const std::string_view s = operand();
  const auto value = parse_digits<std::uint32_t>(s);
  if (!value) refuse(fmt::format("{} is no number", s));
  return *value;
}

std::pair<Register, std::optional<Register>> Decoder::to_with_predicate(Type type) {
  const std::string_view s = operand();
  const std::size_t bar = std::min(s.find('|'), s.size());
  const auto reg = names_.find(s.substr(0, bar));
  if (!reg || reg->bytes != size_of(type)) refuse(fmt::format("{} cannot take the result", s));
  if (bar == s.size()) return {*reg, std::nullopt};
  const auto predicate = names_.find(s.substr(bar + 1));
  if (!predicate || predicate->bytes != 0) refuse(fmt::format("{} names no predicate", s));
  return {*reg, predicate};
}

void Decoder::finish() const {
  if (next_part_ != parts_.size()) unknown();
  if (next_operand_ != operands_.size())
    refuse(fmt::format("{} is one operand too many", operands_[next_operand_]));
}
void Decoder::unknown() const {
  throw Fault(fmt::format("unknown opcode '{}'", text_.substr(0, text_.find_first_of(" \t\n"))));
}
void Decoder::refuse(std::string_view why) const {
  throw Fault(fmt::format("{} in '{}'", why, text_));
}

}  // namespace convlab::ptx
