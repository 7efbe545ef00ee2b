// cuDNN logs each call of its classic interface with what its descriptors hold:
//
//   I! CuDNN (v8907) function cudnnConvolutionForward() called:
//   i!     xDesc: type=cudnnTensorDescriptor_t:
//   i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
//   i!         dimA: type=int; val=[1,3,224,224];
//   i!     convDesc: type=cudnnConvolutionDescriptor_t:
//   i!         padA: type=int; val=[3,3];
//
// Dimensions stand in the order N, C, depth, height, width in every memory format. The log has no
// times.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "bench/logs/readers.h"
#include "conv/text/problem_reader.h"

namespace convlab {
namespace {

using Values = std::map<std::string, std::string>;

// "[1,3,224,224]"
std::vector<std::int64_t> numbers(std::string_view text) {
  constexpr std::size_t most_dimensions = 8;
  std::vector<std::int64_t> list;
  if (!text.starts_with('[') || !text.ends_with(']')) return list;
  for (const std::string_view part : split(text.substr(1, text.size() - 2), ',', most_dimensions)) {
    const std::optional<std::int64_t> value = whole_number(trim(part));
    if (!value) return {};
    list.push_back(*value);
  }
  return list;
}

class CudnnCall {
 public:
  explicit CudnnCall(const Values& values) : values_(values) {}

  bool has(const std::string& name) const { return values_.contains(name); }
  // "" if there is none.
  std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }
  std::vector<std::int64_t> list(const std::string& name) const {
    const std::vector<std::int64_t> found = numbers(text(name));
    if (found.empty())
      throw SkippedRun{has(name) ? "lists that are not whole numbers" : "a cut call"};
    return found;
  }
  // The first of these descriptors that the call has: releases name them differently.
  std::string descriptor(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (has(fmt::format("{}.dimA", name))) return name;
    throw SkippedRun{"a cut call"};
  }
  DType type(const std::string& descriptor) const {
    const std::string name = text(descriptor + ".dataType");
    const std::string word = name.substr(0, name.find(' '));
    if (word == "CUDNN_DATA_FLOAT") return DType::f32;
    if (word == "CUDNN_DATA_DOUBLE") return DType::f64;
    if (word == "CUDNN_DATA_HALF") return DType::f16;
    if (word == "CUDNN_DATA_BFLOAT16") return DType::bf16;
    throw SkippedRun{word.empty() ? "a cut call" : fmt::format("the type {}", quoted_part(word))};
  }
  double factor(const std::string& name, double otherwise) const {
    const std::string given = text(name);
    double value = otherwise;
    if (!given.empty()) std::from_chars(given.data(), given.data() + given.size(), value);
    return value;
  }

 private:
  const Values& values_;
};

void require_plain_factors(const CudnnCall& call, const char* alpha) {
  if (call.factor(alpha, 1) != 1) throw SkippedRun{fmt::format("a result scaled by {}", alpha)};
  if (call.factor("beta", 0) != 0) throw SkippedRun{"a result added to what is there (beta)"};
}

void add_epilogue(const CudnnCall& call, ConvProblem& p) {
  p.epilogue.bias = true;
  p.epilogue.residual = call.factor("alpha2", 0) != 0;
  if (p.epilogue.residual && call.factor("alpha2", 0) != 1) throw SkippedRun{"a residual scaled"};
  const std::string mode = call.text("activationDesc.mode");
  const std::string word = mode.substr(0, mode.find(' '));
  if (word == "CUDNN_ACTIVATION_RELU") p.epilogue.activation = ActivationKind::relu;
  if (!p.epilogue.activation && word != "CUDNN_ACTIVATION_IDENTITY")
    throw SkippedRun{fmt::format("the activation {}", quoted_part(word))};
}

ConvProblem problem_of_call(const CudnnCall& call, Pass pass, LogSink& sink) {
  const std::string x = call.descriptor({"xDesc", "dxDesc", "srcDesc", "gradDesc"}),
                    w = call.descriptor({"wDesc", "dwDesc", "filterDesc", "gradDesc"}),
                    y = call.descriptor({"yDesc", "dyDesc", "destDesc", "diffDesc"});
  ConvProblem p;
  p.pass = pass;
  p.dtype = call.type(x);
  if (call.type(w) != p.dtype || call.type(y) != p.dtype)
    throw SkippedRun{"different types of tensors"};
  const std::vector<std::int64_t> x_dims = call.list(x + ".dimA"), w_dims = call.list(w + ".dimA"),
                                  y_dims = call.list(y + ".dimA"),
                                  pads = call.list("convDesc.padA"),
                                  strides = call.list("convDesc.strideA"),
                                  dilations = call.list("convDesc.dilationA");
  const std::size_t axes = pads.size();
  if (axes < 2 || axes > 3) throw SkippedRun{fmt::format("{} dimensions", axes)};
  if (x_dims.size() != axes + 2 || w_dims.size() != axes + 2 || y_dims.size() != axes + 2 ||
      strides.size() != axes || dilations.size() != axes)
    throw SkippedRun{"dimensions that do not fit one another"};
  p.n = x_dims[0], p.c = x_dims[1], p.k = w_dims[0];
  if (w_dims[1] < 1 || p.c % w_dims[1] != 0 || y_dims[0] != p.n || y_dims[1] != p.k)
    throw SkippedRun{"dimensions that do not fit one another"};
  p.groups = p.c / w_dims[1];
  const std::size_t h = axes - 2;
  if (axes == 3) {
    p.d = x_dims[2], p.t = w_dims[2], p.z = y_dims[2];
    p.pad_d = pads[0], p.stride_d = strides[0], p.dilation_d = dilations[0];
  }
  p.h = x_dims[h + 2], p.r = w_dims[h + 2], p.p = y_dims[h + 2];
  p.w = x_dims[h + 3], p.s = w_dims[h + 3], p.q = y_dims[h + 3];
  p.pad_h = pads[h], p.stride_h = strides[h], p.dilation_h = dilations[h];
  p.pad_w = pads[h + 1], p.stride_w = strides[h + 1], p.dilation_w = dilations[h + 1];
  if (call.text("convDesc.mode").starts_with("CUDNN_CONVOLUTION "))
    sink.simplify("a flipped filter (CUDNN_CONVOLUTION) is read as one that is not");
  return p;
}

std::optional<Pass> pass_of_function(std::string_view function) {
  if (function.find("BackwardData") != function.npos) return Pass::backward_data;
  if (function.find("BackwardFilter") != function.npos) return Pass::backward_filter;
  if (function.find("Forward") != function.npos) return Pass::forward;
  return {};
}

// Calls that run a convolution, and those that search an algorithm for one.
bool runs(std::string_view function) { return function.starts_with("cudnnConvolution"); }
bool searches(std::string_view function) {
  return (function.starts_with("cudnnFindConvolution") ||
          function.starts_with("cudnnGetConvolution")) &&
         function.find("Algorithm") != function.npos && function.find("Count") == function.npos;
}

}  // namespace

bool CudnnReader::take(std::string_view line, LogSink& sink) {
  if (const std::size_t at = line.find("! CuDNN (v"); at != line.npos) {
    end(sink);
    constexpr std::string_view word = " function ", called = "() called";
    const std::size_t name = line.find(word, at), stop = line.find(called, at);
    if (name == line.npos || stop == line.npos || stop < name) return true;
    const std::string_view function = line.substr(name + word.size(), stop - name - word.size());
    sink.found("cuDNN");
    if (function == "cudnnBackendExecute")
      sink.skip("a run of the graph API, whose log does not name its problem");
    if (!runs(function) && !searches(function)) return true;
    function_ = function;
    line_ = sink.line();
    return true;
  }
  const std::size_t mark = line.find("i! ");
  if (mark == line.npos) return false;
  if (function_.empty()) return true;
  const std::string_view rest = line.substr(mark + 3);
  const std::string_view entry = trim(rest);
  const std::size_t colon = entry.find(": type=");
  if (colon == entry.npos) return true;
  const std::string name(entry.substr(0, std::min<std::size_t>(colon, 40)));
  const std::size_t indent = rest.find_first_not_of(' ');
  constexpr std::size_t inner_indent = 6;  // 4 of arguments, 8 of what descriptors hold
  const std::size_t value = entry.find("val=", colon);
  if (indent < inner_indent) descriptor_ = value == entry.npos ? name + "." : "";
  if (value == entry.npos) return true;
  std::string_view text = entry.substr(value + 4);
  text = text.substr(0, std::min<std::size_t>(text.find(';'), 200));
  values_.emplace((indent < inner_indent ? "" : descriptor_) + name, text);
  return true;
}

void CudnnReader::end(LogSink& sink) {
  if (function_.empty()) return;
  const std::int64_t here = sink.line();
  const bool executed = runs(function_);
  sink.at_line(line_);
  if (!executed) sink.preparation();
  try {
    const std::optional<Pass> pass = pass_of_function(function_);
    const CudnnCall call(values_);
    if (!pass) {  // cudnnConvolutionBackwardBias
      if (executed) sink.other(function_);
    } else {
      ConvProblem p = problem_of_call(call, *pass, sink);
      const bool fused = function_ == "cudnnConvolutionBiasActivationForward";
      if (executed) require_plain_factors(call, fused ? "alpha1" : "alpha");
      if (fused) add_epilogue(call, p);
      sink.add(p, false, {});
    }
  } catch (const SkippedRun& skipped) {
    sink.skip(skipped.reason);
  }
  sink.at_line(here);
  function_.clear();
  descriptor_.clear();
  values_.clear();
}

}  // namespace convlab
