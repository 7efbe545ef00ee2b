#include "recurrent/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "conv/error.h"
#include "conv/math/saturating.h"
#include "conv/text/names.h"
#include "conv/text/problem_reader.h"
#include "recurrent/problem_text.h"

namespace convlab {
namespace {

constexpr std::array<std::string_view, all_cells.size()> cell_names{"rnn", "rnn_relu", "gru",
                                                                    "lstm"};
constexpr std::string_view both_directions = ":bi";

enum Size { L, T, MB, SIC, SLC, DHC, DIC, size_count };
constexpr std::array<std::string_view, size_count> size_names{"l",   "t",   "mb", "sic",
                                                              "slc", "dhc", "dic"};

// A fault of a problem, and the size to point at, if any.
struct Flaw {
  std::optional<Size> size;
  std::string text;
};

std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (const std::int64_t f : factors) result = saturating_mul(result, f);
  return result;
}

std::optional<Flaw> flaw(const RecurrentProblem& p) {
  for (const auto& [size, value] :
       {std::pair{L, p.layers}, {T, p.t}, {MB, p.n}, {SLC, p.i}, {DHC, p.h}})
    if (value < 1 || value > ProblemReader::largest_number)
      return Flaw{size, fmt::format("{} is {}: it takes 1 to 2^60", size_names[size], value)};
  // Each array has fewer elements than these products of all that it holds.
  const std::int64_t bytes = size_of(p.dtype), d = p.directions(), g = p.gates();
  const std::int64_t widest = std::max(p.i, saturating_mul(d, p.h));
  const auto too_large = [](Size size, std::string_view array) {
    return Flaw{size, fmt::format("{} would take 2^62 bytes or more", array)};
  };
  if (product({bytes, p.t, p.n, p.i}) >= too_much) return too_large(SLC, "array x");
  if (product({bytes, p.layers, d, g, p.h, saturating_add(widest, p.h + 2)}) >= too_much)
    return too_large(DHC, "the array of weights");
  // Activations have up to 5 values and a hidden state of each step, dgates up to 6.
  if (product({bytes, p.layers, d, p.t, p.n, p.h, 6}) >= too_much)
    return too_large(T, "an array with values of each step");

  if (p.dtype != DType::f32 && p.dtype != DType::f64)
    return Flaw{{}, fmt::format("a recurrent layer takes f32 or f64, not {}", to_string(p.dtype))};
  if (p.training && p.pass != Pass::forward)
    return Flaw{{}, fmt::format("training is a property of pass fwd, not {}", to_string(p.pass))};
  return {};
}

class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text) {
    value_.fill(absent);
    at_.fill(reader_.text().size());
  }

  bool has_batch() const { return value_[MB] != absent; }

  NamedRecurrentProblem parse() {
    NamedRecurrentProblem result;
    result.problem.cell = cell();
    while (!reader_.at_end() && reader_.rest().front() != ':' && reader_.rest().front() != 'n') {
      if (reader_.rest().front() == '_')
        reader_.skip(1);
      else
        parse_size();
    }
    if (!reader_.at_end() && reader_.rest().front() == ':') {
      if (!reader_.rest().starts_with(both_directions))
        reader_.fail(reader_.position(), "expected :bi, for both directions, or the end");
      reader_.skip(both_directions.size());
      result.problem.bidirectional = true;
    }
    if (!reader_.at_end()) {
      if (reader_.rest().front() != 'n')
        reader_.fail(reader_.position(), "expected n and a name, or the end");
      const std::size_t start = reader_.position();
      const bool quoted = reader_.rest().substr(1).starts_with('"');
      LayerName layer = reader_.layer_name();
      if (!quoted && layer.name.ends_with(both_directions))
        reader_.fail(start, "expected :bi before n and a name, or the name in quotes");
      result.name = std::move(layer.name);
      result.count = layer.count;
    }
    read_sizes(result.problem);
    if (auto f = flaw(result.problem)) reader_.fail(f->size ? at_[*f->size] : 0, f->text);
    return result;
  }

 private:
  static constexpr std::int64_t absent = -1;

  RecurrentCell cell() {
    const std::string_view rest = reader_.rest();
    const std::string_view name = rest.substr(0, rest.find(':'));
    const auto* const found = std::find(cell_names.begin(), cell_names.end(), name);
    if (found == cell_names.end() || name.size() == rest.size())
      reader_.fail(0,
                   "expected rnn: rnn_relu: gru: or lstm: and the sizes, as in "
                   "lstm:l1t32mb16sic512slc512dhc512dic512");
    reader_.skip(name.size() + 1);
    return all_cells[std::size_t(found - cell_names.begin())];
  }

  void parse_size() {
    const std::size_t start = reader_.position();
    const std::string_view rest = reader_.rest();
    const auto* const name =
        std::find_if(size_names.begin(), size_names.end(),
                     [&](std::string_view size) { return rest.starts_with(size); });
    if (name == size_names.end())
      reader_.fail(start, "expected a size (l t mb sic slc dhc dic), :bi, or n and a name");
    const Size size = static_cast<Size>(name - size_names.begin());
    if (value_[size] != absent) reader_.fail(start, fmt::format("{} is given twice", *name));
    reader_.skip(name->size());
    at_[size] = start;
    value_[size] = reader_.number(*name, 1);
  }

  // The first of these that is given.
  Size first_of(std::initializer_list<Size> sizes) const {
    for (const Size size : sizes)
      if (value_[size] != absent) return size;
    reader_.fail_missing("dhc, the number of hidden units, is missing");
  }

  void read_sizes(RecurrentProblem& p) const {
    const auto get = [&](Size size, std::int64_t otherwise) {
      return value_[size] == absent ? otherwise : value_[size];
    };
    p.layers = get(L, 1);
    p.t = get(T, 1);
    p.n = get(MB, 2);
    const Size hidden = first_of({DHC, SIC, DIC, SLC});
    p.h = value_[hidden];
    p.i = get(SLC, p.h);
    // Projections would make them differ.
    for (const Size state : {SIC, DIC})
      if (get(state, p.h) != p.h)
        reader_.fail(at_[state],
                     fmt::format("{} is {} and {} is {}: states here have as many channels as "
                                 "there are hidden units",
                                 size_names[state], value_[state], size_names[hidden], p.h));
  }

  ProblemReader reader_;
  std::array<std::int64_t, size_count> value_;
  std::array<std::size_t, size_count> at_;
};

}  // namespace

std::string_view to_string(RecurrentCell cell) {
  return cell_names[static_cast<std::size_t>(cell)];
}

RecurrentCell parse_cell(std::string_view text) {
  return all_cells[index_of_name("cell", text, cell_names)];
}

void validate(const RecurrentProblem& problem) {
  if (auto f = flaw(problem)) throw InputError("impossible problem: " + f->text);
}

NamedRecurrentProblem parse_recurrent_problem(std::string_view text) {
  return Parser(text).parse();
}

NamedRecurrentProblem parse_recurrent_problem(std::string_view text,
                                              std::vector<std::string>& warnings) {
  Parser parser(text);
  NamedRecurrentProblem problem = parser.parse();
  if (!parser.has_batch())
    warnings.push_back(fmt::format("{}: no mb: a batch of 2, as in benchdnn", trim(text)));
  return problem;
}

bool is_recurrent_text(std::string_view text) {
  const std::string_view trimmed = trim(text);
  return std::any_of(cell_names.begin(), cell_names.end(), [&](std::string_view name) {
    if (!trimmed.starts_with(name)) return false;
    const std::string_view rest = trimmed.substr(name.size());
    return rest.starts_with(':') && (rest.size() == 1 || rest[1] < '0' || rest[1] > '9');
  });
}

bool begins_with_cell(std::string_view text) {
  std::string word;
  for (const char c : trim(text)) {
    const char lower = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    if (lower != '_' && (lower < 'a' || lower > 'z')) break;
    word += lower;
  }
  return std::any_of(cell_names.begin(), cell_names.end(),
                     [&](std::string_view name) { return word.find(name) != std::string::npos; });
}

std::string to_text(const RecurrentProblem& p) {
  return fmt::format("{}:l{}t{}mb{}sic{}slc{}dhc{}dic{}{}", to_string(p.cell), p.layers, p.t, p.n,
                     p.h, p.i, p.h, p.h, p.bidirectional ? both_directions : "");
}

std::string to_text(const NamedRecurrentProblem& named) {
  return to_text(named.problem) + to_text(LayerName{named.name, named.count});
}

}  // namespace convlab
