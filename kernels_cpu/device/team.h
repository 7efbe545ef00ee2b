// How many threads OpenMP gives. A region may get fewer than its num_threads: inside another
// region, or because of OMP_THREAD_LIMIT, OMP_MAX_ACTIVE_LEVELS or OMP_DYNAMIC. Our own kernels are
// correct with any team. OpenBLAS and oneDNN are not: they wait for missing threads for ever, or
// leave outputs unwritten.
#pragma once

#include <omp.h>

#include <algorithm>

namespace convlab::cpu {

// The size of the team that a region of num_threads(threads) gets here, while dynamic adjustment is
// off. It is 1 inside an active region, where OpenBLAS and oneDNN start no threads.
inline int team_here(int threads) {
  if (omp_in_parallel() || omp_get_max_active_levels() < 1) return 1;
  return std::min(threads, omp_get_thread_limit());
}

// OpenBLAS's OpenMP build and oneDNN take their number of threads from the calling thread's OpenMP
// setting. oneDNN reads it when a primitive is made and again when it runs; the two must agree.
class ThreadCount {
 public:
  explicit ThreadCount(int threads)
      : before_(omp_get_max_threads()),
        dynamic_before_(omp_get_dynamic()),
        threads_(team_here(threads)) {
    omp_set_dynamic(0);
    omp_set_num_threads(threads_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ~ThreadCount() {
    omp_set_num_threads(before_);
    omp_set_dynamic(dynamic_before_);
  }

  int threads() const { return threads_; }

 private:
  int before_, dynamic_before_, threads_;
};

}  // namespace convlab::cpu
