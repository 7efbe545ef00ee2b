#include "autotune/store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "autotune/build_info.h"
#include "autotune/ceilings.h"
#include "autotune/store_row.h"
#include "conv/error.h"

namespace convlab {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t application_id = 0x434C4254;  // "CLBT": what `file` and we know it by
constexpr int busy_timeout_ms = 60'000;

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  RawRow row;
  visit_key(row, [&](const char* name, auto&) { names.push_back(fmt::format("\"{}\"", name)); });
  return names;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  RawRow row;
  visit_all(row, [&](const char* name, auto&) { names.push_back(fmt::format("\"{}\"", name)); });
  return names;
}

const char* sql_type(const std::string&) { return "TEXT"; }
const char* sql_type(const std::vector<double>&) { return "TEXT"; }  // JSON, for json_each()
const char* sql_type(std::int64_t) { return "INTEGER"; }
const char* sql_type(double) { return "REAL"; }

std::string schema() {
  std::vector<std::string> columns{"id INTEGER PRIMARY KEY"};
  RawRow row;
  visit_all(row, [&](const char* name, auto& field) {
    columns.push_back(fmt::format("\"{}\" {} NOT NULL", name, sql_type(field)));
  });
  return fmt::format("CREATE TABLE candidate ({}, UNIQUE ({}))", fmt::join(columns, ", "),
                     fmt::join(key_names(), ", "));
}

// "problem"=? AND ...: the first `count` fields of the key.
std::string key_condition(std::size_t count) {
  std::vector<std::string> names = key_names();
  names.resize(count);
  return fmt::format("{}=?", fmt::join(names, "=? AND "));
}

std::string now() {
  const auto time = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)), ms.count() % 1000);
}

constexpr const char* remedy = "move it away, or name another store with --db or CONVLAB_DB";

InputError damaged(const std::filesystem::path& path, const std::string& how) {
  return InputError(fmt::format("{} is damaged ({}): {}", path.string(), how, remedy));
}

[[noreturn]] void fail(sqlite3* db, const std::filesystem::path& path) {
  const char* const message = sqlite3_errmsg(db);
  switch (sqlite3_errcode(db)) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      throw damaged(path, message);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      throw EnvironmentError(fmt::format(
          "{} cannot be written ({}): make it and its directory writable, or name another store "
          "with --db or CONVLAB_DB",
          path.string(), message));
    case SQLITE_BUSY:
      throw EnvironmentError(fmt::format("{} was locked by another process for {} s", path.string(),
                                         busy_timeout_ms / 1000));
    default:
      throw EnvironmentError(fmt::format("{}: {}", path.string(), message));
  }
}

class Statement {
 public:
  Statement(sqlite3* db, const std::filesystem::path& path, const std::string& sql)
      : db_(db), path_(path) {
    if (sqlite3_prepare_v2(db, sql.c_str(), int(sql.size()), &statement_, nullptr) != SQLITE_OK)
      fail(db, path);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;

  Statement& bind(const std::string& v) {
    return check(sqlite3_bind_text64(statement_, ++bound_, v.data(), v.size(), SQLITE_TRANSIENT,
                                     SQLITE_UTF8));
  }
  Statement& bind(std::int64_t v) { return check(sqlite3_bind_int64(statement_, ++bound_, v)); }
  Statement& bind(double v) { return check(sqlite3_bind_double(statement_, ++bound_, v)); }
  Statement& bind(const std::vector<double>& v) { return bind(Json(v).dump()); }

  // True while there is a row.
  bool step() {
    const int rc = sqlite3_step(statement_);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) fail(db_, path_);
    return rc == SQLITE_ROW;
  }
  void reset() {
    sqlite3_reset(statement_);
    bound_ = 0;
  }

  // Columns. Throws InputError for a value of another type, or for what is no list of numbers.
  void get(int column, std::string& v) const {
    require(column, SQLITE_TEXT);
    v.assign(reinterpret_cast<const char*>(sqlite3_column_text(statement_, column)),
             std::size_t(sqlite3_column_bytes(statement_, column)));
  }
  void get(int column, std::int64_t& v) const {
    require(column, SQLITE_INTEGER);
    v = sqlite3_column_int64(statement_, column);
  }
  void get(int column, double& v) const {
    require(column, SQLITE_FLOAT);
    v = sqlite3_column_double(statement_, column);
  }
  void get(int column, std::vector<double>& v) const {
    std::string text;
    get(column, text);
    try {
      v = Json::parse(text).get<std::vector<double>>();
    } catch (const Json::exception&) {
      throw InputError(fmt::format("{} is no list of numbers", name(column)));
    }
  }

 private:
  const char* name(int column) const { return sqlite3_column_name(statement_, column); }
  void require(int column, int type) const {
    if (sqlite3_column_type(statement_, column) != type)
      throw InputError(fmt::format("{} has a value of the wrong type", name(column)));
  }
  Statement& check(int rc) {
    if (rc != SQLITE_OK) fail(db_, path_);
    return *this;
  }

  sqlite3* db_;
  const std::filesystem::path& path_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

void execute(sqlite3* db, const std::filesystem::path& path, const std::string& sql) {
  Statement statement(db, path, sql);
  while (statement.step()) {
  }
}

// Immediate: it waits for its turn to write at the start, where waiting is safe. One that started
// as a reader could not be let through later, and would fail as locked.
class Transaction {
 public:
  Transaction(sqlite3* db, const std::filesystem::path& path) : db_(db), path_(path) {
    execute(db_, path_, "BEGIN IMMEDIATE");
  }
  ~Transaction() {
    if (!done_) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  void commit() {
    execute(db_, path_, "COMMIT");
    done_ = true;
  }

 private:
  sqlite3* db_;
  const std::filesystem::path& path_;
  bool done_ = false;
};

std::int64_t pragma(sqlite3* db, const std::filesystem::path& path, const std::string& what) {
  Statement statement(db, path, what);
  std::int64_t value = 0;
  if (statement.step()) statement.get(0, value);
  return value;
}

std::uint32_t big_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::uint8_t(bytes[i]);
  return value;
}

// Looks at the file's first 100 bytes (https://sqlite.org/fileformat.html, section 1.3) before any
// statement runs: the first one would roll back a foreign file's journal. Read through SQLite's own
// handle, since closing another one would drop the locks that this process holds on the file. An
// empty file is fine: a process killed while it made a store leaves one.
void require_store(sqlite3* db, const std::filesystem::path& path) {
  sqlite3_file* file = nullptr;
  sqlite3_int64 size = 0;
  std::array<char, 100> header{};
  if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
      file->pMethods->xFileSize(file, &size) != SQLITE_OK)
    fail(db, path);
  if (size == 0) return;
  if (file->pMethods->xRead(file, header.data(), int(header.size()), 0) != SQLITE_OK ||
      std::memcmp(header.data(), "SQLite format 3", 16) != 0)
    throw InputError(
        fmt::format("{} is not a tuning store (no SQLite file): {}", path.string(), remedy));
  if (big_endian(&header[68]) != application_id)
    throw InputError(fmt::format("{} is not a tuning store (another program's SQLite file): {}",
                                 path.string(), remedy));
  if (const std::uint32_t version = big_endian(&header[60]); version == 0 || version > store_format)
    throw InputError(
        fmt::format("{} has format {}, this program reads {}: use the program that "
                    "wrote it, or {}",
                    path.string(), version, store_format, remedy));
}

std::vector<std::string> problems_of(sqlite3* db, const std::filesystem::path& path,
                                     const std::string& check) {
  std::vector<std::string> problems;
  Statement statement(db, path, check);
  for (std::string text; statement.step(); problems.push_back(text)) statement.get(0, text);
  if (problems == std::vector<std::string>{"ok"}) problems.clear();
  return problems;
}

// All rows with their ids, in order of recording. One with impossible values goes to `problems`,
// or is thrown.
std::vector<std::pair<std::int64_t, StoreRow>> read_rows(
    sqlite3* db, const std::filesystem::path& path, std::vector<std::string>* problems = nullptr) {
  std::vector<std::pair<std::int64_t, StoreRow>> rows;
  Statement select(
      db, path,
      fmt::format("SELECT id, {} FROM candidate ORDER BY id", fmt::join(all_names(), ", ")));
  while (select.step()) {
    std::int64_t id = 0;
    select.get(0, id);
    try {
      RawRow raw;
      int column = 0;
      visit_all(raw, [&](const char*, auto& field) { select.get(++column, field); });
      rows.emplace_back(id, from_raw(raw));
    } catch (const InputError& e) {
      const std::string problem = fmt::format("row {}: {}", id, e.what());
      if (!problems) throw damaged(path, problem);
      problems->push_back(problem);
    }
  }
  return rows;
}

void insert(sqlite3* db, const std::filesystem::path& path, const StoreRow& row) {
  const std::vector<std::string> names = all_names();
  Statement statement(
      db, path,
      fmt::format("INSERT OR REPLACE INTO candidate ({}) VALUES ({})", fmt::join(names, ", "),
                  fmt::join(std::vector<std::string>(names.size(), "?"), ", ")));
  const RawRow raw = to_raw(row);
  visit_all(raw, [&](const char*, const auto& field) { statement.bind(field); });
  statement.step();
}

}  // namespace

std::string fingerprint(const DeviceInfo& device, const AlgoInfo& algo) {
  std::string text = fmt::format("{}={}; isa={}; l1={}; l2={}; l3={}; compiler={}; flags={}",
                                 device.kind == DeviceKind::cpu ? "cpu" : "cuda", device.name,
                                 device.isa, device.l1_bytes, device.l2_bytes, device.l3_bytes,
                                 build_info().compiler, build_info().flags);
  std::vector<std::string> libraries = algo.libraries;
  if (device.kind == DeviceKind::cuda) libraries.insert(libraries.end(), {"cuda", "driver"});
  std::sort(libraries.begin(), libraries.end());
  libraries.erase(std::unique(libraries.begin(), libraries.end()), libraries.end());
  for (const std::string& library : libraries) {
    const auto version = device.libraries.find(library);
    text += fmt::format("; {}={}", library,
                        version == device.libraries.end() ? "absent" : version->second);
  }
  return text;
}

void Store::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

Store::Store(std::filesystem::path path, Open open) : path_(std::filesystem::absolute(path)) {
  if (open == Open::existing && !std::filesystem::exists(path_))
    throw InputError(
        fmt::format("there is no tuning store {}: `convlab tune` makes one, --db or "
                    "CONVLAB_DB name another",
                    path_.string()));
  if (std::filesystem::is_directory(path_))
    throw InputError(
        fmt::format("{} is a directory: name a file with --db or CONVLAB_DB", path_.string()));
  if (open == Open::create) {
    std::error_code error;
    std::filesystem::create_directories(path_.parent_path(), error);
    if (error)
      throw EnvironmentError(
          fmt::format("cannot make the directory {} ({}): name another store with "
                      "--db or CONVLAB_DB",
                      path_.parent_path().string(), error.message()));
  }
  sqlite3* db = nullptr;
  const int rc = sqlite3_open_v2(
      path_.c_str(), &db, SQLITE_OPEN_READWRITE | (open == Open::create ? SQLITE_OPEN_CREATE : 0),
      nullptr);
  db_.reset(db);
  if (rc != SQLITE_OK) fail(db, path_);
  sqlite3_busy_timeout(db, busy_timeout_ms);
  require_store(db, path_);

  if (const auto problems = problems_of(db, path_, "PRAGMA quick_check(1)"); !problems.empty())
    throw damaged(path_, problems.front());
  if (pragma(db, path_, "PRAGMA user_version") == 1) upgrade();
  // With Open::create the version is written again even if the tables are there: better that an
  // unwritable file or directory shows now than after the first measurement.
  if (open == Open::create || pragma(db, path_, "PRAGMA user_version") == 0) {
    Transaction transaction(db, path_);
    if (pragma(db, path_, "PRAGMA user_version") == 0) {
      execute(db, path_, schema());
      execute(db, path_, fmt::format("PRAGMA application_id = {}", application_id));
    }
    execute(db, path_, fmt::format("PRAGMA user_version = {}", store_format));
    transaction.commit();
  }
}

// Format 1 knew no processes and no protocol.
void Store::upgrade() {
  Transaction transaction(db_.get(), path_);
  if (pragma(db_.get(), path_, "PRAGMA user_version") != 1) return;  // another program was faster
  for (const char* column :
       {"process_ms TEXT NOT NULL DEFAULT '[]'", "process_pack_ms TEXT NOT NULL DEFAULT '[]'",
        "protocol INTEGER NOT NULL DEFAULT 1"})
    execute(db_.get(), path_, fmt::format("ALTER TABLE candidate ADD COLUMN {}", column));
  execute(db_.get(), path_, fmt::format("PRAGMA user_version = {}", store_format));
  transaction.commit();
}

Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

std::filesystem::path Store::default_path() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value ? value : "";
  };
  if (const std::string path = variable("CONVLAB_DB"); !path.empty()) return path;
  std::filesystem::path cache = variable("XDG_CACHE_HOME");
  if (!cache.is_absolute()) {  // the XDG specification says to ignore a relative one
    const std::string home = variable("HOME");
    if (home.empty()) return {};
    cache = std::filesystem::path(home) / ".cache";
  }
  return cache / "convlab" / "tune.db";
}

Store::Found Store::lookup(const ConvProblem& problem, CacheMode cache, const DeviceInfo& device,
                           const AlgoInfo& algo) const {
  StoreRow wanted;
  wanted.problem = problem;
  wanted.fingerprint = convlab::fingerprint(device, algo);
  wanted.candidate.algo = algo.id;
  wanted.candidate.threads = device.threads;
  wanted.candidate.cache = cache;

  Statement select(db_.get(), path_,
                   fmt::format("SELECT {} FROM candidate WHERE {} ORDER BY id",
                               fmt::join(all_names(), ", "), key_condition(lookup_fields)));
  const RawRow key = to_raw(wanted);
  int field_number = 0;
  visit_key(key, [&](const char*, const auto& field) {
    if (++field_number <= lookup_fields) select.bind(field);
  });

  Found found;
  while (select.step()) try {
      RawRow raw;
      int column = -1;
      visit_all(raw, [&](const char*, auto& field) { select.get(++column, field); });
      if (raw.version == algo.version && raw.protocol == measuring_protocol) {
        found.candidates.push_back(from_raw(raw).candidate);
        found.dates.push_back(raw.date);
      } else {
        ++found.stale;
      }
    } catch (const InputError& e) {
      throw damaged(path_, e.what());
    }
  return found;
}

void Store::record(const ConvProblem& problem, const DeviceInfo& device, const AlgoInfo& algo,
                   const Candidate& candidate) {
  put({.problem = problem,
       .fingerprint = convlab::fingerprint(device, algo),
       .candidate = candidate,
       .commit = build_info().commit,
       .date = now()});
}

void Store::put(const StoreRow& row) {
  Transaction transaction(db_.get(), path_);
  insert(db_.get(), path_, row);
  transaction.commit();
}

void Store::record(const std::vector<StoreRow>& rows) {
  Transaction transaction(db_.get(), path_);
  const std::string date = now();
  for (StoreRow row : rows) {
    row.commit = build_info().commit;
    row.date = date;
    insert(db_.get(), path_, row);
  }
  transaction.commit();
}

std::vector<Candidate> Store::worst_errors(DType dtype) const {
  Statement select(db_.get(), path_,
                   "SELECT algo, config, max(rel_error) FROM candidate WHERE dtype = ? AND "
                   "predicted = 0 AND rel_error > 0 GROUP BY algo, config");
  select.bind(std::string(to_string(dtype)));
  std::vector<Candidate> worst;
  while (select.step()) try {
      std::string config;
      Candidate& c = worst.emplace_back();
      select.get(0, c.algo);
      select.get(1, config);
      select.get(2, c.rel_error);
      c.config = Config::parse(config);
    } catch (const InputError& e) {
      throw damaged(path_, e.what());
    }
  return worst;
}

// A table of its own, made when there is something to put in: programs that do not know it read
// the store as before.
std::vector<Roof> Store::roofs(const DeviceInfo& device) const {
  std::vector<Roof> roofs;
  if (pragma(db_.get(), path_, "SELECT count(*) FROM sqlite_master WHERE name = 'roof'") == 0)
    return roofs;
  Statement select(db_.get(), path_,
                   "SELECT level, what, threads, measured, per_second, noise, date FROM roof "
                   "WHERE fingerprint = ? ORDER BY id");
  select.bind(convlab::fingerprint(device, {}));
  while (select.step()) try {
      Roof roof;
      std::int64_t threads = 0, measured = 0;
      select.get(0, roof.level);
      select.get(1, roof.what);
      select.get(2, threads);
      select.get(3, measured);
      select.get(4, roof.per_second);
      select.get(5, roof.noise);
      select.get(6, roof.date);
      roof.threads = int(threads);
      roof.measured = measured != 0;
      roofs.push_back(std::move(roof));
    } catch (const InputError& e) {
      throw damaged(path_, e.what());
    }
  return roofs;
}

void Store::record(const DeviceInfo& device, const std::vector<Roof>& roofs) {
  const std::string machine = convlab::fingerprint(device, {}), date = now();
  Transaction transaction(db_.get(), path_);
  execute(db_.get(), path_,
          "CREATE TABLE IF NOT EXISTS roof (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, "
          "level TEXT NOT NULL, what TEXT NOT NULL, threads INTEGER NOT NULL, "
          "measured INTEGER NOT NULL, per_second REAL NOT NULL, noise REAL NOT NULL, "
          "date TEXT NOT NULL)");
  Statement(db_.get(), path_, "DELETE FROM roof WHERE fingerprint = ?").bind(machine).step();
  Statement insert(db_.get(), path_,
                   "INSERT INTO roof (fingerprint, level, what, threads, measured, per_second, "
                   "noise, date) VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  for (const Roof& roof : roofs) {
    insert.bind(machine).bind(roof.level).bind(roof.what).bind(std::int64_t(roof.threads));
    insert.bind(std::int64_t(roof.measured)).bind(roof.per_second).bind(roof.noise).bind(date);
    insert.step();
    insert.reset();
  }
  transaction.commit();
}

std::vector<StoreRow> Store::rows() const {
  std::vector<StoreRow> rows;
  for (auto& [id, row] : read_rows(db_.get(), path_)) rows.push_back(std::move(row));
  return rows;
}

std::int64_t Store::size() const {
  return pragma(db_.get(), path_, "SELECT count(*) FROM candidate");
}

std::vector<std::string> Store::verify() const {
  std::vector<std::string> problems = problems_of(db_.get(), path_, "PRAGMA integrity_check");
  if (problems.empty()) read_rows(db_.get(), path_, &problems);
  return problems;
}

Store::Merged Store::merge(const Store& other) { return merge(other.rows()); }

Store::Merged Store::merge(const std::vector<StoreRow>& rows) {
  Merged merged;
  Transaction transaction(db_.get(), path_);
  Statement select(
      db_.get(), path_,
      fmt::format("SELECT date FROM candidate WHERE {}", key_condition(key_names().size())));
  for (const StoreRow& row : rows) {
    const RawRow raw = to_raw(row);
    visit_key(raw, [&](const char*, const auto& field) { select.bind(field); });
    std::optional<std::string> date;
    if (select.step()) select.get(0, date.emplace());
    select.reset();
    if (date && *date >= row.date) {
      ++merged.kept;
      continue;
    }
    insert(db_.get(), path_, row);
    ++(date ? merged.replaced : merged.added);
  }
  transaction.commit();
  return merged;
}

std::int64_t Store::prune(const std::function<bool(const StoreRow&)>& drop) {
  Transaction transaction(db_.get(), path_);
  Statement statement(db_.get(), path_, "DELETE FROM candidate WHERE id = ?");
  std::int64_t count = 0;
  for (const auto& [id, row] : read_rows(db_.get(), path_))
    if (drop(row)) {
      statement.bind(id).step();
      statement.reset();
      ++count;
    }
  transaction.commit();
  return count;
}

}  // namespace convlab
