// A library in place of NCCL, and a CUDA runtime in place of the card's: they do nothing but note
// what is called.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

namespace convlab {

struct FakeNccl {
  std::vector<std::string> calls;
  ncclResult_t result = ncclSuccess;       // of the next calls
  ncclResult_t async_error = ncclSuccess;  // that was found meanwhile
  std::string last_error;
};

FakeNccl& fake_nccl();

}  // namespace convlab
