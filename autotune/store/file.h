// The SQLite file under the tuning store. It may be damaged or crafted, so no trigger or view in it
// runs, no statement takes more steps than a file of its size needs, and a running or waiting
// statement can be interrupted. Internal to autotune.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/store/store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace convlab {

// The first bytes of a file: https://sqlite.org/fileformat.html, section 1.3.
using StoreHeader = std::array<char, 100>;
bool is_store_header(const StoreHeader&);

DamagedStore damaged(const std::filesystem::path&, std::string_view how);

class StoreFile {
 public:
  // Checks the header before any statement runs. Throws as Store does.
  StoreFile(std::filesystem::path, Store::Open);
  StoreFile(const StoreFile&) = delete;
  ~StoreFile();

  const std::filesystem::path& path() const { return path_; }
  void interrupt_by(const std::atomic<bool>* stop) { stop_ = stop; }

  void execute(const std::string& sql);
  std::int64_t number(const std::string& query);                   // the first value
  std::vector<std::string> complaints(const std::string& pragma);  // of a check; empty: none
  void copy_to(const std::filesystem::path&);                      // all of it or nothing
  // Throws for the error that the last call of SQLite returned.
  [[noreturn]] void fail() const;

 private:
  friend class Statement;
  friend class Transaction;
  void require_header();
  void distrust();
  static int on_busy(void* self, int tries);
  static int on_progress(void* self);

  struct Close {
    void operator()(sqlite3*) const;
  };
  std::filesystem::path path_;
  std::unique_ptr<sqlite3, Close> db_;
  const std::atomic<bool>* stop_ = nullptr;
  std::int64_t looks_ = 0;  // calls of on_progress since the last statement began
  std::chrono::steady_clock::time_point busy_since_;
};

class Statement {
 public:
  Statement(StoreFile&, const std::string& sql);
  ~Statement();
  Statement(const Statement&) = delete;

  // Invalid UTF-8 is stored as U+FFFD.
  Statement& bind(const std::string&);
  Statement& bind(std::int64_t);
  Statement& bind(double);
  Statement& bind(const std::vector<double>&);

  bool step();  // true while there is a row
  void reset();

  // Columns. Throws InputError for a value of another type, for text that is not UTF-8, and for
  // text that is not a list of numbers.
  void get(int column, std::string&) const;
  void get(int column, std::int64_t&) const;
  void get(int column, double&) const;
  void get(int column, std::vector<double>&) const;

 private:
  void require(int column, int type) const;
  std::string name(int column) const;
  Statement& check(int rc);

  StoreFile& file_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// Immediate: it waits for the write lock at the start, where waiting is safe. A transaction that
// started as a reader could fail as locked when it upgrades.
class Transaction {
 public:
  explicit Transaction(StoreFile& file) : file_(file) { file.execute("BEGIN IMMEDIATE"); }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  void commit();

 private:
  StoreFile& file_;
  bool done_ = false;
};

}  // namespace convlab
