// From PTX text to Programs: statements, declarations, calls, and where parted lanes meet again.
#include "kernels_cuda/ptx/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>

#include "kernels_cuda/ptx/decoder.h"

namespace convlab::ptx {
namespace {

// Padding before the first static array and between them, so that an index past an end is found.
constexpr std::size_t first_shared = 1024, between_shared = 64;

constexpr std::uint32_t no_meeting = ~0u;

std::size_t round_up(std::size_t v, std::size_t step) { return (v + step - 1) / step * step; }

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// A statement without its semicolon, a label without its colon, or a brace.
struct Statement {
  enum class Kind { statement, label, open, close } kind;
  std::string_view text;
  int line;
};

class Statements {
 public:
  Statements(std::string_view text, std::size_t at, int line) : text_(text), at_(at), line_(line) {}

  Statement next() {
    skip_blanks();
    if (at_ == text_.size()) throw Fault("the text ends within a function");
    const int line = line_;
    if (text_[at_] == '{' || text_[at_] == '}') {
      const char brace = text_[at_++];
      return {brace == '{' ? Statement::Kind::open : Statement::Kind::close, {}, line};
    }
    // Lines of debug information end without a semicolon.
    const bool is_line =
        text_.substr(at_).starts_with(".loc ") || text_.substr(at_).starts_with(".file ");
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ > begin && at_ < text_.size() && text_[at_] == ':') {
      ++at_;
      return {Statement::Kind::label, text_.substr(begin, at_ - 1 - begin), line};
    }
    while (at_ < text_.size() && text_[at_] != (is_line ? '\n' : ';'))
      line_ += text_[at_++] == '\n';
    const std::string_view text = text_.substr(begin, at_ - begin);
    at_ += !is_line && at_ < text_.size();
    return {Statement::Kind::statement, text, line};
  }

 private:
  void skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      if (text_.substr(at_).starts_with("//"))
        at_ = std::min(text_.find('\n', at_), text_.size() - 1);
      else if (!is_blank(text_[at_]))
        return;
      line_ += text_[at_] == '\n';
    }
  }

  std::string_view text_;
  std::size_t at_;
  int line_;
};

// The words of a declaration: ".align", "8", ".b8", "name[216]".
std::vector<std::string_view> words(std::string_view s) {
  std::vector<std::string_view> all;
  for (std::size_t i = 0; i < s.size();) {
    if (is_blank(s[i]) || s[i] == ',') {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < s.size() && !is_blank(s[i]) && s[i] != ',') ++i;
    all.push_back(s.substr(begin, i - begin));
  }
  return all;
}

// A variable of .param or .shared: ".param .align 8 .b8 name[216]".
struct Variable {
  std::string name;
  std::size_t bytes = 0, align = 1;
  Type type = Type::b8;
};
Variable parse_variable(std::string_view text) {
  const std::vector<std::string_view> all = words(text);
  Variable v;
  std::size_t i = 1;
  bool aligned = false;
  if (i + 1 < all.size() && all[i] == ".align") {
    v.align = std::stoul(std::string(all[i + 1]));
    aligned = true;
    i += 2;
  }
  const auto type = i < all.size() ? parse_type(all[i].substr(1)) : std::nullopt;
  if (!type || i + 2 != all.size()) throw Fault(fmt::format("cannot read '{}'", text));
  v.type = *type;
  v.bytes = size_of(*type);
  if (!aligned) v.align = v.bytes;
  const std::string_view name = all[i + 1];
  const std::size_t bracket = std::min(name.find('['), name.size());
  v.name = name.substr(0, bracket);
  if (std::ranges::count(name, '[') > 1)
    throw Fault(fmt::format("several dimensions in '{}'", text));
  if (bracket < name.size() && name[bracket + 1] != ']')
    v.bytes *= std::stoul(std::string(name.substr(bracket + 1)));
  else if (bracket < name.size())
    v.bytes = 0;
  return v;
}

// The variables between the parentheses that begin at or behind `at`, which ends behind them.
std::vector<Variable> parameters(std::string_view text, std::size_t& at) {
  const std::size_t begin = text.find('(', at), end = text.find(')', begin);
  if (end == text.npos) throw Fault("a list of parameters has no end");
  at = end + 1;
  std::vector<Variable> all;
  std::string_view rest = text.substr(begin + 1, end - begin - 1);
  // ".param" begins each; the commas between them may be missing.
  for (std::size_t i = rest.find(".param"); i != rest.npos;) {
    const std::size_t next = std::min(rest.find(".param", i + 1), rest.size());
    all.push_back(parse_variable(rest.substr(i, next - i)));
    i = next == rest.size() ? rest.npos : next;
  }
  return all;
}

int lines_in(std::string_view s) { return int(std::count(s.begin(), s.end(), '\n')); }

// All but those that say what runs next.
const std::map<std::string_view, decltype(Opcode::decode)>& opcodes() {
  static const auto all = [] {
    std::map<std::string_view, decltype(Opcode::decode)> map;
    for (const auto list : {arithmetic_opcodes(), comparison_opcodes(), conversion_opcodes(),
                            memory_opcodes(), warp_opcodes()})
      for (const Opcode& opcode : list) map[opcode.name] = opcode.decode;
    return map;
  }();
  return all;
}

// Decodes one kernel.
class Compiler {
 public:
  Compiler(std::string_view module, int line, std::string kernel) : module_(module), line_(line) {
    program_.kernel = std::move(kernel);
  }

  Program compile(std::size_t at) {
    std::size_t offset = 0;
    for (const Variable& v : parameters(module_, at)) {
      offset = round_up(offset, v.align);
      names_.set_symbol(v.name, offset);
      program_.parameters.push_back({offset, v.bytes});
      offset += v.bytes;
    }
    const std::size_t body = module_.find('{', at);
    const std::string_view bounds = module_.substr(at, body - at);
    if (const std::size_t maxntid = bounds.find(".maxntid"); maxntid != bounds.npos) {
      const auto sizes = words(bounds.substr(maxntid, bounds.find('\n', maxntid) - maxntid));
      program_.most_threads = 1;
      for (std::size_t i = 1; i < sizes.size(); ++i)
        program_.most_threads *= unsigned(std::stoul(std::string(sizes[i])));
    }
    for (const char* unknown : {".reqntid", ".explicitcluster", ".reqnctapercluster"})
      if (bounds.find(unknown) != bounds.npos)
        throw Fault(fmt::format("{}: {} is not known", program_.kernel, unknown));
    declare_shared(body);
    compile_body(body + 1, "", false);
    resolve();
    program_.registers = names_.registers();
    return std::move(program_);
  }

 private:
  struct Jump {
    std::size_t from;
    std::string label;
    int line;
  };

  // The module's arrays in shared memory: the dynamic one, and those of inlined functions that the
  // kernel names.
  void declare_shared(std::size_t body) {
    std::size_t end = body;
    for (int depth = 0; end < module_.size(); ++end) {
      depth += (module_[end] == '{') - (module_[end] == '}');
      if (depth == 0) break;
    }
    const std::string_view code = module_.substr(body, end - body);
    int depth = 0;
    for (std::size_t i = 0; i < module_.size(); ++i) {
      depth += (module_[i] == '{') - (module_[i] == '}');
      if (depth > 0 || module_[i] != '.') continue;
      const std::string_view rest = module_.substr(i);
      const bool dynamic = rest.starts_with(".extern .shared ");
      if (!dynamic && !rest.starts_with(".shared ")) continue;
      const std::string_view text = rest.substr(0, rest.find(';'));
      if (dynamic)
        names_.set_symbol(parse_variable(text.substr(text.find(".shared"))).name, dynamic_shared);
      else if (code.find(parse_variable(text).name) != code.npos)
        declare(text);
      i += text.size();
    }
  }

  // A function's statements up to its closing brace. A called one's labels have a prefix, and it
  // returns to prefix + "return".
  void compile_body(std::size_t at, const std::string& prefix, bool called) {
    Statements statements(module_, at, line_ + lines_in(module_.substr(0, at)));
    names_.open();
    for (int depth = 1; depth > 0;) {
      const Statement s = statements.next();
      try {
        switch (s.kind) {
          case Statement::Kind::open:
            names_.open(), ++depth;
            break;
          case Statement::Kind::close:
            names_.close(), --depth;
            break;
          case Statement::Kind::label:
            if (!labels_.try_emplace(prefix + std::string(s.text), program_.code.size()).second)
              throw Fault(fmt::format("label {} is there twice", s.text));
            break;
          case Statement::Kind::statement:
            if (s.text.starts_with('.'))
              declare(s.text);
            else
              decode(s, prefix, called);
        }
      } catch (const Fault& fault) {
        throw Fault(fmt::format("line {}: {}", s.line, fault.what()));
      }
    }
  }

  void declare(std::string_view text) {
    const std::vector<std::string_view> all = words(text);
    if (all[0] == ".pragma" || all[0] == ".loc" || all[0] == ".file") return;
    if (all[0] == ".reg") {
      const auto type = all.size() > 2 ? parse_type(all[1].substr(1)) : std::nullopt;
      if (!type) throw Fault(fmt::format("cannot read '{}'", text));
      for (std::size_t i = 2; i < all.size(); ++i) {
        const std::size_t bracket = all[i].find('<');
        const std::string name(all[i].substr(0, bracket));
        if (bracket == std::string_view::npos)
          names_.declare(name, *type);
        else
          names_.declare(name, *type,
                         std::uint32_t(std::stoul(std::string(all[i].substr(bracket + 1)))));
      }
    } else if (all[0] == ".param") {
      const Variable v = parse_variable(text);
      names_.declare(v.name, v.type);
    } else if (all[0] == ".shared") {
      const Variable v = parse_variable(text);
      shared_end_ = round_up(shared_end_, std::max<std::size_t>(v.align, 16));
      names_.set_symbol(v.name, shared_end_);
      program_.shared.push_back({shared_end_, v.bytes});
      shared_end_ += v.bytes + between_shared;
      if (shared_end_ > dynamic_shared) throw Fault("too much static shared memory");
    } else if (all[0] == ".local") {
      const Variable v = parse_variable(text);
      const std::size_t end =
          program_.local_bytes + (program_.local.empty() ? first_shared : between_shared);
      program_.local.push_back({round_up(end, std::max<std::size_t>(v.align, 16)), v.bytes});
      names_.set_symbol(v.name, program_.local.back().begin);
      program_.local_bytes = program_.local.back().begin + v.bytes;
    } else {
      throw Fault(fmt::format("unknown declaration '{}'", text));
    }
  }

  void decode(const Statement& s, const std::string& prefix, bool called) {
    Instruction ins;
    ins.line = s.line;
    ins.text = s.text;
    std::string_view text = s.text;
    if (text.starts_with('@')) {
      ins.guarded = true;
      ins.guard_negated = text[1] == '!';
      const std::size_t begin = ins.guard_negated ? 2 : 1, blank = text.find_first_of(" \t");
      const auto guard = names_.find(text.substr(begin, blank - begin));
      if (!guard || guard->bytes != 0) throw Fault("the guard is no predicate");
      ins.guard = *guard;
      text = text.substr(text.find_first_not_of(" \t", blank));
    }
    Decoder decoder(text, names_);
    const std::string_view opcode = decoder.opcode();
    if (opcode == "bra") {
      ins.control = Control::branch;
      decoder.take("uni");
      jumps_.push_back({program_.code.size(), prefix + std::string(decoder.word()), s.line});
    } else if (opcode == "call") {
      if (ins.guarded) decoder.refuse("a guarded call");
      call(decoder, prefix, text);
      return;
    } else if (opcode == "ret" && called) {
      ins.control = Control::branch;
      jumps_.push_back({program_.code.size(), prefix + "return", s.line});
    } else if (opcode == "ret" || opcode == "exit") {
      ins.control = Control::exit;
    } else if (opcode == "bar" && decoder.take("sync")) {
      if (decoder.number() != 0) decoder.refuse("a barrier other than 0");
      ins.control = Control::barrier;
    } else {
      const auto found = opcodes().find(opcode);
      if (found == opcodes().end()) decoder.unknown();
      found->second(decoder, ins);
    }
    decoder.finish();
    program_.code.push_back(ins);
  }

  // call.uni (retval0), name, (param0, param1): the function's text in place of the call. None of
  // nvcc's functions calls itself.
  void call(Decoder& decoder, const std::string& prefix, std::string_view text) {
    decoder.take("uni");
    const auto list = [&](std::string_view s) { return words(s.substr(1, s.size() - 2)); };
    const auto results = list(decoder.word());
    const std::string name(decoder.word());
    const auto arguments = list(decoder.word());
    decoder.finish();
    std::size_t at = 0;
    std::vector<Variable> to, from;
    for (;; ++at) {  // the definition, not a declaration
      at = module_.find(".func", at);
      if (at == module_.npos) throw Fault(fmt::format("no function for '{}'", text));
      std::size_t behind = at;
      to = parameters(module_, behind);
      const std::size_t called = module_.find_first_not_of(" \t\n", behind);
      if (module_.substr(called, name.size()) != name || is_name(module_[called + name.size()]))
        continue;
      from = parameters(module_, behind);
      const std::size_t mark = module_.find_first_of("{;", behind);
      if (module_[mark] == ';') continue;
      at = mark + 1;
      break;
    }
    if (to.size() != results.size() || from.size() != arguments.size() || calls_ > 1000)
      throw Fault(fmt::format("'{}' does not fit the function", text));
    std::vector<std::pair<std::string, Register>> bound;
    const auto bind = [&](const std::vector<Variable>& inside, const auto& outside) {
      for (std::size_t i = 0; i < inside.size(); ++i) {
        const auto reg = names_.find(outside[i]);
        if (!reg) throw Fault(fmt::format("{} is not declared", outside[i]));
        bound.emplace_back(inside[i].name, *reg);
      }
    };
    bind(to, results);
    bind(from, arguments);
    names_.open();
    for (const auto& [inside, reg] : bound) names_.bind(inside, reg);
    const std::string labels = fmt::format("{}{}.{}/", prefix, name, calls_++);
    compile_body(at, labels, true);
    names_.close();
    labels_[labels + "return"] = std::uint32_t(program_.code.size());
  }

  // Where branches lead, and where their lanes meet: at the first instruction that is on every way
  // from the branch to the end (its immediate post-dominator). Lanes that exit under a guard are
  // not waited for.
  void resolve() {
    std::vector<Instruction>& code = program_.code;
    for (const Jump& jump : jumps_) {
      const auto label = labels_.find(jump.label);
      if (label == labels_.end())
        throw Fault(fmt::format("line {}: no label {}", jump.line, jump.label));
      code[jump.from].target = label->second;
    }
    // A branch to ret is a ret: its lanes exit there and then, and do not wait for the rest.
    for (const Jump& jump : jumps_) {
      const std::uint32_t to = code[jump.from].target;
      if (to < code.size() && code[to].control == Control::exit && !code[to].guarded)
        code[jump.from].control = Control::exit;
    }
    // Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph. Its
    // root is `end`, behind all instructions. An instruction is after those that it leads to.
    const std::uint32_t end = std::uint32_t(code.size());
    const auto next = [&](std::uint32_t i) {
      const Instruction& ins = code[i];
      std::array<std::uint32_t, 2> to{i + 1, i + 1};
      if (ins.control == Control::branch) to[0] = ins.target;
      if (ins.control == Control::exit && !ins.guarded) to[0] = end;
      if (!ins.guarded && ins.control != Control::next && ins.control != Control::barrier)
        to[1] = to[0];
      return to;
    };
    std::vector<std::vector<std::uint32_t>> from(end + 1);
    for (std::uint32_t i = 0; i < end; ++i)
      for (const std::uint32_t to : next(i)) from[to].push_back(i);
    // Postorder from the end.
    std::vector<std::uint32_t> order, number(end + 1, 0);
    std::vector<std::pair<std::uint32_t, std::size_t>> stack{{end, 0}};
    std::vector<bool> seen(end + 1, false);
    seen[end] = true;
    while (!stack.empty()) {
      auto& [at, child] = stack.back();
      if (child == from[at].size()) {
        number[at] = std::uint32_t(order.size());
        order.push_back(at);
        stack.pop_back();
        continue;
      }
      const std::uint32_t to = from[at][child++];
      if (seen[to]) continue;
      seen[to] = true;
      stack.emplace_back(to, 0);
    }
    std::vector<std::uint32_t> meets(end + 1, no_meeting);
    meets[end] = end;
    for (bool changed = true; changed;) {
      changed = false;
      for (auto at = order.rbegin(); at != order.rend(); ++at) {
        if (*at == end) continue;
        std::uint32_t meeting = no_meeting;
        for (std::uint32_t to : next(*at)) {
          if (meets[to] == no_meeting) continue;
          if (meeting == no_meeting) {
            meeting = to;
            continue;
          }
          while (meeting != to)
            if (number[meeting] < number[to])
              meeting = meets[meeting];
            else
              to = meets[to];
        }
        changed |= meets[*at] != meeting;
        meets[*at] = meeting;
      }
    }
    for (std::uint32_t i = 0; i < end; ++i) code[i].meets = meets[i] == no_meeting ? end : meets[i];
  }

  std::string_view module_;
  int line_;
  Program program_;
  Names names_;
  std::size_t shared_end_ = first_shared;
  std::map<std::string, std::uint32_t> labels_;
  std::vector<Jump> jumps_;
  int calls_ = 0;
};

// Names of kernels begin behind ".entry " and end at "(".
std::string name_at(std::string_view text, std::size_t entry) {
  const std::size_t begin = entry + std::string_view(".entry ").size();
  return std::string(text.substr(begin, text.find('(', begin) - begin));
}

}  // namespace

Library::Library(std::string text, std::string name)
    : text_(std::make_unique<const std::string>(std::move(text))), name_(std::move(name)) {
  const std::string_view all = *text_;
  int line = 1;
  std::size_t counted = 0;
  for (std::size_t begin = all.find(".version"); begin != all.npos;) {
    const std::size_t next = std::min(all.find(".version", begin + 1), all.size());
    line += lines_in(all.substr(counted, begin - counted));
    counted = begin;
    modules_.push_back(std::make_unique<const Module>(all.substr(begin, next - begin), line));
    const Module& module = *modules_.back();
    for (std::size_t at = module.text.find(".entry "); at != module.text.npos;
         at = module.text.find(".entry ", at + 1))
      entries_.try_emplace(name_at(module.text, at), &module, at);
    begin = next == all.size() ? all.npos : next;
  }
}

Library Library::from_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Fault(fmt::format("cannot read {}", path));
  return Library(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

const Program& Library::program(const std::string& kernel) {
  std::unique_ptr<const Program>& program = programs_[kernel];
  if (program) return *program;
  const auto entry = entries_.find(kernel);
  if (entry == entries_.end()) throw Fault(fmt::format("{} has no kernel {}", name_, kernel));
  const Module& module = *entry->second.module;
  try {
    program = std::make_unique<const Program>(
        Compiler(module.text, module.line, kernel).compile(entry->second.at));
  } catch (const Fault& fault) {
    throw Fault(fmt::format("{}, {}", name_, fault.what()));
  }
  return *program;
}

std::vector<std::string> Library::kernels() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

}  // namespace convlab::ptx
