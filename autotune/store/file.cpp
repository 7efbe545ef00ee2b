#include "autotune/store/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "conv/error.h"

namespace convlab {
namespace {

using Json = nlohmann::json;

constexpr const char* remedy = "move it away, or name another store with --db or CONVLAB_DB";

// Between two calls of on_progress.
constexpr int steps_a_look = 100'000;

std::uint32_t big_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::uint8_t(bytes[i]);
  return value;
}

bool is_sqlite(const StoreHeader& header) {
  return std::memcmp(header.data(), "SQLite format 3", 16) == 0;
}

std::string as_utf8(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
      .get<std::string>();
}

// row_sum(a, b, ...): CRC-32 of the values with their types.
void row_sum(sqlite3_context* context, int count, sqlite3_value** values) {
  uLong sum = crc32(0, nullptr, 0);
  const auto add = [&](const void* bytes, std::size_t size) {
    sum = crc32(sum, static_cast<const Bytef*>(bytes), uInt(size));
  };
  for (int i = 0; i < count; ++i) {
    const int type = sqlite3_value_type(values[i]);
    add(&type, sizeof type);
    if (type == SQLITE_INTEGER) {
      const sqlite3_int64 v = sqlite3_value_int64(values[i]);
      add(&v, sizeof v);
    } else if (type == SQLITE_FLOAT) {
      const double v = sqlite3_value_double(values[i]);
      add(&v, sizeof v);
    } else {
      const void* const bytes = sqlite3_value_blob(values[i]);
      const int size = sqlite3_value_bytes(values[i]);
      add(&size, sizeof size);
      if (size > 0) add(bytes, std::size_t(size));
    }
  }
  sqlite3_result_int64(context, sqlite3_int64(sum));
}

}  // namespace

bool is_store_header(const StoreHeader& header) {
  return is_sqlite(header) && big_endian(&header[68]) == store_application_id;
}

DamagedStore damaged(const std::filesystem::path& path, std::string_view how) {
  return DamagedStore(fmt::format("{} is damaged ({}): {}", path.string(), how, remedy));
}

void StoreFile::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

StoreFile::StoreFile(std::filesystem::path path, Store::Open open) : path_(std::move(path)) {
  const bool create = open == Store::Open::create;
  struct stat status {};
  const int error = stat(path_.c_str(), &status) == 0 ? 0 : errno;
  if (error == ENOENT && !create)
    throw InputError(
        fmt::format("there is no tuning store {}: `convlab tune` makes one, --db or "
                    "CONVLAB_DB name another",
                    path_.string()));
  if (error != 0 && error != ENOENT)
    throw InputError(
        fmt::format("{} cannot be opened ({}): name another store with --db or "
                    "CONVLAB_DB",
                    path_.string(), std::strerror(error)));
  if (error == 0 && !S_ISREG(status.st_mode))
    throw InputError(fmt::format("{} is {}: name a file with --db or CONVLAB_DB", path_.string(),
                                 S_ISDIR(status.st_mode) ? "a directory" : "no regular file"));
  if (create) {
    std::error_code failed;
    std::filesystem::create_directories(path_.parent_path(), failed);
    if (failed)
      throw EnvironmentError(
          fmt::format("cannot make the directory {} ({}): name another store with "
                      "--db or CONVLAB_DB",
                      path_.parent_path().string(), failed.message()));
  }
  sqlite3* db = nullptr;
  const int rc = sqlite3_open_v2(
      path_.c_str(), &db, SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0), nullptr);
  db_.reset(db);
  if (rc != SQLITE_OK) fail();
  require_header();
  distrust();
}

StoreFile::~StoreFile() = default;

// Checks the file's first bytes before any statement runs, since the first one would roll back a
// foreign file's journal. Reads through SQLite's own handle: closing another one would drop this
// process's locks on the file. An empty file is valid: a process killed while it made a store
// leaves one.
void StoreFile::require_header() {
  sqlite3_file* file = nullptr;
  sqlite3_int64 size = 0;
  StoreHeader header{};
  if (sqlite3_file_control(db_.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
      file->pMethods->xFileSize(file, &size) != SQLITE_OK)
    fail();
  if (size == 0) return;
  if (file->pMethods->xRead(file, header.data(), int(header.size()), 0) != SQLITE_OK ||
      !is_sqlite(header))
    throw InputError(
        fmt::format("{} is not a tuning store (no SQLite file): {}", path_.string(), remedy));
  if (!is_store_header(header))
    throw InputError(fmt::format("{} is not a tuning store (another program's SQLite file): {}",
                                 path_.string(), remedy));
  if (const std::uint32_t version = big_endian(&header[60]); version == 0 || version > store_format)
    throw InputError(
        fmt::format("{} has format {}, this program reads {}: use the program that "
                    "wrote it, or {}",
                    path_.string(), version, store_format, remedy));
}

// https://sqlite.org/security.html
void StoreFile::distrust() {
  for (const auto& [option, on] :
       {std::pair(SQLITE_DBCONFIG_DEFENSIVE, 1), std::pair(SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        std::pair(SQLITE_DBCONFIG_ENABLE_TRIGGER, 0), std::pair(SQLITE_DBCONFIG_ENABLE_VIEW, 0),
        std::pair(SQLITE_DBCONFIG_DQS_DML, 0), std::pair(SQLITE_DBCONFIG_DQS_DDL, 0)})
    if (sqlite3_db_config(db_.get(), option, on, nullptr) != SQLITE_OK) fail();
  sqlite3_busy_handler(db_.get(), on_busy, this);
  sqlite3_progress_handler(db_.get(), steps_a_look, on_progress, this);
  if (sqlite3_create_function_v2(db_.get(), "row_sum", -1,
                                 SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, nullptr,
                                 row_sum, nullptr, nullptr, nullptr) != SQLITE_OK)
    fail();
  execute("PRAGMA cell_size_check = ON");
}

// After Ctrl-C it still waits briefly, so that measured results are stored.
int StoreFile::on_busy(void* self, int tries) {
  StoreFile& file = *static_cast<StoreFile*>(self);
  const auto now = std::chrono::steady_clock::now();
  if (tries == 0) file.busy_since_ = now;
  const std::chrono::seconds patience(file.stop_ && *file.stop_ ? 3 : 60);
  if (now - file.busy_since_ > patience) return 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(5 * (tries + 1), 100)));
  return 1;
}

// A row takes less than two steps per byte, and is read a few times.
int StoreFile::on_progress(void* self) {
  StoreFile& file = *static_cast<StoreFile*>(self);
  if (file.stop_ && *file.stop_) return 1;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file.path_, error);
  return ++file.looks_ > 100 + (error ? 0 : std::int64_t(bytes / 1000));
}

void StoreFile::fail() const {
  const char* const message = sqlite3_errmsg(db_.get());
  switch (sqlite3_errcode(db_.get())) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      throw damaged(path_, message);
    case SQLITE_READONLY:
      if (sqlite3_extended_errcode(db_.get()) == SQLITE_READONLY_DBMOVED)
        throw EnvironmentError(
            fmt::format("{} was removed or replaced while it was open", path_.string()));
      [[fallthrough]];
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      throw EnvironmentError(fmt::format(
          "{} cannot be written ({}): make it and its directory writable, or name another store "
          "with --db or CONVLAB_DB",
          path_.string(), message));
    case SQLITE_BUSY:
      throw EnvironmentError(fmt::format(
          "{} was locked by another process for {:.0f} s", path_.string(),
          std::chrono::duration<double>(std::chrono::steady_clock::now() - busy_since_).count()));
    case SQLITE_INTERRUPT:
      if (stop_ && *stop_) throw StoreInterrupted(fmt::format("{}: interrupted", path_.string()));
      throw damaged(path_, "it takes more steps than a store of its size");
    default:
      throw EnvironmentError(fmt::format("{}: {}", path_.string(), message));
  }
}

void StoreFile::execute(const std::string& sql) {
  Statement statement(*this, sql);
  while (statement.step()) {
  }
}

std::int64_t StoreFile::number(const std::string& query) {
  Statement statement(*this, query);
  std::int64_t value = 0;
  if (statement.step()) statement.get(0, value);
  return value;
}

std::vector<std::string> StoreFile::complaints(const std::string& pragma) {
  std::vector<std::string> all;
  Statement statement(*this, pragma);
  for (std::string text; statement.step(); all.push_back(text)) statement.get(0, text);
  if (all == std::vector<std::string>{"ok"}) all.clear();
  return all;
}

// Uses SQLite's own copy: closing another descriptor on the file would drop this process's locks.
// The copy has the original's read permissions.
void StoreFile::copy_to(const std::filesystem::path& target) {
  const std::string temporary = fmt::format("{}.{}.tmp", target.string(), getpid());
  const auto require = [&](bool fine, const char* why) {
    if (fine) return;
    const std::string reason = why;
    unlink(temporary.c_str());
    throw EnvironmentError(
        fmt::format("cannot copy {} to {}: {}", path_.string(), target.string(), reason));
  };
  struct stat status {};
  require(stat(path_.c_str(), &status) == 0, std::strerror(errno));
  unlink(temporary.c_str());
  const int file =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, status.st_mode & 0777);
  require(file >= 0, std::strerror(errno));
  close(file);
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(temporary.c_str(), &raw, SQLITE_OPEN_READWRITE, nullptr);
  std::unique_ptr<sqlite3, Close> copy(raw);
  require(opened == SQLITE_OK, sqlite3_errmsg(raw));
  sqlite3_backup* const backup = sqlite3_backup_init(raw, "main", db_.get(), "main");
  require(backup != nullptr, sqlite3_errmsg(raw));
  sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  require(finished == SQLITE_OK, sqlite3_errstr(finished));
  copy.reset();
  require(std::rename(temporary.c_str(), target.c_str()) == 0, std::strerror(errno));
}

Statement::Statement(StoreFile& file, const std::string& sql) : file_(file) {
  file.looks_ = 0;
  if (sqlite3_prepare_v2(file.db_.get(), sql.c_str(), int(sql.size()), &statement_, nullptr) !=
      SQLITE_OK)
    file.fail();
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(const std::string& v) {
  const std::string text = as_utf8(v);
  return check(sqlite3_bind_text64(statement_, ++bound_, text.data(), text.size(), SQLITE_TRANSIENT,
                                   SQLITE_UTF8));
}
Statement& Statement::bind(std::int64_t v) {
  return check(sqlite3_bind_int64(statement_, ++bound_, v));
}
Statement& Statement::bind(double v) { return check(sqlite3_bind_double(statement_, ++bound_, v)); }
Statement& Statement::bind(const std::vector<double>& v) { return bind(Json(v).dump()); }

bool Statement::step() {
  const int rc = sqlite3_step(statement_);
  if (rc != SQLITE_ROW && rc != SQLITE_DONE) file_.fail();
  return rc == SQLITE_ROW;
}

void Statement::reset() {
  sqlite3_reset(statement_);
  bound_ = 0;
}

void Statement::get(int column, std::string& v) const {
  require(column, SQLITE_TEXT);
  v.assign(reinterpret_cast<const char*>(sqlite3_column_text(statement_, column)),
           std::size_t(sqlite3_column_bytes(statement_, column)));
  if (as_utf8(v) != v) throw InputError(fmt::format("{} is not UTF-8", name(column)));
}
void Statement::get(int column, std::int64_t& v) const {
  require(column, SQLITE_INTEGER);
  v = sqlite3_column_int64(statement_, column);
}
void Statement::get(int column, double& v) const {
  require(column, SQLITE_FLOAT);
  v = sqlite3_column_double(statement_, column);
}
void Statement::get(int column, std::vector<double>& v) const {
  std::string text;
  get(column, text);
  try {
    v = Json::parse(text).get<std::vector<double>>();
  } catch (const Json::exception&) {
    throw InputError(fmt::format("{} is no list of numbers", name(column)));
  }
}

std::string Statement::name(int column) const { return sqlite3_column_name(statement_, column); }

void Statement::require(int column, int type) const {
  if (sqlite3_column_type(statement_, column) != type)
    throw InputError(fmt::format("{} has a value of the wrong type", name(column)));
}

Statement& Statement::check(int rc) {
  if (rc != SQLITE_OK) file_.fail();
  return *this;
}

Transaction::~Transaction() {
  if (!done_) sqlite3_exec(file_.db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  file_.execute("COMMIT");
  done_ = true;
}

}  // namespace convlab
