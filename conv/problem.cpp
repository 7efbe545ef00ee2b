#include "conv/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "conv/error.h"
#include "conv/math/saturating.h"
#include "conv/problem_text.h"
#include "conv/text/names.h"
#include "conv/text/problem_reader.h"
#include "conv/text/text_file.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, all_passes.size()> pass_names{"fwd", "bwd_d", "bwd_w"};

// ---- Fields of the text form ----

enum Field { G, MB, IC, IH, IW, OC, OH, OW, KH, KW, SH, SW, PH, PW, DH, DW, field_count };
constexpr std::array<std::string_view, field_count> field_names{
    "g", "mb", "ic", "ih", "iw", "oc", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw"};
constexpr std::array<std::string_view, 6> depth_names{"id", "od", "kd", "sd", "pd", "dd"};

// Padding and dilation count from 0, everything else from 1.
constexpr std::int64_t least(Field f) { return f >= PH ? 0 : 1; }

// A fault of a problem, and the field to point at (if any: the text form has only sizes).
struct Flaw {
  std::optional<Field> field;
  std::string text;
};

// ---- Validity ----

// One spatial direction.
struct Axis {
  Field image_field, out_field;
  std::int64_t image, filter, out, stride, pad, dilation;

  std::int64_t dilated_filter() const {
    return saturating_add(saturating_mul(filter - 1, dilation), 1);
  }
};

Axis vertical(const ConvProblem& p) {
  return {IH, OH, p.h, p.r, p.p, p.stride_h, p.pad_h, p.dilation_h};
}
Axis horizontal(const ConvProblem& p) {
  return {IW, OW, p.w, p.s, p.q, p.stride_w, p.pad_w, p.dilation_w};
}

std::string describe(const Axis& a) {
  return fmt::format("{} {}, padding {}, a filter that spans {} and stride {}",
                     field_names[a.image_field], a.image, a.pad, a.dilated_filter(), a.stride);
}

std::string too_much_padding(const Axis& a, std::int64_t padding) {
  return fmt::format(
      "{} {} takes padding of {}, more than the filter's {}: a transposed layer is written as its "
      "mirror in pass bwd_d, ic and oc swapped, ih and oh too",
      field_names[a.out_field], a.out, padding, a.dilated_filter());
}

// As in oneDNN, the far padding may be more or less than the near one, and may be negative by up to
// stride - 1 (rows that the last step does not reach). But padding of more rows than the image has
// is refused: only the text of a transposed layer, whose oh is larger than its ih, gives that.
std::optional<Flaw> axis_flaw(const Axis& a) {
  const std::int64_t reach =
      saturating_add(saturating_mul(a.out - 1, a.stride), a.dilated_filter());
  if (reach >= too_much)
    return Flaw{a.out_field, fmt::format("positions overflow 64 bits with {}", describe(a))};
  const std::int64_t far_padding = reach - a.image - a.pad;
  if (far_padding <= -a.stride)
    return Flaw{a.out_field, fmt::format("{} {} is too small for {}: it is at least {}",
                                         field_names[a.out_field], a.out, describe(a),
                                         (a.image + a.pad - a.dilated_filter()) / a.stride + 1)};
  if (far_padding > std::max(a.image, saturating_add(a.pad, a.dilated_filter())))
    return Flaw{a.out_field, too_much_padding(a, far_padding)};
  return std::nullopt;
}

std::optional<Flaw> bytes_flaw(Field field, std::string_view tensor,
                               std::initializer_list<std::int64_t> factors) {
  std::int64_t bytes = 1;
  for (std::int64_t f : factors) bytes = saturating_mul(bytes, f);
  if (bytes < too_much) return std::nullopt;
  return Flaw{field, fmt::format("tensor {} takes 2^62 bytes or more", tensor)};
}

std::optional<Flaw> flaw(const ConvProblem& p) {
  const std::array<std::int64_t, field_count> values{
      p.groups, p.n, p.c,        p.h,        p.w,     p.k,     p.p,          p.q,
      p.r,      p.s, p.stride_h, p.stride_w, p.pad_h, p.pad_w, p.dilation_h, p.dilation_w};
  for (int i = 0; i < field_count; ++i) {
    const Field f = static_cast<Field>(i);
    // The text form counts added gaps: its dh is dilation_h - 1.
    const std::int64_t value = f >= DH ? values[f] - 1 : values[f];
    if (value < least(f) || value > ProblemReader::largest_number)
      return Flaw{f, fmt::format("{} is {}: it takes {} to 2^60", field_names[f], value, least(f))};
  }
  for (const auto& [field, channels] : {std::pair{IC, p.c}, std::pair{OC, p.k}})
    if (channels % p.groups != 0)
      return Flaw{field, fmt::format("{} {} is not a multiple of g {}", field_names[field],
                                     channels, p.groups)};
  for (const Axis& axis : {vertical(p), horizontal(p)})
    if (auto f = axis_flaw(axis)) return f;

  const std::int64_t element = size_of(p.dtype);
  if (auto f = bytes_flaw(IC, "x", {p.n, p.x_desc().padded_c(), p.h, p.w, element})) return f;
  if (auto f = bytes_flaw(OC, "y", {p.n, p.y_desc().padded_c(), p.p, p.q, element})) return f;
  if (auto f = bytes_flaw(KH, "w", {p.k, p.c / p.groups, p.r, p.s, element})) return f;

  if (!p.epilogue.empty() && p.pass != Pass::forward)
    return Flaw{std::nullopt,
                fmt::format("an epilogue belongs to pass fwd, not {}", to_string(p.pass))};
  if (!p.epilogue.empty() && p.accumulate)
    return Flaw{std::nullopt, "an epilogue and accumulating into the output exclude each other"};
  return std::nullopt;
}

// ---- Parsing ----

// The start of a comment behind a problem: a '#' after a blank, outside quotes.
std::size_t comment_start(std::string_view line) {
  bool quoted = false;
  for (std::size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '#' && !quoted && (line[i - 1] == ' ' || line[i - 1] == '\t')) return i;
  }
  return line.npos;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text) {
    value_.fill(absent);
    at_.fill(reader_.text().size());
  }

  bool has_batch() const { return given(MB); }

  NamedProblem parse() {
    NamedProblem result;
    while (!reader_.at_end()) {
      if (reader_.rest().front() == '_') {
        reader_.skip(1);
      } else if (reader_.rest().front() == 'n') {
        LayerName layer = reader_.layer_name();
        result.name = std::move(layer.name);
        result.count = layer.count;
      } else {
        parse_field();
      }
    }
    result.problem = problem();
    if (auto f = flaw(result.problem)) reader_.fail(f->field ? at_[*f->field] : 0, f->text);
    return result;
  }

 private:
  static constexpr std::int64_t absent = -1;

  bool given(Field f) const { return value_[f] != absent; }
  std::int64_t get(Field f, std::int64_t otherwise) const {
    return given(f) ? value_[f] : otherwise;
  }
  std::int64_t require(Field f) const {
    if (!given(f))
      reader_.fail_missing(
          fmt::format("{} is missing; a problem looks like mb1ic64ih56oc64kh3ph1", field_names[f]));
    return value_[f];
  }

  void parse_field() {
    const std::size_t start = reader_.position();
    const std::string_view rest = reader_.rest();
    auto opens = [&](std::string_view name) { return rest.substr(0, name.size()) == name; };
    const auto* name = std::find_if(field_names.begin(), field_names.end(), opens);
    if (name == field_names.end()) {
      if (const auto* depth = std::find_if(depth_names.begin(), depth_names.end(), opens);
          depth != depth_names.end())
        reader_.fail(
            start,
            fmt::format("depth field {}: convolutions here have two spatial dimensions", *depth));
      reader_.fail(
          start,
          "expected a field (g mb ic ih iw oc oh ow kh kw sh sw ph pw dh dw) or n and a name");
    }
    const Field field = static_cast<Field>(name - field_names.begin());
    if (given(field)) reader_.fail(start, fmt::format("{} is given twice", *name));
    reader_.skip(name->size());
    at_[field] = start;
    value_[field] = reader_.number(*name, least(field));
  }

  // Output and near padding follow from each other when one of them is omitted; if both are, there
  // is no padding.
  void complete(Axis& a, Field pad_field) const {
    if (a.out == absent) {
      if (a.pad == absent) a.pad = 0;
      const std::int64_t padded = a.image + 2 * a.pad;
      if (padded < a.dilated_filter())
        reader_.fail(
            at_[a.image_field],
            fmt::format("{} would be below 1: a filter that spans {} does not fit into {} {} with "
                        "padding {}",
                        field_names[a.out_field], a.dilated_filter(), field_names[a.image_field],
                        a.image, a.pad));
      a.out = (padded - a.dilated_filter()) / a.stride + 1;
    } else if (a.pad == absent) {
      const std::int64_t reach =
          saturating_add(saturating_mul(a.out - 1, a.stride), a.dilated_filter());
      a.pad = (reach - a.image) / 2;
      if (a.pad < 0)
        reader_.fail(
            at_[a.out_field],
            fmt::format("{} {} leaves part of {} {} unread: {} can only be derived from a larger "
                        "{}",
                        field_names[a.out_field], a.out, field_names[a.image_field], a.image,
                        field_names[pad_field], field_names[a.out_field]));
      if (a.pad > a.dilated_filter()) reader_.fail(at_[a.out_field], too_much_padding(a, a.pad));
    }
  }

  ConvProblem problem() const {
    ConvProblem p;
    p.groups = get(G, 1);
    p.n = get(MB, 2);
    p.c = require(IC);
    p.k = require(OC);

    const bool any_height =
        given(IH) || given(OH) || given(KH) || given(SH) || given(PH) || given(DH);
    const bool any_width =
        given(IW) || given(OW) || given(KW) || given(SW) || given(PW) || given(DW);
    // Width alone means a one-dimensional convolution: one row, filters of one row.
    const bool one_dimensional = any_width && !any_height;
    Axis v{IH,
           OH,
           one_dimensional ? 1 : require(IH),
           one_dimensional ? 1 : require(KH),
           get(OH, absent),
           get(SH, 1),
           get(PH, absent),
           get(DH, 0) + 1};
    complete(v, PH);

    Axis h{IW,
           OW,
           one_dimensional ? require(IW) : get(IW, v.image),
           one_dimensional ? require(KW) : get(KW, v.filter),
           get(OW, absent),
           get(SW, v.stride),
           get(PW, absent),
           get(DW, v.dilation - 1) + 1};
    // An omitted width equals the height: padding unless ow determines it, and the output (with its
    // far padding) if all that it depends on is the same.
    if (!given(PW) && !given(OW)) h.pad = v.pad;
    const bool same = h.image == v.image && h.filter == v.filter && h.stride == v.stride &&
                      h.pad == v.pad && h.dilation == v.dilation;
    if (!given(OW) && same) h.out = v.out;
    complete(h, PW);

    p.h = v.image, p.r = v.filter, p.p = v.out;
    p.stride_h = v.stride, p.pad_h = v.pad, p.dilation_h = v.dilation;
    p.w = h.image, p.s = h.filter, p.q = h.out;
    p.stride_w = h.stride, p.pad_w = h.pad, p.dilation_w = h.dilation;
    return p;
  }

  ProblemReader reader_;
  std::array<std::int64_t, field_count> value_;
  std::array<std::size_t, field_count> at_;
};

}  // namespace

// ---- Names ----

std::string_view to_string(Pass pass) { return pass_names[static_cast<std::size_t>(pass)]; }

Pass parse_pass(std::string_view text) {
  return all_passes[index_of_name("pass", text, pass_names)];
}

// ---- Problems ----

void validate(const ConvProblem& problem) {
  if (auto f = flaw(problem)) throw InputError("impossible problem: " + f->text);
}

NamedProblem parse_problem(std::string_view text) { return Parser(text).parse(); }

NamedProblem parse_problem(std::string_view text, std::vector<std::string>& warnings) {
  Parser parser(text);
  NamedProblem problem = parser.parse();
  if (!parser.has_batch())
    warnings.push_back(fmt::format("{}: no mb: a batch of 2, as in benchdnn", trim(text)));
  return problem;
}

std::string to_text(const ConvProblem& p) {
  const bool square = p.h == p.w && p.r == p.s && p.p == p.q && p.stride_h == p.stride_w &&
                      p.pad_h == p.pad_w && p.dilation_h == p.dilation_w;
  std::string text;
  auto put = [&](Field f, std::int64_t value) {
    text += fmt::format("{}{}", field_names[f], value);
  };
  auto put_both = [&](Field height, std::int64_t in_h, Field width, std::int64_t in_w) {
    put(height, in_h);
    if (!square) put(width, in_w);
  };
  if (p.groups != 1) put(G, p.groups);
  put(MB, p.n);
  put(IC, p.c);
  put_both(IH, p.h, IW, p.w);
  put(OC, p.k);
  put_both(OH, p.p, OW, p.q);
  put_both(KH, p.r, KW, p.s);
  if (p.stride_h != 1 || p.stride_w != 1) put_both(SH, p.stride_h, SW, p.stride_w);
  put_both(PH, p.pad_h, PW, p.pad_w);
  if (p.dilation_h != 1 || p.dilation_w != 1) put_both(DH, p.dilation_h - 1, DW, p.dilation_w - 1);
  return text;
}

std::string to_text(const NamedProblem& named) {
  return to_text(named.problem) + to_text(LayerName{named.name, named.count});
}

void for_each_problem_line(std::string_view text, const std::string& name,
                           std::vector<std::string>* warnings,
                           const std::function<bool(std::string_view)>& take) {
  std::int64_t count = 0, without_batch = 0;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    while (line.starts_with("--")) {
      const std::size_t blank = std::min(line.find_first_of(" \t"), line.size());
      if (warnings)
        warnings->push_back(
            fmt::format("{}:{}: option skipped: {}", name, number, line.substr(0, blank)));
      line = trim(line.substr(blank));
    }
    if (line.empty() || line.front() == '#') continue;
    try {
      without_batch += !take(line.substr(0, comment_start(line)));
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}:{}: {}", name, number, error.what()));
    }
    ++count;
  }
  if (count == 0) throw InputError(fmt::format("problem file '{}' holds no problem", name));
  if (without_batch > 0 && warnings)
    warnings->push_back(fmt::format(
        "{}: {} of {} problems have no mb: a batch of 2, as in benchdnn, without --batch", name,
        without_batch, count));
}

std::vector<NamedProblem> parse_problems(std::string_view text, const std::string& name,
                                         std::vector<std::string>* warnings) {
  std::vector<NamedProblem> problems;
  for_each_problem_line(text, name, warnings, [&](std::string_view line) {
    Parser parser(line);
    problems.push_back(parser.parse());
    return parser.has_batch();
  });
  return problems;
}

std::vector<NamedProblem> read_problem_file(const std::string& path,
                                            std::vector<std::string>* warnings) {
  return parse_problems(read_text_file(path, "a file with one problem a line"), path, warnings);
}

}  // namespace convlab
