// Stores that are damaged, not ours, inaccessible, or written by several processes at once.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "autotune/measure/ceilings.h"
#include "autotune/store/file.h"
#include "conv/error.h"
#include "tests/autotune/store_lab.h"
#include "tests/autotune/store_rows.h"

namespace convlab {
namespace {

using std::string_literals::operator""s;

// ---- Invalid files.

TEST_F(StoreTest, LeavesForeignFilesUntouched) {
  write_bytes(file(), "dear diary\n");
  expect_rejected(file(), "no SQLite file");

  std::mt19937 random(1);
  std::string noise(8192, '\0');
  for (char& c : noise) c = char(random());
  write_bytes(file(), noise);
  expect_rejected(file(), "no SQLite file");

  const fs::path browser = directory_ / "places.sqlite";
  sql(browser, "CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')");
  expect_rejected(browser, "another program's");

  // SQLite would roll this one back at its first read.
  for (int i = 0; i < 9; ++i)
    sql(browser, "INSERT INTO bookmarks SELECT 'xxxxxxxx' FROM bookmarks");
  sql(browser, "INSERT INTO bookmarks SELECT a.url FROM bookmarks a, bookmarks b LIMIT 9999");
  const fs::path killed = half_written(browser, "UPDATE bookmarks SET url = 'torn'");
  const std::string journal = read_bytes(killed.string() + "-journal");
  expect_rejected(killed, "another program's");
  EXPECT_TRUE(read_bytes(killed.string() + "-journal") == journal);

  fs::create_directory(directory_ / "folder");
  EXPECT_THROW(Store(directory_ / "folder"), InputError);
}

TEST_F(StoreTest, LeavesANewerFormatUntouched) {
  Store(file()).put(numbered_row(0, 1));
  sql(file(), "PRAGMA user_version = 4");
  expect_rejected(file(), "format 4");
}

TEST_F(StoreTest, LeavesDamagedFilesUntouched) {
  {
    Store store(file());
    for (int i = 0; i < 100; ++i) store.put(numbered_row(0, i));
  }
  const std::string whole = read_bytes(file());
  for (const std::size_t bytes : {50ul, 3000ul, 4096ul, whole.size() / 2, whole.size() - 4096}) {
    write_bytes(file(), whole.substr(0, bytes));
    expect_rejected(file(), bytes < 100 ? "no SQLite file" : "damaged");
  }
  std::mt19937 random(2);
  std::string noisy = whole;
  for (std::size_t i = 4096; i < noisy.size(); ++i) noisy[i] = char(random());
  write_bytes(file(), noisy);
  expect_rejected(file(), "damaged");

  write_bytes(file(), whole);
  EXPECT_EQ(Store(file()).size(), 100);
}

TEST_F(StoreTest, VerifyNamesRowsWithImpossibleValues) {
  Store store(file());
  for (int i = 0; i < 4; ++i) store.put(numbered_row(0, i));
  EXPECT_TRUE(store.verify().empty());
  sql(file(), "UPDATE candidate SET status = 'splendid' WHERE id = 2");
  sql(file(), "UPDATE candidate SET samples_ms = 'many' WHERE id = 3");
  sql(file(), "UPDATE candidate SET ms = -1 WHERE id = 4");
  const auto problems = store.verify();
  ASSERT_EQ(problems.size(), 3u) << fmt::format("{}", fmt::join(problems, "\n"));
  EXPECT_EQ(problems[0].rfind("row 2: unknown status 'splendid'", 0), 0u) << problems[0];
  EXPECT_EQ(problems[1], "row 3: samples_ms is no list of numbers");
  EXPECT_EQ(problems[2].rfind("row 4: ", 0), 0u) << problems[2];
  EXPECT_THROW(store.rows(), DamagedStore);
}

TEST_F(StoreTest, RefusesASchemaOfSomebodyElse) {
  Store(file()).put(numbered_row(0, 1));
  const std::string whole = read_bytes(file());
  const std::string endless =
      "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x FROM t";
  for (const std::string& statement :
       {"CREATE TRIGGER t AFTER INSERT ON candidate BEGIN DELETE FROM candidate; END"s,
        "CREATE TRIGGER t BEFORE INSERT ON candidate BEGIN SELECT RAISE(IGNORE); END"s,
        "ALTER TABLE candidate RENAME TO rows; CREATE VIEW candidate AS " + endless,
        "CREATE VIEW other AS " + endless, "CREATE VIEW roof AS " + endless,
        "CREATE INDEX i ON candidate (abs(ms))"s, "CREATE TABLE other (x)"s,
        "ALTER TABLE candidate DROP COLUMN samples_ms"s,
        "ALTER TABLE candidate ADD COLUMN more TEXT NOT NULL DEFAULT ''"s,
        "ALTER TABLE candidate RENAME COLUMN ms TO msec"s, "DROP TABLE candidate"s,
        "CREATE TABLE roof (id INTEGER PRIMARY KEY)"s}) {
    write_bytes(file(), whole);
    sql(file(), statement);
    expect_rejected(file(), "damaged");
    EXPECT_THROW(Store(file(), Store::Open::existing), DamagedStore) << statement;
  }
}

TEST_F(StoreTest, AStatementTakesNoMoreStepsThanAFileOfItsSizeNeeds) {
  Store(file()).put(numbered_row(0, 1));
  StoreFile opened(file(), Store::Open::existing);
  const std::string endless =
      "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t";
  EXPECT_THROW(opened.execute(endless), DamagedStore);
  const std::atomic<bool> stop = true;
  opened.interrupt_by(&stop);
  EXPECT_THROW(opened.execute(endless), StoreInterrupted);
  EXPECT_EQ(opened.number("SELECT count(*) FROM candidate"), 1);  // a short query still runs
  EXPECT_ANY_THROW(opened.number("SELECT \"no column\" FROM candidate"));
}

TEST_F(StoreTest, VerifyNamesTextThatIsNotUtf8) {
  Store store(file());
  for (int i = 0; i < 2; ++i) store.put(numbered_row(0, i));
  sql(file(), "UPDATE candidate SET reason = CAST(x'636166e9' AS TEXT) WHERE id = 2");
  ASSERT_EQ(store.verify().size(), 1u);
  EXPECT_EQ(store.verify()[0], "row 2: reason is not UTF-8");
  EXPECT_THROW(store.rows(), DamagedStore);

  StoreRow row = numbered_row(0, 1);
  row.candidate.reason = "caf\xe9";
  store.put(row);
  EXPECT_EQ(store.verify().size(), 0u);
  EXPECT_EQ(store.rows().back().candidate.reason, "caf\xef\xbf\xbd");
}

// A flip of any bit in a row's values is noticed, and the other rows can be saved.
TEST_F(StoreTest, AFlippedBitIsNoticed) {
  {
    Store store(file());
    for (int i = 0; i < 3; ++i) store.put(numbered_row(0, i));
    store.record(device_, std::vector<Roof>{{"memory", "copy", 2, true, 3e10, 0.02, ""}});
  }
  const std::string whole = read_bytes(file());
  std::mt19937 random(4);
  const std::size_t row = whole.find("[1.0,1.001");
  ASSERT_NE(row, std::string::npos);
  for (int round = 0; round < 60; ++round) {
    std::string flipped = whole;
    flipped[row + random() % 1000] ^= char(1 << random() % 8);
    write_bytes(file(), flipped);
    Store store(file(), Store::Open::existing);
    ASSERT_EQ(store.verify().size(), 1u) << "round " << round;
    EXPECT_THROW(store.rows(), DamagedStore);
  }
  Store store(file(), Store::Open::existing);
  EXPECT_EQ(store.prune_damaged().removed, 1);
  EXPECT_EQ(store.rows().size(), 2u);
  EXPECT_TRUE(fs::exists(store.undo_path()));

  sql(file(), "UPDATE roof SET per_second = 3.5e10");
  EXPECT_EQ(store.verify().size(), 1u);
  EXPECT_THROW(store.roofs(device_), DamagedStore);
  EXPECT_EQ(store.prune_damaged().removed, 1);
  EXPECT_TRUE(store.verify().empty());
}

// If the index holds another key for a row, the row can be neither looked up nor deleted by its
// key.
TEST_F(StoreTest, RowsGoWhoseKeyWasDamaged) {
  StoreRow row = numbered_row(0, 0);
  row.candidate.algo = "unmistakable";
  {
    Store store(file());
    store.put(numbered_row(0, 1));
    store.put(row);
  }
  const std::string whole = read_bytes(file());
  int damaged = 0;
  for (std::size_t at = 0; (at = whole.find(row.candidate.algo, at)) != std::string::npos; ++at) {
    std::string flipped = whole;
    flipped[at] ^= 1;
    write_bytes(file(), flipped);
    Store store(file(), Store::Open::existing);
    if (store.verify().empty()) continue;  // stale bytes in a reused page
    ++damaged;
    EXPECT_LE(store.prune_damaged().removed, 1);
    EXPECT_TRUE(store.verify().empty()) << store.verify()[0];
    EXPECT_GE(store.size(), 1);
  }
  EXPECT_GE(damaged, 2);  // in the table and in its index
}

// SQLite's own check fails on some of these: those that truncate a record of the index.
TEST_F(StoreTest, ADamagedIndexIsMadeAnewWhereRowsCanBeRead) {
  {
    Store store(file());
    for (int i = 0; i < 3; ++i) store.put(numbered_row(0, i));
  }
  const std::string whole = read_bytes(file());
  const std::size_t page = 4096, index = 2 * page;  // after the schema and the table
  ASSERT_GE(whole.size(), index + page);
  std::mt19937 random(5);
  int made_anew = 0;
  for (int round = 0; round < 300; ++round) {
    std::string flipped = whole;
    flipped[index + random() % page] ^= char(1 << random() % 8);
    write_bytes(file(), flipped);
    try {
      Store store(file(), Store::Open::existing);
      if (store.rows().size() != 3 || store.verify().empty()) continue;
      EXPECT_EQ(store.prune_damaged().removed, 0) << "round " << round;
      EXPECT_TRUE(store.verify().empty()) << "round " << round;
      EXPECT_EQ(store.size(), 3);
      ++made_anew;
    } catch (const DamagedStore& error) {
      EXPECT_THROW(Store(file(), Store::Open::existing).rows(), DamagedStore) << error.what();
    }
  }
  EXPECT_GE(made_anew, 10);
}

TEST_F(StoreTest, NeedsAPlaceToWrite) {
  EXPECT_THROW(Store("/proc/tune.db"), EnvironmentError);
  EXPECT_THROW(Store("/proc/convlab/tune.db"), EnvironmentError);
  write_bytes(directory_ / "plain", "file");
  EXPECT_THROW(Store(directory_ / "plain" / "tune.db"), InputError);
  EXPECT_THROW(Store(file(), Store::Open::existing), InputError);
  EXPECT_FALSE(fs::exists(file()));
  fs::create_symlink("loop_b", directory_ / "loop_a");
  fs::create_symlink("loop_a", directory_ / "loop_b");
  EXPECT_TRUE(Store::exists(directory_ / "loop_a"));
  for (const auto open : {Store::Open::create, Store::Open::existing}) {
    EXPECT_THROW(Store(directory_ / "loop_a", open), InputError);
    EXPECT_THROW(Store("/dev/null", open), InputError);
  }
  Store(directory_ / "new" / "folders" / "tune.db").put(numbered_row(0, 1));
}

// The journal needs a writable directory. The error must come on opening, not after the first
// measurement.
TEST_F(StoreTest, SeesAReadOnlyDirectoryOnOpening) {
  Store(file()).put(numbered_row(0, 1));
  fs::permissions(file(), fs::perms::all);
  fs::permissions(directory_, fs::perms(0555));
  const uid_t user = geteuid();
  ASSERT_EQ(seteuid(user == 0 ? 65534 : user), 0);  // root may write anywhere, nobody may not
  try {
    Store store(file());
    ADD_FAILURE() << "opened";
  } catch (const EnvironmentError& e) {
    EXPECT_NE(std::string(e.what()).find("cannot be written"), std::string::npos) << e.what();
  }
  EXPECT_EQ(Store(file(), Store::Open::existing).size(), 1);
  ASSERT_EQ(seteuid(user), 0);
  fs::permissions(directory_, fs::perms(0755));
}

// ---- Several processes, some of which die.

struct Writer {
  pid_t pid;
  int output;
};

Writer start_writer(const fs::path& path, int writer, int first, int count) {
  const std::string arguments[] = {STORE_WRITER, path.string(), std::to_string(writer),
                                   std::to_string(first), std::to_string(count)};
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl(STORE_WRITER, arguments[0].c_str(), arguments[1].c_str(), arguments[2].c_str(),
          arguments[3].c_str(), arguments[4].c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

// Reads until the writer has printed `lines` numbers in all, or has ended; returns how many it has
// printed.
int listen(const Writer& writer, int heard, int lines) {
  for (char c; heard < lines && ::read(writer.output, &c, 1) == 1;) heard += c == '\n';
  return heard;
}

constexpr int until_its_end = std::numeric_limits<int>::max();

TEST_F(StoreTest, FourWritersLoseNothing) {
  constexpr int count = 40;
  std::vector<Writer> writers;
  for (int w = 0; w < 4; ++w) writers.push_back(start_writer(file(), w, 0, count));
  for (const Writer& writer : writers) {
    EXPECT_EQ(listen(writer, 0, until_its_end), count);
    close(writer.output);
    int status = 0;
    waitpid(writer.pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const Store store(file());
  EXPECT_TRUE(store.verify().empty());
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (const StoreRow& r : store.rows()) {
    const auto number = r.candidate.config.get("number");
    seen.emplace(r.candidate.algo, number);
    expect_same(r, numbered_row(r.candidate.algo.back() - '0', int(number)));
  }
  EXPECT_EQ(seen.size(), 4u * count);
}

// Half of the rounds start without a file, and some processes are killed before the first row is
// written, so that creating a file is interrupted too.
TEST_F(StoreTest, SurvivesKillAtAnyMoment) {
  std::mt19937 random(3);
  int next = 0;
  for (int round = 0; round < 40; ++round) {
    const bool fresh = round % 2 == 0;
    const fs::path path = fresh ? directory_ / fmt::format("fresh{}.db", round) : file();
    const int first = fresh ? 0 : next;
    const Writer writer = start_writer(path, 7, first, 100'000);
    int acknowledged = listen(writer, 0, int(random() % 8));
    std::this_thread::sleep_for(
        std::chrono::microseconds(random() % (acknowledged == 0 ? 30'000 : 3'000)));
    kill(writer.pid, SIGKILL);
    acknowledged = listen(writer, acknowledged, until_its_end);
    close(writer.output);
    waitpid(writer.pid, nullptr, 0);

    const Store store(path);
    ASSERT_TRUE(store.verify().empty()) << "round " << round;
    const auto rows = store.rows();
    // The row being written at the kill may be on disk without having been acknowledged.
    const int expected = first + acknowledged;
    ASSERT_GE(int(rows.size()), expected);
    ASSERT_LE(int(rows.size()), expected + 1);
    for (std::size_t i = 0; i < rows.size(); ++i) expect_same(rows[i], numbered_row(7, int(i)));
    if (!fresh) next = int(rows.size());
  }
  EXPECT_GT(next, 0);
}

TEST_F(StoreTest, RollsBackAHalfWrittenTransaction) {
  {
    Store store(file());
    for (int i = 0; i < 50; ++i) store.put(numbered_row(0, i));
  }
  const fs::path copy =
      half_written(file(), "UPDATE candidate SET samples_ms = 'torn', status = 'torn'");
  const Store store(copy);
  EXPECT_TRUE(store.verify().empty());
  const auto rows = store.rows();
  ASSERT_EQ(rows.size(), 50u);
  for (int i = 0; i < 50; ++i) expect_same(rows[std::size_t(i)], numbered_row(0, i));
}

}  // namespace
}  // namespace convlab
