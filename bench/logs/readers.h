// The readers of single formats, and where they put what they find. Internal.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/logs/log.h"

namespace convlab {

// Text of the file as part of a reason: short and printable.
std::string quoted_part(std::string_view);

// A whole number; nullopt for anything else and for more than 2^60.
std::optional<std::int64_t> whole_number(std::string_view);

// The pieces between separators. Their number is bounded: what follows the last is part of it.
std::vector<std::string_view> split(std::string_view, char separator, std::size_t most);

inline constexpr const char* impossible_sizes = "sizes that no convolution has";

// Thrown for a run that cannot be read.
struct SkippedRun {
  std::string reason;
};

class LogSink {
 public:
  // The line that what follows is about. It runs something, unless preparation() is called next:
  // then it creates a convolution, or searches an algorithm for one.
  void at_line(std::int64_t number);
  void preparation() { part_ = 1; }
  std::int64_t line() const { return line_; }
  void found(const std::string& library);  // a line of this library, perhaps with its version

  // Where a run is counted, for add_time().
  using Run = std::size_t;
  static constexpr Run no_run = std::size_t(-1);
  // A problem that no convolution has is skipped.
  Run add(const ConvProblem&, bool transposed, std::optional<double> ms);
  // The time of an untimed run, which became known later: once a run.
  void add_time(Run, double ms);

  void skip(const std::string& reason);
  void simplify(const std::string& reason);
  // A run of something else than a convolution.
  void other(std::string_view kind);

  ConvLog finish(const std::string& name);

 private:
  struct Remarks {
    std::vector<LogRemark> list;
    std::map<std::string, std::size_t> places;
    void add(const std::string& reason, std::int64_t count, std::int64_t line);
  };
  struct Part {
    std::vector<LoggedConv> convs;
    std::map<std::string, std::size_t> places;  // in convs, by all that tells them apart
    Remarks skipped, simplified;
  };

  std::int64_t line_ = 0;
  std::size_t part_ = 0;
  std::vector<std::string> libraries_;
  std::array<Part, 2> parts_;  // runs, preparations
  std::map<std::string, std::int64_t> others_;
  std::int64_t first_other_ = 0;
};

class LogReader {
 public:
  virtual ~LogReader() = default;
  // Returns false if the line is not of this library.
  virtual bool take(std::string_view line, LogSink&) = 0;
  virtual void end(LogSink&) {}
};

// onednn.cpp: "onednn_verbose,..." and "dnnl_verbose,...".
class OnednnReader : public LogReader {
 public:
  bool take(std::string_view line, LogSink&) override;

 private:
  // Where columns stand, counted from the operation.
  struct Columns {
    std::size_t engine = 1, primitive = 2, propagation = 4, descriptors = 5, attributes = 6,
                problem = 8;
    std::optional<std::size_t> time = 9;
    bool stated = false;  // by a template line
  };
  void read_template(std::string_view names);
  void read_convolution(const std::vector<std::string_view>& fields, bool executed, LogSink&) const;

  Columns columns_;
};

// miopen.cpp: "... MIOpenDriver conv -n 128 ...".
class MiopenReader : public LogReader {
 public:
  bool take(std::string_view line, LogSink&) override;

 private:
  std::map<Pass, LogSink::Run> last_;  // the last command's runs
};

// cudnn.cpp: "I! CuDNN (v8907) function cudnnConvolutionForward() called:" and the lines below it.
class CudnnReader : public LogReader {
 public:
  bool take(std::string_view line, LogSink&) override;
  void end(LogSink&) override;

 private:
  std::string function_;  // the open call; empty: none that is of interest
  std::int64_t line_ = 0;
  std::string descriptor_;                     // the open descriptor's name
  std::map<std::string, std::string> values_;  // "xDesc.dimA": "[1,3,224,224]"
};

}  // namespace convlab
