// oneDNN's verbose mode prints a line for each primitive that it runs. Version 2 and later name the
// columns in a template line:
//
//   onednn_verbose,info,prim_template:operation,engine,primitive,implementation,prop_kind,
//       memory_descriptors,attributes,auxiliary,problem_desc,exec_time
//   onednn_verbose,exec,cpu,convolution,jit:avx2,forward_training,src_f32::blocked:abcd:f0 ...,
//       attr-post-ops:eltwise_relu ,alg:convolution_direct,mb1_ic16oc16_ih8oh8kh3sh1dh0ph1_...,0.03
//
// Version 3 has a version of the format and the component in front ("v1,primitive,"), and a
// timestamp may stand before the operation; both are recognised by what they look like.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "bench/logs/readers.h"
#include "conv/error.h"
#include "conv/problem_text.h"
#include "conv/text/problem_reader.h"
#include "conv/transposed.h"

namespace convlab {
namespace {

constexpr std::size_t most_fields = 32;

std::optional<double> number(std::string_view text) {
  text = trim(text);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return {};
  return value;
}

// A time in ms: what is below zero or above a year is none.
std::optional<double> time_of(std::string_view text) {
  const std::optional<double> ms = number(text);
  return ms && *ms >= 0 && *ms < 3.2e10 ? ms : std::nullopt;
}

bool is_format_version(std::string_view field) {
  return field.size() > 1 && field.front() == 'v' && whole_number(field.substr(1));
}

// The type and the name of a tensor: "src_f32::blocked:abcd:f0", later
// "src:f32:a:blocked:abcd::f0".
struct Descriptor {
  std::string_view name, type;
};
Descriptor parse_descriptor(std::string_view text) {
  for (const std::string_view prefix : {"diff_", "diff-"})
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  const std::size_t end = text.find_first_of("_:");
  if (end == text.npos) return {};
  const std::string_view rest = text.substr(end + 1);
  return {text.substr(0, end), rest.substr(0, rest.find(':'))};
}

std::optional<Pass> pass_of_propagation(std::string_view propagation) {
  if (propagation.starts_with("forward")) return Pass::forward;
  if (propagation == "backward_data") return Pass::backward_data;
  if (propagation == "backward_weights") return Pass::backward_filter;
  return {};
}

std::optional<DType> type_of(std::string_view text) {
  for (const DType type : all_dtypes)
    if (to_string(type) == text) return type;
  return {};
}

// Whether a tensor that is constant along the dimensions missing in `mask` has y's shape. Bits
// count from the batch.
bool covers(std::int64_t mask, const ConvProblem& p) {
  std::vector<std::int64_t> y{p.n, p.k};
  if (p.has_depth()) y.push_back(p.z);
  // A mask of one dimension has no bit for a height.
  if (p.h != 1 || p.r != 1 || p.p != 1 || mask >= 8) y.push_back(p.p);
  y.push_back(p.q);
  for (std::size_t i = 0; i < y.size(); ++i)
    if (y[i] > 1 && (mask >> i & 1) == 0) return false;
  return true;
}

// The activation of a post-op like "eltwise_clip:0:6", whose numbers are alpha, beta and scale.
std::optional<ActivationKind> activation_of(const std::vector<std::string_view>& parts) {
  const auto is = [&](std::size_t i, double value, double otherwise) {
    return std::abs((i < parts.size() ? number(parts[i]).value_or(-1) : otherwise) - value) < 1e-5;
  };
  const std::string_view name = parts[0];
  if (!is(3, 1, 1)) return {};
  if (name == "eltwise_relu" && is(1, 0, 0)) return ActivationKind::relu;
  if (name == "eltwise_clip" && is(1, 0, 0) && is(2, 6, 0)) return ActivationKind::relu6;
  if (name == "eltwise_bounded_relu" && is(1, 6, 0)) return ActivationKind::relu6;
  if (name == "eltwise_hardsigmoid" && is(1, 1. / 6, 0) && is(2, 0.5, 0))
    return ActivationKind::hardsigmoid;
  if (name == "eltwise_hardswish" && (parts.size() == 1 || (is(1, 1. / 6, 0) && is(2, 0.5, 0))))
    return ActivationKind::hardswish;
  if (name == "eltwise_swish" && is(1, 1, 0)) return ActivationKind::silu;
  if (name == "eltwise_gelu_erf") return ActivationKind::gelu;
  if (name == "eltwise_logistic") return ActivationKind::sigmoid;
  if (name == "eltwise_tanh") return ActivationKind::tanh;
  return {};
}

// Adds one post-op, "eltwise_relu", "sum:1:0:f32" or "binary_add:f32:15:abcd". Returns false if an
// epilogue does not have it at this place.
bool add_post_op(std::string_view text, ConvProblem& p) {
  const std::vector<std::string_view> parts = split(text, ':', 8);
  const auto is = [&](std::size_t i, double otherwise, double value) {
    return (i < parts.size() ? number(parts[i]).value_or(-1) : otherwise) == value;
  };
  Epilogue& e = p.epilogue;
  const bool sum = parts[0] == "sum" && is(1, 1, 1) && is(2, 0, 0) &&
                   (parts.size() < 4 || parts[3] == to_string(p.dtype));
  const bool add = parts[0] == "binary_add" && parts.size() > 2 && parts[1] == to_string(p.dtype) &&
                   covers(whole_number(parts[2]).value_or(0), p);
  const std::optional<ActivationKind> activation = activation_of(parts);
  if (e.activation || (e.residual && !activation) || !(sum || add || activation)) return false;
  if (activation)
    e.activation = activation;
  else
    e.residual = true;
  return true;
}

constexpr std::size_t most_parts = 64;

void add_post_ops(std::string_view ops, char separator, ConvProblem& p) {
  for (const std::string_view op : split(ops, separator, most_parts))
    if (!trim(op).empty() && !add_post_op(trim(op), p))
      throw SkippedRun{fmt::format("the post-ops {}", quoted_part(ops))};
}

// Version 1: "scratchpad_mode:user;post_ops:'sum;eltwise_relu;';".
// Later: "attr-scratchpad:user attr-post-ops:sum+eltwise_relu".
void add_attributes(std::string_view text, ConvProblem& p, LogSink& sink) {
  const bool old = !text.starts_with("attr-");
  constexpr std::string_view old_ops = "post_ops:'";
  if (const std::size_t at = text.find(old_ops); old && at != text.npos) {
    const std::string_view inside = text.substr(at + old_ops.size());
    add_post_ops(inside.substr(0, inside.find('\'')), ';', p);
    text = text.substr(0, at);
  }
  for (const std::string_view part : split(text, old ? ';' : ' ', most_parts)) {
    const std::string_view attribute = trim(part);
    const std::size_t colon = std::min(attribute.find(':'), attribute.size());
    std::string_view name = attribute.substr(0, colon);
    const std::string_view value = attribute.substr(std::min(colon + 1, attribute.size()));
    if (name.starts_with("attr-")) name.remove_prefix(5);
    if (name == "post-ops")
      add_post_ops(value, '+', p);
    else if (name == "fpmath" && !value.starts_with("strict"))
      sink.simplify(
          fmt::format("fpmath:{} lets oneDNN multiply in a smaller type", quoted_part(value)));
    else if (!name.empty() && name != "fpmath" && !name.starts_with("scratchpad") &&
             name != "deterministic" && name != "acc-mode")
      throw SkippedRun{fmt::format("the attribute {}", quoted_part(name))};
  }
}

}  // namespace

// Templates of other lines, such as those of graphs, lack some of these columns.
void OnednnReader::read_template(std::string_view names) {
  std::vector<std::string_view> columns = split(names, ',', most_fields);
  std::erase(columns, "timestamp");
  const auto at = [&](std::string_view name) -> std::optional<std::size_t> {
    const auto found = std::find(columns.begin(), columns.end(), name);
    if (found == columns.end()) return {};
    return std::size_t(found - columns.begin());
  };
  const auto engine = at("engine"), primitive = at("primitive"), propagation = at("prop_kind"),
             descriptors = at("memory_descriptors"), attributes = at("attributes"),
             problem = at("problem_desc");
  if (at("operation") != std::size_t(0) || !engine || !primitive || !propagation || !descriptors ||
      !attributes || !problem)
    return;
  columns_ = {.engine = *engine,
              .primitive = *primitive,
              .propagation = *propagation,
              .descriptors = *descriptors,
              .attributes = *attributes,
              .problem = *problem,
              .time = at("exec_time"),
              .stated = true};
}

bool OnednnReader::take(std::string_view line, LogSink& sink) {
  if (const std::size_t old = line.find("mkldnn_verbose,"); old != line.npos) {
    sink.found("oneDNN");
    const std::string_view rest = line.substr(old);
    if (rest.starts_with("mkldnn_verbose,exec,"))
      sink.skip("written before oneDNN 1.0 (mkldnn_verbose), which names no types");
    return true;
  }
  const std::size_t start = line.find("dnnl_verbose,"), later = line.find("onednn_verbose,");
  if (start == line.npos && later == line.npos) return false;
  const std::string_view rest = line.substr(line.find(',', std::min(start, later)) + 1);
  std::vector<std::string_view> fields = split(rest, ',', most_fields);
  sink.found("oneDNN");
  std::size_t first = 0;
  while (first < fields.size() && (is_format_version(fields[first]) || number(fields[first])))
    ++first;
  const std::string_view component = first < fields.size() ? fields[first] : "";
  if (component == "primitive") ++first;
  fields.erase(fields.begin(), fields.begin() + std::ptrdiff_t(first));
  if (fields.empty()) return true;
  if (fields[0] == "info") {
    for (const std::string_view prefix : {"info,prim_template:", "info,template:"})
      if (const std::size_t at = rest.find(prefix); at != rest.npos)
        read_template(rest.substr(at + prefix.size()));
    if (fields.size() > 1)
      for (const std::string_view product : {"oneDNN v", "DNNL v"})
        if (std::string_view version = fields[1]; version.starts_with(product)) {
          version.remove_prefix(product.size());
          constexpr std::size_t longest = 16;
          sink.found("oneDNN v" +
                     quoted_part(version.substr(0, version.find(' ')).substr(0, longest)));
        }
    return true;
  }
  // A graph's partition runs primitives, which have lines of their own.
  if (component == "graph") return true;
  const std::string_view operation = fields[0];
  const bool executed = operation == "exec";
  if (!executed && operation != "create" && !operation.starts_with("create:cache") &&
      !operation.starts_with("create:persistent"))
    return true;
  if (!executed) sink.preparation();
  if (fields.size() <= columns_.primitive) {
    sink.skip("a cut line");
    return true;
  }
  const std::string_view primitive = fields[columns_.primitive];
  if (primitive == "convolution" || primitive == "deconvolution") {
    try {
      read_convolution(fields, executed, sink);
    } catch (const SkippedRun& skipped) {
      sink.skip(skipped.reason);
    }
  } else if (executed) {
    sink.other(primitive);
  }
  return true;
}

void OnednnReader::read_convolution(const std::vector<std::string_view>& fields, bool executed,
                                    LogSink& sink) const {
  const Columns& c = columns_;
  // The first releases had no attributes, and the algorithm in their place.
  const std::size_t missing =
      !c.stated && fields.size() > c.attributes && fields[c.attributes].starts_with("alg:") ? 1 : 0;
  const std::size_t problem_at = c.problem - missing;
  if (fields.size() <= std::max(problem_at, c.descriptors)) throw SkippedRun{"a cut line"};
  std::optional<double> ms;
  if (c.time && fields.size() > *c.time - missing)
    ms = executed ? time_of(fields[*c.time - missing]) : std::nullopt;
  else if (c.time && c.stated && executed)
    throw SkippedRun{"a cut line"};

  const bool transposed = fields[c.primitive] == "deconvolution";
  const std::optional<Pass> pass = pass_of_propagation(fields[c.propagation]);
  if (!pass)
    throw SkippedRun{fmt::format("the propagation {}", quoted_part(fields[c.propagation]))};

  std::string_view source, filter, output;
  bool bias = false;
  for (const std::string_view text : split(fields[c.descriptors], ' ', 16)) {
    const Descriptor d = parse_descriptor(trim(text));
    if (d.name == "src") source = d.type;
    if (d.name == "wei") filter = d.type;
    if (d.name == "dst") output = d.type;
    if (d.name == "bia") bias = d.type != "undef" && !d.type.empty();
  }
  if (source.empty() || filter.empty() || output.empty())
    throw SkippedRun{"no types of src, wei and dst"};
  const std::optional<DType> type = type_of(source);
  if (!type || source != filter || source != output)
    throw SkippedRun{fmt::format("the types {}, {}, {} of src, wei, dst", quoted_part(source),
                                 quoted_part(filter), quoted_part(output))};

  ConvProblem p;
  try {
    const std::string_view sizes = trim(fields[problem_at]);
    constexpr std::size_t longest = 1000;
    if (sizes.size() > longest) throw SkippedRun{impossible_sizes};
    std::vector<std::string> no_batch;
    p = transposed ? parse_transposed_problem(std::string(transposed_prefix) + std::string(sizes),
                                              no_batch)
                         .problem
                   : parse_problem(sizes, no_batch).problem;
    if (!no_batch.empty()) throw SkippedRun{"a cut line"};
  } catch (const InputError&) {
    throw SkippedRun{impossible_sizes};
  }
  p.dtype = *type;
  p.pass = *pass;
  p.epilogue.bias = bias && *pass == Pass::forward;
  if (missing == 0) add_attributes(fields[c.attributes], p, sink);
  if (*pass != Pass::forward && (p.epilogue.residual || p.epilogue.activation))
    throw SkippedRun{fmt::format("post-ops in pass {}", to_string(*pass))};
  if (bias && *pass == Pass::backward_filter) sink.simplify("the bias's gradient is left out");
  if (transposed) {
    if (p.epilogue.residual || p.epilogue.activation)
      throw SkippedRun{"post-ops of a transposed convolution"};
    if (p.epilogue.bias) sink.simplify("the bias of a transposed convolution is left out");
    p.epilogue = {};
    p.pass = convlab::transposed(*pass);
  }
  sink.add(p, transposed, ms);
}

}  // namespace convlab
