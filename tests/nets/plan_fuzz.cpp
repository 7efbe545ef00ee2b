// For libFuzzer: on no input may the reader of plans read out of bounds or throw anything but
// InputError. Accepted input must round-trip through the writer.
#include <cstdlib>

#include "conv/error.h"
#include "nets/plan/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convlab;
  using namespace convlab::nets;
  NetPlan plan;
  try {
    plan = plan_from_json(std::string(reinterpret_cast<const char*>(data), size), "plan");
  } catch (const InputError&) {
    return 0;
  }
  if (plan_from_json(to_json(plan), "written") != plan) std::abort();
  return 0;
}
