// For opcodes that compute lane by lane: a function in all active lanes, chosen by the mnemonic's
// type.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels_cuda/ptx/block.h"
#include "kernels_cuda/ptx/decoder.h"

namespace convlab::ptx {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

// A 16-bit float is kept as its bits.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct tf32 {
  u32 bits;
};

template <class T>
bool is(Type type) {
  if constexpr (std::is_same_v<T, u16>) return type == Type::u16;
  if constexpr (std::is_same_v<T, u32>) return type == Type::u32;
  if constexpr (std::is_same_v<T, u64>) return type == Type::u64;
  if constexpr (std::is_same_v<T, s16>) return type == Type::s16;
  if constexpr (std::is_same_v<T, s32>) return type == Type::s32;
  if constexpr (std::is_same_v<T, s64>) return type == Type::s64;
  if constexpr (std::is_same_v<T, f16>) return type == Type::f16;
  if constexpr (std::is_same_v<T, bf16>) return type == Type::bf16;
  if constexpr (std::is_same_v<T, tf32>) return type == Type::tf32;
  if constexpr (std::is_same_v<T, float>) return type == Type::f32;
  if constexpr (std::is_same_v<T, double>) return type == Type::f64;
}
template <class T>
constexpr Type type_of = sizeof(T) == 2   ? Type::b16
                         : sizeof(T) == 4 ? Type::b32
                                          : Type::b64;
// Constants like 0f3F800000 are of a type that is told.
template <>
constexpr Type type_of<float> = Type::f32;
template <>
constexpr Type type_of<double> = Type::f64;

// All lanes compute, which vectorises; the active ones keep the result.
template <class F, class D, class... S>
void elementwise(Warp& warp, const Instruction& ins) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    D result[32];
    for (int lane = 0; lane < 32; ++lane)
      result[lane] = F{}(warp.lanes<const S>(ins.operands[I + 1])[lane]...);
    D* const to = warp.lanes<D>(ins.operands[0]);
    if (const u32 active = warp.active(); active == ~0u)
      std::memcpy(to, result, sizeof result);
    else
      for (int lane = 0; lane < 32; ++lane)
        if (active >> lane & 1) to[lane] = result[lane];
  }
  (std::index_sequence_for<S...>{});
}

// Predicates hold 32 lanes in a word.
template <class F>
void of_predicates(Warp& warp, const Instruction& ins) {
  u32& to = *warp.lanes<u32>(ins.operands[0]);
  const u32 result = F{}(*warp.lanes<u32>(ins.operands[1]), *warp.lanes<u32>(ins.operands[2]));
  to = (to & ~warp.active()) | (result & warp.active());
}

struct Same {
  template <class T>
  T operator()(T a) const {
    return a;
  }
  u32 operator()(u32 a, u32) const { return a; }
};
inline float flushed(float v) {
  return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.f, v) : v;
}

// --- decoding

template <class... T>
struct Types {};
using Integers = Types<u16, s16, u32, s32, u64, s64>;
using WideIntegers = Types<u32, s32, u64, s64>;
using Floats = Types<float, double>;
using Numbers = Types<u16, s16, u32, s32, u64, s64, float, double>;

template <class F, class D, class... S>
void bind(Decoder& d, Instruction& ins) {
  ins.run = &elementwise<F, D, S...>;
  ins.operands[0] = d.to(type_of<D>);
  std::size_t i = 1;
  ((ins.operands[i++] = d.from(type_of<S>)), ...);
}

// F of `Count` operands of a type.
template <class F, std::size_t Count, class... T>
void same_type(Decoder& d, Instruction& ins, Types<T...>, Type type) {
  const auto try_type = [&]<class U>(std::type_identity<U>) {
    if (!is<U>(type)) return false;
    if constexpr (Count == 1) bind<F, U, U>(d, ins);
    if constexpr (Count == 2) bind<F, U, U, U>(d, ins);
    if constexpr (Count == 3) bind<F, U, U, U, U>(d, ins);
    return true;
  };
  if (!(try_type(std::type_identity<T>{}) || ...)) d.unknown();
}
template <class F, std::size_t Count, class T>
void same_type(Decoder& d, Instruction& ins, T types) {
  same_type<F, Count>(d, ins, types, d.type());
}
template <class F, std::size_t Count>
void same_bits(Decoder& d, Instruction& ins) {
  const auto type = d.take_bits();
  if (!type) d.unknown();
  same_type<F, Count>(d, ins, Types<u16, u32, u64>{}, *type);
}

template <class F>
void predicates(Decoder& d, Instruction& ins, bool two) {
  ins.run = &of_predicates<F>;
  ins.operands[0] = d.to(Type::pred);
  ins.operands[1] = d.from(Type::pred);
  ins.operands[2] = two ? d.from(Type::pred) : ins.operands[1];
}

}  // namespace convlab::ptx
