// cvt and mov: from one type to another, and from one register to others.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels_cuda/ptx/elementwise.h"

namespace convlab::ptx {
namespace {

template <class D>
struct To {  // rounds to nearest where D is a float, and keeps the low bits where it is none
  template <class S>
  D operator()(S v) const {
    return D(v);
  }
};
// The same of the low part of a wider register.
template <class D, class S>
struct FromLow {
  D operator()(u64 v) const { return To<D>{}(S(v)); }
  D operator()(u32 v) const { return To<D>{}(S(v)); }
};
// To an integer: what is too large or small is the last one, and NaN is 0, or the highest bit alone
// where one of the types has 64. `Round` makes it whole.
template <class D, class Round>
struct ToInteger {
  template <class S>
  D operator()(S v) const {
    if (v != v) return sizeof(S) == 8 || sizeof(D) == 8 ? D(D(1) << (8 * sizeof(D) - 1)) : D(0);
    v = Round{}(v);
    if (v <= S(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
    if (v >= S(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
    return D(v);
  }
};
struct RoundEven {
  template <class T>
  T operator()(T v) const {
    return std::nearbyint(v);
  }
};
struct RoundToZero {
  template <class T>
  T operator()(T v) const {
    return std::trunc(v);
  }
};
struct RoundDown {
  template <class T>
  T operator()(T v) const {
    return std::floor(v);
  }
};
struct RoundUp {
  template <class T>
  T operator()(T v) const {
    return std::ceil(v);
  }
};
struct Saturate {
  template <class T>
  T operator()(T v) const {
    return v > 0 ? std::min(v, T(1)) : T(0);
  }  // NaN: 0
};
struct ToHalf {
  f16 operator()(float v) const { return {v != v ? u16(0x7fff) : std::bit_cast<u16>(_Float16(v))}; }
};
struct FromHalf {
  float operator()(f16 v) const { return float(std::bit_cast<_Float16>(v.bits)); }
};
struct ToBrain {
  bf16 operator()(float v) const {
    const u32 bits = std::bit_cast<u32>(v);
    if (v != v) return {0x7fff};
    return {u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};  // ties to even
  }
};
struct FromBrain {
  float operator()(bf16 v) const { return std::bit_cast<float>(u32(v.bits) << 16); }
};
// Ties away from zero.
struct ToTf32 {
  tf32 operator()(float v) const {
    const u32 bits = std::bit_cast<u32>(v);
    if (v != v) return {0x7fffffff};
    if (std::isinf(v)) return {bits};
    return {(bits + 0x1000) & 0xffffe000};
  }
};

template <class D, class... S>
bool convert_from(Decoder& d, Instruction& ins, Types<S...>) {
  const auto try_type = [&]<class U>(std::type_identity<U>) {
    if (!is<U>(d.next_type())) return false;
    d.type();
    ins.operands[0] = d.to(type_of<D>);
    const std::uint32_t bytes = d.next_bytes();
    if constexpr (std::is_integral_v<U>)
      if (bytes > sizeof(U)) {
        ins.run =
            bytes == 8 ? &elementwise<FromLow<D, U>, D, u64> : &elementwise<FromLow<D, U>, D, u32>;
        ins.operands[1] = d.from(bytes == 8 ? Type::b64 : Type::b32);
        return true;
      }
    ins.run = &elementwise<To<D>, D, U>;
    ins.operands[1] = d.from(type_of<U>);
    return true;
  };
  return (try_type(std::type_identity<S>{}) || ...);
}

template <class Round, class... D>
bool to_whole(Decoder& d, Instruction& ins, Types<D...>) {
  const Type to = d.type(), from = d.type();
  if (is<float>(to) && is<float>(from)) return bind<Round, float, float>(d, ins), true;
  if (is<double>(to) && is<double>(from)) return bind<Round, double, double>(d, ins), true;
  const auto try_type = [&]<class U>(std::type_identity<U>) {
    if (!is<U>(to)) return false;
    if (is<float>(from)) return bind<ToInteger<U, Round>, U, float>(d, ins), true;
    if (is<double>(from)) return bind<ToInteger<U, Round>, U, double>(d, ins), true;
    return false;
  };
  return (try_type(std::type_identity<D>{}) || ...);
}

void convert(Decoder& d, Instruction& ins) {
  if (d.take("rna")) {
    d.require("tf32");
    d.require("f32");
    return bind<ToTf32, tf32, float>(d, ins);
  }
  if (d.take("sat")) {
    d.require("f32");
    d.require("f32");
    return bind<Saturate, float, float>(d, ins);
  }
  const auto whole = [&](bool known) {
    if (!known) d.unknown();
  };
  if (d.take("rni")) return whole(to_whole<RoundEven>(d, ins, WideIntegers{}));
  if (d.take("rzi")) return whole(to_whole<RoundToZero>(d, ins, WideIntegers{}));
  if (d.take("rmi")) return whole(to_whole<RoundDown>(d, ins, WideIntegers{}));
  if (d.take("rpi")) return whole(to_whole<RoundUp>(d, ins, WideIntegers{}));

  const bool rounds = d.take("rn");
  const Type to = d.type();
  bool known = false;
  if (rounds) {
    if (is<f16>(to) && d.take("f32")) return bind<ToHalf, f16, float>(d, ins);
    if (is<bf16>(to) && d.take("f32")) return bind<ToBrain, bf16, float>(d, ins);
    if (is<float>(to)) known = convert_from<float>(d, ins, Types<double, u32, s32, u64, s64>{});
    if (is<double>(to)) known = convert_from<double>(d, ins, Types<u32, s32, u64, s64>{});
  } else {
    if (is<float>(to) && d.take("f16")) return bind<FromHalf, float, f16>(d, ins);
    if (is<float>(to) && d.take("bf16")) return bind<FromBrain, float, bf16>(d, ins);
    if (is<double>(to)) known = convert_from<double>(d, ins, Types<float>{});
    if (is<u16>(to)) known = convert_from<u16>(d, ins, WideIntegers{});
    if (is<s16>(to)) known = convert_from<s16>(d, ins, WideIntegers{});
    if (is<u32>(to)) known = convert_from<u32>(d, ins, Integers{});
    if (is<s32>(to)) known = convert_from<s32>(d, ins, Integers{});
    if (is<u64>(to)) known = convert_from<u64>(d, ins, Integers{});
    if (is<s64>(to)) known = convert_from<s64>(d, ins, Integers{});
  }
  if (!known) d.unknown();
}

// mov.b64 %rd, {%r1, %r2} and back: the first is the low part. Registers of all sizes.
void regroup(Warp& warp, const Instruction& ins) {
  const auto copy = [&](Register to, Register from, std::size_t to_byte, std::size_t from_byte) {
    std::byte* const t = warp.lanes<std::byte>(to);
    const std::byte* const f = warp.lanes<std::byte>(from);
    const std::size_t bytes = std::min(to.bytes, from.bytes);
    for (unsigned lane = 0; lane < 32; ++lane)
      if (warp.active() >> lane & 1)
        std::memcpy(t + lane * to.bytes + to_byte, f + lane * from.bytes + from_byte, bytes);
  };
  const std::size_t parts = ins.elements;
  for (std::size_t i = 0; i < parts; ++i) {
    const bool joins = ins.constant != 0;
    const Register whole = joins ? ins.operands[0] : ins.operands[parts];
    const Register part = ins.operands[joins ? 1 + i : i];
    if (joins)
      copy(whole, part, i * part.bytes, 0);
    else
      copy(part, whole, 0, i * part.bytes);
  }
}

void move(Decoder& d, Instruction& ins) {
  const Type type = d.type();
  if (type == Type::pred) return predicates<Same>(d, ins, false);
  const bool splits = d.has_vector();
  std::vector<Register> to = d.registers();
  if (splits || d.has_vector()) {
    std::vector<Register> from = d.registers();
    const std::vector<Register>& parts = splits ? to : from;
    const std::vector<Register>& whole = splits ? from : to;
    std::size_t bytes = 0;
    for (const Register& part : parts) bytes += part.bytes;
    const bool alike = std::ranges::all_of(
        parts, [&](const Register& part) { return part.bytes == parts.front().bytes; });
    if (whole.size() != 1 || !alike || bytes != whole.front().bytes || bytes != size_of(type))
      d.refuse("parts do not fill the whole");
    ins.run = &regroup;
    ins.elements = std::uint8_t(parts.size());
    ins.constant = !splits;
    std::ranges::copy(from, std::ranges::copy(to, ins.operands.begin()).out);
    return;
  }
  if (to.front().bytes != size_of(type)) d.refuse("a register of another size");
  ins.operands[0] = to.front();
  ins.operands[1] = d.from(type);
  switch (size_of(type)) {
    case 2:
      ins.run = &elementwise<Same, u16, u16>;
      break;
    case 4:
      ins.run = &elementwise<Same, u32, u32>;
      break;
    case 8:
      ins.run = &elementwise<Same, u64, u64>;
      break;
    default:
      d.unknown();
  }
}

}  // namespace

std::span<const Opcode> conversion_opcodes() {
  static constexpr Opcode opcodes[]{{"cvt", &convert}, {"mov", &move}};
  return opcodes;
}

}  // namespace convlab::ptx
