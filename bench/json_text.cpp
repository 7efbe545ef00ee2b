#include "bench/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "conv/error.h"

namespace convlab {
namespace {

using nlohmann::json;

// "parse error at line 1, column 2: syntax error while parsing value - invalid literal; last read:
// ..." -> "invalid literal"
std::string reason_of(const std::string& what) {
  const std::size_t dash = what.find(" - ");
  if (dash == std::string::npos) return without_json_tag(what);
  const std::string reason = what.substr(dash + 3);
  return reason.substr(0, reason.find(';'));
}

// Also refuses numbers that the library would round to 0: 1e-400.
class JsonAcceptor : public nlohmann::detail::json_sax_acceptor<json> {
 public:
  bool number_float(double value, const std::string& text) {
    if (value == 0 && text.find_first_of("123456789") < text.find_first_of("eE")) underflow = text;
    return underflow.empty();
  }
  std::string underflow;
};

}  // namespace

void require_json(const std::string& text, const std::string& name, const std::string& expected) {
  JsonAcceptor acceptor;
  if (json::sax_parse(text, &acceptor)) return;
  if (!acceptor.underflow.empty())
    throw InputError(fmt::format("{}: not JSON (number underflow parsing '{}'): expected {}", name,
                                 acceptor.underflow, expected));
  try {
    const json never = json::parse(text);
  } catch (const json::parse_error& error) {
    const std::size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto before = text.begin() + std::ptrdiff_t(at);
    const std::size_t newline = at > 0 ? text.rfind('\n', at - 1) : std::string::npos;
    throw InputError(fmt::format("{}: line {}, column {}: not JSON ({}): expected {}", name,
                                 1 + std::count(text.begin(), before, '\n'),
                                 newline == std::string::npos ? at + 1 : at - newline,
                                 reason_of(error.what()), expected));
  } catch (const json::exception& error) {  // a number out of every type's range
    throw InputError(
        fmt::format("{}: not JSON ({}): expected {}", name, reason_of(error.what()), expected));
  }
}

std::string without_json_tag(const std::string& what) {
  const std::size_t end = what.find("] ");
  return what.starts_with("[json.exception.") && end != std::string::npos ? what.substr(end + 2)
                                                                          : what;
}

}  // namespace convlab
