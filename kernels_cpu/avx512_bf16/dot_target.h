// The instruction set of kernels on AVX512_BF16, for HWY_PUSH_ATTRIBUTES. Internal.
#pragma once

#define CONVLAB_AVX512_BF16_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi,bmi2"
