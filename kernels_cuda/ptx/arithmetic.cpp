// Arithmetic, logic and shifts.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>

#include "kernels_cuda/ptx/elementwise.h"

namespace convlab::ptx {
namespace {

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
// Rounds toward zero.
struct AddTowardZero {
  float operator()(float a, float b) const {
    const volatile float x = a, y = b;
    std::fesetround(FE_TOWARDZERO);
    const volatile float result = x + y;
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
      if (a != a) return b;
      if (a == b) return std::signbit(a) ? a : b;
      return b < a ? b : a;
    } else {
      return std::min(a, b);
    }
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a) return b;
      if (a == b) return std::signbit(a) ? b : a;
      return b > a ? b : a;
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

// `F`, with .ftz or without.
template <class F, bool ftz>
struct Approximate {
  float operator()(float a) const { return ftz ? flushed(F{}(flushed(a))) : F{}(a); }
};
// Powers of two are exact: the toolkit's own tanh relies on it.
struct Exp2 {
  float operator()(float a) const {
    const float exact = float(std::exp2(double(a)));
    return a == std::trunc(a) ? exact : off_by_one(exact);
  }
};
struct Log2 {
  float operator()(float a) const {
    const float exact = float(std::log2(double(a)));
    return exact == std::trunc(exact) ? exact : off_by_one(exact);
  }
};
struct NearReciprocal {
  float operator()(float a) const { return off_by_one(1 / a); }
};
// .ftz.f64, "a gross approximation": the upper half, which callers refine.
struct GrossReciprocal {
  double operator()(double a) const {
    if (std::fpclassify(a) == FP_SUBNORMAL) a = std::copysign(0., a);
    const double r = 1 / a;
    if (std::fpclassify(r) == FP_SUBNORMAL) return std::copysign(0., r);
    return std::bit_cast<double>(std::bit_cast<u64>(r) & 0xffffffff00000000u);
  }
};

// --- decoding

template <class F>
void logic(Decoder& d, Instruction& ins) {
  if (d.take("pred"))
    predicates<F>(d, ins, true);
  else
    same_bits<F, 2>(d, ins);
}

// Only floats may have .rn.
template <class F>
void number(Decoder& d, Instruction& ins) {
  if (d.take("rn"))
    same_type<F, 2>(d, ins, Floats{});
  else
    same_type<F, 2>(d, ins, Numbers{});
}

void add(Decoder& d, Instruction& ins) {
  if (!d.take("rz")) return number<Add>(d, ins);
  d.require("f32");
  bind<AddTowardZero, float, float, float>(d, ins);
}

void divide(Decoder& d, Instruction& ins) {
  if (d.take("rn"))
    same_type<Divide, 2>(d, ins, Floats{});
  else
    same_type<Divide, 2>(d, ins, Integers{});
}

template <class F>
void approximate(Decoder& d, Instruction& ins, bool ftz) {
  d.require("f32");
  if (ftz)
    bind<Approximate<F, true>, float, float>(d, ins);
  else
    bind<Approximate<F, false>, float, float>(d, ins);
}

template <class F>
void shift(Decoder& d, Instruction& ins) {
  const auto bits = d.take_bits();
  const Type type = bits ? *bits : d.type();
  if (!bits && std::is_same_v<F, ShiftLeft>) d.unknown();
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
  d.take("rn");
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
    const bool ftz = d.take("ftz");
    if (ftz && d.take("f64")) return bind<GrossReciprocal, double, double>(d, ins);
    return approximate<NearReciprocal>(d, ins, ftz);
  }
  d.require("rn");
  same_type<Reciprocal, 1>(d, ins, Floats{});
}

void insert_bits(Decoder& d, Instruction& ins) {
  if (d.take("b32")) return bind<InsertBits, u32, u32, u32, u32, u32>(d, ins);
  d.require("b64");
  bind<InsertBits, u64, u64, u64, u32, u32>(d, ins);
}

}  // namespace

std::span<const Opcode> arithmetic_opcodes() {
  static constexpr Opcode opcodes[]{
      {"abs",
       [](Decoder& e, Instruction& i) {
         same_type<Absolute, 1>(e, i, Types<s32, s64, float, double>{});
       }},
      {"add", &add},
      {"and", &logic<And>},
      {"bfi", &insert_bits},
      {"copysign", [](Decoder& e, Instruction& i) { same_type<CopySign, 2>(e, i, Floats{}); }},
      {"div", &divide},
      {"ex2", [](Decoder& e,
                 Instruction& i) { e.require("approx"), approximate<Exp2>(e, i, e.take("ftz")); }},
      {"fma", &fma},
      {"lg2", [](Decoder& e,
                 Instruction& i) { e.require("approx"), approximate<Log2>(e, i, e.take("ftz")); }},
      {"mad", &multiply_add},
      {"max", [](Decoder& e, Instruction& i) { same_type<Maximum, 2>(e, i, Numbers{}); }},
      {"min", [](Decoder& e, Instruction& i) { same_type<Minimum, 2>(e, i, Numbers{}); }},
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
           same_bits<Not, 1>(e, i);
       }},
      {"or", &logic<Or>},
      {"rcp", &reciprocal},
      {"rem", [](Decoder& e, Instruction& i) { same_type<Remainder, 2>(e, i, Integers{}); }},
      {"shl", &shift<ShiftLeft>},
      {"shr", &shift<ShiftRight>},
      {"sqrt", [](Decoder& e,
                  Instruction& i) { e.require("rn"), same_type<SquareRoot, 1>(e, i, Floats{}); }},
      {"sub", &number<Subtract>},
      {"xor", &logic<Xor>},
  };
  return opcodes;
}

}  // namespace convlab::ptx
