#include "kernels_cuda/on_cpu/fiber.h"

#include <sys/mman.h>

#include <new>

#include "kernels_cuda/on_cpu/sanitizers.h"

#ifndef __x86_64__
#error "on_cpu: switch_stack() and Fiber::restart() know x86-64 only"
#endif

namespace convlab::on_cpu {
namespace {

// The stack in use, and the fiber that switched here.
constinit thread_local Fiber* current = nullptr;
constinit thread_local Fiber* previous = nullptr;

// Pushes the callee-saved registers (System V), keeps the stack pointer in *save, and pops what an
// earlier call pushed on the other stack.
__attribute__((naked, noinline)) CONVLAB_UNSEEN void switch_stack(void** /*save*/, void* /*load*/) {
  asm volatile(
      "pushq %rbp\n"
      "pushq %rbx\n"
      "pushq %r12\n"
      "pushq %r13\n"
      "pushq %r14\n"
      "pushq %r15\n"
      "movq %rsp, (%rdi)\n"
      "movq %rsi, %rsp\n"
      "popq %r15\n"
      "popq %r14\n"
      "popq %r13\n"
      "popq %r12\n"
      "popq %rbx\n"
      "popq %rbp\n"
      "ret");
}
constexpr std::size_t saved_registers = 6;

}  // namespace

Fiber::~Fiber() {
  if constexpr (tsan)
    if (created_) __tsan_destroy_fiber(tsan_fiber_);
}

void Fiber::create(char* stack, std::size_t bytes, const char* name) {
  stack_ = stack;
  stack_bytes_ = bytes;
  created_ = true;
  if constexpr (tsan) {
    tsan_fiber_ = __tsan_create_fiber(0);
    __tsan_set_fiber_name(tsan_fiber_, name);
  }
}

void Fiber::adopt() {
  stack_ = nullptr;  // set by the address sanitizer at the first switch away
  if constexpr (tsan) tsan_fiber_ = __tsan_get_current_fiber();
}

void Fiber::restart(void (*main)(), std::size_t below_top) {
  fake_stack_ = nullptr;
  void** top = reinterpret_cast<void**>(stack_ + stack_bytes_ - below_top);
  *--top = nullptr;  // main's return address, which also aligns its frame
  *--top = reinterpret_cast<void*>(main);
  stack_pointer_ = top - saved_registers;
}

CONVLAB_UNSEEN void Fiber::switch_to(Fiber& from, Fiber& to, bool ends) {
  previous = &from;
  current = &to;
  if constexpr (tsan) __tsan_switch_to_fiber(to.tsan_fiber_, __tsan_switch_to_fiber_no_sync);
  if constexpr (asan)
    __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack_, to.stack_, to.stack_bytes_);
  switch_stack(&from.stack_pointer_, to.stack_pointer_);
  arrived();
}

CONVLAB_UNSEEN void Fiber::arrived() {
  if constexpr (asan) {
    const void* stack = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(current->fake_stack_, &stack, &bytes);
    if (!previous->created_) {
      previous->stack_ = static_cast<char*>(const_cast<void*>(stack));
      previous->stack_bytes_ = bytes;
    }
  }
}

// Sanitizers' frames are larger.
std::size_t FiberStacks::bytes() { return (asan || tsan ? 256 : 64) << 10; }

FiberStacks::FiberStacks(std::size_t count) : total_(count * (guard + bytes())) {
  void* const memory = mmap(nullptr, total_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  for (std::size_t i = 0; i < count; ++i) mprotect((*this)[i] - guard, guard, PROT_NONE);
}

FiberStacks::~FiberStacks() { munmap(memory_, total_); }

}  // namespace convlab::on_cpu
