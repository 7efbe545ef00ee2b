// The tables of the tuning store, in this format and in former ones, as SQL. Internal to autotune.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convlab {

// Every row has an id and, as its last field, the checksum of the others (StoreFile's row_sum).
struct StoreTable {
  struct Column {
    std::string name, type;
  };
  std::string name;
  std::vector<Column> columns;   // without id and checksum
  std::vector<std::string> key;  // unique together; may be empty

  std::string create() const;
  std::string insert() const;  // or replace; binds the columns in order
  std::string names() const;   // quoted, for a SELECT
};

const StoreTable& candidate_table();
const StoreTable& roof_table();  // made when there is something to store in it

// A row of sqlite_schema.
struct SchemaObject {
  std::string type, name, sql;
};
// How the schema differs from the one a program of this format makes; empty: not at all.
std::string schema_fault(const std::vector<SchemaObject>&, std::uint32_t format);

// Statements that convert a table of a former format to this one, its rows included.
std::vector<std::string> upgrade_statements(const StoreTable&, std::uint32_t format);

}  // namespace convlab
