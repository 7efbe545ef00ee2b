// Tables as every verb prints them: for a terminal, as CSV, JSON and Markdown.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "autotune/result.h"
#include "conv/text/bytes.h"
#include "conv/text/text.h"

namespace convlab {

// The version of `convlab_table` that is written.
inline constexpr int table_format = 1;

enum class Format : std::uint8_t { table, csv, json, md, hpp };

// One cell: the value, which CSV and JSON give in full, and how a person reads it, without what a
// terminal would obey.
class Cell {
 public:
  Cell() = default;  // nothing: blank, null in JSON
  Cell(std::string text) : shown_(printable(text)), value_(std::move(text)) {}
  Cell(std::string_view text) : Cell(std::string(text)) {}
  Cell(std::string text, std::string_view shown)
      : shown_(printable(shown)), value_(std::move(text)) {}
  Cell(const char* text) : Cell(std::string(text)) {}
  Cell(std::int64_t value) : shown_(std::to_string(value)), value_(value) {}
  Cell(double value, std::string shown) : shown_(std::move(shown)), value_(value) {}
  Cell(std::int64_t value, std::string shown) : shown_(std::move(shown)), value_(value) {}
  // Of several lines.
  static Cell lines(const std::string& text) {
    Cell cell(text);
    cell.shown_ = printable_lines(text);
    return cell;
  }
  // No value, and what a person reads in its place.
  static Cell without_value(std::string_view shown) {
    Cell cell;
    cell.shown_ = printable(shown);
    return cell;
  }

  using Value = std::variant<std::monostate, std::string, std::int64_t, double>;
  const std::string& shown() const { return shown_; }
  const Value& value() const { return value_; }
  bool is_text() const { return std::holds_alternative<std::string>(value_); }

 private:
  std::string shown_;
  Value value_;
};

struct Report {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
  std::vector<std::string> notes;  // a line each, below the table
  Provenance provenance;
  // Of what can be interrupted: whether it was done to its end.
  std::optional<bool> complete = {};
  // How wide the table and its notes may be on a terminal; 0: as wide as they are. What does not
  // fit: the last column goes on in further lines, and the longest texts of others lose their
  // middle.
  std::size_t width = 0;
};

// The width that every terminal is taken to have, and what --wide is for.
inline constexpr std::size_t terminal_width = 100;

// Whether the table is within its width as it is, but for a last column that may go on.
bool fits(const Report&);

// Lines of at most `width` columns, broken between words; a longer word after a comma, or anywhere.
std::vector<std::string> wrap(const std::string& text, std::size_t width);

// table: for people; csv: RFC 4180 after `# name: value` lines of provenance and notes; json:
// {"provenance", "rows": [one object a row], "complete", "notes"}; md: a GitHub table. Ends in a
// newline.
std::string render(const Report&, Format);
// The JSON's `rows`.
nlohmann::ordered_json rows_json(const Report&);

// "1.23 ms" alone in its cell is 1.23: milliseconds with three significant digits, at most three
// decimals. Bytes as "12 KiB". Errors as "1.2e-07".
std::string show_ms(double ms);
Cell ms_cell(double ms);
Cell bytes_cell(std::int64_t bytes);
Cell gflops_cell(double gflops);
Cell error_cell(double rel_error);

}  // namespace convlab
