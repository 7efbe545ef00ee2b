// Opcodes of a whole warp: its barrier, shuffles, ldmatrix and the tensor cores' products.
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels_cuda/ptx/block.h"
#include "kernels_cuda/ptx/decoder.h"

namespace convlab::ptx {
namespace {

using u32 = std::uint32_t;

// The lanes that take part are those of the mask that have not exited. In step anyway, they need
// not wait.
void check_mask(Warp& warp, const Instruction& ins, Register mask) {
  for (u32 lane = 0; lane < 32; ++lane)
    if (warp.active() >> lane & 1 && (warp.lanes<u32>(mask)[lane] & warp.alive()) != warp.active())
      warp.fault(ins, lane, "its mask is not the lanes that take part");
}

void synchronize(Warp& warp, const Instruction& ins) { check_mask(warp, ins, ins.operands[0]); }

void decode_barrier(Decoder& d, Instruction& ins) {
  d.require("warp");
  d.require("sync");
  ins.operands[0] = d.from(Type::b32);
  ins.run = &synchronize;
}

// --- shuffles

enum class Shuffle { up, down, butterfly, index };

template <Shuffle kind>
void shuffle(Warp& warp, const Instruction& ins) {
  const u32* const value = warp.lanes<u32>(ins.operands[2]);
  const u32* const by = warp.lanes<u32>(ins.operands[3]);
  const u32* const clamp = warp.lanes<u32>(ins.operands[4]);
  check_mask(warp, ins, ins.operands[5]);
  u32 result[32], in_range = 0;
  for (u32 lane = 0; lane < 32; ++lane) {
    if (!(warp.active() >> lane & 1)) continue;
    const u32 segment = clamp[lane] >> 8 & 31, b = by[lane] & 31;
    const u32 first = lane & segment, last = first | (clamp[lane] & 31 & ~segment);
    u32 from = lane;
    bool in = false;
    if constexpr (kind == Shuffle::up)
      from = lane - b, in = std::int32_t(from) >= std::int32_t(last);
    if constexpr (kind == Shuffle::down) from = lane + b, in = from <= last;
    if constexpr (kind == Shuffle::butterfly) from = lane ^ b, in = from <= last;
    if constexpr (kind == Shuffle::index) from = first | (b & ~segment), in = from <= last;
    if (!in) from = lane;
    if (!(warp.active() >> from & 1)) warp.fault(ins, lane, "reads a lane that takes no part");
    result[lane] = value[from];
    in_range |= u32(in) << lane;
  }
  for (u32 lane = 0; lane < 32; ++lane)
    if (warp.active() >> lane & 1) warp.lanes<u32>(ins.operands[0])[lane] = result[lane];
  if (ins.constant) {
    u32& predicate = *warp.lanes<u32>(ins.operands[1]);
    predicate = (predicate & ~warp.active()) | in_range;
  }
}

void decode_shuffle(Decoder& d, Instruction& ins) {
  d.require("sync");
  const bool up = d.take("up"), down = d.take("down"), butterfly = d.take("bfly");
  if (!up && !down && !butterfly) d.require("idx");
  ins.run = up          ? &shuffle<Shuffle::up>
            : down      ? &shuffle<Shuffle::down>
            : butterfly ? &shuffle<Shuffle::butterfly>
                        : &shuffle<Shuffle::index>;
  d.require("b32");
  const auto [to, predicate] = d.to_with_predicate(Type::b32);
  ins.operands[0] = to;
  ins.constant = predicate.has_value();
  if (predicate) ins.operands[1] = *predicate;
  for (std::size_t i = 2; i < 6; ++i) ins.operands[i] = d.from(Type::b32);
}

// --- ldmatrix: matrices of 8 rows of 16 bytes. Lane 8 i + j has the address of row j of matrix i.

template <bool transposed>
void load_matrices(Warp& warp, const Instruction& ins) {
  warp.require_whole_warp(ins);
  std::uint64_t at[32];
  const unsigned count = ins.elements;
  warp.addresses(ins.operands[count], ins.offset, at);
  std::uint16_t rows[32][8];
  for (unsigned lane = 0; lane < 8 * count; ++lane)
    std::memcpy(rows[lane], warp.shared(at[lane], 16, Access::load, lane, ins), 16);
  for (unsigned i = 0; i < count; ++i) {
    u32* const to = warp.lanes<u32>(ins.operands[i]);
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned a = lane / 4, b = 2 * (lane % 4);
      to[lane] = transposed ? rows[8 * i + b][a] | u32(rows[8 * i + b + 1][a]) << 16
                            : rows[8 * i + a][b] | u32(rows[8 * i + a][b + 1]) << 16;
    }
  }
}

void decode_ldmatrix(Decoder& d, Instruction& ins) {
  for (const char* each : {"sync", "aligned", "m8n8"}) d.require(each);
  const unsigned count = d.take("x4") ? 4 : d.take("x2") ? 2 : (d.require("x1"), 1);
  ins.run = d.take("trans") ? &load_matrices<true> : &load_matrices<false>;
  d.require("shared");
  d.require("b16");
  ins.elements = std::uint8_t(count);
  std::ranges::copy(d.to_vector(Type::b32, count), ins.operands.begin());
  ins.operands[count] = d.address(ins.offset);
}

// --- mma.m16n8: d (16 x 8) = a (16 x depth) b (depth x 8) + c, with `elements` values a register
// of a and b. Lane 4 g + t has, of a register's element e,
//   a[i]: row g + 8 (i % 2), column elements (t + 4 (i / 2)) + e
//   b[i]: row elements (t + 4 i) + e, column g
//   c[i], d[i]: row g + 8 (i / 2), column 2 t + i % 2.
// Products are summed in double and rounded once.

struct Tf32 {  // the 13 low bits are not read
  static constexpr unsigned elements = 1;
  static double value(u32 bits, unsigned) { return std::bit_cast<float>(bits & 0xffffe000); }
};
struct Half {
  static constexpr unsigned elements = 2;
  static double value(u32 bits, unsigned e) {
    return double(std::bit_cast<_Float16>(std::uint16_t(bits >> 16 * e)));
  }
};
struct Brain {
  static constexpr unsigned elements = 2;
  static double value(u32 bits, unsigned e) {
    return std::bit_cast<float>(e ? bits & 0xffff0000 : bits << 16);
  }
};

template <class T>
void multiply(Warp& warp, const Instruction& ins) {
  warp.require_whole_warp(ins);
  constexpr unsigned n = T::elements, depth = 8 * n;
  double a[16][depth], b[depth][8], c[16][8];
  const Register* const to = &ins.operands[0];
  const Register* const as = &ins.operands[4];
  const Register* const bs = &ins.operands[8];
  const Register* const cs = &ins.operands[10];
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned e = 0; e < n; ++e) {
      for (unsigned i = 0; i < 4; ++i)
        a[g + 8 * (i % 2)][n * (t + 4 * (i / 2)) + e] = T::value(warp.lanes<u32>(as[i])[lane], e);
      for (unsigned i = 0; i < 2; ++i)
        b[n * (t + 4 * i) + e][g] = T::value(warp.lanes<u32>(bs[i])[lane], e);
    }
    for (unsigned i = 0; i < 4; ++i)
      c[g + 8 * (i / 2)][2 * t + i % 2] = warp.lanes<float>(cs[i])[lane];
  }
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned k = 0; k < depth; ++k)
      for (unsigned column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned i = 0; i < 4; ++i)
      warp.lanes<float>(to[i])[lane] = float(c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2]);
}

void decode_product(Decoder& d, Instruction& ins) {
  d.require("sync");
  d.require("aligned");
  const bool single = d.take("m16n8k8");
  if (!single) d.require("m16n8k16");
  for (const char* each : {"row", "col", "f32"}) d.require(each);
  const Type type = d.type();
  if (d.type() != type) d.unknown();
  d.require("f32");
  ins.run = single && type == Type::tf32    ? &multiply<Tf32>
            : !single && type == Type::f16  ? &multiply<Half>
            : !single && type == Type::bf16 ? &multiply<Brain>
                                            : nullptr;
  if (!ins.run) d.unknown();
  auto at = ins.operands.begin();
  at = std::ranges::copy(d.to_vector(Type::f32, 4), at).out;
  at = std::ranges::copy(d.from_vector(Type::b32, 4), at).out;
  at = std::ranges::copy(d.from_vector(Type::b32, 2), at).out;
  std::ranges::copy(d.from_vector(Type::f32, 4), at);
}

}  // namespace

std::span<const Opcode> warp_opcodes() {
  static constexpr Opcode opcodes[]{{"bar", &decode_barrier},
                                    {"ldmatrix", &decode_ldmatrix},
                                    {"mma", &decode_product},
                                    {"shfl", &decode_shuffle}};
  return opcodes;
}

}  // namespace convlab::ptx
