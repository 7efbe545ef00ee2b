#include "kernels_cpu/algos.h"
#include "kernels_cpu/cpu.h"

namespace convlab {

void append_cpu_algos(AlgoRegistry&) {}

}  // namespace convlab
