// The executor's annotations for sanitizers; empty in a plain build.
#pragma once

#include <sanitizer/common_interface_defs.h>
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace convlab::on_cpu {

// GCC defines macros; clang has __has_feature.
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
inline constexpr bool asan = true;
#else
inline constexpr bool asan = false;
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
inline constexpr bool tsan = true;
#else
inline constexpr bool tsan = false;
#endif

// For functions of the executor that run inside fibers: their accesses are not part of the kernel.
// They use no library code, which would be instrumented. clang's no_sanitize keeps the frames, and
// ThreadSanitizer has room for 64 Ki of a fiber: those that a thread leaves at its end add up.
#ifndef __has_attribute
#define __has_attribute(x) 0
#endif
#if __has_attribute(disable_sanitizer_instrumentation)
#define CONVLAB_UNSEEN __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
#else
#define CONVLAB_UNSEEN __attribute__((no_sanitize("thread")))
#endif

// release(&token) happens before acquire(&token).
CONVLAB_UNSEEN inline void release(char* token) {
  if constexpr (tsan) __tsan_release(token);
}
CONVLAB_UNSEEN inline void acquire(char* token) {
  if constexpr (tsan) __tsan_acquire(token);
}

// While it lives, ThreadSanitizer ignores what this fiber reads and writes.
class Unseen {
 public:
  CONVLAB_UNSEEN Unseen() {
    if constexpr (tsan) {
      AnnotateIgnoreReadsBegin("", 0);
      AnnotateIgnoreWritesBegin("", 0);
    }
  }
  CONVLAB_UNSEEN ~Unseen() {
    if constexpr (tsan) {
      AnnotateIgnoreWritesEnd("", 0);
      AnnotateIgnoreReadsEnd("", 0);
    }
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

}  // namespace convlab::on_cpu
