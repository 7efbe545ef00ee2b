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

enum class Format : std::uint8_t { table, csv, json, md, hpp, problems };

// One cell: the value, given in full by CSV and JSON, and its text for a person, without control
// characters.
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
  // A cell of several lines.
  static Cell lines(const std::string& text) {
    Cell cell(text);
    cell.shown_ = printable_lines(text);
    return cell;
  }
  // No value, with this text shown instead.
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
  // For commands that can be interrupted: whether all was done.
  std::optional<bool> complete = {};
  // The greatest width of the table and its notes on a terminal; 0: no limit. To fit, the last
  // column wraps, and the longest texts of other columns lose their middle.
  std::size_t width = 0;
};

// The width assumed for every terminal; --wide lifts it.
inline constexpr std::size_t terminal_width = 100;

// Whether the table is within its width as it is, apart from a last column that may wrap.
bool fits(const Report&);

// Lines of at most `width` columns, broken between words. A longer word breaks after a comma, or
// anywhere.
std::vector<std::string> wrap(const std::string& text, std::size_t width);

// table: for people. csv: RFC 4180 after `# name: value` lines of provenance and notes. json:
// {"provenance", "rows": [one object per row], "complete", "notes"}. md: a GitHub table. Ends in a
// newline.
std::string render(const Report&, Format);
// The JSON's `rows`.
nlohmann::ordered_json rows_json(const Report&);

// "1.23 ms", alone in its cell 1.23: milliseconds with three significant digits, at most three
// decimals. Bytes as "12 KiB". Errors as "1.2e-07".
std::string show_ms(double ms);
std::string show_images_per_s(double rate);  // four significant digits, or whole
Cell ms_cell(double ms);
Cell bytes_cell(std::int64_t bytes);
Cell gflops_cell(double gflops);
Cell error_cell(double rel_error);

}  // namespace convlab
