// The CUDA backend: one device per card, and every strategy on it. Always there to link against;
// built without CUDA, there is no device and there are no algorithms.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "conv/device.h"
#include "conv/registry.h"
#include "recurrent/algo.h"

namespace convlab {

// The obstacle between this process and a card, in one clause with its remedy ("built without CUDA:
// install the CUDA toolkit and configure again", "no driver: ..."); empty when there is a card.
std::string cuda_obstacle();

int cuda_device_count();  // 0 when there is an obstacle

// The CUDA libraries that some algorithms call and that cannot be loaded here, each with the reason
// and the remedy: {"cufft", "cuFFT: libcufft.so.12: cannot open ..."}. Those algorithms refuse; the
// rest of the card works.
std::map<std::string, std::string> missing_cuda_libraries();

// Throws EnvironmentError with cuda_obstacle() when there is no card at all, InputError for an
// index beyond the last card.
std::unique_ptr<Device> make_cuda_device(int index = 0);

void append_cuda_algos(AlgoRegistry&);
void append_cuda_recurrent_algos(RecurrentRegistry&);

}  // namespace convlab
