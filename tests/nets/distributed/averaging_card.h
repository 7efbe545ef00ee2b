// Cards of ranks that are threads, which average among themselves.
//
// They run nets as a CPU does, where work is done when it is queued. So an average takes its values
// when it is started, as early as a card might, and has no result before the host asks for it, as
// late as it might.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "conv/optional/averaging_device.h"
#include "tests/cpu_backed_device.h"

namespace convlab::nets {

// What connects the cards.
struct CardLink {
  std::mutex mutex;
  // Each average's values by rank, in the order of averages.
  std::vector<std::map<int, std::vector<std::byte>>> averages;
  int joined = 0, left = 0;
};

class AveragingCard final : public CpuBackedDevice, public AveragingDevice {
 public:
  static constexpr double average_s = 0.25;  // what an average takes, as it says
  explicit AveragingCard(CardLink& link) : CpuBackedDevice({1, ""}), link_(link) {}

  // Nets that are there already go on to run as on a CPU.
  void become_a_card() { info_.kind = DeviceKind::cuda; }

  Buffer allocate_pinned(std::size_t bytes) override {
    ++pinned;
    return CpuBackedDevice::allocate_pinned(bytes);
  }
  std::string averaging_library() override;
  std::string make_group_id() override { return std::string("\0id", 3); }
  std::unique_ptr<DeviceGroup> join_group(const std::string& id, int rank, int size) override;

  std::string missing, cannot_join;   // what goes wrong; empty: nothing
  int pinned = 0;                     // allocations
  std::atomic<int> started = 0;       // averages
  std::vector<const Stream*> behind;  // of each average

 private:
  CardLink& link_;
};

}  // namespace convlab::nets
