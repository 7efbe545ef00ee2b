// For libFuzzer: on no input may the reader of result files read out of bounds or throw anything
// but InputError, and all times it accepts are above 0.
#include <cstdlib>

#include "autotune/store/build_info.h"
#include "bench/reports/result_file.h"
#include "conv/error.h"

namespace convlab {

const BuildInfo& build_info() {  // required by the store's writer
  static const BuildInfo none;
  return none;
}

}  // namespace convlab

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convlab;
  try {
    const ResultFile file =
        parse_result_file(std::string(reinterpret_cast<const char*>(data), size), "results");
    for (const ResultRow& row : file.rows)
      if (row.times && !(row.times->ms > 0)) std::abort();
  } catch (const InputError&) {
  }
  return 0;
}
