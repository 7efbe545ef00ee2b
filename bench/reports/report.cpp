#include "bench/reports/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

namespace convlab {
namespace {

// A column is aligned right when nothing in it is text.
std::vector<bool> numeric_columns(const Report& report) {
  std::vector<bool> numeric(report.columns.size(), true);
  for (const auto& row : report.rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      if (row[i].is_text()) numeric[i] = false;
  return numeric;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// The characters of UTF-8 text, each one column wide.
std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    end = at + 1;
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    all.push_back(text.substr(at, end - at));
  }
  return all;
}

std::size_t columns_of(std::string_view text) { return characters(text).size(); }

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (std::size_t at = 0, end = 0; at <= text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    widest = std::max(widest, columns_of(std::string_view(text).substr(at, end - at)));
  }
  return widest;
}

// With the first `head` characters and as many of the last as have room.
std::string without_middle(const std::string& text, std::size_t width, std::size_t head) {
  const std::vector<std::string_view> all = characters(text);
  if (all.size() <= width) return text;
  const std::size_t tail = width - head - 1;
  return fmt::format("{}…{}", fmt::join(all.begin(), all.begin() + std::ptrdiff_t(head), ""),
                     fmt::join(all.end() - std::ptrdiff_t(tail), all.end(), ""));
}

// Names differ at either end, so they are cut in the middle.
std::string without_middle(const std::string& text, std::size_t width) {
  return without_middle(text, width, width / 2);
}

// Texts of problems may differ in the middle alone. They are cut nearest to it where most of them
// stay different. Returns the characters before the cut.
std::size_t place_of_cut(const Report& report, std::size_t column, std::size_t width) {
  std::set<std::string> cut;
  for (const auto& row : report.rows)
    if (std::string text = row[column].shown(); columns_of(text) > width)
      cut.insert(std::move(text));
  const auto different = [&](std::size_t head) {
    std::set<std::string> shown;
    for (const std::string& text : cut) shown.insert(without_middle(text, width, head));
    return shown.size();
  };
  const std::size_t middle = width / 2;
  std::size_t best = middle, most = different(middle);
  for (std::size_t away = 1; away <= middle && most < cut.size(); ++away)
    for (const std::size_t head : {middle - away, middle + away})
      if (head < width && different(head) > most) most = different(best = head);
  return best;
}

// A name has no place to be wrapped at.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  const bool is_name = text.find_first_of(" ,\n") == std::string::npos;
  return is_name ? std::vector{without_middle(text, width)} : wrap(text, width);
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string blanks(width - std::min(width, columns_of(text)), ' ');
  return right ? blanks + text : text + blanks;
}

// The last column, when it is a longer text, gets at least last_column: an algorithm, a ratio and
// its interval. No text is cut below shortest_text.
constexpr std::size_t last_column = 34, shortest_text = 16;

struct TableLayout {
  std::vector<std::size_t> widths;
  std::size_t gap = 2;  // between columns
  std::size_t total() const {
    return std::accumulate(widths.begin(), widths.end(), gap * (widths.size() - 1));
  }
};

// As wide as the texts, except the last column, which may wrap.
TableLayout natural_layout(const Report& report) {
  TableLayout layout;
  for (std::size_t i = 0; i < report.columns.size(); ++i) {
    std::size_t widest = columns_of(report.columns[i]);
    for (const auto& row : report.rows) widest = std::max(widest, widest_line(row[i].shown()));
    layout.widths.push_back(widest);
  }
  if (report.width > 0) layout.widths.back() = std::min(layout.widths.back(), last_column);
  return layout;
}

TableLayout fitting_layout(const Report& report, const std::vector<bool>& numeric) {
  TableLayout layout = natural_layout(report);
  if (report.width == 0) return layout;
  std::vector<std::size_t>& widths = layout.widths;
  const std::size_t last = widths.size() - 1;
  if (layout.total() > report.width) layout.gap = 1;
  while (layout.total() > report.width) {
    std::size_t longest = last;
    for (std::size_t i = 0; i < last; ++i)
      if (!numeric[i] && widths[i] > shortest_text &&
          (longest == last || widths[i] > widths[longest]))
        longest = i;
    if (longest == last && widths[last] <= shortest_text) break;
    --widths[longest];
  }
  if (layout.total() < report.width) {
    std::size_t wanted = columns_of(report.columns[last]);
    for (const auto& row : report.rows) wanted = std::max(wanted, widest_line(row[last].shown()));
    widths[last] = std::min(wanted, widths[last] + report.width - layout.total());
  }
  return layout;
}

std::string render_table(const Report& report) {
  const std::vector<bool> numeric = numeric_columns(report);
  const TableLayout layout = fitting_layout(report, numeric);
  const std::vector<std::size_t>& widths = layout.widths;
  const std::size_t last = widths.size() - 1;
  std::vector<std::size_t> cuts;
  for (std::size_t i = 0; i <= last; ++i) cuts.push_back(place_of_cut(report, i, widths[i]));
  const auto line = [&](const auto& text_of) {
    std::string text;
    for (std::size_t i = 0; i <= last; ++i)
      text += padded(without_middle(text_of(i), widths[i], cuts[i]), widths[i], numeric[i]) +
              std::string(layout.gap, ' ');
    return without_trailing_blanks(text) + "\n";
  };
  std::string text = line([&](std::size_t i) { return report.columns[i]; });
  text += line([&](std::size_t i) { return std::string(widths[i], '-'); });
  for (const auto& row : report.rows) {
    const std::vector<std::string> parts = wrapped(row[last].shown(), widths[last]);
    for (std::size_t k = 0; k < std::max<std::size_t>(1, parts.size()); ++k)
      text += line([&](std::size_t i) -> std::string {
        if (i == last) return k < parts.size() ? parts[k] : "";
        return k == 0 ? row[i].shown() : "";
      });
  }
  if (!report.notes.empty()) text += "\n";
  for (const std::string& note : report.notes)
    if (report.width > 0)
      text += fmt::format("{}\n", fmt::join(wrap(note, report.width), "\n"));
    else
      text += note + "\n";
  if (!report.provenance.fields.empty()) text += "\n";
  for (const auto& [name, value] : report.provenance.fields)
    text += fmt::format("{:<10}  {}\n", name, value);
  return text;
}

// A spreadsheet would evaluate text that begins like a formula. An apostrophe keeps it text.
std::string csv_field(const std::string& text) {
  const bool formula =
      text.size() > 1 && std::string_view("=+-@").find(text[0]) != std::string::npos;
  if (!formula && text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = formula ? "\"'" : "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

struct ValueText {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const std::string& text) const { return csv_field(text); }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }  // round-trips
};

std::string render_csv(const Report& report) {
  std::string text;
  for (const auto& [name, value] : report.provenance.fields)
    text += fmt::format("# {}: {}\n", one_line(name), one_line(value));
  for (const std::string& note : report.notes) text += fmt::format("# note: {}\n", one_line(note));
  std::vector<std::string> fields;
  for (const std::string& column : report.columns) fields.push_back(csv_field(column));
  text += fmt::format("{}\n", fmt::join(fields, ","));
  for (const auto& row : report.rows) {
    fields.clear();
    for (const Cell& cell : row) fields.push_back(std::visit(ValueText{}, cell.value()));
    text += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return text;
}

std::string markdown_field(const std::string& text) {
  std::string escaped;
  for (const char c : one_line(text)) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string render_markdown(const Report& report) {
  const std::vector<bool> numeric = numeric_columns(report);
  std::string text = "|", rule = "|";
  for (std::size_t i = 0; i < report.columns.size(); ++i) {
    text += fmt::format(" {} |", markdown_field(report.columns[i]));
    rule += numeric[i] ? "---:|" : "---|";
  }
  text += "\n" + rule + "\n";
  for (const auto& row : report.rows) {
    text += "|";
    for (const Cell& cell : row) text += fmt::format(" {} |", markdown_field(cell.shown()));
    text += "\n";
  }
  for (const std::string& note : report.notes) text += fmt::format("\n{}\n", note);
  if (!report.provenance.fields.empty()) text += "\n";
  for (const auto& [name, value] : report.provenance.fields)
    text += fmt::format("- {}: {}\n", name, one_line(value));
  return text;
}

using Json = nlohmann::ordered_json;

struct ValueJson {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(double value) const { return std::isfinite(value) ? Json(value) : Json(nullptr); }
  template <class T>
  Json operator()(const T& value) const {
    return value;
  }
};

std::string render_json(const Report& report) {
  Json json{
      {"convlab_table", table_format}, {"provenance", Json::object()}, {"rows", rows_json(report)}};
  if (report.complete) json["complete"] = *report.complete;
  json["notes"] = report.notes;
  for (const auto& [name, value] : report.provenance.fields) json["provenance"][name] = value;
  // Names come from the user's command line and need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

bool fits(const Report& report) {
  return report.width == 0 || natural_layout(report).total() <= report.width;
}

std::vector<std::string> wrap(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t newline = std::min(rest.find('\n'), rest.size());
    const std::vector<std::string_view> all = characters(rest.substr(0, newline));
    if (all.size() <= width) {
      lines.emplace_back(rest.substr(0, newline));
      rest.remove_prefix(std::min(newline + 1, rest.size()));
      continue;
    }
    std::size_t most = 0;  // bytes of the characters that a line has room for
    for (std::size_t i = 0; i < width; ++i) most += all[i].size();
    std::size_t blank = rest.rfind(' ', most);
    // Keeps an interval on one line.
    if (const std::size_t open = rest.rfind('[', blank), close = rest.rfind(']', blank);
        blank != std::string_view::npos && open != std::string_view::npos &&
        (close == std::string_view::npos || close < open))
      blank = rest.rfind(' ', open);
    const std::size_t comma = rest.rfind(',', most - 1);
    const bool at_blank = blank != std::string_view::npos && blank > 0;
    const std::size_t end = at_blank ? blank : comma != std::string_view::npos ? comma + 1 : most;
    lines.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + (at_blank ? 1 : 0));
  }
  return lines;
}

std::string render(const Report& report, Format format) {
  switch (format) {
    case Format::csv:
      return render_csv(report);
    case Format::json:
      return render_json(report);
    case Format::md:
      return render_markdown(report);
    default:
      return render_table(report);
  }
}

Json rows_json(const Report& report) {
  Json rows = Json::array();
  for (const auto& row : report.rows) {
    Json object = Json::object();
    for (std::size_t i = 0; i < row.size(); ++i)
      object[report.columns[i]] = std::visit(ValueJson{}, row[i].value());
    rows.push_back(std::move(object));
  }
  return rows;
}

std::string show_ms(double ms) {
  return ms < 100 ? fmt::format("{:.3f}", ms) : fmt::format("{:.1f}", ms);
}

std::string show_images_per_s(double rate) {
  return rate < 1000 ? fmt::format("{:.4g}", rate) : fmt::format("{:.0f}", rate);
}

Cell ms_cell(double ms) { return {ms, show_ms(ms)}; }
Cell bytes_cell(std::int64_t bytes) { return {bytes, show_bytes(bytes)}; }
Cell gflops_cell(double gflops) { return {gflops, fmt::format("{:.1f}", gflops)}; }
Cell error_cell(double rel_error) { return {rel_error, fmt::format("{:.1e}", rel_error)}; }

}  // namespace convlab
