// A device for tests of the CUDA backend: a card if there is one, else its kernels executed on the
// CPU. Tests that need a card skip with the reason.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels_cuda/cuda.h"

namespace convlab::cuda {

class CardTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
    device_ = make_cuda_device();
    stream_ = device_->make_stream();
  }

  template <class T>
  Buffer upload(const std::vector<T>& host) {
    Buffer buffer = device_->allocate(host.size() * sizeof(T));
    device_->copy_to_device(buffer.data(), std::as_bytes(std::span(host)), *stream_);
    stream_->synchronize();
    return buffer;
  }
  template <class T>
  std::vector<T> download(const Buffer& buffer) {
    std::vector<T> host(buffer.bytes() / sizeof(T));
    device_->copy_to_host(std::as_writable_bytes(std::span(host)), buffer.data(), *stream_);
    return host;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace convlab::cuda
