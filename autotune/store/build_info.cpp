#include "autotune/store/build_info.h"

#include "convlab_commit.h"  // written by cmake/commit.cmake

namespace convlab {

const BuildInfo& build_info() {
  static const BuildInfo info{CONVLAB_COMPILER, CONVLAB_FLAGS, CONVLAB_COMMIT};
  return info;
}

}  // namespace convlab
