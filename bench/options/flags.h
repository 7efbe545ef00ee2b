// How a verb declares its flags. CLI11 does the work behind these few functions: it is all headers,
// and each file that includes them takes eight seconds longer to compile.
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

// Each adds to the verb a flag (--name) or an argument (NAME), with a line of help and what stands
// for its value there; `name` may have a short form before it: "-a,--axis".
void add_flag(CLI::App&, const std::string& name, bool&, const std::string& description);
void add_text(CLI::App&, const std::string& name, std::string&, const std::string& description,
              const std::string& value_name);
// Many: an argument takes all that follow, a flag one each time that it is given.
void add_texts(CLI::App&, const std::string& name, std::vector<std::string>&,
               const std::string& description, const std::string& value_name = "");
// A flag that takes all that follow, up to the next flag.
void add_text_list(CLI::App&, const std::string& name, std::vector<std::string>&,
                   const std::string& description, const std::string& value_name);
// A whole number from `least` to `most`.
void add_number(CLI::App&, const std::string& name, std::int64_t&, std::int64_t least,
                std::int64_t most, const std::string& description);
// A time with or without a unit: 90, 60s, 5m, 1h.
void add_seconds(CLI::App&, const std::string& name, std::optional<double>&,
                 const std::string& description);
// A size: 0, 500k, 64MiB; every unit is a power of 1024.
void add_bytes(CLI::App&, const std::string& name, std::optional<std::int64_t>&,
               const std::string& description);
// One whose value is parsed by a function that throws InputError.
void add_parsed(CLI::App&, const std::string& name, std::function<void(const std::string&)> parse,
                const std::string& description, const std::string& value_name);
// What stands below the flags in the verb's help. Lines up to an empty or an indented one are a
// paragraph, which is filled; indented lines stay lines.
void set_footer(CLI::App&, const std::string&);
// Help of this program and all verbs added later, filled to what a terminal shows.
void set_help_format(CLI::App&);

// "a,b" -> a, b. Throws InputError for an empty item.
std::vector<std::string> split_list(const std::string&);
// nullopt for what is no number as a whole, and for one beyond the range of double. Takes inf.
std::optional<double> parse_number(const std::string&);

// What `work` returns. An InputError of it gets `where` before its text: the flag, as in "--axis".
template <class Work>
decltype(auto) naming(const std::string& where, const Work& work) {
  try {
    return work();
  } catch (const InputError& error) {
    throw InputError(where + ": " + error.what());
  }
}

}  // namespace convlab
