#include "autotune/store/store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>

#include "autotune/measure/ceilings.h"
#include "autotune/measure/disturbance.h"
#include "autotune/store/build_info.h"
#include "autotune/store/file.h"
#include "autotune/store/row.h"
#include "autotune/store/schema.h"

namespace convlab {
namespace {

std::string now() {
  const auto time = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)), ms.count() % 1000);
}

// "problem"=? AND ...: the first `count` fields of the key.
std::string key_condition(std::size_t count) {
  std::vector<std::string> names = candidate_table().key;
  names.resize(count);
  return fmt::format("{}=?", fmt::join(names, "=? AND "));
}

// Selects each row's fields, and whether its checksum matches.
std::string select_rows(const std::string& condition) {
  const std::string names = candidate_table().names();
  return fmt::format("SELECT id, checksum IS row_sum({}), {} FROM candidate {} ORDER BY id", names,
                     names, condition);
}

struct ReadRow {
  RawRow raw;
  StoreRow row;
};

// Throws InputError for a row that this program cannot have written.
ReadRow read_row(const Statement& select) {
  ReadRow read;
  int column = 1;
  visit_all(read.raw, [&](const char*, auto& field) { select.get(++column, field); });
  read.row = from_raw(read.raw);
  require_date(read.row);
  std::int64_t intact = 0;
  select.get(1, intact);
  if (!intact) throw InputError("its checksum is not that of its values");
  return read;
}

constexpr const char* row_remedy =
    "`convlab db verify` lists the damaged rows, `convlab db prune --damaged` deletes them";

DamagedStore damaged_row(const std::filesystem::path& path, std::int64_t id, const char* how) {
  return DamagedStore(
      fmt::format("{} is damaged (row {}: {}): {}", path.string(), id, how, row_remedy));
}

// All rows with their ids, in order of recording. Damaged ones go to `bad`, or are thrown.
std::vector<std::pair<std::int64_t, StoreRow>> read_rows(
    StoreFile& file, std::vector<std::pair<std::int64_t, std::string>>* bad = nullptr) {
  std::vector<std::pair<std::int64_t, StoreRow>> rows;
  Statement select(file, select_rows(""));
  while (select.step()) {
    std::int64_t id = 0;
    select.get(0, id);
    try {
      rows.emplace_back(id, read_row(select).row);
    } catch (const InputError& e) {
      if (!bad) throw damaged_row(file.path(), id, e.what());
      bad->emplace_back(id, e.what());
    }
  }
  return rows;
}

void insert(StoreFile& file, const StoreRow& row) {
  Statement statement(file, candidate_table().insert());
  const RawRow raw = to_raw(row);
  visit_all(raw, [&](const char*, const auto& field) { statement.bind(field); });
  statement.step();
}

bool has_roofs(StoreFile& file) {
  return file.number("SELECT count(*) FROM sqlite_schema WHERE name = 'roof'") != 0;
}

// SQLite's check itself fails if an index record is truncated, though the rows can be read.
std::vector<std::string> integrity_faults(StoreFile& file) {
  try {
    return file.complaints("PRAGMA integrity_check");
  } catch (const DamagedStore& error) {
    return {error.what()};
  }
}

std::vector<std::int64_t> damaged_roofs(StoreFile& file) {
  std::vector<std::int64_t> ids;
  if (!has_roofs(file)) return ids;
  Statement select(file, fmt::format("SELECT id FROM roof WHERE checksum IS NOT row_sum({})",
                                     roof_table().names()));
  while (select.step()) select.get(0, ids.emplace_back());
  return ids;
}

}  // namespace

std::string fingerprint(const DeviceInfo& device, const AlgoInfo& algo) {
  std::string text = fmt::format("{}={}; isa={}; l1={}; l2={}; l3={}; compiler={}; flags={}",
                                 device.kind == DeviceKind::cpu ? "cpu" : "cuda", device.name,
                                 device.isa, device.l1_bytes, device.l2_bytes, device.l3_bytes,
                                 build_info().compiler, build_info().flags);
  // With one of them algorithms have more configs: such rows are of another device.
  for (const char* const key : {"matrix_unit", "dot_unit"})
    if (const auto unit = device.libraries.find(key); unit != device.libraries.end())
      text += fmt::format("; {}={}", key, unit->second);
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

DeviceKind device_kind(const std::string& fingerprint) {
  return fingerprint.starts_with("cuda=") ? DeviceKind::cuda : DeviceKind::cpu;
}

std::string parse_date(const std::string& text) {
  const InputError wrong(
      fmt::format("'{}': expected a date as in 2026-01-31 or 2026-01-31T12:00", text));
  const std::string given = text.ends_with('Z') ? text.substr(0, text.size() - 1) : text;
  std::string date = "0000-00-00T00:00:00.000";
  if (std::set<std::size_t>{10, 16, 19, 23}.count(given.size()) == 0) throw wrong;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const bool digit = given[i] >= '0' && given[i] <= '9';
    if (date[i] == '0' ? !digit : given[i] != date[i]) throw wrong;
    date[i] = given[i];
  }
  const auto number = [&](std::size_t at, std::size_t count) {
    return unsigned(std::stoul(date.substr(at, count)));
  };
  const std::chrono::year_month_day day{std::chrono::year(int(number(0, 4))),
                                        std::chrono::month(number(5, 2)),
                                        std::chrono::day(number(8, 2))};
  if (!day.ok() || number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 59) throw wrong;
  return date + "Z";
}

Store::Store(std::filesystem::path path, Open open)
    : file_(std::make_unique<StoreFile>(std::filesystem::absolute(path), open)) {
  require_schema();
  if (const auto complaints = file_->complaints("PRAGMA quick_check(1)"); !complaints.empty())
    throw damaged(this->path(), complaints.front());
  const std::int64_t format = file_->number("PRAGMA user_version");
  if (format != 0 && format != store_format) upgrade();
  // With Open::create the version is rewritten even if the tables exist, so that an unwritable file
  // or directory shows now and not after the first measurement.
  if (open == Open::create || format == 0) {
    Transaction transaction(*file_);
    if (file_->number("PRAGMA user_version") == 0) {
      file_->execute(candidate_table().create());
      file_->execute(fmt::format("PRAGMA application_id = {}", store_application_id));
    }
    file_->execute(fmt::format("PRAGMA user_version = {}", store_format));
    transaction.commit();
  }
}

// In one transaction: another process may be making the store, or converting it to this format.
void Store::require_schema() {
  file_->execute("BEGIN");
  const std::int64_t format = file_->number("PRAGMA user_version");
  std::vector<SchemaObject> objects;
  Statement select(*file_, "SELECT type, name, ifnull(sql, '') FROM sqlite_schema");
  while (select.step()) try {
      SchemaObject& object = objects.emplace_back();
      select.get(0, object.type);
      select.get(1, object.name);
      select.get(2, object.sql);
    } catch (const InputError& e) {
      throw damaged(path(), fmt::format("schema: {}", e.what()));
    }
  file_->execute("COMMIT");
  if (format == 0 && objects.empty()) return;
  if (const std::string fault = schema_fault(objects, std::uint32_t(format)); !fault.empty())
    throw damaged(path(), fault);
}

void Store::upgrade() {
  Transaction transaction(*file_);
  const std::int64_t format = file_->number("PRAGMA user_version");
  if (format == store_format) return;  // another program did it first
  std::vector<const StoreTable*> tables{&candidate_table()};
  if (has_roofs(*file_)) tables.push_back(&roof_table());
  for (const StoreTable* table : tables)
    for (const std::string& statement : upgrade_statements(*table, std::uint32_t(format)))
      file_->execute(statement);
  file_->execute(fmt::format("PRAGMA user_version = {}", store_format));
  transaction.commit();
}

Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

const std::filesystem::path& Store::path() const { return file_->path(); }

bool Store::exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) || error;
}

bool Store::is_store(const std::filesystem::path& path) {
  std::error_code error;
  StoreHeader header{};
  return std::filesystem::is_regular_file(path, error) &&
         std::ifstream(path, std::ios::binary).read(header.data(), header.size()) &&
         is_store_header(header);
}

void Store::interrupt_by(const std::atomic<bool>* stop) { file_->interrupt_by(stop); }

int current_protocol() { return disturbances_ignored() ? -measuring_protocol : measuring_protocol; }

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

Store::Found Store::lookup(const Problem& problem, CacheMode cache, const DeviceInfo& device,
                           const AlgoInfo& algo) const {
  StoreRow wanted;
  wanted.problem = problem;
  wanted.fingerprint = convlab::fingerprint(device, algo);
  wanted.candidate.algo = algo.id;
  wanted.candidate.threads = device.threads;
  wanted.candidate.cache = cache;

  Statement select(*file_, select_rows("WHERE " + key_condition(lookup_fields)));
  const RawRow key = to_raw(wanted);
  int field_number = 0;
  visit_key(key, [&](const char*, const auto& field) {
    if (++field_number <= lookup_fields) select.bind(field);
  });

  Found found;
  while (select.step()) {
    std::int64_t id = 0;
    select.get(0, id);
    try {
      ReadRow read = read_row(select);
      if (read.raw.version == algo.version && read.raw.protocol == current_protocol()) {
        found.candidates.push_back(std::move(read.row.candidate));
        found.dates.push_back(std::move(read.row.date));
      } else {
        ++found.stale;
      }
    } catch (const InputError& e) {
      throw damaged_row(path(), id, e.what());
    }
  }
  return found;
}

void Store::record(const Problem& problem, const DeviceInfo& device, const AlgoInfo& algo,
                   const Candidate& candidate) {
  put({.problem = problem,
       .fingerprint = convlab::fingerprint(device, algo),
       .candidate = candidate,
       .commit = build_info().commit,
       .date = now()});
}

void Store::put(const StoreRow& row) {
  Transaction transaction(*file_);
  insert(*file_, row);
  transaction.commit();
}

void Store::record(const std::vector<StoreRow>& rows) {
  Transaction transaction(*file_);
  const std::string date = now();
  for (StoreRow row : rows) {
    row.commit = build_info().commit;
    row.date = date;
    insert(*file_, row);
  }
  transaction.commit();
}

std::vector<Candidate> Store::worst_errors(DType dtype) const {
  // A damaged row is skipped here; functions that read all rows report it.
  Statement select(*file_,
                   fmt::format("SELECT algo, config, max(rel_error) FROM candidate WHERE dtype = ? "
                               "AND predicted = 0 AND rel_error > 0 AND checksum IS row_sum({}) "
                               "GROUP BY algo, config",
                               candidate_table().names()));
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
      throw damaged(path(), e.what());
    }
  return worst;
}

// A separate table, made when there is something to store in it.
std::vector<Roof> Store::roofs(const DeviceInfo& device) const {
  std::vector<Roof> roofs;
  if (!has_roofs(*file_)) return roofs;
  const std::string names = roof_table().names();
  Statement select(*file_, fmt::format("SELECT checksum IS row_sum({}), {} FROM roof "
                                       "WHERE fingerprint = ? ORDER BY id",
                                       names, names));
  select.bind(convlab::fingerprint(device, {}));
  while (select.step()) try {
      Roof roof;
      std::int64_t intact = 0, threads = 0, measured = 0;
      select.get(0, intact);
      select.get(2, roof.level);
      select.get(3, roof.what);
      select.get(4, threads);
      select.get(5, measured);
      select.get(6, roof.per_second);
      select.get(7, roof.noise);
      select.get(8, roof.date);
      if (!intact) throw InputError("a roof's checksum is not that of its values");
      roof.threads = int(threads);
      roof.measured = measured != 0;
      roofs.push_back(std::move(roof));
    } catch (const InputError& e) {
      throw DamagedStore(
          fmt::format("{} is damaged ({}): {}", path().string(), e.what(), row_remedy));
    }
  return roofs;
}

void Store::record(const DeviceInfo& device, const std::vector<Roof>& roofs) {
  const std::string machine = convlab::fingerprint(device, {}), date = now();
  Transaction transaction(*file_);
  if (!has_roofs(*file_)) file_->execute(roof_table().create());
  Statement(*file_, "DELETE FROM roof WHERE fingerprint = ?").bind(machine).step();
  Statement insert(*file_, roof_table().insert());
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
  for (auto& [id, row] : read_rows(*file_)) rows.push_back(std::move(row));
  return rows;
}

std::int64_t Store::size() const { return file_->number("SELECT count(*) FROM candidate"); }

std::vector<std::string> Store::verify() const {
  std::vector<std::string> all = integrity_faults(*file_);
  if (!all.empty()) return all;
  std::vector<std::pair<std::int64_t, std::string>> bad;
  read_rows(*file_, &bad);
  for (const auto& [id, how] : bad) all.push_back(fmt::format("row {}: {}", id, how));
  for (const std::int64_t id : damaged_roofs(*file_))
    all.push_back(fmt::format("roof {}: its checksum is not that of its values", id));
  return all;
}

Store::Merged Store::merge(const Store& other) { return merge(other.rows()); }

Store::Merged Store::merge(const std::vector<StoreRow>& rows) {
  Merged merged;
  // A clock that was ahead must not protect its rows for ever: a future date counts as the oldest.
  const auto credible = [today = now()](const std::string& date) {
    return date > today ? std::string() : date;
  };
  Transaction transaction(*file_);
  Statement select(*file_, fmt::format("SELECT date FROM candidate WHERE {}",
                                       key_condition(candidate_table().key.size())));
  for (const StoreRow& row : rows) {
    const RawRow raw = to_raw(row);
    visit_key(raw, [&](const char*, const auto& field) { select.bind(field); });
    std::optional<std::string> date;
    if (select.step()) select.get(0, date.emplace());
    select.reset();
    if (date && credible(*date) >= credible(row.date)) {
      ++merged.kept;
      continue;
    }
    insert(*file_, row);
    ++(date ? merged.replaced : merged.added);
  }
  transaction.commit();
  return merged;
}

std::filesystem::path Store::undo_path() const { return path().string() + ".undo"; }

// Rows that another process writes after the copy was made have other ids, and stay.
std::int64_t Store::prune(const std::function<bool(const StoreRow&)>& drop) {
  std::vector<std::int64_t> ids;
  for (const auto& [id, row] : read_rows(*file_))
    if (drop(row)) ids.push_back(id);
  if (ids.empty()) return 0;
  file_->copy_to(undo_path());
  Transaction transaction(*file_);
  Statement statement(*file_, "DELETE FROM candidate WHERE id = ? RETURNING id");
  std::int64_t count = 0;
  for (const std::int64_t id : ids) {
    count += statement.bind(id).step();
    statement.reset();
  }
  transaction.commit();
  return count;
}

// DELETE looks a row up in the index, which may disagree if damaged. So the sound rows are copied
// to a new table instead.
Store::Pruned Store::prune_damaged() {
  if (verify().empty()) return {};
  const bool rebuilt = !integrity_faults(*file_).empty();
  file_->copy_to(undo_path());
  Transaction transaction(*file_);
  std::vector<std::pair<std::int64_t, std::string>> bad;
  read_rows(*file_, &bad);
  std::vector<std::int64_t> ids;
  for (const auto& [id, how] : bad) ids.push_back(id);
  const std::vector<std::int64_t> roofs = damaged_roofs(*file_);
  const auto keep_others = [&](const StoreTable& table, const std::vector<std::int64_t>& dropped) {
    for (const std::string& statement :
         {fmt::format("ALTER TABLE {0} RENAME TO damaged_{0}", table.name), table.create(),
          fmt::format(
              "INSERT OR REPLACE INTO {0} SELECT * FROM damaged_{0} NOT INDEXED WHERE id NOT "
              "IN ({1})",
              table.name, fmt::join(dropped, ", ")),
          fmt::format("DROP TABLE damaged_{}", table.name)})
      file_->execute(statement);
  };
  keep_others(candidate_table(), ids);
  if (!roofs.empty()) keep_others(roof_table(), roofs);
  transaction.commit();
  return {std::int64_t(ids.size() + roofs.size()), rebuilt};
}

}  // namespace convlab
