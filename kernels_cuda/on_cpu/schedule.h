// In which order the threads of kernels run that are executed on the CPU.
#pragma once

namespace convlab::on_cpu {

struct Config {
  unsigned seed = 0;     // 0: threads and blocks in order; else shuffled. CONVLAB_SCHEDULE
  unsigned workers = 1;  // OS threads. CONVLAB_WORKERS; 2 by default under ThreadSanitizer
};
extern Config config;  // from the environment, until a test sets it

}  // namespace convlab::on_cpu
