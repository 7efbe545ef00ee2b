// setp and selp.
#include <optional>
#include <string_view>

#include "kernels_cuda/ptx/elementwise.h"

namespace convlab::ptx {
namespace {

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

template <class F, class... T>
bool comparison(Decoder& d, Instruction& ins, std::string_view name, Types<T...>) {
  if (!d.take(name)) return false;
  const auto bits = name == "eq" || name == "ne" ? d.take_bits() : std::nullopt;
  const Type type = bits ? *bits : d.type();
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

}  // namespace

std::span<const Opcode> comparison_opcodes() {
  static constexpr Opcode opcodes[]{{"selp", &select_by_predicate}, {"setp", &set_predicate}};
  return opcodes;
}

}  // namespace convlab::ptx
