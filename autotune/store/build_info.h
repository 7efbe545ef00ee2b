// How this library was built: part of every result's provenance.
#pragma once

#include <string>

namespace convlab {

struct BuildInfo {
  std::string compiler;  // "GCC 12.2.0"
  std::string flags;     // "Release -O3 -DNDEBUG"
  std::string commit;    // "5b3d4400f1c2", "-dirty" behind it when files differed; or "unknown"
};
const BuildInfo& build_info();

}  // namespace convlab
