// MIOpen logs a convolution as the command of its driver that repeats it:
//
//   MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 128 -c 3 -H 32 -W 32 -k 64
//       -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1
//
// The driver itself prints its command and, with -t 1, the time of each pass below it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "bench/logs/readers.h"
#include "conv/text/problem_reader.h"
#include "conv/transposed.h"

namespace convlab {
namespace {

struct Flag {
  std::string_view letter, name;
  std::int64_t value;  // the driver's default
};

// The flags that say what is computed. Dilations are 1 where they are dense.
constexpr std::array flags{Flag{"n", "batchsize", 100},
                           Flag{"c", "in_channels", 3},
                           Flag{"!", "in_d", 32},
                           Flag{"H", "in_h", 32},
                           Flag{"W", "in_w", 32},
                           Flag{"k", "out_channels", 32},
                           Flag{"@", "fil_d", 3},
                           Flag{"y", "fil_h", 3},
                           Flag{"x", "fil_w", 3},
                           Flag{"#", "conv_stride_d", 1},
                           Flag{"u", "conv_stride_h", 1},
                           Flag{"v", "conv_stride_w", 1},
                           Flag{"$", "pad_d", 0},
                           Flag{"p", "pad_h", 0},
                           Flag{"q", "pad_w", 0},
                           Flag{"^", "dilation_d", 1},
                           Flag{"l", "dilation_h", 1},
                           Flag{"j", "dilation_w", 1},
                           Flag{"%", "trans_output_pad_d", 0},
                           Flag{"Y", "trans_output_pad_h", 0},
                           Flag{"X", "trans_output_pad_w", 0},
                           Flag{"g", "group_count", 1},
                           Flag{"F", "forw", 0},
                           Flag{"_", "spatial_dim", 2}};

struct DriverCommand {
  std::array<std::int64_t, flags.size()> values;
  // By the flag's long name.
  std::int64_t operator[](std::string_view name) const {
    std::size_t i = 0;
    while (flags[i].name != name) ++i;
    return values[i];
  }
  std::string_view mode = "conv", pad_mode = "default";
  std::string fault;
};

std::string_view unquoted(std::string_view word) {
  while (!word.empty() && (word.front() == '"' || word.front() == '\'')) word.remove_prefix(1);
  while (!word.empty() && (word.back() == '"' || word.back() == '\'')) word.remove_suffix(1);
  return word;
}

std::string_view next_word(std::string_view& text) {
  text = text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return unquoted(word);
}

DriverCommand parse_flags(std::string_view text) {
  DriverCommand command;
  for (std::size_t i = 0; i < flags.size(); ++i) command.values[i] = flags[i].value;
  while (command.fault.empty()) {
    std::string_view word = next_word(text);
    if (word.empty()) break;
    if (word.size() < 2 || word.front() != '-') continue;  // a value that is not of interest
    word.remove_prefix(word.starts_with("--") ? 2 : 1);
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    const auto value = [&] {
      return equals < word.size() ? unquoted(word.substr(equals + 1)) : next_word(text);
    };
    if (name == "m" || name == "mode") command.mode = value();
    if (name == "z" || name == "pad_mode") command.pad_mode = value();
    for (std::size_t i = 0; i < flags.size(); ++i) {
      if (name != flags[i].letter && name != flags[i].name) continue;
      const std::string_view given = value();
      const std::optional<std::int64_t> number = whole_number(given);
      if (number && *number >= 0)
        command.values[i] = *number;
      else
        command.fault =
            given.empty() ? "a cut line" : fmt::format("a flag that is not a whole number");
    }
  }
  return command;
}

// The size of the output along an axis, of a convolution or of the transposed one.
std::int64_t out_size(bool transposed, std::int64_t in, std::int64_t filter, std::int64_t stride,
                      std::int64_t pad, std::int64_t dilation, std::int64_t added) {
  // Sizes that overflow are not possible, and are found to be so.
  constexpr std::int64_t most = std::int64_t{1} << 30;
  for (const std::int64_t value : {in, filter, stride, pad, dilation, added})
    if (value > most) return -1;
  if (stride < 1) return -1;
  const std::int64_t span = (filter - 1) * dilation + 1;
  if (transposed) return (in - 1) * stride + span - 2 * pad + added;
  return in + 2 * pad < span ? -1 : (in + 2 * pad - span) / stride + 1;
}

ConvProblem problem_of_command(const DriverCommand& c, bool transposed, DType dtype) {
  const bool valid = c.pad_mode == "valid";
  ConvProblem p;
  p.dtype = dtype;
  p.n = c["batchsize"], p.c = c["in_channels"], p.k = c["out_channels"];
  p.groups = std::max<std::int64_t>(c["group_count"], 1);
  p.h = c["in_h"], p.r = c["fil_h"];
  p.w = c["in_w"], p.s = c["fil_w"];
  p.stride_h = c["conv_stride_h"], p.dilation_h = c["dilation_h"];
  p.stride_w = c["conv_stride_w"], p.dilation_w = c["dilation_w"];
  p.pad_h = valid ? 0 : c["pad_h"];
  p.pad_w = valid ? 0 : c["pad_w"];
  if (c["spatial_dim"] == 3) {
    p.d = c["in_d"], p.t = c["fil_d"];
    p.stride_d = c["conv_stride_d"], p.dilation_d = c["dilation_d"];
    p.pad_d = valid ? 0 : c["pad_d"];
    p.z =
        out_size(transposed, p.d, p.t, p.stride_d, p.pad_d, p.dilation_d, c["trans_output_pad_d"]);
  }
  p.p = out_size(transposed, p.h, p.r, p.stride_h, p.pad_h, p.dilation_h, c["trans_output_pad_h"]);
  p.q = out_size(transposed, p.w, p.s, p.stride_w, p.pad_w, p.dilation_w, c["trans_output_pad_w"]);
  if (transposed) {  // what goes in is the convolution's output
    std::swap(p.c, p.k);
    std::swap(p.d, p.z);
    std::swap(p.h, p.p);
    std::swap(p.w, p.q);
  }
  return p;
}

// The time that the driver prints for a pass.
std::optional<std::pair<Pass, double>> elapsed(std::string_view line) {
  constexpr std::string_view begins = "GPU Kernel Time ", elapsed = " Conv. Elapsed: ";
  const std::size_t start = line.find(begins), at = line.find(elapsed);
  if (start == line.npos || at == line.npos || at < start) return {};
  const std::string_view what = line.substr(start + begins.size(), at - start - begins.size());
  const std::string_view text = line.substr(at + elapsed.size());
  double ms = -1;
  std::from_chars(text.data(), text.data() + text.size(), ms);
  if (!(ms >= 0 && ms < 3.2e10)) return {};
  if (what == "Forward") return std::pair(Pass::forward, ms);
  if (what == "Backward Data") return std::pair(Pass::backward_data, ms);
  if (what == "Backward Weights") return std::pair(Pass::backward_filter, ms);
  return {};
}

}  // namespace

bool MiopenReader::take(std::string_view line, LogSink& sink) {
  constexpr std::string_view driver = "MIOpenDriver";
  const std::size_t at = line.find(driver);
  if (at == line.npos) {
    const auto time = elapsed(line);
    if (!time) return false;
    if (const auto run = last_.find(time->first); run != last_.end()) {
      sink.add_time(run->second, time->second);
      last_.erase(run);
    }
    return true;
  }
  std::string_view rest = line.substr(at + driver.size());
  if (rest.starts_with(':')) rest.remove_prefix(1);
  const std::string_view what = next_word(rest);
  // Else the name of a file, or a word in another text.
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (what.empty() || !std::all_of(what.begin(), what.end(), is_letter)) return false;
  sink.found("MIOpen");
  last_.clear();
  if (!what.starts_with("conv")) {
    sink.other(what);
    return true;
  }
  const bool searches = line.substr(0, at).find("[LogCmdFind") != line.npos;
  if (searches) sink.preparation();
  const std::string_view type = what.substr(4);
  if (!type.empty() && type != "fp16" && type != "bfp16") {
    sink.skip(fmt::format("the type of {}", quoted_part(what)));
    return true;
  }
  const DType dtype = type.empty() ? DType::f32 : type == "fp16" ? DType::f16 : DType::bf16;
  const DriverCommand command = parse_flags(rest);
  const bool transposed = command.mode == "trans";
  const bool logged = line.substr(0, at).find("[LogCmd") != line.npos;
  const std::int64_t passes = command["forw"], dimensions = command["spatial_dim"];
  std::string fault = command.fault;
  if (!fault.empty()) {
  } else if (!transposed && command.mode != "conv") {
    fault = fmt::format("the mode {}", quoted_part(command.mode));
  } else if (transposed && logged) {
    // -k is the filter's first size there, which of a transposed convolution is that of -c.
    fault = "-m trans: MIOpen logs no output channels of transposed convolutions";
  } else if (command.pad_mode == "same") {
    fault = "the padding mode same";
  } else if (dimensions != 2 && dimensions != 3) {
    fault = fmt::format("{} dimensions", dimensions);
  } else if (passes > 7) {
    fault = "the pass of -F";
  }
  if (!fault.empty()) {
    sink.skip(fault);
    return true;
  }
  // -F adds 1 for forward, 2 for data and 4 for weights; 0 is all of them.
  ConvProblem p = problem_of_command(command, transposed, dtype);
  for (const Pass pass : all_passes) {
    if (passes != 0 && (passes >> std::size_t(pass) & 1) == 0) continue;
    p.pass = transposed ? convlab::transposed(pass) : pass;
    const LogSink::Run run = sink.add(p, transposed, {});
    if (!searches) last_[pass] = run;
  }
  return true;
}

}  // namespace convlab
