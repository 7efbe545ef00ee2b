// A kernel as nvcc made it: its PTX, decoded for Block (block.h) to execute. Opcodes, types and
// their meaning are those of NVIDIA's "Parallel Thread Execution ISA".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "conv/error.h"

namespace convlab::ptx {

// PTX that cannot be decoded, or a kernel that did what no kernel may. Says where in the PTX.
class Fault : public Error {
 public:
  using Error::Error;
};

// Where a register begins in a warp's register file, in bytes. A register is 32 lanes side by side
// of `bytes` each; a predicate is one bit a lane, and has 0 bytes. Constants are registers that no
// instruction writes.
struct Register {
  std::uint32_t at = 0;
  std::uint32_t bytes = 0;
};

class Warp;
struct Instruction;
using Operation = void (*)(Warp&, const Instruction&);

// What follows an instruction.
enum class Control : std::uint8_t { next, branch, exit, barrier };

struct Instruction {
  Operation run = nullptr;  // for the active lanes; null unless `control` is next
  Control control = Control::next;
  bool guarded = false, guard_negated = false;
  Register guard;  // the predicate in @%p
  // The results, then what is read, in the order of the text; vectors are spelt out.
  std::array<Register, 14> operands{};
  std::uint8_t elements = 1;                  // of a vector that is loaded or stored
  std::int64_t offset = 0, other_offset = 0;  // what is added to an address's register
  std::uint32_t constant = 0;                 // bytes of a copy, groups that may be in flight
  // Of a branch: where it leads, and where lanes meet again that part here.
  std::uint32_t target = 0, meets = 0;
  int line = 0;
  std::string_view text;
};

// The special registers, which have the first places in the file.
enum class Special : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
};
constexpr std::uint32_t specials = 13;
constexpr Register register_of(Special s) { return {std::uint32_t(s) * 128, 4}; }

// Where dynamic shared memory begins: behind all static arrays, of which there are at most 48 KB.
constexpr std::size_t dynamic_shared = 128 << 10;

struct Program {
  std::string kernel;
  std::vector<Instruction> code;
  // A warp's register file before it starts: constants, and ones everywhere else.
  std::vector<std::byte> registers;
  struct Range {
    std::size_t begin = 0, bytes = 0;
    bool holds(std::uint64_t address, std::size_t count) const {
      return address >= begin && count <= bytes && address - begin <= bytes - count;
    }
  };
  std::vector<Range> parameters;  // in the order of the arguments; begin is in param space
  std::vector<Range> shared;      // static arrays; begin is an address in shared space
  std::vector<Range> local;       // the same of a thread's own
  std::size_t local_bytes = 0;    // of a thread, up to the last one's end
  // Of a block. Without launch bounds a thread may take 255 of the block's 65,536 registers.
  unsigned most_threads = 256;

  std::size_t parameter_bytes() const {
    return parameters.empty() ? 0 : parameters.back().begin + parameters.back().bytes;
  }
};

// What `cuobjdump --dump-ptx` printed of a library. Kernels are decoded when they are first asked
// for.
class Library {
 public:
  // `name` is how faults call the text.
  Library(std::string text, std::string name);
  static Library from_file(const std::string& path);

  // Throws Fault if there is no such kernel, or if it has an opcode or an operand that is not
  // known.
  const Program& program(const std::string& kernel);
  std::vector<std::string> kernels() const;

 private:
  struct Module {
    std::string_view text;
    int line = 1;
  };
  struct Entry {
    const Module* module;
    std::size_t at;  // of ".entry" in the module's text
  };
  std::unique_ptr<const std::string> text_;  // where views into it stay good
  std::string name_;
  std::vector<std::unique_ptr<const Module>> modules_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::unique_ptr<const Program>, std::less<>> programs_;
};

}  // namespace convlab::ptx
