// Profiling hooks of a device. A device that offers them is also a ProfiledDevice:
// `dynamic_cast<ProfiledDevice*>(&device)` is null for others.
#pragma once

#include <string>
#include <vector>

namespace convlab {

struct KernelRun {
  std::string name;  // the compiler's or the vendor's name
  double ms = 0;     // on the device
};

class ProfiledDevice {
 public:
  virtual ~ProfiledDevice() = default;
  // Names the calling thread's work, queued work included, in a profiler's timeline until the range
  // ends. Ranges nest. Without a profiler this costs next to nothing.
  virtual void begin_range(const std::string& name) = 0;
  virtual void end_range() = 0;

  // Starts recording every kernel that this process runs. Throws EnvironmentError, saying what is
  // missing, if that is impossible.
  virtual void start_kernel_log() = 0;
  // Stops recording, once queued work is done. Kernels are in the order in which they were
  // reported.
  virtual std::vector<KernelRun> finish_kernel_log() = 0;
};

// A range that lasts as long as this object; does nothing on a device without ranges (null).
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
