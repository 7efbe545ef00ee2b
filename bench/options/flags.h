// Declares a verb's flags. These few functions hide CLI11, which is header-only and slow to compile
// in every file that includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conv/error.h"

namespace CLI {
class App;
}

namespace convlab {

// Each adds a flag (--name) or an argument (NAME) to the verb, with a line of help and a word
// that stands for its value there. `name` may start with a short form: "-a,--axis".
void add_flag(CLI::App&, const std::string& name, bool&, const std::string& description);
void add_text(CLI::App&, const std::string& name, std::string&, const std::string& description,
              const std::string& value_name);
// Several values: an argument takes all that follow; a flag takes one each time it is given.
void add_texts(CLI::App&, const std::string& name, std::vector<std::string>&,
               const std::string& description, const std::string& value_name = "");
// A flag that takes all following values, up to the next flag.
void add_text_list(CLI::App&, const std::string& name, std::vector<std::string>&,
                   const std::string& description, const std::string& value_name);
// A whole number from `least` to `most`.
void add_number(CLI::App&, const std::string& name, std::int64_t&, std::int64_t least,
                std::int64_t most, const std::string& description);
void add_number(CLI::App&, const std::string& name, std::optional<std::int64_t>&,
                std::int64_t least, std::int64_t most, const std::string& description);
// A time with or without a unit: 90, 60s, 5m, 1h.
void add_seconds(CLI::App&, const std::string& name, std::optional<double>&,
                 const std::string& description);
// A size: 0, 500k, 64MiB. Every unit is a power of 1024.
void add_bytes(CLI::App&, const std::string& name, std::optional<std::int64_t>&,
               const std::string& description);
// The value is parsed by a function that throws InputError.
void add_parsed(CLI::App&, const std::string& name, std::function<void(const std::string&)> parse,
                const std::string& description, const std::string& value_name);
// Text below the flags in the verb's help. Consecutive unindented lines form a paragraph, which is
// filled; indented lines are kept.
void set_footer(CLI::App&, const std::string&);
// Formats the help of this program and all verbs added later, filled to the terminal's width.
void set_help_format(CLI::App&);

// "a,b" -> a, b. Throws InputError for an empty item.
std::vector<std::string> split_list(const std::string&);
// nullopt if the text as a whole is not a number. Accepts inf. Throws InputError for a number that
// does not fit in a double: 1e400, 1e-400.
std::optional<double> parse_number(const std::string&);

// Returns the result of `work`. If `work` throws InputError, `where` is put before its text: the
// flag, as in "--axis".
template <class Work>
decltype(auto) naming(const std::string& where, const Work& work) {
  try {
    return work();
  } catch (const InputError& error) {
    throw InputError(where + ": " + error.what());
  }
}

}  // namespace convlab
