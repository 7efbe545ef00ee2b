// OpenBLAS's OpenMP build and oneDNN take their number of threads from the calling thread's OpenMP
// setting; oneDNN when a primitive is made and again when it runs, and the two must agree.
#pragma once

#include <omp.h>

namespace convlab::cpu {

class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ThreadCount(const ThreadCount&) = delete;
  ~ThreadCount() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace convlab::cpu
