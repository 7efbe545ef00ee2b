// Shared by the store's tests: a store in its own directory, and access to its file.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "autotune/store/store.h"
#include "conv/error.h"

namespace convlab {

namespace fs = std::filesystem;

inline std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline void expect_same(const StoreRow& a, const StoreRow& b) {
  EXPECT_EQ(to_text(a.problem), to_text(b.problem));
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.commit, b.commit);
  EXPECT_EQ(a.date, b.date);
  EXPECT_EQ(a.candidate.algo, b.candidate.algo);
  EXPECT_EQ(a.candidate.config, b.candidate.config);
  EXPECT_EQ(a.candidate.status, b.candidate.status);
  EXPECT_EQ(a.candidate.reason, b.candidate.reason);
  EXPECT_EQ(a.candidate.ms, b.candidate.ms);
  EXPECT_EQ(a.candidate.rel_error, b.candidate.rel_error);
  EXPECT_EQ(a.candidate.samples_ms, b.candidate.samples_ms);
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string name = (fs::temp_directory_path() / "convlab_store_XXXXXX").string();
    directory_ = mkdtemp(name.data());
    device_.name = "test CPU";
    device_.isa = "avx512";
    device_.threads = 2;
    device_.libraries = {{"blas", "1.0"}, {"fftw", "3.3"}};
  }
  ~StoreTest() override { fs::remove_all(directory_); }

  fs::path file() const { return directory_ / "tune.db"; }

  // Runs SQL on the file as any other program would.
  void sql(const fs::path& path, const std::string& text) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(db, text.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
    sqlite3_close(db);
  }

  // A copy of the file as left by a process killed while committing this statement: half-written
  // pages, and beside it the journal to undo them.
  fs::path half_written(const fs::path& path, const std::string& statement) {
    const std::string before = read_bytes(path);
    const fs::path copy = directory_ / "killed.db";
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    // A cache of one page makes SQLite write changes to the file before the commit.
    const std::string text = "PRAGMA cache_size = 1; BEGIN IMMEDIATE;" + statement;
    EXPECT_EQ(sqlite3_exec(db, text.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    fs::copy(path, copy);
    fs::copy(path.string() + "-journal", copy.string() + "-journal");
    sqlite3_close(db);
    EXPECT_FALSE(read_bytes(copy) == before) << "nothing was written: the test shows nothing";
    return copy;
  }

  // Opening throws an InputError that names the file, and changes neither the file nor its
  // directory.
  void expect_rejected(const fs::path& path, const std::string& because) {
    const std::string before = read_bytes(path);
    const auto count = std::distance(fs::directory_iterator(directory_), {});
    for (const auto open : {Store::Open::create, Store::Open::existing}) try {
        Store store(path, open);
        ADD_FAILURE() << "opened " << path;
      } catch (const InputError& e) {
        EXPECT_NE(std::string(e.what()).find(path.string()), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find(because), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find("CONVLAB_DB"), std::string::npos) << e.what();
      }
    EXPECT_TRUE(read_bytes(path) == before) << "changed " << path;
    EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), count);
  }

  fs::path directory_;
  DeviceInfo device_;
  const ConvProblem problem_ = parse_problem("mb1ic64ih56oc64oh56kh3ph1").problem;
};

inline Candidate candidate(const AlgoInfo& algo) {
  Candidate c;
  c.algo = algo.id;
  c.version = algo.version;
  c.threads = 2;
  c.config = {{"tile", 4}};
  c.ms = 1.5;
  return c;
}

}  // namespace convlab
