// The tuning store: what every candidate did, remembered across runs in one SQLite file.
//
// One transaction a candidate, so that a killed run loses nothing that ended. Several processes may
// write at once: rollback journal (a write-ahead log would not work over NFS), immediate
// transactions, a busy timeout. A row is found again by its key:
//   sizes, pass, data type, layouts, epilogue, threads, cache mode, machine, algorithm, version,
//   config.
// Error and workspace limits are no part of it: they filter rows. Nor is the commit: it is
// provenance.
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

// Of the file and of the JSON form; raise both when a field comes, goes or changes its meaning.
inline constexpr std::uint32_t store_format = 3;
inline constexpr std::uint32_t store_json_format = 2;

inline constexpr std::uint32_t store_application_id = 0x434C4254;  // "CLBT", as `file` shows it

// A store, but its bytes or its schema are not as this program writes them.
class DamagedStore : public InputError {
 public:
  using InputError::InputError;
};

// Thrown when the flag that Store::interrupt_by was given is set.
class StoreInterrupted : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// What besides the problem decides how fast an algorithm is: CPU, ISA in force, caches, compiler
// and flags (of a card: compute capability, multiprocessors, CUDA and driver), and the versions of
// the libraries that this algorithm uses, and of no others. Text: "cpu=...; isa=avx512; ...;
// onednn=2.6.3".
std::string fingerprint(const DeviceInfo&, const AlgoInfo&);
DeviceKind device_kind(const std::string& fingerprint);

// A date from its beginning on, "2026-01-31", "2026-01-31T12:00" and so on, perhaps with a Z behind
// it: in full, as rows have it. Throws InputError for what is no date of the calendar.
std::string parse_date(const std::string& text);

// Of the rows that this process writes and looks for: measuring_protocol, or its negative where
// disturbances are ignored, so that what nobody watched over is known to no other run.
int current_protocol();

// One row. The candidate's layouts are the row's; the problem's layouts are the same.
struct StoreRow {
  ConvProblem problem;
  std::string fingerprint;
  Candidate candidate;
  int protocol = current_protocol();  // by which it was measured
  std::string commit;                 // of the program that measured it
  std::string date;                   // UTC, "2026-01-31T23:59:59.999Z": compares as text
};

// All members throw DamagedStore for a file that is damaged, InputError for one that is foreign,
// EnvironmentError when it cannot be written, stays locked, the disk is full, or somebody removed
// it; all name the file.
class Store {
 public:
  enum class Open : std::uint8_t {
    create,    // makes the file, and the directories above it, when there is none
    existing,  // throws when there is none
  };
  // The file is looked at before it is touched: one that is not a store, or was written by a newer
  // version, or fails SQLite's integrity check, or has tables, triggers or views of somebody else,
  // stays as it is, to the byte. One of an older format is brought to this one; its rows stay.
  explicit Store(std::filesystem::path, Open = Open::create);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  // $CONVLAB_DB, else $XDG_CACHE_HOME/convlab/tune.db, else ~/.cache/convlab/tune.db; empty
  // where HOME is not set either.
  static std::filesystem::path default_path();
  // Whether something is there: a store, or what Store's constructor says why it is none.
  static bool exists(const std::filesystem::path&);
  static bool is_store(const std::filesystem::path&);  // by its first bytes
  const std::filesystem::path& path() const;

  // When *stop becomes true, a statement that takes long throws StoreInterrupted, and none waits
  // long for another process. Writing a row is short.
  void interrupt_by(const std::atomic<bool>* stop);

  struct Found {
    std::vector<Candidate> candidates;  // all layouts and configs, of this version
    std::vector<std::string> dates;     // of each, when it was recorded
    std::int64_t stale = 0;             // rows of other versions or protocols, left out
  };
  // What is known of one algorithm on this problem (its layouts are ignored), with the device's
  // number of threads.
  Found lookup(const ConvProblem&, CacheMode, const DeviceInfo&, const AlgoInfo&) const;

  // Remembers a candidate, in place of any with the same key. It is on disk on return. Commit and
  // date are filled in.
  void record(const ConvProblem&, const DeviceInfo&, const AlgoInfo&, const Candidate&);
  void put(const StoreRow&);
  // All of one problem's race, in one transaction and with one date, by which lookup() shows who
  // ran in the same processes.
  void record(const std::vector<StoreRow>&);

  // Every algorithm, config and type of which an error was measured, with the largest: algo, config
  // and rel_error are set.
  std::vector<Candidate> worst_errors(DType) const;

  // The machine's roofs (autotune/roof.h) with the ISA in force, as last recorded;
  // empty when they never were. They are not exported or merged: measuring them takes seconds.
  std::vector<Roof> roofs(const DeviceInfo&) const;
  void record(const DeviceInfo&, const std::vector<Roof>&);

  // Every row, in order of recording.
  std::vector<StoreRow> rows() const;
  std::int64_t size() const;

  // What is wrong, one line each; empty: nothing. SQLite's integrity check, then every row's values
  // and its checksum.
  std::vector<std::string> verify() const;

  struct Merged {
    std::int64_t added = 0, replaced = 0, kept = 0;
  };
  // Takes over the rows of another; where both have a key the newer date wins. All or nothing.
  Merged merge(const Store& other);
  Merged merge(const std::vector<StoreRow>&);

  // Deletes the rows for which `drop` says so, all or none, and returns how many. What the store
  // was before is in undo_path() then, unless there was nothing to delete.
  std::int64_t prune(const std::function<bool(const StoreRow&)>& drop);
  struct Pruned {
    std::int64_t removed = 0;
    bool rebuilt = false;  // the index: SQLite's check had found something
  };
  // The same, of the rows in which verify() finds something wrong. A damaged index is made anew.
  Pruned prune_damaged();
  std::filesystem::path undo_path() const;

 private:
  void require_schema();
  void upgrade();
  std::unique_ptr<StoreFile> file_;
};

// Rows as JSON text and back. Throws InputError that says which row and field is wrong.
std::string export_json(const std::vector<StoreRow>&);
std::vector<StoreRow> import_json(const std::string& text);

}  // namespace convlab
