// Rows whose damage can be detected: every value follows from two numbers.
#pragma once

#include <string>

#include "autotune/store/store.h"

namespace convlab {

inline StoreRow numbered_row(int writer, int number) {
  StoreRow row;
  row.problem = parse_problem("mb1ic64ih56oc64oh56kh3ph1").problem;
  row.fingerprint = "cpu=test";
  row.commit = "0123456789ab";
  row.date = "2026-01-02T03:04:05.678Z";
  Candidate& c = row.candidate;
  c.algo = "writer" + std::to_string(writer);
  c.version = 1;
  c.config = {{"number", number}};
  c.threads = 2;
  c.ms = number + 0.125;
  c.rel_error = 1e-7 * number;
  c.reason = std::string(std::size_t(number % 100), 'x');
  for (int i = 0; i < 400; ++i) c.samples_ms.push_back(number + 0.001 * i);
  return row;
}

}  // namespace convlab
