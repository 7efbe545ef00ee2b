// cuDNN's graph interface as a peer: `cudnn.graph`, configured by the rank in its heuristic's list
// of engines. It has kernels that the older interface lacks, takes different padding on the two
// sides of an image, and fuses bias and ReLU, and a residual beside a bias.
#include <fmt/format.h>

#include "conv/error.h"
#include "conv/optional/slow_listing.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/cudnn/graph.h"
#include "kernels_cuda/cudnn/plan.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {
namespace {

// configs() lists so many of each math type. An engine that turns out not to support the problem is
// refused when its plan is made. A config may name any rank.
constexpr int most_engines = 4;

class GraphPlan : public CudnnPlan {
 public:
  GraphPlan(const ConvProblem& p, Node plan) : CudnnPlan(p), plan_(std::move(plan)) {
    workspace_ = cudnn_workspace(p, cuda::workspace_bytes(plan_));
  }

 private:
  void queue(const ConvArgs& args, Workspace workspace, CudaStream& stream) const override {
    const void* const x = p_.pass == Pass::backward_data ? args.out : args.x;
    const void* const w = p_.pass == Pass::backward_filter ? args.out : args.w;
    const void* const y = p_.pass == Pass::forward ? args.out : args.dy;
    std::vector<std::int64_t> ids{id_x, id_w, id_y};
    std::vector<const void*> pointers{x, w, y};
    if (p_.epilogue.bias) ids.push_back(id_bias), pointers.push_back(args.bias);
    if (p_.epilogue.residual) ids.push_back(id_residual), pointers.push_back(args.residual);

    void* const scratch = workspace.data();
    Node pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             std::int64_t(pointers.size()), pointers.data())
        .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch)
        .finalize();
    check(cudnnBackendExecute(stream.cudnn(), plan_.get(), pack.get()), "cudnnBackendExecute");
  }

  Node plan_;
};

class CudnnGraph : public ConvAlgo, public SlowListing {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{
        .id = "cudnn.graph",
        .version = 2,
        .device = DeviceKind::cuda,
        .origin = Origin::vendor,
        .summary = "cuDNN's graph interface: its heuristic's best four engines",
        .libraries = {"cudnn"},
        .family = "cudnn"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_shape(p, CudnnInterface::graph)) return refusal;
    if (auto refusal = refuse_missing_libraries(info())) return refusal;
    try {
      if (!listed(p, device).empty()) return {};
    } catch (const CudaError& e) {
      return Refusal{Field::library, {}, e.what()};
    }
    return Refusal{Field::library, {}, "cuDNN's heuristic offers no engine"};
  }
  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    return listed(p, device);
  }
  // Every engine has a note about it, but the store must know before there is an engine.
  bool deterministic(const ConvProblem& p, const Config&) const override {
    return is_deterministic(nullptr, p);
  }
  WorkEstimate work(const ConvProblem& p, const Config& config, Device&) const override {
    return cudnn_work(nullptr, p, math_type(config));
  }
  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({"rank", "math"});
    const std::int64_t rank = config.get("rank");
    const MathType math = math_type(config, p.dtype, library_math_types);
    std::unique_ptr<ConvPlan> plan;
    with_query_stream(device_index(device), [&](CudaStream& stream) {
      const CudnnTarget target(stream.cudnn());
      const OperationGraph graph(p, target);
      const std::vector<Node> engines = graph.engines(math);
      if (rank < 0 || rank >= std::int64_t(engines.size()))
        throw InputError(
            fmt::format("cudnn.graph: rank={}, and {} engines do that math", rank, engines.size()));
      try {
        plan = std::make_unique<GraphPlan>(p, execution_plan(engines[rank], target));
      } catch (const CudaError& e) {
        throw EnvironmentError(
            fmt::format("cudnn.graph: the engine of rank {} has no plan: {}", rank, e.what()));
      }
    });
    return plan;
  }

 private:
  static std::vector<Config> listed(const ConvProblem& p, Device& device) {
    std::vector<Config> configs;
    with_query_stream(device_index(device), [&](CudaStream& stream) {
      configs = list_engines(p, CudnnTarget(stream.cudnn()), most_engines);
    });
    return configs;
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_cudnn_graph() { return std::make_unique<CudnnGraph>(); }

}  // namespace convlab::cuda
