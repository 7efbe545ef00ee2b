#include "conv/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "conv/error.h"
#include "conv/math/saturating.h"
#include "conv/problem_text.h"
#include "conv/text/names.h"
#include "conv/text/problem_reader.h"
#include "conv/text/text_file.h"
#include "conv/transposed.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, all_passes.size()> pass_names{"fwd", "bwd_d", "bwd_w"};

// ---- Fields of the text form ----

enum Field {
  G,
  MB,
  IC,
  ID,
  IH,
  IW,
  OC,
  OD,
  OH,
  OW,
  KD,
  KH,
  KW,
  SD,
  SH,
  SW,
  PD,
  PH,
  PW,
  DD,
  DH,
  DW,
  field_count
};
constexpr std::array<std::string_view, field_count> field_names{
    "g",  "mb", "ic", "id", "ih", "iw", "oc", "od", "oh", "ow", "kd",
    "kh", "kw", "sd", "sh", "sw", "pd", "ph", "pw", "dd", "dh", "dw"};

// A transposed convolution's text has the sizes of the convolution whose gradient it is, input and
// output exchanged.
constexpr Field written(Field f, bool transposed) {
  if (!transposed || f < IC || f > OW) return f;
  return Field(f < OC ? f + (OC - IC) : f - (OC - IC));
}

// Padding and dilation count from 0, everything else from 1.
constexpr std::int64_t least(Field f) { return f >= PD ? 0 : 1; }

// A fault of a problem, and the field to point at (if any: the text form has only sizes).
struct Flaw {
  std::optional<Field> field;
  std::string text;
};

// ---- Validity ----

// One spatial direction of a convolution. The fields are those of its text, perhaps a transposed
// one's.
struct Axis {
  bool transposed;
  Field in_field, out_field;
  std::int64_t image, filter, out, stride, pad, dilation;

  std::int64_t dilated_filter() const {
    return saturating_add(saturating_mul(filter - 1, dilation), 1);
  }
  // From the first row that a filter reads to the last.
  std::int64_t reach() const {
    return saturating_add(saturating_mul(out - 1, stride), dilated_filter());
  }
  // The text's input and output.
  std::int64_t& text_in() { return transposed ? out : image; }
  std::int64_t text_in() const { return transposed ? out : image; }
  std::int64_t& text_out() { return transposed ? image : out; }
  std::int64_t text_out() const { return transposed ? image : out; }
};

Axis through(const ConvProblem& p, bool transposed) {
  return {transposed, ID, OD, p.d, p.t, p.z, p.stride_d, p.pad_d, p.dilation_d};
}
Axis vertical(const ConvProblem& p, bool transposed) {
  return {transposed, IH, OH, p.h, p.r, p.p, p.stride_h, p.pad_h, p.dilation_h};
}
Axis horizontal(const ConvProblem& p, bool transposed) {
  return {transposed, IW, OW, p.w, p.s, p.q, p.stride_w, p.pad_w, p.dilation_w};
}

std::string describe(const Axis& a) {
  return fmt::format("{} {}, padding {}, a filter that spans {} and stride {}",
                     field_names[a.in_field], a.text_in(), a.pad, a.dilated_filter(), a.stride);
}

std::string too_much_padding(const Axis& a, std::int64_t padding) {
  return fmt::format("{} {} takes padding of {}, more than the filter's {}: a {}",
                     field_names[a.out_field], a.text_out(), padding, a.dilated_filter(),
                     a.transposed ? "convolution's text has no deconv: before it"
                                  : "transposed convolution's text has deconv: before it");
}

// As in oneDNN, the far padding may be more or less than the near one, and may be negative by up to
// stride - 1 (rows that the last step does not reach). But padding of more rows than the image has
// is refused: only the text of a transposed convolution, whose oh is larger than its ih, gives
// that.
std::optional<Flaw> axis_flaw(const Axis& a) {
  const std::int64_t reach = a.reach();
  if (reach >= too_much)
    return Flaw{a.out_field, fmt::format("positions overflow 64 bits with {}", describe(a))};
  const std::int64_t far_padding = reach - a.image - a.pad;
  if (far_padding <= -a.stride && a.transposed)
    return Flaw{a.out_field,
                fmt::format("{} {} is too large for {}: it is at most {}", field_names[a.out_field],
                            a.image, describe(a), reach - a.pad + a.stride - 1)};
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

std::optional<Flaw> flaw(const ConvProblem& p, bool transposed) {
  const std::array<std::int64_t, field_count> values{
      p.groups, p.n,     p.c,     p.d,          p.h,          p.w,         p.k,        p.z,
      p.p,      p.q,     p.t,     p.r,          p.s,          p.stride_d,  p.stride_h, p.stride_w,
      p.pad_d,  p.pad_h, p.pad_w, p.dilation_d, p.dilation_h, p.dilation_w};
  for (int i = 0; i < field_count; ++i) {
    const Field f = static_cast<Field>(i), text_field = written(f, transposed);
    // The text form counts added gaps: its dh is dilation_h - 1.
    const std::int64_t value = f >= DD ? values[f] - 1 : values[f];
    if (value < least(f) || value > ProblemReader::largest_number)
      return Flaw{text_field, fmt::format("{} is {}: it takes {} to 2^60", field_names[text_field],
                                          value, least(f))};
  }
  const Field x = written(IC, transposed), y = written(OC, transposed);
  for (const auto& [field, channels] : {std::pair{x, p.c}, std::pair{y, p.k}})
    if (channels % p.groups != 0)
      return Flaw{field, fmt::format("{} {} is not a multiple of g {}", field_names[field],
                                     channels, p.groups)};
  for (const Axis& axis :
       {through(p, transposed), vertical(p, transposed), horizontal(p, transposed)})
    if (auto f = axis_flaw(axis)) return f;

  const std::int64_t element = size_of(p.dtype);
  const char *const x_name = transposed ? "y" : "x", *const y_name = transposed ? "x" : "y";
  // Not x_desc() and y_desc(), whose rows may overflow here.
  const std::int64_t x_channels = round_up(p.c, channel_block(p.x_layout));
  const std::int64_t y_channels = round_up(p.k, channel_block(p.y_layout));
  if (auto f = bytes_flaw(x, x_name, {p.n, x_channels, p.d, p.h, p.w, element})) return f;
  if (auto f = bytes_flaw(y, y_name, {p.n, y_channels, p.z, p.p, p.q, element})) return f;
  if (auto f = bytes_flaw(KH, "w", {p.k, p.c / p.groups, p.t, p.r, p.s, element})) return f;

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
  explicit Parser(std::string_view text, bool transposed = false)
      : reader_(text), transposed_(transposed) {
    value_.fill(absent);
    at_.fill(reader_.text().size());
    if (transposed) reader_.skip(transposed_prefix.size());
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
    if (auto f = flaw(result.problem, transposed_))
      reader_.fail(f->field ? at_[*f->field] : 0, f->text);
    return result;
  }

 private:
  static constexpr std::int64_t absent = -1;

  bool given(Field f) const { return value_[f] != absent; }
  std::int64_t get(Field f, std::int64_t otherwise) const {
    return given(f) ? value_[f] : otherwise;
  }
  bool any(std::initializer_list<Field> fields) const {
    return std::any_of(fields.begin(), fields.end(), [&](Field f) { return given(f); });
  }
  std::int64_t require(Field f) const {
    if (!given(f))
      reader_.fail_missing(
          fmt::format("{} is missing; a problem looks like {}", field_names[f],
                      transposed_ ? "deconv:mb1ic64ih28oc32kh2sh2" : "mb1ic64ih56oc64kh3ph1"));
    return value_[f];
  }

  void parse_field() {
    const std::size_t start = reader_.position();
    const std::string_view rest = reader_.rest();
    auto opens = [&](std::string_view name) { return rest.substr(0, name.size()) == name; };
    const auto* name = std::find_if(field_names.begin(), field_names.end(), opens);
    if (name == field_names.end())
      reader_.fail(
          start, fmt::format("expected a field ({}) or n and a name", fmt::join(field_names, " ")));
    const Field field = static_cast<Field>(name - field_names.begin());
    if (given(field)) reader_.fail(start, fmt::format("{} is given twice", *name));
    reader_.skip(name->size());
    at_[field] = start;
    value_[field] = reader_.number(*name, least(field));
  }

  // The text's output and the near padding follow from each other when one of them is omitted; if
  // both are, there is no padding.
  void complete(Axis& a, Field pad_field) const {
    if (a.text_out() == absent) {
      if (a.pad == absent) a.pad = 0;
      if (a.transposed)
        complete_transposed_out(a);
      else
        complete_out(a);
    } else if (a.pad == absent) {
      a.pad = (a.reach() - a.image) / 2;
      if (a.pad < 0)
        reader_.fail(
            at_[a.out_field],
            a.transposed
                ? fmt::format("{} {} is more than the {} of {} {}: {} can only be derived from a "
                              "smaller {}",
                              field_names[a.out_field], a.image, a.reach(), field_names[a.in_field],
                              a.out, field_names[pad_field], field_names[a.out_field])
                : fmt::format("{} {} leaves part of {} {} unread: {} can only be derived from a "
                              "larger {}",
                              field_names[a.out_field], a.out, field_names[a.in_field], a.image,
                              field_names[pad_field], field_names[a.out_field]));
      if (a.pad > a.dilated_filter()) reader_.fail(at_[a.out_field], too_much_padding(a, a.pad));
    }
  }
  void complete_out(Axis& a) const {
    const std::int64_t padded = a.image + 2 * a.pad;
    if (padded < a.dilated_filter())
      reader_.fail(
          at_[a.in_field],
          fmt::format("{} would be below 1: a filter that spans {} does not fit into {} {} with "
                      "padding {}",
                      field_names[a.out_field], a.dilated_filter(), field_names[a.in_field],
                      a.image, a.pad));
    a.out = (padded - a.dilated_filter()) / a.stride + 1;
  }
  void complete_transposed_out(Axis& a) const {
    a.image = a.reach() - 2 * a.pad;
    if (a.image < 1)
      reader_.fail(
          at_[a.in_field],
          fmt::format("{} would be below 1: padding of {} leaves nothing of the {} that "
                      "{} {} gives",
                      field_names[a.out_field], a.pad, a.reach(), field_names[a.in_field], a.out));
  }

  ConvProblem problem() const {
    ConvProblem p;
    p.groups = get(G, 1);
    p.n = get(MB, 2);
    p.c = require(written(IC, transposed_));
    p.k = require(written(OC, transposed_));

    const bool any_depth = any({ID, OD, KD, SD, PD, DD}),
               any_height = any({IH, OH, KH, SH, PH, DH}),
               any_width = any({IW, OW, KW, SW, PW, DW});
    Axis d{transposed_, ID, OD, absent, 1, absent, get(SD, 1), get(PD, absent), get(DD, 0) + 1};
    d.text_in() = any_depth ? require(ID) : 1;
    d.text_out() = get(OD, absent);
    d.filter = any_depth ? require(KD) : 1;
    complete(d, PD);

    // Width alone means a one-dimensional convolution: one row, filters of one row. Depth alone is
    // a cube.
    const bool one_dimensional = any_width && !any_height && !any_depth;
    Axis v = d;
    if (!any_depth || any_height || any_width) {
      v = {transposed_, IH, OH, absent, 1, absent, get(SH, 1), get(PH, absent), get(DH, 0) + 1};
      v.text_in() = one_dimensional ? 1 : require(IH);
      v.text_out() = get(OH, absent);
      v.filter = one_dimensional ? 1 : require(KH);
    }
    complete(v, PH);

    Axis h{transposed_,
           IW,
           OW,
           absent,
           1,
           absent,
           get(SW, v.stride),
           get(PW, absent),
           get(DW, v.dilation - 1) + 1};
    h.text_in() = one_dimensional ? require(IW) : get(IW, v.text_in());
    h.text_out() = get(OW, absent);
    h.filter = one_dimensional ? require(KW) : get(KW, v.filter);
    // An omitted width equals the height: padding unless ow determines it, and the output (with its
    // far padding) if all that it depends on is the same.
    if (!given(PW) && !given(OW)) h.pad = v.pad;
    const bool same = h.text_in() == v.text_in() && h.filter == v.filter && h.stride == v.stride &&
                      h.pad == v.pad && h.dilation == v.dilation;
    if (!given(OW) && same) h.text_out() = v.text_out();
    complete(h, PW);

    p.d = d.image, p.t = d.filter, p.z = d.out;
    p.stride_d = d.stride, p.pad_d = d.pad, p.dilation_d = d.dilation;
    p.h = v.image, p.r = v.filter, p.p = v.out;
    p.stride_h = v.stride, p.pad_h = v.pad, p.dilation_h = v.dilation;
    p.w = h.image, p.s = h.filter, p.q = h.out;
    p.stride_w = h.stride, p.pad_w = h.pad, p.dilation_w = h.dilation;
    return p;
  }

  ProblemReader reader_;
  bool transposed_;
  std::array<std::int64_t, field_count> value_;  // as written
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
  if (auto f = flaw(problem, false)) throw InputError("impossible problem: " + f->text);
}

NamedProblem parse_problem(std::string_view text) { return Parser(text).parse(); }

namespace {

NamedProblem parse_warning(std::string_view text, bool transposed,
                           std::vector<std::string>& warnings) {
  Parser parser(text, transposed);
  NamedProblem problem = parser.parse();
  if (!parser.has_batch())
    warnings.push_back(fmt::format("{}: no mb: a batch of 2, as in benchdnn", trim(text)));
  return problem;
}

std::string text_of(const ConvProblem& p, bool transposed) {
  const bool depth = p.has_depth();
  const bool square = p.h == p.w && p.r == p.s && p.p == p.q && p.stride_h == p.stride_w &&
                      p.pad_h == p.pad_w && p.dilation_h == p.dilation_w;
  const bool cube = depth && square && p.d == p.h && p.t == p.r && p.z == p.p &&
                    p.stride_d == p.stride_h && p.pad_d == p.pad_h && p.dilation_d == p.dilation_h;
  std::string text(transposed ? transposed_prefix : "");
  const auto put = [&](Field f, std::int64_t value) {
    text += fmt::format("{}{}", field_names[f], value);
  };
  // The fields of a depth, height and width follow one another. benchdnn takes the width of a
  // square from its height, and both from the depth of a cube, but not one of the two.
  const auto put_all = [&](Field first, std::int64_t in_d, std::int64_t in_h, std::int64_t in_w) {
    if (depth) put(first, in_d);
    if (!cube) put(Field(first + 1), in_h);
    if (!square || (depth && !cube)) put(Field(first + 2), in_w);
  };
  const auto put_x = [&](Field c, Field d) {
    put(c, p.c);
    put_all(d, p.d, p.h, p.w);
  };
  const auto put_y = [&](Field c, Field d) {
    put(c, p.k);
    put_all(d, p.z, p.p, p.q);
  };
  if (p.groups != 1) put(G, p.groups);
  put(MB, p.n);
  if (transposed) {
    put_y(IC, ID);
    put_x(OC, OD);
  } else {
    put_x(IC, ID);
    put_y(OC, OD);
  }
  put_all(KD, p.t, p.r, p.s);
  if (p.stride_d != 1 || p.stride_h != 1 || p.stride_w != 1)
    put_all(SD, p.stride_d, p.stride_h, p.stride_w);
  put_all(PD, p.pad_d, p.pad_h, p.pad_w);
  if (p.dilation_d != 1 || p.dilation_h != 1 || p.dilation_w != 1)
    put_all(DD, p.dilation_d - 1, p.dilation_h - 1, p.dilation_w - 1);
  return text;
}

}  // namespace

NamedProblem parse_problem(std::string_view text, std::vector<std::string>& warnings) {
  return parse_warning(text, false, warnings);
}

std::string to_text(const ConvProblem& p) { return text_of(p, false); }

// ---- Transposed convolutions ----

bool is_transposed_text(std::string_view text) { return trim(text).starts_with(transposed_prefix); }

NamedProblem parse_transposed_problem(std::string_view text, std::vector<std::string>& warnings) {
  if (!is_transposed_text(text))
    ProblemReader(text).fail(0, fmt::format("expected {}", transposed_prefix));
  return parse_warning(text, true, warnings);
}

std::string to_transposed_text(const ConvProblem& p) { return text_of(p, true); }

Pass transposed(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return Pass::backward_data;
    case Pass::backward_data:
      return Pass::forward;
    default:
      return pass;
  }
}

// ---- Named problems ----

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
