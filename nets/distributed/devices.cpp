#include "nets/distributed/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "conv/error.h"

namespace convlab::nets {
namespace {

class OnDevice : public Pending {
 public:
  explicit OnDevice(DeviceAverage& average) : average_(average) {}
  bool progress() override { return average_.is_complete(); }
  std::optional<int> waits_for() const override { return std::nullopt; }

 private:
  DeviceAverage& average_;
};

// What the first rank says that says anything: the same on all.
std::string first_reason(Communicator& ranks, const std::string& mine) {
  const std::vector<std::string> all = ranks.all_gather(mine);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!all[r].empty()) return r == 0 ? all[r] : fmt::format("rank {}: {}", r, all[r]);
  return "";
}

}  // namespace

JoinedDevices join_devices(Communicator& ranks, Device& device, const std::string& obstacle) {
  auto* const averaging = dynamic_cast<AveragingDevice*>(&device);
  std::string reason = obstacle, id;
  if (reason.empty() && averaging == nullptr) reason = "this device does not average with others";
  const auto attempt = [&](const auto& work) {
    try {
      if (reason.empty()) work();
    } catch (const Error& error) {
      reason = error.what();
    }
    reason = first_reason(ranks, reason);
  };
  attempt([&] {
    averaging->averaging_library();
    if (ranks.rank() == 0) id = averaging->make_group_id();
  });
  if (!reason.empty()) return {nullptr, reason};
  id = ranks.broadcast(id);
  JoinedDevices joined;
  attempt([&] { joined.group = averaging->join_group(id, ranks.rank(), ranks.size()); });
  if (!reason.empty()) return {nullptr, reason};
  return joined;
}

std::unique_ptr<Pending> pending_on_device(DeviceAverage& average) {
  return std::make_unique<OnDevice>(average);
}

double best_device_average_s(Communicator& ranks, DeviceGroup& group, DType dtype, Span values,
                             Stream& stream) {
  constexpr int runs = 5;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    ranks.barrier();
    const auto average = group.start_average(dtype, values, stream);
    OnDevice pending(*average);
    ranks.complete(pending);
    best = std::min(best, average->seconds());
  }
  return best;
}

}  // namespace convlab::nets
