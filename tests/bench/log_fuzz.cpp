// For libFuzzer: on no input may the readers of logs read out of bounds or throw anything but
// InputError. What they accept is a possible problem that round-trips through its text.
#include <cmath>
#include <cstdlib>

#include "bench/logs/log.h"
#include "conv/error.h"
#include "conv/problem_text.h"
#include "conv/transposed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convlab;
  const auto require = [](bool fine) {
    if (!fine) std::abort();
  };
  try {
    const ConvLog log = read_log({reinterpret_cast<const char*>(data), size}, "log");
    require(!log.convs.empty() && !log.source.empty());
    for (const LoggedConv& conv : log.convs) {
      validate(conv.problem);
      require(conv.count > 0 && conv.timed <= conv.count && std::isfinite(conv.ms));
      std::vector<std::string> warnings;
      ConvProblem again =
          conv.transposed
              ? parse_transposed_problem(to_transposed_text(conv.problem), warnings).problem
              : parse_problem(to_text(conv.problem)).problem;
      again.pass = conv.problem.pass;
      again.dtype = conv.problem.dtype;
      again.epilogue = conv.problem.epilogue;
      require(again == conv.problem);
    }
  } catch (const InputError&) {
  }
  return 0;
}
