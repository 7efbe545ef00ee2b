// The instruction set of kernels on AMX, for HWY_PUSH_ATTRIBUTES. Internal.
#pragma once

#define CONVLAB_AMX_TARGET \
  "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,avx2,fma,bmi,bmi2"
