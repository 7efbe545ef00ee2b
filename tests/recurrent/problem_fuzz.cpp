// For libFuzzer: on no input may the parser of recurrent problems read out of bounds or throw
// anything but InputError. An accepted problem must round-trip through its own text.
#include <cstdlib>

#include "conv/error.h"
#include "recurrent/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convlab;
  try {
    const auto problem = parse_recurrent_problem({reinterpret_cast<const char*>(data), size});
    validate(problem.problem);
    if (parse_recurrent_problem(to_text(problem)) != problem) std::abort();
  } catch (const InputError&) {
  }
  return 0;
}
