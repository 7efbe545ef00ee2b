#include "bench/options/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <sstream>

#include "bench/output.h"
#include "bench/reports/report.h"
#include "conv/error.h"

namespace convlab {
namespace {

// Uses the parser's own conversion; nullopt where it refuses the text.
std::optional<std::string> converted(std::string text, const CLI::Validator& conversion) {
  try {
    if (conversion(text).empty()) return text;
  } catch (const CLI::ValidationError&) {
  }
  return {};
}

std::string joined_lines(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string filled(const std::string& text, std::size_t width) {
  std::string result, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) result += joined_lines(wrap(paragraph, width)) + "\n";
    paragraph.clear();
  };
  for (const std::string& line : CLI::detail::split(text, '\n')) {
    if (!line.empty() && line.front() != ' ') {
      paragraph += (paragraph.empty() ? "" : " ") + line;
      continue;
    }
    end_paragraph();
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    std::vector<std::string> parts = wrap(line.substr(indent), width - indent - 4);
    for (std::size_t i = 0; i < parts.size(); ++i)
      result += std::string(indent + (i > 0 ? 4 : 0), ' ') + parts[i] + "\n";
    if (line.empty()) result += "\n";
  }
  end_paragraph();
  return result;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return described(CLI::Formatter::make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, verb->get_name(), described(verb->get_description()),
                             get_column_width());
    return out.str();
  }
  std::string make_description(const CLI::App* app) const override {
    return filled(CLI::Formatter::make_description(app), width_);
  }
  std::string make_footer(const CLI::App* app) const override {
    return app->get_footer().empty() ? "" : filled(app->get_footer(), width_);
  }

 private:
  // The help column beside the names.
  std::string described(const std::string& text) const {
    return joined_lines(wrap(text, width_ - get_column_width()));
  }
  std::size_t width_ = terminal_columns(terminal_width);
};

}  // namespace

void add_flag(CLI::App& app, const std::string& name, bool& value, const std::string& description) {
  app.add_flag(name, value, description)
      ->check(
          [](const std::string& text) {
            return text == "true" ? "" : "expected the flag without a value";
          },
          "");
}

void add_text(CLI::App& app, const std::string& name, std::string& value,
              const std::string& description, const std::string& value_name) {
  app.add_option(name, value, description)->type_name(value_name);
}

void add_texts(CLI::App& app, const std::string& name, std::vector<std::string>& values,
               const std::string& description, const std::string& value_name) {
  CLI::Option* const option = app.add_option(name, values, description)->type_name(value_name);
  if (name.starts_with('-')) option->allow_extra_args(false);
}

void add_text_list(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                   const std::string& description, const std::string& value_name) {
  app.add_option(name, values, description)->type_name(value_name);
}

template <class Value>
void add_whole(CLI::App& app, const std::string& name, Value& value, std::int64_t least,
               std::int64_t most, const std::string& description) {
  app.add_option(name, value, description)
      ->check(
          [least, most](const std::string& text) {
            const bool right = CLI::Range(least, most)(text).empty();
            return right
                       ? ""
                       : fmt::format("'{}': expected a whole number, {} to {}", text, least, most);
          },
          "")
      ->type_name("N");
}

void add_number(CLI::App& app, const std::string& name, std::int64_t& value, std::int64_t least,
                std::int64_t most, const std::string& description) {
  add_whole(app, name, value, least, most, description);
}

void add_number(CLI::App& app, const std::string& name, std::optional<std::int64_t>& value,
                std::int64_t least, std::int64_t most, const std::string& description) {
  add_whole(app, name, value, least, most, description);
}

constexpr const char* expected_time = "expected a time above 0, as in 90, 60s, 5m or 1h";
constexpr const char* expected_size =
    "expected a whole number of bytes, k, M or G, as in 0, 500k or 64MiB";

void add_seconds(CLI::App& app, const std::string& name, std::optional<double>& value,
                 const std::string& description) {
  const std::map<std::string, double> units{
      {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};
  const auto parse = [&value, units](const std::string& text) {
    const std::optional<std::string> seconds = converted(text, CLI::AsNumberWithUnit(units));
    value = seconds ? parse_number(*seconds) : std::nullopt;
    if (!value || !(*value > 0) || std::isinf(*value))
      throw InputError(fmt::format("'{}': {}", text, expected_time));
  };
  add_parsed(app, name, parse, description, "TIME");
}

void add_bytes(CLI::App& app, const std::string& name, std::optional<std::int64_t>& value,
               const std::string& description) {
  const auto parse = [&value](const std::string& text) {
    const bool negative = text.starts_with('-');  // the conversion would wrap around
    const std::optional<std::string> bytes =
        negative ? std::nullopt : converted(text, CLI::AsSizeValue(false));
    if (!bytes) throw InputError(fmt::format("'{}': {}", text, expected_size));
    std::uint64_t whole = 0;  // the largest value on overflow
    CLI::detail::lexical_cast(*bytes, whole);
    if (whole > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
      throw InputError(fmt::format("'{}': expected less than 8E", text));
    value = std::int64_t(whole);
  };
  add_parsed(app, name, parse, description, "BYTES");
}

void add_parsed(CLI::App& app, const std::string& name,
                std::function<void(const std::string&)> parse, const std::string& description,
                const std::string& value_name) {
  const auto take = [name, parse = std::move(parse)](const std::string& text) {
    naming(name, [&] { parse(text); });
  };
  app.add_option_function<std::string>(name, take, description)->type_name(value_name);
}

void set_footer(CLI::App& app, const std::string& text) { app.footer(text); }

void set_help_format(CLI::App& app) { app.formatter(std::make_shared<HelpFormatter>()); }

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items = CLI::detail::split(text, ',');
  for (const std::string& item : items)
    if (item.empty()) throw InputError(fmt::format("empty item in list '{}'", text));
  return items;
}

std::optional<double> parse_number(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end || std::isnan(value)) return {};
  if (error == std::errc::result_out_of_range)
    throw InputError(
        fmt::format("'{}' does not fit in a double: expected 0, or 5e-324 to 1.8e308", text));
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

}  // namespace convlab
