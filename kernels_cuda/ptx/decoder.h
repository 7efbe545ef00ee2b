// One instruction's text, read from left to right by those who know its opcode (arithmetic.cpp,
// comparison.cpp, conversion.cpp, memory.cpp, warp.cpp). What they do not take is an error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels_cuda/ptx/program.h"

namespace convlab::ptx {

enum class Type : std::uint8_t {
  pred,
  b8,
  b16,
  b32,
  b64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  bf16,
  tf32,
  f32,
  f64,
};
std::optional<Type> parse_type(std::string_view);
std::uint32_t size_of(Type);  // in bytes; 0 for a predicate

// Names that a kernel declares. Scopes nest: braces in the text, and a function inside its caller.
class Names {
 public:
  Names();

  void open() { scopes_.emplace_back(); }
  void close() { scopes_.pop_back(); }
  void declare(const std::string& name, Type, std::uint32_t count);  // %r<count>: %r0, %r1, ...
  void declare(const std::string& name, Type);
  void bind(const std::string& name, Register);
  void set_symbol(const std::string& name, std::uint64_t address) { symbols_[name] = address; }

  std::optional<Register> find(std::string_view name) const;
  std::optional<std::uint64_t> symbol(std::string_view name) const;
  // The register with these bits in every lane.
  Register constant(std::uint64_t bits, std::uint32_t bytes);

  std::vector<std::byte> registers() const;  // as in Program

 private:
  struct Declared {
    Register first;
    std::uint32_t count;  // 0: a single register, without a number behind its name
  };
  Register allocate(std::uint32_t bytes, std::uint32_t count);

  std::vector<std::map<std::string, Declared, std::less<>>> scopes_;
  std::map<std::string, std::uint64_t, std::less<>> symbols_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, Register> constants_;
  std::uint32_t end_ = 0;
};

class Decoder {
 public:
  // `text` is "opcode.modifiers operands".
  Decoder(std::string_view text, Names&);

  // --- the opcode: add.s32 is "add" and "s32"

  std::string_view opcode() const { return parts_.front(); }
  bool take(std::string_view modifier);  // if it is the next
  void require(std::string_view modifier);
  Type type();
  Type next_type() const;  // of the next part, which stays
  // .b16, .b32 or .b64, if it is the next, as the unsigned type of its size.
  std::optional<Type> take_bits();

  // --- operands, each taken from the front. Registers must be as wide as the type.

  Register to(Type);    // a register, not a constant
  Register from(Type);  // a register, a constant or a symbol's address
  std::vector<Register> to_vector(Type, std::size_t count);  // {%r1, %r2}
  std::vector<Register> from_vector(Type, std::size_t count);
  std::vector<Register> registers();  // one, or a vector's, of any width
  Register address(std::int64_t& offset);
  // [param0+0] inside a call is a register; else none, and the operand stays.
  std::optional<Register> parameter_register();
  std::uint32_t number();
  std::pair<Register, std::optional<Register>> to_with_predicate(Type);  // %r1|%p1
  bool has_vector() const;
  bool next_is_register() const;
  std::uint32_t next_bytes() const;  // of the register that is next; 0 if none is
  std::size_t operands_left() const { return operands_.size() - next_operand_; }
  std::string_view word();  // a label or a name

  void finish() const;                               // throws if anything is left
  [[noreturn]] void unknown() const;                 // this opcode
  [[noreturn]] void refuse(std::string_view) const;  // this operand

 private:
  std::string_view operand();
  Register parse(std::string_view, Type) const;

  std::string_view text_;
  std::vector<std::string_view> parts_;
  std::vector<std::string_view> operands_;
  std::size_t next_part_ = 1, next_operand_ = 0;
  Names& names_;
};

// What decodes an opcode; here the mnemonic's first word.
struct Opcode {
  std::string_view name;
  void (*decode)(Decoder&, Instruction&);
};
std::span<const Opcode> arithmetic_opcodes();
std::span<const Opcode> comparison_opcodes();
std::span<const Opcode> conversion_opcodes();
std::span<const Opcode> memory_opcodes();
std::span<const Opcode> warp_opcodes();

}  // namespace convlab::ptx
