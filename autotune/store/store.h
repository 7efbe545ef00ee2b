// The tuning store: every candidate's result, kept across runs in one SQLite file.
//
// One transaction per candidate, so that a killed run loses no finished candidate. Several
// processes may write at once: rollback journal (a write-ahead log would not work over NFS),
// immediate transactions, a busy timeout. A row is found again by its key:
//   sizes, pass, data type, layouts, epilogue (of a recurrent layer: training, recompute), threads,
//   cache mode, machine, algorithm, version, config.
// Error and workspace limits are not part of the key: they filter rows. The commit is not either:
// it is provenance.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/result.h"
#include "autotune/roof.h"
#include "conv/algo.h"
#include "conv/error.h"

namespace convlab {

class StoreFile;

// Format of the file and of the JSON form; raise it when a field is added, removed or redefined.
inline constexpr std::uint32_t store_format = 3;
inline constexpr std::uint32_t store_json_format = 2;

inline constexpr std::uint32_t store_application_id = 0x434C4254;  // "CLBT", as `file` shows it

// A store whose bytes or schema are not as this program writes them.
class DamagedStore : public InputError {
 public:
  using InputError::InputError;
};

// Thrown when the flag that Store::interrupt_by was given is set.
class StoreInterrupted : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// The machine properties that decide an algorithm's speed: CPU, ISA in force, caches, compiler and
// flags (for a card: compute capability, multiprocessors, CUDA and driver), and the versions of the
// libraries that this algorithm uses. Text: "cpu=...; isa=avx512; ...; onednn=2.6.3".
std::string fingerprint(const DeviceInfo&, const AlgoInfo&);
DeviceKind device_kind(const std::string& fingerprint);

// Completes a date given by its beginning, "2026-01-31", "2026-01-31T12:00" and so on, optionally
// followed by Z, to the full form of the rows. Throws InputError for an invalid date.
std::string parse_date(const std::string& text);

// The protocol of rows that this process writes and reads: measuring_protocol, or its negative if
// disturbances are ignored, so that other runs never use unmonitored results.
int current_protocol();

// One row. The candidate's layouts are the row's; the problem's layouts, if it has any, are the
// same.
struct StoreRow {
  Problem problem;
  std::string fingerprint;
  Candidate candidate;
  int protocol = current_protocol();  // used to measure it
  std::string commit;                 // of the program that measured it
  std::string date;                   // UTC, "2026-01-31T23:59:59.999Z": compares as text
};

// All members throw DamagedStore for a file that is damaged, InputError for one that is foreign,
// and EnvironmentError when it cannot be written, stays locked, was removed, or the disk is full.
// All messages name the file.
class Store {
 public:
  enum class Open : std::uint8_t {
    create,    // makes the file, and the directories above it, when there is none
    existing,  // throws when there is none
  };
  // The file is inspected before it is modified. It stays unchanged, to the byte, if it is not a
  // store, was written by a newer version, fails SQLite's integrity check, or has foreign tables,
  // triggers or views. A file of an older format is converted to this one; its rows stay.
  explicit Store(std::filesystem::path, Open = Open::create);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  // $CONVLAB_DB, else $XDG_CACHE_HOME/convlab/tune.db, else ~/.cache/convlab/tune.db; empty if HOME
  // is not set either.
  static std::filesystem::path default_path();
  // Whether something exists there: a store, or a file that Store's constructor rejects.
  static bool exists(const std::filesystem::path&);
  static bool is_store(const std::filesystem::path&);  // by its first bytes
  const std::filesystem::path& path() const;

  // When *stop becomes true, a long statement throws StoreInterrupted, and none waits long for
  // another process. Writing a row is short.
  void interrupt_by(const std::atomic<bool>* stop);

  struct Found {
    std::vector<Candidate> candidates;  // all layouts and configs, of this version
    std::vector<std::string> dates;     // when each was recorded
    std::int64_t stale = 0;             // rows of other versions or protocols, left out
  };
  // The rows of one algorithm on this problem (its layouts are ignored), with the device's number
  // of threads.
  Found lookup(const Problem&, CacheMode, const DeviceInfo&, const AlgoInfo&) const;

  // Stores a candidate and replaces any with the same key. It is on disk on return. Commit and date
  // are filled in.
  void record(const Problem&, const DeviceInfo&, const AlgoInfo&, const Candidate&);
  void put(const StoreRow&);
  // Stores all of one problem's race in one transaction with one date. From that date, lookup()
  // tells which candidates ran in the same processes.
  void record(const std::vector<StoreRow>&);

  // The largest measured error of every algorithm and config of a type: algo, config and rel_error
  // are set.
  std::vector<Candidate> worst_errors(DType) const;

  // The machine's roofs (autotune/roof.h) with the ISA in force, as last recorded; empty if they
  // never were. They are not exported or merged: measuring them takes seconds.
  std::vector<Roof> roofs(const DeviceInfo&) const;
  void record(const DeviceInfo&, const std::vector<Roof>&);

  // Every row, in order of recording.
  std::vector<StoreRow> rows() const;
  std::int64_t size() const;

  // Faults, one line each; empty: none. Runs SQLite's integrity check, then checks every row's
  // values and its checksum.
  std::vector<std::string> verify() const;

  struct Merged {
    std::int64_t added = 0, replaced = 0, kept = 0;
  };
  // Copies in the rows of another store; if both have a key the newer date wins. All or nothing.
  Merged merge(const Store& other);
  Merged merge(const std::vector<StoreRow>&);

  // Deletes the rows for which `drop` returns true, all or none, and returns how many. The previous
  // store is then in undo_path(), unless nothing was deleted.
  std::int64_t prune(const std::function<bool(const StoreRow&)>& drop);
  struct Pruned {
    std::int64_t removed = 0;
    bool rebuilt = false;  // the index, because SQLite's check found a fault
  };
  // The same for the rows in which verify() finds a fault. A damaged index is rebuilt.
  Pruned prune_damaged();
  std::filesystem::path undo_path() const;

 private:
  void require_schema();
  void upgrade();
  std::unique_ptr<StoreFile> file_;
};

// Rows as JSON text and back. Throws InputError that names the faulty row and field.
std::string export_json(const std::vector<StoreRow>&);
std::vector<StoreRow> import_json(const std::string& text);

}  // namespace convlab
