// Loads, stores and copies.
#include <algorithm>
#include <cstring>

#include "kernels_cuda/ptx/elementwise.h"

namespace convlab::ptx {
namespace {

enum class Space : std::uint8_t { parameter, global, shared, local };

// Elements of M, which registers of R hold: ld.global.u8 may fill 16 bits, ld.global.s32 64.
template <Space space, class M, class R>
void load(Warp& warp, const Instruction& ins) {
  std::uint64_t at[32];
  warp.addresses(ins.operands[ins.elements], ins.offset, at);
  const std::size_t bytes = sizeof(M) * ins.elements;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(warp.active() >> lane & 1)) continue;
    const std::byte* from;
    if constexpr (space == Space::parameter) from = warp.parameter(at[lane], bytes, ins);
    if constexpr (space == Space::global) from = warp.global(at[lane], bytes, lane, ins);
    if constexpr (space == Space::shared)
      from = warp.shared(at[lane], bytes, Access::load, lane, ins);
    if constexpr (space == Space::local) from = warp.local(at[lane], bytes, lane, ins);
    for (unsigned i = 0; i < ins.elements; ++i) {
      M value;
      std::memcpy(&value, from + i * sizeof(M), sizeof(M));
      warp.lanes<R>(ins.operands[i])[lane] = R(value);
    }
  }
}

template <Space space, class M, class R>
void store(Warp& warp, const Instruction& ins) {
  std::uint64_t at[32];
  warp.addresses(ins.operands[0], ins.offset, at);
  const std::size_t bytes = sizeof(M) * ins.elements;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(warp.active() >> lane & 1)) continue;
    std::byte* to;
    if constexpr (space == Space::shared)
      to = warp.shared(at[lane], bytes, Access::store, lane, ins);
    else if constexpr (space == Space::local)
      to = warp.local(at[lane], bytes, lane, ins);
    else
      to = warp.global(at[lane], bytes, lane, ins);
    for (unsigned i = 0; i < ins.elements; ++i) {
      const M value = M(warp.lanes<R>(ins.operands[1 + i])[lane]);
      std::memcpy(to + i * sizeof(M), &value, sizeof(M));
    }
  }
}

// The pairs of memory's and register's types that there are. R is at least as wide as M, and
// unsigned: a signed M extends its sign. A float fills its register.
// `make` has an operation for each pair.
template <class Make>
Operation by_types(Type memory, std::uint32_t register_bytes, Make make) {
  const auto with = [&]<class M>(M) -> Operation {
    if constexpr (sizeof(M) <= 2)
      if (register_bytes == 2) return make.template operator()<M, std::uint16_t>();
    if constexpr (sizeof(M) <= 4)
      if (register_bytes == 4) return make.template operator()<M, std::uint32_t>();
    if (register_bytes == 8) return make.template operator()<M, std::uint64_t>();
    return nullptr;
  };
  switch (memory) {
    case Type::s8:
      return with(std::int8_t());
    case Type::s16:
      return with(std::int16_t());
    case Type::s32:
      return with(std::int32_t());
    case Type::f32:
    case Type::f64:
      if (register_bytes != size_of(memory)) return nullptr;
      break;
    case Type::pred:
    case Type::f16:
    case Type::bf16:
    case Type::tf32:
      return nullptr;
    default:
      break;
  }
  switch (size_of(memory)) {
    case 1:
      return with(std::uint8_t());
    case 2:
      return with(std::uint16_t());
    case 4:
      return with(std::uint32_t());
    default:
      return with(std::uint64_t());
  }
}

template <Space space>
Operation load_of(Type type, std::uint32_t register_bytes) {
  return by_types(type, register_bytes,
                  []<class M, class R>() -> Operation { return &load<space, M, R>; });
}
template <Space space>
Operation store_of(Type type, std::uint32_t register_bytes) {
  return by_types(type, register_bytes,
                  []<class M, class R>() -> Operation { return &store<space, M, R>; });
}

// A parameter of a call is a register of the caller's.
template <class T>
void copy_register(Warp& warp, const Instruction& ins) {
  for (unsigned lane = 0; lane < 32; ++lane)
    if (warp.active() >> lane & 1)
      warp.lanes<T>(ins.operands[0])[lane] = warp.lanes<T>(ins.operands[1])[lane];
}
void move_parameter(Decoder& d, Instruction& ins, Type type, Register to, Register from) {
  if (to.bytes != size_of(type) || from.bytes != size_of(type))
    d.refuse("a parameter of another size");
  ins.operands = {to, from};
  ins.run = to.bytes == 8 ? &copy_register<std::uint64_t> : &copy_register<std::uint32_t>;
  if (to.bytes < 4) d.unknown();
}

std::size_t vector_size(Decoder& d) { return d.take("v2") ? 2 : d.take("v4") ? 4 : 1; }

std::vector<Register> vector_operand(Decoder& d, std::size_t size) {
  std::vector<Register> all = d.registers();
  if (all.size() != size) d.refuse("a vector of another size");
  for (const Register& reg : all)
    if (reg.bytes != all.front().bytes) d.refuse("registers of several sizes");
  return all;
}

// Warps take turns, so that memory is ordered anyway.
void take_order(Decoder& d, std::string_view order) {
  if (d.take(order)) d.require("gpu");
}

void decode_load(Decoder& d, Instruction& ins) {
  take_order(d, "acquire");
  const Space space = d.take("param")    ? Space::parameter
                      : d.take("shared") ? Space::shared
                      : d.take("local")  ? Space::local
                                         : (d.require("global"), Space::global);
  // Caches: .nc may read old data, and nobody writes what is read so; .cg goes past the first
  // level.
  if (space == Space::global && !d.take("nc")) d.take("cg");
  const std::size_t size = vector_size(d);
  const Type type = d.type();
  if (size * size_of(type) > 16) d.refuse("a vector of more than 16 bytes");
  const std::vector<Register> to = vector_operand(d, size);
  if (space == Space::parameter && size == 1)
    if (const auto from = d.parameter_register())
      return move_parameter(d, ins, type, to.front(), *from);
  ins.elements = std::uint8_t(size);
  std::ranges::copy(to, ins.operands.begin());
  ins.operands[size] = d.address(ins.offset);
  const std::uint32_t bytes = to.front().bytes;
  switch (space) {
    case Space::parameter:
      ins.run = load_of<Space::parameter>(type, bytes);
      break;
    case Space::global:
      ins.run = load_of<Space::global>(type, bytes);
      break;
    case Space::shared:
      ins.run = load_of<Space::shared>(type, bytes);
      break;
    case Space::local:
      ins.run = load_of<Space::local>(type, bytes);
      break;
  }
  if (!ins.run) d.refuse("the register has another size");
}

void decode_store(Decoder& d, Instruction& ins) {
  if (d.take("param")) {
    const Type type = d.type();
    const auto to = d.parameter_register();
    if (!to) d.refuse("only parameters of calls can be stored to");
    return move_parameter(d, ins, type, *to, d.from(type));
  }
  const bool shared = d.take("shared"), local = !shared && d.take("local");
  if (!shared && !local) d.require("global");
  const std::size_t size = vector_size(d);
  const Type type = d.type();
  if (size * size_of(type) > 16) d.refuse("a vector of more than 16 bytes");
  ins.elements = std::uint8_t(size);
  ins.operands[0] = d.address(ins.offset);
  std::vector<Register> from;
  if (size == 1 && !d.next_is_register())
    from = {d.from(type)};
  else
    from = vector_operand(d, size);
  std::ranges::copy(from, ins.operands.begin() + 1);
  ins.run = shared  ? store_of<Space::shared>(type, from.front().bytes)
            : local ? store_of<Space::local>(type, from.front().bytes)
                    : store_of<Space::global>(type, from.front().bytes);
  if (!ins.run) d.refuse("the register has another size");
}

// Lane by lane, in order; gives the old value if it is asked for. Subnormal floats in global memory
// are zeros to atomics.
template <class T>
void add_in_memory(Warp& warp, const Instruction& ins) {
  const bool returns = ins.constant != 0;
  std::uint64_t at[32];
  warp.addresses(ins.operands[1], ins.offset, at);
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(warp.active() >> lane & 1)) continue;
    std::byte* const p = warp.global(at[lane], sizeof(T), lane, ins);
    T value;
    std::memcpy(&value, p, sizeof value);
    T addend = warp.lanes<T>(ins.operands[2])[lane], sum = value;
    if constexpr (std::is_same_v<T, float>)
      sum = flushed(flushed(value) + flushed(addend));
    else
      sum += addend;
    std::memcpy(p, &sum, sizeof sum);
    if (returns) warp.lanes<T>(ins.operands[0])[lane] = value;
  }
}

void decode_atomic(Decoder& d, Instruction& ins) {
  const bool returns = d.opcode() == "atom";
  take_order(d, "release");
  d.require("global");
  d.require("add");
  const Type type = d.type();
  ins.run = type == Type::f32   ? &add_in_memory<float>
            : type == Type::u32 ? &add_in_memory<std::uint32_t>
                                : nullptr;
  if (!ins.run) d.unknown();
  ins.constant = returns;
  if (returns) ins.operands[0] = d.to(type);
  ins.operands[1] = d.address(ins.offset);
  ins.operands[2] = d.from(type);
}

// A generic address is the same address; only ld and st of a named space are known.
void convert_address(Decoder& d, Instruction& ins) {
  if (d.take("to"))
    d.require("global");
  else
    d.require("local");
  d.require("u64");
  ins.operands = {d.to(Type::u64), d.from(Type::u64)};
  ins.run = &copy_register<std::uint64_t>;
}

// --- cp.async

template <bool all>
void start_copies(Warp& warp, const Instruction& ins) {
  std::uint64_t to[32], from[32];
  warp.addresses(ins.operands[0], ins.offset, to);
  warp.addresses(ins.operands[1], ins.other_offset, from);
  const std::uint32_t bytes = ins.constant;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(warp.active() >> lane & 1)) continue;
    const std::uint32_t valid = all ? bytes : warp.lanes<std::uint32_t>(ins.operands[2])[lane];
    if (valid > bytes) warp.fault(ins, lane, "reads more than it copies");
    if (from[lane] % bytes) warp.fault(ins, lane, "misaligned: its source");
    const std::byte* const source = valid ? warp.global(from[lane], valid, lane, ins) : nullptr;
    warp.start_copy({to[lane], source, bytes, valid, lane, 0}, ins);
  }
}
void commit(Warp& warp, const Instruction&) { warp.commit_copies(); }
void wait(Warp& warp, const Instruction& ins) { warp.wait_for_copies(ins.constant, ins); }

void decode_copy(Decoder& d, Instruction& ins) {
  d.require("async");
  if (d.take("commit_group")) {
    ins.run = &commit;
    return;
  }
  if (d.take("wait_group")) {
    ins.constant = d.number();
    ins.run = &wait;
    return;
  }
  const bool past_l1 = d.take("cg");
  if (!past_l1) d.require("ca");
  d.require("shared");
  d.require("global");
  ins.operands[0] = d.address(ins.offset);
  ins.operands[1] = d.address(ins.other_offset);
  ins.constant = d.number();
  if (ins.constant != 16 && (past_l1 || (ins.constant != 4 && ins.constant != 8)))
    d.refuse("a copy of another size");
  const bool all = d.operands_left() == 0;
  if (!all) ins.operands[2] = d.from(Type::u32);
  ins.run = all ? &start_copies<true> : &start_copies<false>;
}

}  // namespace

std::span<const Opcode> memory_opcodes() {
  static constexpr Opcode opcodes[]{
      {"atom", &decode_atomic}, {"cp", &decode_copy},    {"cvta", &convert_address},
      {"ld", &decode_load},     {"red", &decode_atomic}, {"st", &decode_store},
  };
  return opcodes;
}

}  // namespace convlab::ptx
