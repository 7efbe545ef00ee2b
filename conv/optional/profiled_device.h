// What a device that others' profilers can look into offers beside its work. Such a device is also
// a ProfiledDevice: `dynamic_cast<ProfiledDevice*>(&device)` is null for the rest.
#pragma once

#include <string>
#include <vector>

namespace convlab {

struct KernelRun {
  std::string name;  // as the compiler or the vendor called it
  double ms = 0;     // on the device
};

class ProfiledDevice {
 public:
  virtual ~ProfiledDevice() = default;
  // Names what the calling thread does and queues until the range ends, in a profiler's timeline.
  // Ranges nest. Without a profiler this costs next to nothing.
  virtual void begin_range(const std::string& name) = 0;
  virtual void end_range() = 0;

  // From now on every kernel that this process runs is noted. Throws EnvironmentError, saying what
  // is missing, where that cannot be.
  virtual void start_kernel_log() = 0;
  // Ends that, once what was queued is done. In the order in which they were reported.
  virtual std::vector<KernelRun> finish_kernel_log() = 0;
};

// A range as long as this object lives; none on a device that has none (null).
class ProfiledRange {
 public:
  ProfiledRange(ProfiledDevice* device, const std::string& name) : device_(device) {
    if (device_) device_->begin_range(name);
  }
  ProfiledRange(const ProfiledRange&) = delete;
  ~ProfiledRange() {
    if (device_) device_->end_range();
  }

 private:
  ProfiledDevice* device_;
};

}  // namespace convlab
