#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

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

std::string render_table(const Report& report) {
  const std::vector<bool> numeric = numeric_columns(report);
  std::vector<std::size_t> width;
  for (std::size_t i = 0; i < report.columns.size(); ++i) {
    std::size_t widest = report.columns[i].size();
    for (const auto& row : report.rows) widest = std::max(widest, row[i].shown().size());
    width.push_back(widest);
  }
  const auto line = [&](const auto& text_of) {
    std::string text;
    for (std::size_t i = 0; i < width.size(); ++i)
      text += numeric[i] ? fmt::format("{:>{}}  ", text_of(i), width[i])
                         : fmt::format("{:<{}}  ", text_of(i), width[i]);
    return without_trailing_blanks(text) + "\n";
  };
  std::string text = line([&](std::size_t i) { return report.columns[i]; });
  text += line([&](std::size_t i) { return std::string(width[i], '-'); });
  for (const auto& row : report.rows)
    text += line([&](std::size_t i) -> const std::string& { return row[i].shown(); });
  if (!report.notes.empty()) text += "\n";
  for (const std::string& note : report.notes) text += note + "\n";
  if (!report.provenance.fields.empty()) text += "\n";
  for (const auto& [name, value] : report.provenance.fields)
    text += fmt::format("{:<10}  {}\n", name, value);
  return text;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
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
    text += fmt::format("# {}: {}\n", name, value);
  for (const std::string& note : report.notes) text += fmt::format("# {}\n", note);
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
  for (const char c : text) {
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
    text += fmt::format("- {}: {}\n", name, value);
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
  Json json{{"convlab_table", 1},
            {"provenance", Json::object()},
            {"rows", rows_json(report)},
            {"notes", report.notes}};
  for (const auto& [name, value] : report.provenance.fields) json["provenance"][name] = value;
  // Names come from the user's command line and need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

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

std::string show_bytes(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = double(bytes);
  const char* unit = "";
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, unit);
}

Cell ms_cell(double ms) { return {ms, show_ms(ms)}; }
Cell bytes_cell(std::int64_t bytes) { return {bytes, show_bytes(bytes)}; }
Cell gflops_cell(double gflops) { return {gflops, fmt::format("{:.1f}", gflops)}; }
Cell error_cell(double rel_error) { return {rel_error, fmt::format("{:.1e}", rel_error)}; }

}  // namespace convlab
