// A fiber: its own stack, and switches to it. To ThreadSanitizer a switch orders no memory, so
// fibers race with each other just as threads would.
#pragma once

#include <cstddef>

namespace convlab::on_cpu {

class Fiber {
 public:
  Fiber() = default;  // the stack on which this OS thread runs already
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  void create(char* stack, std::size_t bytes, const char* name);
  void adopt();  // for the fiber of the OS thread: call it there, before the first switch
  // The next switch here calls main() on an empty stack that begins `below_top` bytes deeper.
  // main() never returns.
  void restart(void (*main)(), std::size_t below_top);

  // Continues `to` and returns when something switches back; never, if `ends`.
  static void switch_to(Fiber& from, Fiber& to, bool ends);
  static void arrived();  // main() calls it first

 private:
  void* stack_pointer_ = nullptr;
  char* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* tsan_fiber_ = nullptr;
  void* fake_stack_ = nullptr;  // the address sanitizer's
  bool created_ = false;
};

// Stacks for many fibers, each above a page that may not be touched.
class FiberStacks {
 public:
  explicit FiberStacks(std::size_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  char* operator[](std::size_t i) const { return memory_ + i * (guard + bytes()) + guard; }
  static std::size_t bytes();

 private:
  static constexpr std::size_t guard = 4096;
  char* memory_;
  std::size_t total_;
};

}  // namespace convlab::on_cpu
