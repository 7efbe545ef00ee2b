#include <cuda_runtime.h>

#include <algorithm>

#include "kernels_cuda/device/cuda_device.h"

namespace convlab::cuda {
namespace {

// Work recorded once and replayed with one launch.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  ~Graph() {
    if (exec_) cudaGraphExecDestroy(exec_);
  }

  // False if something in `enqueue` cannot be captured; nothing has run then.
  bool capture(cudaStream_t stream, const std::function<void()>& enqueue) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    bool captured = true;
    try {
      enqueue();
    } catch (const Error&) {
      captured = false;
    }
    cudaGraph_t graph = nullptr;
    captured &= cudaStreamEndCapture(stream, &graph) == cudaSuccess;
    captured = captured && cudaGraphInstantiate(&exec_, graph, 0) == cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    return captured;
  }
  void launch(cudaStream_t stream) const {
    check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace

CudaStream::CudaStream(int device) : device_(device) {
  check(cudaSetDevice(device_), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaEventCreate(&start_), "cudaEventCreate");
  check(cudaEventCreate(&stop_), "cudaEventCreate");
}

CudaStream::~CudaStream() {
  cudnn_.reset();
  cublas_.reset();
  cudaEventDestroy(stop_);
  cudaEventDestroy(start_);
  cudaStreamDestroy(stream_);
}

cudaStream_t CudaStream::native() const {
  check(cudaSetDevice(device_), "cudaSetDevice");
  return stream_;
}

void CudaStream::synchronize() { check(cudaStreamSynchronize(native()), "cudaStreamSynchronize"); }

// The events are recorded inside the graph, so that no host work lies between them. Work that
// cannot be captured, or timed that way, is timed call by call.
double CudaStream::time(const std::function<void()>& enqueue, int runs) {
  constexpr int most_in_a_graph = 64;
  synchronize();
  const auto elapsed_ms = [&](float& ms) {
    synchronize();
    return cudaEventElapsedTime(&ms, start_, stop_);
  };

  const int calls = std::min(runs, most_in_a_graph), replays = runs / calls;
  Graph graph;
  bool timed = graph.capture(stream_, [&] {
    check(cudaEventRecordWithFlags(start_, stream_, cudaEventRecordExternal), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) enqueue();
    check(cudaEventRecordWithFlags(stop_, stream_, cudaEventRecordExternal), "cudaEventRecord");
  });
  double total_ms = 0;
  for (int i = 0; i < replays && timed; ++i) {
    graph.launch(stream_);
    float ms = 0;
    timed = elapsed_ms(ms) == cudaSuccess;
    total_ms += double(ms);
  }
  cudaGetLastError();
  if (timed) return 1e-3 * total_ms / (calls * replays);

  check(cudaEventRecord(start_, stream_), "cudaEventRecord");
  for (int i = 0; i < runs; ++i) enqueue();
  check(cudaEventRecord(stop_, stream_), "cudaEventRecord");
  float ms = 0;
  check(elapsed_ms(ms), "cudaEventElapsedTime");
  return 1e-3 * double(ms) / runs;
}

cudaStream_t native_stream(Stream& stream) { return cuda_stream(stream).native(); }

}  // namespace convlab::cuda
