// Averages by NCCL, on a stream of its own. Events order it behind the gradients that it averages,
// and tell the host when it is done.
#include "kernels_cuda/nccl/nccl.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "conv/error.h"
#include "kernels_cuda/device/runtime.h"
#include "kernels_cuda/nccl/nccl_calls.h"

namespace convlab::cuda {

constinit LazyLibrary nccl_library("NCCL", "libnccl.so.", NCCL_MAJOR, CONVLAB_LIBRARY_FOLDER,
                                   "install libnccl2, or add its folder to LD_LIBRARY_PATH");

namespace {

// NCCL reports a lost context as an unhandled CUDA error, so the runtime's error comes first.
void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess) return;
  check(cudaGetLastError(), call);
  std::string detail = ncclGetLastError(comm);
  std::ranges::replace(detail, '\n', ' ');
  throw CudaError(fmt::format("{}: {}{}{}", call, ncclGetErrorString(result),
                              detail.empty() ? "" : ": ", detail));
}

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;

Event record_event(cudaStream_t stream, unsigned flags) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  Event owner(event);
  check(cudaEventRecord(event, stream), "cudaEventRecord");
  return owner;
}

class NcclGroup;

class NcclAverage : public DeviceAverage {
 public:
  NcclAverage(NcclGroup& group, Event begin) : group_(group), begin_(std::move(begin)) {}
  ~NcclAverage() override;
  void ends_at(Event end) { end_ = std::move(end); }
  bool is_complete() override;
  double seconds() const override {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return 1e-3 * double(ms);
  }

 private:
  NcclGroup& group_;
  Event begin_, end_;
  bool is_complete_ = false;
};

class NcclGroup : public DeviceGroup {
 public:
  NcclGroup(int device, const std::string& id, int rank, int size) : device_(device) {
    ncclUniqueId unique;
    if (id.size() != sizeof unique.internal)
      throw InputError(
          fmt::format("a group's id of {} bytes: expected {}", id.size(), sizeof unique.internal));
    std::memcpy(unique.internal, id.data(), id.size());
    check(cudaSetDevice(device_), "cudaSetDevice");
    check_nccl(ncclCommInitRank(&comm_, size, unique, rank), "ncclCommInitRank");
    if (const cudaError_t error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        error != cudaSuccess) {
      ncclCommAbort(comm_);
      check(error, "cudaStreamCreateWithFlags");
    }
  }
  // Destroying waits for averages, which without the other devices would last for ever.
  ~NcclGroup() override {
    cudaSetDevice(device_);
    given_up_ ? ncclCommAbort(comm_) : ncclCommDestroy(comm_);
    cudaStreamDestroy(stream_);
  }
  NcclGroup(const NcclGroup&) = delete;

  std::unique_ptr<DeviceAverage> start_average(DType dtype, Span values, Stream& after) override {
    if (dtype != DType::f32 && dtype != DType::f64)
      throw InputError(fmt::format("an average of {}: expected f32 or f64", to_string(dtype)));
    const Event ready = record_event(native_stream(after), cudaEventDisableTiming);
    check(cudaStreamWaitEvent(stream_, ready.get(), 0), "cudaStreamWaitEvent");
    auto average = std::make_unique<NcclAverage>(*this, record_event(stream_, cudaEventDefault));
    {
      const std::lock_guard lock(mutex_);
      check_nccl(
          ncclAllReduce(values.data(), values.data(), values.size() / std::size_t(size_of(dtype)),
                        dtype == DType::f64 ? ncclDouble : ncclFloat, ncclAvg, comm_, stream_),
          "ncclAllReduce", comm_);
    }
    average->ends_at(record_event(stream_, cudaEventDefault));
    return average;
  }

  // A kernel of NCCL that lost its peers runs until the communicator is aborted.
  void require_healthy() {
    const std::lock_guard lock(mutex_);
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
    check_nccl(state, "ncclAllReduce", comm_);
  }
  void give_up() { given_up_ = true; }

 private:
  const int device_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;  // one thread may start averages while another looks after them
  std::atomic<bool> given_up_ = false;
};

NcclAverage::~NcclAverage() {
  if (!is_complete_) group_.give_up();
}

bool NcclAverage::is_complete() {
  group_.require_healthy();
  const cudaError_t error = cudaEventQuery(end_.get());
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(error, "cudaEventQuery");
  return is_complete_ = true;
}

}  // namespace

std::string nccl_version() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string make_nccl_id() {
  ncclUniqueId id;
  check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return std::string(id.internal, sizeof id.internal);
}

std::unique_ptr<DeviceGroup> join_nccl(int device, const std::string& id, int rank, int size) {
  return std::make_unique<NcclGroup>(device, id, rank, size);
}

}  // namespace convlab::cuda
