#include "autotune/store/provenance.h"

#include <ctime>
#include <string>

#include "autotune/store/build_info.h"

namespace convlab {

Provenance collect_provenance(const DeviceInfo& device) {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", ::gmtime_r(&now, &utc));
  Provenance p;
  p.fields = {{device.kind == DeviceKind::cpu ? "cpu" : "gpu", device.name},
              {"isa", device.isa},
              {"threads", std::to_string(device.threads)},
              {"compiler", build_info().compiler},
              {"flags", build_info().flags},
              {"commit", build_info().commit}};
  p.fields.insert(p.fields.end(), device.libraries.begin(), device.libraries.end());
  p.fields.emplace_back("date", date);
  return p;
}

}  // namespace convlab
