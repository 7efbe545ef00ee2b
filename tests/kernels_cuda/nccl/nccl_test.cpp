// What is asked of NCCL and of the CUDA runtime, in which order. Neither is there: no card
// computes.
#include "kernels_cuda/nccl/nccl.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/device/runtime.h"
#include "tests/kernels_cuda/nccl/fake_nccl.h"

// ---- The runtime ----

namespace {

struct FakeRuntime {
  int events = 0;  // that there are
  bool is_done = false;
  cudaError_t last_error = cudaSuccess;
} runtime;

std::vector<std::string>& calls() { return convlab::fake_nccl().calls; }

const char* name(cudaStream_t stream) { return stream ? "its own stream" : "the net's stream"; }

}  // namespace

cudaError_t cudaSetDevice(int device) {
  calls().push_back(fmt::format("card {}", device));
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(runtime.last_error, cudaSuccess); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = reinterpret_cast<cudaStream_t>(&runtime);
  return flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(std::intptr_t(++runtime.events));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  --runtime.events;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  calls().push_back(fmt::format("event {} on {}", std::intptr_t(event), name(stream)));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  calls().push_back(fmt::format("{} waits for event {}", name(stream), std::intptr_t(event)));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  EXPECT_NE(std::intptr_t(event), 1) << "the event before the average";
  return runtime.is_done ? cudaSuccess : runtime.last_error = cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = 1000 * float(std::intptr_t(end) - std::intptr_t(begin));
  return cudaSuccess;
}

namespace convlab::cuda {
namespace {

class Nccl : public testing::Test {
 protected:
  Nccl() {
    fake_nccl() = {};
    runtime = {};
  }
  ~Nccl() override { EXPECT_EQ(runtime.events, 0); }

  std::unique_ptr<DeviceGroup> join() {
    auto group = join_nccl(3, make_nccl_id(), 1, 4);
    calls().clear();
    return group;
  }
  std::unique_ptr<DeviceAverage> start(DeviceGroup& group, DType dtype = DType::f32) {
    return group.start_average(dtype, values_, *stream_);
  }
  template <class Call>
  std::string message_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const std::unique_ptr<Device> device_ = make_cuda_device();
  const std::unique_ptr<Stream> stream_ = device_->make_stream();
  std::array<std::byte, 48> values_{};
};

using Calls = std::vector<std::string>;

TEST_F(Nccl, JoinsOnItsCard) {
  EXPECT_EQ(nccl_version(), "NCCL 2.28.9");
  const auto group = join_nccl(3, make_nccl_id(), 1, 4);
  EXPECT_EQ(calls(), (Calls{"card 3", "join as 1 of 4"}));
}

TEST_F(Nccl, AveragesBehindTheNetsStreamOnItsOwn) {
  const auto group = join();
  runtime.is_done = true;
  EXPECT_TRUE(start(*group)->is_complete());
  EXPECT_EQ(calls(), (Calls{"event 1 on the net's stream", "its own stream waits for event 1",
                            "event 2 on its own stream", "average 12 f32 on its own stream",
                            "event 3 on its own stream"}));
  calls().clear();
  EXPECT_TRUE(start(*group, DType::f64)->is_complete());
  EXPECT_EQ(calls()[3], "average 6 f64 on its own stream");
}

TEST_F(Nccl, IsCompleteWhenTheCardIs) {
  const auto group = join();
  const auto average = start(*group);
  EXPECT_FALSE(average->is_complete());
  EXPECT_EQ(runtime.last_error, cudaSuccess);  // nobody else's error
  runtime.is_done = true;
  EXPECT_TRUE(average->is_complete());
  EXPECT_EQ(average->seconds(), 1);
}

// Destroying would wait for what never comes.
TEST_F(Nccl, AbortsWhatIsNotComplete) {
  for (const bool is_done : {true, false}) {
    runtime.is_done = is_done;
    auto group = join();
    EXPECT_EQ(start(*group)->is_complete(), is_done);
    group.reset();
    EXPECT_EQ(calls().back(), is_done ? "destroy" : "abort");
  }
}

TEST_F(Nccl, FailsWhenAPeerIsLost) {
  auto group = join();
  auto average = start(*group);
  EXPECT_FALSE(average->is_complete());
  fake_nccl().async_error = ncclRemoteError;
  fake_nccl().last_error = "socket closed\nby peer";
  runtime.is_done = true;  // a kernel that was stopped is done too
  EXPECT_EQ(message_of([&] { average->is_complete(); }),
            "ncclAllReduce: remote error: socket closed by peer");
  average.reset();
  group.reset();
  EXPECT_EQ(calls().back(), "abort");
}

TEST_F(Nccl, SaysWhatIsWrong) {
  auto group = join();
  EXPECT_EQ(message_of([&] { start(*group, DType::f16); }),
            "an average of f16: expected f32 or f64");
  EXPECT_EQ(message_of([] { join_nccl(0, "short", 0, 2); }),
            "a group's id of 5 bytes: expected 128");
  fake_nccl().result = ncclSystemError;
  EXPECT_EQ(message_of([&] { start(*group); }), "ncclAllReduce: another error");
  EXPECT_EQ(message_of([] { make_nccl_id(); }), "ncclGetUniqueId: another error");
  runtime.last_error = cudaErrorIllegalAddress;
  EXPECT_THROW(start(*group), DeviceLost);
  group.reset();
  EXPECT_EQ(calls().back(), "abort");
}

}  // namespace
}  // namespace convlab::cuda
