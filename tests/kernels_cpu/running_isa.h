#pragma once

#include <string>

namespace convlab {

// The name, as in DeviceInfo::isa, of the ISA that HWY_DYNAMIC_DISPATCH now selects.
std::string running_isa();

}  // namespace convlab
