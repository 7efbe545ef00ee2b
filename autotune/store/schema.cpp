#include "autotune/store/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "autotune/store/row.h"
#include "autotune/store/store.h"

namespace convlab {
namespace {

using Columns = std::vector<StoreTable::Column>;

const char* sql_type(const std::string&) { return "TEXT"; }
const char* sql_type(const std::vector<double>&) { return "TEXT"; }  // JSON, for json_each()
const char* sql_type(std::int64_t) { return "INTEGER"; }
const char* sql_type(double) { return "REAL"; }

std::vector<std::string> quoted(const Columns& columns) {
  std::vector<std::string> names;
  for (const StoreTable::Column& column : columns)
    names.push_back(fmt::format("\"{}\"", column.name));
  return names;
}

// `columns` are definitions: "\"ms\" REAL NOT NULL".
std::string create_text(const std::string& name, std::vector<std::string> columns,
                        const std::vector<std::string>& key) {
  columns.insert(columns.begin(), "id INTEGER PRIMARY KEY");
  if (!key.empty()) columns.push_back(fmt::format("UNIQUE ({})", fmt::join(key, ", ")));
  return fmt::format("CREATE TABLE {} ({})", name, fmt::join(columns, ", "));
}

std::vector<std::string> definitions(const Columns& columns) {
  std::vector<std::string> all;
  for (const StoreTable::Column& column : columns)
    all.push_back(fmt::format("\"{}\" {} NOT NULL", column.name, column.type));
  return all;
}

// ---- Former formats ----

// Format 1 had no processes and no protocol. A program of format 2 appended these columns to a
// store of format 1.
constexpr const char* since_format_2[][2] = {
    {"process_ms", "process_ms TEXT NOT NULL DEFAULT '[]'"},
    {"process_pack_ms", "process_pack_ms TEXT NOT NULL DEFAULT '[]'"},
    {"protocol", "protocol INTEGER NOT NULL DEFAULT 1"}};

Columns columns_of_format_1() {
  Columns columns = candidate_table().columns;
  std::erase_if(columns, [](const StoreTable::Column& column) {
    return std::any_of(std::begin(since_format_2), std::end(since_format_2),
                       [&](const auto& added) { return column.name == added[0]; });
  });
  return columns;
}

// The definitions that a table may have. Before format 3 there was no checksum.
std::vector<std::string> known_texts(const StoreTable& table, std::uint32_t format) {
  if (format == store_format) return {table.create()};
  if (table.name == roof_table().name) {
    std::string text = create_text(table.name, definitions(table.columns), {});
    std::erase(text, '"');
    return {text};
  }
  std::vector<std::string> former = definitions(columns_of_format_1());
  if (format == 1) return {create_text(table.name, former, table.key)};
  for (const auto& added : since_format_2) former.emplace_back(added[1]);
  return {create_text(table.name, definitions(table.columns), table.key),
          create_text(table.name, former, table.key)};
}

}  // namespace

std::string StoreTable::create() const {
  std::vector<std::string> all = definitions(columns);
  all.emplace_back("checksum INTEGER NOT NULL");
  return create_text(name, all, key);
}

std::string StoreTable::names() const {
  return fmt::format("{}", fmt::join(quoted(columns), ", "));
}

std::string StoreTable::insert() const {
  std::vector<std::string> values;
  for (std::size_t i = 1; i <= columns.size(); ++i) values.push_back(fmt::format("?{}", i));
  return fmt::format("INSERT OR REPLACE INTO {} ({}, checksum) VALUES ({}, row_sum({}))", name,
                     names(), fmt::join(values, ", "), fmt::join(values, ", "));
}

const StoreTable& candidate_table() {
  static const StoreTable table = [] {
    StoreTable t{.name = "candidate", .columns = {}, .key = {}};
    RawRow row;
    visit_all(row, [&](const char* name, auto& field) {
      t.columns.push_back({name, sql_type(field)});
    });
    visit_key(row, [&](const char* name, auto&) { t.key.push_back(fmt::format("\"{}\"", name)); });
    return t;
  }();
  return table;
}

const StoreTable& roof_table() {
  static const StoreTable table{.name = "roof",
                                .columns = {{"fingerprint", "TEXT"},
                                            {"level", "TEXT"},
                                            {"what", "TEXT"},
                                            {"threads", "INTEGER"},
                                            {"measured", "INTEGER"},
                                            {"per_second", "REAL"},
                                            {"noise", "REAL"},
                                            {"date", "TEXT"}},
                                .key = {}};
  return table;
}

std::string schema_fault(const std::vector<SchemaObject>& objects, std::uint32_t format) {
  bool has_candidates = false;
  for (const SchemaObject& object : objects) {
    if (object.type == "index" && object.name == "sqlite_autoindex_candidate_1") continue;
    const StoreTable* table = nullptr;
    for (const StoreTable* known : {&candidate_table(), &roof_table()})
      if (object.type == "table" && object.name == known->name) table = known;
    if (!table) return fmt::format("it has a {} of somebody else, {}", object.type, object.name);
    const std::vector<std::string> texts = known_texts(*table, format);
    if (std::find(texts.begin(), texts.end(), object.sql) == texts.end())
      return fmt::format("its table {} has other columns than format {}", object.name, format);
    has_candidates |= table == &candidate_table();
  }
  return has_candidates ? "" : "it has no table candidate";
}

std::vector<std::string> upgrade_statements(const StoreTable& table, std::uint32_t format) {
  std::vector<std::string> statements;
  if (format == 1 && table.name == candidate_table().name)
    for (const auto& added : since_format_2)
      statements.push_back(fmt::format("ALTER TABLE {} ADD COLUMN {}", table.name, added[1]));
  statements.push_back(fmt::format("ALTER TABLE {} RENAME TO former", table.name));
  statements.push_back(table.create());
  statements.push_back(fmt::format(
      "INSERT INTO {} (id, {}, checksum) SELECT id, {}, row_sum({}) FROM former ORDER BY id",
      table.name, table.names(), table.names(), table.names()));
  statements.push_back("DROP TABLE former");
  return statements;
}

}  // namespace convlab
