// For libFuzzer: on no input may the parsers of problems and problem lists read out of bounds or
// throw anything but InputError. An accepted problem must round-trip through its own text.
#include <cstdlib>

#include "conv/error.h"
#include "conv/problem_text.h"
#include "conv/transposed.h"

namespace convlab {
namespace {

void require_round_trip(const NamedProblem& problem) {
  validate(problem.problem);
  if (parse_problem(to_text(problem)) != problem) std::abort();
}

}  // namespace
}  // namespace convlab

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convlab;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    require_round_trip(parse_problem(text));
  } catch (const InputError&) {
  }
  try {
    std::vector<std::string> warnings;
    const NamedProblem problem = parse_transposed_problem(text, warnings);
    validate(problem.problem);
    const std::string again = to_transposed_text(problem.problem);
    if (parse_transposed_problem(again, warnings).problem != problem.problem) std::abort();
    require_round_trip(problem);  // as the convolution whose gradient it is
  } catch (const InputError&) {
  }
  try {
    std::vector<std::string> warnings;
    for (const NamedProblem& problem : parse_problems(text, "list", &warnings))
      require_round_trip(problem);
  } catch (const InputError&) {
  }
  return 0;
}
