// Opcodes that compute lane by lane: arithmetic, logic, comparisons, conversions and moves.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels_cuda/ptx/block.h"
#include "kernels_cuda/ptx/decoder.h"

namespace convlab::ptx {
namespace {

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
  if constexpr (std::is_same_v<T, u16>) return type == Type::u16 || type == Type::b16;
  if constexpr (std::is_same_v<T, u32>) return type == Type::u32 || type == Type::b32;
  if constexpr (std::is_same_v<T, u64>) return type == Type::u64 || type == Type::b64;
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

// --- running a function in the active lanes

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

template <class F, class T>
void compare(Warp& warp, const Instruction& ins) {
  const T* const a = warp.lanes<T>(ins.operands[1]);
  const T* const b = warp.lanes<T>(ins.operands[2]);
  u32 result = 0;
  for (int lane = 0; lane < 32; ++lane) result |= u32(F{}(a[lane], b[lane])) << lane;
  u32& to = *warp.lanes<u32>(ins.operands[0]);
  to = (to & ~warp.active()) | (result & warp.active());
}

template <class T>
void select(Warp& warp, const Instruction& ins) {
  const T* const a = warp.lanes<T>(ins.operands[1]);
  const T* const b = warp.lanes<T>(ins.operands[2]);
  const u32 takes_a = *warp.lanes<u32>(ins.operands[3]);
  T* const to = warp.lanes<T>(ins.operands[0]);
  for (int lane = 0; lane < 32; ++lane)
    if (warp.active() >> lane & 1) to[lane] = takes_a >> lane & 1 ? a[lane] : b[lane];
}

// Predicates hold 32 lanes in a word.
template <class F>
void of_predicates(Warp& warp, const Instruction& ins) {
  u32& to = *warp.lanes<u32>(ins.operands[0]);
  const u32 result = F{}(*warp.lanes<u32>(ins.operands[1]), *warp.lanes<u32>(ins.operands[2]));
  to = (to & ~warp.active()) | (result & warp.active());
}

// --- functions

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else
      return a + b;
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return T(std::make_unsigned_t<T>(a) - std::make_unsigned_t<T>(b));
    else
      return a - b;
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return T(u64(a) * u64(b));
    else
      return a * b;
  }
};
struct MultiplyHigh {
  s32 operator()(s32 a, s32 b) const { return s32(s64(a) * b >> 32); }
  u32 operator()(u32 a, u32 b) const { return u32(u64(a) * b >> 32); }
  s64 operator()(s64 a, s64 b) const { return s64(static_cast<__int128>(a) * b >> 64); }
  u64 operator()(u64 a, u64 b) const { return u64(static_cast<unsigned __int128>(a) * b >> 64); }
};
struct MultiplyWide {
  s32 operator()(s16 a, s16 b) const { return s32(a) * b; }
  u32 operator()(u16 a, u16 b) const { return u32(a) * b; }
  s64 operator()(s32 a, s32 b) const { return s64(a) * b; }
  u64 operator()(u32 a, u32 b) const { return u64(a) * b; }
};
struct MultiplyAddLow {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Add{}(Multiply{}(a, b), c);
  }
};
struct MultiplyAddWide {
  template <class T, class W>
  W operator()(T a, T b, W c) const {
    return Add{}(W(MultiplyWide{}(a, b)), c);
  }
};
struct Fma {
  template <class T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
// Rounds down.
struct FmaDown {
  float operator()(float a, float b, float c) const {
    const volatile float x = a, y = b, z = c;
    std::fesetround(FE_DOWNWARD);
    const volatile float result = std::fma(x, y, z);
    std::fesetround(FE_TONEAREST);
    return result;
  }
};
// By zero the result is not specified; this one is ones.
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return a / b;
    else if (b == 0)
      return T(~T(0));
    else if (b == T(-1) && std::is_signed_v<T>)
      return Subtract{}(T(0), a);
    else
      return a / b;
  }
};
struct Remainder {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return T(~T(0));
    if (b == T(-1) && std::is_signed_v<T>) return 0;
    return a % b;
  }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>)
      return Subtract{}(T(0), a);
    else
      return -a;
  }
};
struct Absolute {
  template <class T>
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>)
      return a < 0 ? Negate{}(a) : a;
    else
      return std::fabs(a);
  }
};
struct CopySign {  // of the first
  template <class T>
  T operator()(T a, T b) const {
    return std::copysign(b, a);
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return std::signbit(a) ? a : b;
      return std::fmin(a, b);
    } else {
      return std::min(a, b);
    }
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return std::signbit(a) ? b : a;
      return std::fmax(a, b);
    } else {
      return std::max(a, b);
    }
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return T(~a);
  }
  u32 operator()(u32 a, u32) const { return ~a; }  // of predicates
};
struct Same {
  template <class T>
  T operator()(T a) const {
    return a;
  }
  u32 operator()(u32 a, u32) const { return a; }
};
// Shifts by more than the width leave nothing but the sign.
struct ShiftLeft {
  template <class T>
  T operator()(T a, u32 by) const {
    return by >= 8 * sizeof(T) ? T(0) : T(a << by);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, u32 by) const {
    constexpr u32 last = 8 * sizeof(T) - 1;
    if (by > last) return std::is_signed_v<T> ? T(a >> last) : T(0);
    return T(a >> by);
  }
};
// The low `count` bits of a replace those of b from `at` on.
struct InsertBits {
  template <class T>
  T operator()(T a, T b, u32 at, u32 count) const {
    at &= 0xff, count &= 0xff;
    constexpr u32 width = 8 * sizeof(T);
    if (at >= width || count == 0) return b;
    const T mask = T((count >= width ? ~T(0) : T((T(1) << count) - 1)) << at);
    return T((b & ~mask) | (T(a << at) & mask));
  }
};
struct SquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return 1 / a;
  }
};

// What .approx allows: a result off by one unit in the last place, up or down as its bits say.
float off_by_one(float v) {
  const u32 bits = std::bit_cast<u32>(v);
  if (!std::isnormal(v)) return v;
  return std::bit_cast<float>(std::popcount(bits) % 2 ? bits + 1 : bits - 1);
}
float flushed(float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.f, v) : v; }

// .ftz. Powers of two are exact: the toolkit's own tanh relies on it.
struct ApproximateExp2 {
  float operator()(float a) const {
    a = flushed(a);
    const float exact = float(std::exp2(double(a)));
    return flushed(a == std::trunc(a) ? exact : off_by_one(exact));
  }
};
struct ApproximateReciprocal {  // .ftz
  float operator()(float a) const { return flushed(off_by_one(1 / flushed(a))); }
  // "A gross approximation": its upper half, which callers refine.
  double operator()(double a) const {
    if (std::fpclassify(a) == FP_SUBNORMAL) a = std::copysign(0., a);
    const double r = 1 / a;
    if (std::fpclassify(r) == FP_SUBNORMAL) return std::copysign(0., r);
    return std::bit_cast<double>(std::bit_cast<u64>(r) & 0xffffffff00000000u);
  }
};

// Ordered comparisons are false with NaN, unordered ones true.
template <class T>
bool unordered(T a, T b) {
  return a != a || b != b;
}
struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return !unordered(a, b) && a != b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct IsNaN {
  template <class T>
  bool operator()(T a, T b) const {
    return unordered(a, b);
  }
};
struct IsNumber {
  template <class T>
  bool operator()(T a, T b) const {
    return !unordered(a, b);
  }
};
template <class F>
struct Unordered {
  template <class T>
  bool operator()(T a, T b) const {
    return unordered(a, b) || F{}(a, b);
  }
};

// --- conversions

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
// To an integer: NaN is 0, and what is too large or small the last one. `Round` makes it whole.
template <class D, class Round>
struct ToInteger {
  template <class S>
  D operator()(S v) const {
    if (v != v) return 0;
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
  f16 operator()(float v) const { return {std::bit_cast<u16>(_Float16(v))}; }
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
    if ((bits & 0x7f800000) == 0x7f800000) return {bits};
    return {(bits + 0x1000) & 0xffffe000};
  }
};

// --- decoding

template <class... T>
struct Types {};
using Integers = Types<u16, s16, u32, s32, u64, s64>;
using WideIntegers = Types<u32, s32, u64, s64>;
using Floats = Types<float, double>;
using Numbers = Types<u16, s16, u32, s32, u64, s64, float, double>;
using Bits = Types<u16, u32, u64>;

template <class F, class D, class... S>
void bind(Decoder& d, Instruction& ins) {
  ins.run = &elementwise<F, D, S...>;
  ins.operands[0] = d.to(type_of<D>);
  std::size_t i = 1;
  ((ins.operands[i++] = d.from(type_of<S>)), ...);
}

// F of `Count` operands of the type that the mnemonic ends with.
template <class F, std::size_t Count, class... T>
void same_type(Decoder& d, Instruction& ins, Types<T...>) {
  const Type type = d.type();
  const auto try_type = [&]<class U>(std::type_identity<U>) {
    if (!is<U>(type)) return false;
    if constexpr (Count == 1) bind<F, U, U>(d, ins);
    if constexpr (Count == 2) bind<F, U, U, U>(d, ins);
    if constexpr (Count == 3) bind<F, U, U, U, U>(d, ins);
    return true;
  };
  if (!(try_type(std::type_identity<T>{}) || ...)) d.unknown();
}

template <class F>
void predicates(Decoder& d, Instruction& ins, bool two) {
  ins.run = &of_predicates<F>;
  ins.operands[0] = d.to(Type::pred);
  ins.operands[1] = d.from(Type::pred);
  ins.operands[2] = two ? d.from(Type::pred) : ins.operands[1];
}

template <class F>
void logic(Decoder& d, Instruction& ins) {
  if (d.take("pred"))
    predicates<F>(d, ins, true);
  else
    same_type<F, 2>(d, ins, Bits{});
}

void rounds_to_nearest(Decoder& d) { d.take("rn"); }

template <class F>
void shift(Decoder& d, Instruction& ins) {
  const Type type = d.type();
  if (is<u16>(type))
    bind<F, u16, u16, u32>(d, ins);
  else if (is<s16>(type))
    bind<F, s16, s16, u32>(d, ins);
  else if (is<u32>(type))
    bind<F, u32, u32, u32>(d, ins);
  else if (is<s32>(type))
    bind<F, s32, s32, u32>(d, ins);
  else if (is<u64>(type))
    bind<F, u64, u64, u32>(d, ins);
  else if (is<s64>(type))
    bind<F, s64, s64, u32>(d, ins);
  else
    d.unknown();
}

void multiply(Decoder& d, Instruction& ins) {
  if (d.take("lo")) return same_type<Multiply, 2>(d, ins, Integers{});
  if (d.take("hi")) return same_type<MultiplyHigh, 2>(d, ins, WideIntegers{});
  if (d.take("wide")) {
    if (d.take("s16")) return bind<MultiplyWide, s32, s16, s16>(d, ins);
    if (d.take("u16")) return bind<MultiplyWide, u32, u16, u16>(d, ins);
    if (d.take("s32")) return bind<MultiplyWide, s64, s32, s32>(d, ins);
    if (d.take("u32")) return bind<MultiplyWide, u64, u32, u32>(d, ins);
    d.unknown();
  }
  rounds_to_nearest(d);
  same_type<Multiply, 2>(d, ins, Floats{});
}

void multiply_add(Decoder& d, Instruction& ins) {
  if (d.take("lo")) return same_type<MultiplyAddLow, 3>(d, ins, Integers{});
  d.require("wide");
  if (d.take("s32")) return bind<MultiplyAddWide, s64, s32, s32, s64>(d, ins);
  d.require("u32");
  bind<MultiplyAddWide, u64, u32, u32, u64>(d, ins);
}

void fma(Decoder& d, Instruction& ins) {
  if (d.take("rm")) {
    d.require("f32");
    return bind<FmaDown, float, float, float, float>(d, ins);
  }
  d.require("rn");
  same_type<Fma, 3>(d, ins, Floats{});
}

void reciprocal(Decoder& d, Instruction& ins) {
  if (d.take("approx")) {
    d.require("ftz");
    return same_type<ApproximateReciprocal, 1>(d, ins, Floats{});
  }
  d.require("rn");
  same_type<Reciprocal, 1>(d, ins, Floats{});
}

void insert_bits(Decoder& d, Instruction& ins) {
  if (d.take("b32")) return bind<InsertBits, u32, u32, u32, u32, u32>(d, ins);
  d.require("b64");
  bind<InsertBits, u64, u64, u64, u32, u32>(d, ins);
}

template <class F, class... T>
bool comparison(Decoder& d, Instruction& ins, std::string_view name, Types<T...>) {
  if (!d.take(name)) return false;
  const Type type = d.type();
  const auto try_type = [&]<class U>(std::type_identity<U>) {
    if (!is<U>(type)) return false;
    ins.run = &compare<F, U>;
    ins.operands[0] = d.to(Type::pred);
    ins.operands[1] = d.from(type_of<U>);
    ins.operands[2] = d.from(type_of<U>);
    return true;
  };
  if (!(try_type(std::type_identity<T>{}) || ...)) d.unknown();
  return true;
}

void set_predicate(Decoder& d, Instruction& ins) {
  if (comparison<Equal>(d, ins, "eq", Numbers{}) || comparison<NotEqual>(d, ins, "ne", Numbers{}) ||
      comparison<Less>(d, ins, "lt", Numbers{}) || comparison<LessEqual>(d, ins, "le", Numbers{}) ||
      comparison<Greater>(d, ins, "gt", Numbers{}) ||
      comparison<GreaterEqual>(d, ins, "ge", Numbers{}) ||
      comparison<Unordered<Equal>>(d, ins, "equ", Floats{}) ||
      comparison<Unordered<NotEqual>>(d, ins, "neu", Floats{}) ||
      comparison<Unordered<Less>>(d, ins, "ltu", Floats{}) ||
      comparison<Unordered<LessEqual>>(d, ins, "leu", Floats{}) ||
      comparison<Unordered<Greater>>(d, ins, "gtu", Floats{}) ||
      comparison<Unordered<GreaterEqual>>(d, ins, "geu", Floats{}) ||
      comparison<IsNaN>(d, ins, "nan", Floats{}) || comparison<IsNumber>(d, ins, "num", Floats{}))
    return;
  d.unknown();
}

void select_by_predicate(Decoder& d, Instruction& ins) {
  const Type type = d.type();
  switch (size_of(type)) {
    case 2:
      ins.run = &select<u16>;
      break;
    case 4:
      ins.run = &select<u32>;
      break;
    case 8:
      ins.run = &select<u64>;
      break;
    default:
      d.unknown();
  }
  ins.operands[0] = d.to(type);
  ins.operands[1] = d.from(type);
  ins.operands[2] = d.from(type);
  ins.operands[3] = d.from(Type::pred);
}

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

bool decode_arithmetic(Decoder& d, Instruction& ins) {
  using Decode = void (*)(Decoder&, Instruction&);
  static const std::map<std::string_view, Decode> opcodes{
      {"abs",
       [](Decoder& e, Instruction& i) {
         same_type<Absolute, 1>(e, i, Types<s32, s64, float, double>{});
       }},
      {"add", [](Decoder& e,
                 Instruction& i) { rounds_to_nearest(e), same_type<Add, 2>(e, i, Numbers{}); }},
      {"and", &logic<And>},
      {"bfi", &insert_bits},
      {"copysign", [](Decoder& e, Instruction& i) { same_type<CopySign, 2>(e, i, Floats{}); }},
      {"cvt", &convert},
      {"div", [](Decoder& e,
                 Instruction& i) { rounds_to_nearest(e), same_type<Divide, 2>(e, i, Numbers{}); }},
      {"ex2",
       [](Decoder& e, Instruction& i) {
         e.require("approx"), e.require("ftz"), same_type<ApproximateExp2, 1>(e, i, Types<float>{});
       }},
      {"fma", &fma},
      {"mad", &multiply_add},
      {"max", [](Decoder& e, Instruction& i) { same_type<Maximum, 2>(e, i, Numbers{}); }},
      {"min", [](Decoder& e, Instruction& i) { same_type<Minimum, 2>(e, i, Numbers{}); }},
      {"mov", &move},
      {"mul", &multiply},
      {"neg",
       [](Decoder& e, Instruction& i) {
         same_type<Negate, 1>(e, i, Types<s16, s32, s64, float, double>{});
       }},
      {"not",
       [](Decoder& e, Instruction& i) {
         if (e.take("pred"))
           predicates<Not>(e, i, false);
         else
           same_type<Not, 1>(e, i, Bits{});
       }},
      {"or", &logic<Or>},
      {"rcp", &reciprocal},
      {"rem", [](Decoder& e, Instruction& i) { same_type<Remainder, 2>(e, i, Integers{}); }},
      {"selp", &select_by_predicate},
      {"setp", &set_predicate},
      {"shl", &shift<ShiftLeft>},
      {"shr", &shift<ShiftRight>},
      {"sqrt", [](Decoder& e,
                  Instruction& i) { e.require("rn"), same_type<SquareRoot, 1>(e, i, Floats{}); }},
      {"sub",
       [](Decoder& e, Instruction& i) {
         rounds_to_nearest(e), same_type<Subtract, 2>(e, i, Numbers{});
       }},
      {"xor", &logic<Xor>},
  };
  const auto found = opcodes.find(d.opcode());
  if (found == opcodes.end()) return false;
  found->second(d, ins);
  return true;
}

}  // namespace convlab::ptx
