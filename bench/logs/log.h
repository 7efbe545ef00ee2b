// Convolutions that another program ran, read from the log of its library: oneDNN's verbose mode,
// MIOpen's driver commands, cuDNN's API log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conv/problem.h"

namespace convlab {

// Equal runs of one convolution.
struct LoggedConv {
  ConvProblem problem;      // with its pass, type and epilogue
  bool transposed = false;  // the problem is the convolution whose gradient ran (conv/transposed.h)
  std::int64_t count = 0;   // runs
  std::int64_t timed = 0;   // those whose time the log has
  double ms = 0;            // the sum of these times
  friend bool operator==(const LoggedConv&, const LoggedConv&) = default;
};

// Runs that were skipped, or read as less than they are, for one reason.
struct LogRemark {
  std::string reason;
  std::int64_t count = 0, first_line = 0;  // lines are counted from 1
  friend bool operator==(const LogRemark&, const LogRemark&) = default;
};

struct ConvLog {
  std::string source;                 // "oneDNN v3.13.3", "MIOpen and cuDNN"
  std::vector<LoggedConv> convs;      // in the order of their first runs
  std::vector<LogRemark> skipped;     // in the order of their first lines
  std::vector<LogRemark> simplified;  // runs that did more than what is read of them
  // The log has no run, only convolutions that were prepared: each preparation counts as a run.
  bool only_prepared = false;

  std::int64_t runs() const;
  double ms() const;
};

// Lines of any of these libraries are found between those of others, also behind a prefix. Throws
// InputError if there are none, or no convolution among them. `name` is the file's, for messages.
ConvLog read_log(std::string_view text, const std::string& name);

// "12, first in line 17: the post-ops eltwise_clip:0:6"
std::string show(const LogRemark&);

}  // namespace convlab
