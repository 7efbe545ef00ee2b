#include "tests/kernels_cuda/nccl/fake_nccl.h"

namespace convlab {

FakeNccl& fake_nccl() {
  static FakeNccl fake;
  return fake;
}

namespace {

ncclResult_t note(std::string call) {
  fake_nccl().calls.push_back(std::move(call));
  return fake_nccl().result;
}

}  // namespace
}  // namespace convlab

using convlab::fake_nccl;
using convlab::note;

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return fake_nccl().result;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  for (std::size_t i = 0; i < sizeof id->internal; ++i) id->internal[i] = char(i);
  return fake_nccl().result;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  *comm = reinterpret_cast<ncclComm_t>(&fake_nccl());
  return note("join as " + std::to_string(rank) + " of " + std::to_string(size) +
              (id.internal[127] == 127 ? "" : " under another id"));
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t, cudaStream_t stream) {
  return note(std::string(op == ncclAvg && from == to ? "average " : "something else of ") +
              std::to_string(count) + (type == ncclFloat64 ? " f64" : " f32") +
              (stream ? " on its own stream" : " on the net's stream"));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = fake_nccl().async_error;
  return fake_nccl().result;
}

ncclResult_t ncclCommDestroy(ncclComm_t) { return note("destroy"); }
ncclResult_t ncclCommAbort(ncclComm_t) { return note("abort"); }
const char* ncclGetErrorString(ncclResult_t error) {
  return error == ncclRemoteError ? "remote error" : "another error";
}
const char* ncclGetLastError(ncclComm_t) { return fake_nccl().last_error.c_str(); }
