#include "autotune/store/store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "autotune/measure/ceilings.h"
#include "conv/error.h"
#include "tests/autotune/store_lab.h"
#include "tests/autotune/store_rows.h"

namespace convlab {
namespace {

using std::string_literals::operator""s;

// ---- Stored data and their keys.

// Format 1 lacked three columns and, like format 2, the checksum.
TEST_F(StoreTest, BringsAnOlderFormatUpAndHoldsItsRowsStale) {
  AlgoInfo algo;
  algo.id = "winograd";
  algo.version = 3;
  Store(file()).record(problem_, device_, algo, candidate(algo));
  sql(file(), "ALTER TABLE candidate DROP COLUMN checksum");
  for (const char* column : {"process_ms", "process_pack_ms", "protocol"})
    sql(file(), fmt::format("ALTER TABLE candidate DROP COLUMN {}", column));
  sql(file(), "PRAGMA user_version = 1");

  const Store store(file(), Store::Open::existing);
  ASSERT_EQ(store.rows().size(), 1u);
  EXPECT_EQ(store.rows()[0].candidate.ms, 1.5);
  EXPECT_EQ(store.rows()[0].protocol, 1);
  EXPECT_TRUE(store.verify().empty());
  const Store::Found found = store.lookup(problem_, CacheMode::hot, device_, algo);
  EXPECT_TRUE(found.candidates.empty());
  EXPECT_EQ(found.stale, 1);
}

// A file created by a program of format 2, or upgraded by one: its columns are in another order.
TEST_F(StoreTest, BringsFormat2UpWithAllItsRows) {
  for (const bool was_format_1 : {false, true}) {
    const fs::path path = directory_ / (was_format_1 ? "altered.db" : "made.db");
    {
      Store store(path);
      for (int i = 0; i < 3; ++i) store.put(numbered_row(0, i));
      store.record(device_, std::vector<Roof>{{"memory", "copy", 2, true, 3e10, 0.02, ""}});
    }
    sql(path, "ALTER TABLE candidate DROP COLUMN checksum");
    sql(path,
        "DROP TABLE roof; CREATE TABLE roof (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, "
        "level TEXT NOT NULL, what TEXT NOT NULL, threads INTEGER NOT NULL, measured INTEGER NOT "
        "NULL, per_second REAL NOT NULL, noise REAL NOT NULL, date TEXT NOT NULL)");
    sql(path, fmt::format("INSERT INTO roof VALUES (1, '{}', 'memory', 'copy', 2, 1, 3e10, 0.02, "
                          "'2026-01-01T00:00:00.000Z')",
                          fingerprint(device_, {})));
    if (was_format_1)
      sql(path,
          "ALTER TABLE candidate DROP COLUMN process_ms;"
          "ALTER TABLE candidate DROP COLUMN process_pack_ms;"
          "ALTER TABLE candidate DROP COLUMN protocol;"
          "ALTER TABLE candidate ADD COLUMN process_ms TEXT NOT NULL DEFAULT '[]';"
          "ALTER TABLE candidate ADD COLUMN process_pack_ms TEXT NOT NULL DEFAULT '[]';"
          "ALTER TABLE candidate ADD COLUMN protocol INTEGER NOT NULL DEFAULT 1");
    sql(path, "PRAGMA user_version = 2");
    const Store store(path, Store::Open::existing);
    const auto rows = store.rows();
    ASSERT_EQ(rows.size(), 3u);
    for (int i = 0; i < 3; ++i) expect_same(rows[std::size_t(i)], numbered_row(0, i));
    EXPECT_EQ(store.roofs(device_).size(), 1u);
    EXPECT_TRUE(store.verify().empty());
  }
}

TEST_F(StoreTest, KeepsAMachinesRoofs) {
  const std::vector<Roof> roofs{{"registers", "f32", 2, true, 1.5e11, 0.01, ""},
                                {"memory", "copy", 2, true, 3e10, 0.02, ""}};
  Store store(file());
  EXPECT_TRUE(store.roofs(device_).empty());
  store.record(device_, {roofs.front()});
  store.record(device_, roofs);  // replaces the others
  const std::vector<Roof> found = Store(file(), Store::Open::existing).roofs(device_);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].level, "memory");
  EXPECT_EQ(found[1].what, "copy");
  EXPECT_EQ(found[1].threads, 2);
  EXPECT_EQ(found[1].per_second, 3e10);
  EXPECT_EQ(found[1].noise, 0.02);
  EXPECT_NE(found[1].date, "");
  DeviceInfo other = device_;
  other.isa = "avx2";
  EXPECT_TRUE(store.roofs(other).empty());
  EXPECT_TRUE(store.verify().empty());
}

TEST_F(StoreTest, GivesBackEveryFieldOfACandidate) {
  const AlgoInfo algo{.id = "winograd", .version = 3, .summary = "", .libraries = {}};
  Candidate c = candidate(algo);
  c.x_layout = Layout::nchw;
  c.y_layout = Layout::nchw16c;
  c.cache = CacheMode::cold;
  c.status = Status::inaccurate;
  c.reason = "rel_error 'inf' is above the limit; \"quoted\"";
  c.deterministic = true;
  c.predicted = true;
  c.mad_ms = 0.1;
  c.pack_ms = 0.2;
  c.convert_ms = 0.3;
  c.eff_gflops = 400.5;
  c.exec_gflops = 200.25;
  c.rel_error = std::numeric_limits<double>::infinity();
  c.sampled_error = true;
  c.workspace_bytes = std::int64_t(1) << 40;
  c.packed_filter_bytes = 4096;
  c.samples_ms = {0.1, 1.0 / 3, 1e-300};
  c.process_ms = {0.1, 0.2};
  c.process_pack_ms = {0, 1.0 / 3};
  Store(file()).record(problem_, device_, algo, c);

  const auto found = Store(file()).lookup(problem_, CacheMode::cold, device_, algo);
  ASSERT_EQ(found.candidates.size(), 1u);
  const Candidate& got = found.candidates[0];
  EXPECT_EQ(got.algo, c.algo);
  EXPECT_EQ(got.version, c.version);
  EXPECT_EQ(got.config, c.config);
  EXPECT_EQ(got.x_layout, c.x_layout);
  EXPECT_EQ(got.y_layout, c.y_layout);
  EXPECT_EQ(got.threads, c.threads);
  EXPECT_EQ(got.cache, c.cache);
  EXPECT_EQ(got.status, c.status);
  EXPECT_EQ(got.reason, c.reason);
  EXPECT_EQ(got.deterministic, c.deterministic);
  EXPECT_EQ(got.predicted, c.predicted);
  EXPECT_EQ(got.ms, c.ms);
  EXPECT_EQ(got.mad_ms, c.mad_ms);
  EXPECT_EQ(got.pack_ms, c.pack_ms);
  EXPECT_EQ(got.convert_ms, c.convert_ms);
  EXPECT_EQ(got.eff_gflops, c.eff_gflops);
  EXPECT_EQ(got.exec_gflops, c.exec_gflops);
  EXPECT_EQ(got.rel_error, c.rel_error);
  EXPECT_EQ(got.sampled_error, c.sampled_error);
  EXPECT_EQ(got.workspace_bytes, c.workspace_bytes);
  EXPECT_EQ(got.packed_filter_bytes, c.packed_filter_bytes);
  EXPECT_EQ(got.samples_ms, c.samples_ms);
  EXPECT_EQ(got.process_ms, c.process_ms);
  EXPECT_EQ(got.process_pack_ms, c.process_pack_ms);
}

TEST_F(StoreTest, FindsARowOnlyUnderItsOwnKey) {
  const AlgoInfo algo{.id = "direct", .summary = "", .libraries = {}};
  Store store(file());
  store.record(problem_, device_, algo, candidate(algo));
  const auto found = [&](const ConvProblem& p, const DeviceInfo& d, CacheMode cache,
                         const AlgoInfo& a) {
    return store.lookup(p, cache, d, a).candidates.size();
  };
  EXPECT_EQ(found(problem_, device_, CacheMode::hot, algo), 1u);
  EXPECT_EQ(found(problem_, device_, CacheMode::cold, algo), 0u);
  EXPECT_EQ(found(problem_, device_, CacheMode::hot, {.id = "fft", .summary = "", .libraries = {}}),
            0u);

  std::vector<ConvProblem> others(6, problem_);
  others[0].pass = Pass::backward_data;
  others[1].dtype = DType::f64;
  others[2].epilogue.activation = ActivationKind::relu;
  others[3].accumulate = true;
  others[4].n = 2;
  others[5].pad_h = 0;
  for (const ConvProblem& p : others) EXPECT_EQ(found(p, device_, CacheMode::hot, algo), 0u);
  ConvProblem layouts = problem_;  // the candidate has them
  layouts.x_layout = Layout::nhwc;
  EXPECT_EQ(found(layouts, device_, CacheMode::hot, algo), 1u);

  std::vector<DeviceInfo> devices(5, device_);
  devices[0].threads = 1;
  devices[1].isa = "avx2";
  devices[2].name = "another CPU";
  devices[3].l2_bytes = 1 << 20;
  devices[4].kind = DeviceKind::cuda;
  for (const DeviceInfo& d : devices) EXPECT_EQ(found(problem_, d, CacheMode::hot, algo), 0u);
}

TEST_F(StoreTest, ReplacesARowOfTheSameKeyAndKeepsOthers) {
  const AlgoInfo algo{.id = "direct", .summary = "", .libraries = {}};
  Store store(file());
  Candidate c = candidate(algo);
  store.record(problem_, device_, algo, c);
  c.ms = 2.5;
  store.record(problem_, device_, algo, c);
  c.config = {{"tile", 6}};
  store.record(problem_, device_, algo, c);
  c.y_layout = Layout::nhwc;
  store.record(problem_, device_, algo, c);
  EXPECT_EQ(store.size(), 3);
  EXPECT_EQ(store.lookup(problem_, CacheMode::hot, device_, algo).candidates[0].ms, 2.5);
}

TEST_F(StoreTest, ANewVersionMakesOnlyThatAlgorithmsRowsStale) {
  AlgoInfo winograd{.id = "winograd", .summary = "", .libraries = {}};
  const AlgoInfo direct{.id = "direct", .summary = "", .libraries = {}};
  Store store(file());
  store.record(problem_, device_, winograd, candidate(winograd));
  store.record(problem_, device_, direct, candidate(direct));
  winograd.version = 2;
  const auto stale = store.lookup(problem_, CacheMode::hot, device_, winograd);
  EXPECT_TRUE(stale.candidates.empty());
  EXPECT_EQ(stale.stale, 1);
  const auto fresh = store.lookup(problem_, CacheMode::hot, device_, direct);
  EXPECT_EQ(fresh.candidates.size(), 1u);
  EXPECT_EQ(fresh.stale, 0);
}

TEST_F(StoreTest, ANewLibraryConcernsOnlyTheAlgorithmsThatUseIt) {
  const AlgoInfo im2col{.id = "im2col", .summary = "", .libraries = {"blas"}};
  const AlgoInfo fft{.id = "fft", .summary = "", .libraries = {"fftw"}};
  const AlgoInfo direct{.id = "direct", .summary = "", .libraries = {}};
  Store store(file());
  for (const AlgoInfo& a : {im2col, fft, direct}) store.record(problem_, device_, a, candidate(a));
  device_.libraries["blas"] = "1.1";
  EXPECT_TRUE(store.lookup(problem_, CacheMode::hot, device_, im2col).candidates.empty());
  EXPECT_EQ(store.lookup(problem_, CacheMode::hot, device_, fft).candidates.size(), 1u);
  EXPECT_EQ(store.lookup(problem_, CacheMode::hot, device_, direct).candidates.size(), 1u);
}

// ---- Moving rows between stores.

TEST_F(StoreTest, MergeTakesWhatIsNewOrNewer) {
  Store ours(file()), theirs(directory_ / "theirs.db");
  StoreRow row = numbered_row(0, 1);
  const auto with = [&](int number, const char* date, double ms) {
    row = numbered_row(0, number);
    row.date = date;
    row.candidate.ms = ms;
    return row;
  };
  ours.put(with(1, "2026-01-02T00:00:00.000Z", 1));
  ours.put(with(2, "2026-01-02T00:00:00.000Z", 1));
  ours.put(with(3, "2026-01-02T00:00:00.000Z", 1));
  ours.put(with(5, "9999-12-31T00:00:00.000Z", 1));  // from a clock that was ahead
  theirs.put(with(1, "2026-01-01T23:59:59.999Z", 2));
  theirs.put(with(2, "2026-01-02T00:00:00.001Z", 2));
  theirs.put(with(4, "2026-01-01T00:00:00.000Z", 2));
  theirs.put(with(5, "2026-01-01T00:00:00.000Z", 2));
  const auto merged = ours.merge(theirs);
  EXPECT_EQ(merged.added, 1);
  EXPECT_EQ(merged.replaced, 2);
  EXPECT_EQ(merged.kept, 1);
  std::map<std::int64_t, double> ms;
  for (const StoreRow& r : ours.rows()) ms[r.candidate.config.get("number")] = r.candidate.ms;
  EXPECT_EQ(ms, (std::map<std::int64_t, double>{{1, 1}, {2, 2}, {3, 1}, {4, 2}, {5, 2}}));
}

TEST_F(StoreTest, JsonHoldsEverything) {
  Store store(file()), copy(directory_ / "copy.db");
  for (int i = 0; i < 5; ++i) store.put(numbered_row(0, i));
  StoreRow failed = numbered_row(0, 5);
  ConvProblem with_epilogue = *failed.problem.conv();
  with_epilogue.epilogue = {.bias = true, .residual = false, .activation = ActivationKind::relu};
  failed.problem = with_epilogue;
  failed.candidate.status = Status::failed;
  failed.candidate.rel_error = std::numeric_limits<double>::infinity();
  store.put(failed);
  EXPECT_EQ(copy.merge(import_json(export_json(store.rows()))).added, 6);
  const auto a = store.rows(), b = copy.rows();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    expect_same(a[i], b[i]);
    EXPECT_EQ(a[i].problem, b[i].problem);
  }
}

// Rows with ReLU keep the text that they have always had; other activations are further words.
TEST_F(StoreTest, EpiloguesHaveATextEach) {
  Store store(file());
  std::set<std::string> texts;
  for (const bool bias : {false, true})
    for (const bool residual : {false, true})
      for (const ActivationKind kind : all_activations) {
        StoreRow row = numbered_row(0, 1);
        ConvProblem p = *row.problem.conv();
        p.epilogue = {bias, residual, kind};
        row.problem = p;
        store.put(row);
        texts.insert(extras_of(p));
        EXPECT_EQ(import_json(export_json({row})).front().problem, row.problem) << extras_of(p);
      }
  EXPECT_EQ(texts.size(), 4 * all_activations.size());
  for (const char* text : {"relu", "bias+relu", "bias+residual+relu", "hardsigmoid", "bias+relu6"})
    EXPECT_TRUE(texts.contains(text)) << text;
  EXPECT_EQ(store.rows().size(), texts.size());
  std::string json = export_json({store.rows().front()});
  const std::string text = extras_of(store.rows().front().problem);
  json.replace(json.find("\"" + text + "\""), text.size() + 2, "\"relu+bias\"");
  EXPECT_THROW(import_json(json), InputError);
}

TEST_F(StoreTest, ImportSaysWhichRowAndFieldIsWrong) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      import_json(text);
      return "";
    } catch (const InputError& e) {
      return e.what();
    }
  };
  std::string good = export_json({numbered_row(0, 1), numbered_row(0, 2)});
  EXPECT_EQ(message(good), "");
  EXPECT_NE(message("{").find("not JSON"), std::string::npos);
  EXPECT_NE(message("[]").find("not an exported tuning store"), std::string::npos);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.rfind(from);  // in the second row
    EXPECT_NE(at, std::string::npos);
    return message(text.replace(at, from.size(), to));
  };
  EXPECT_NE(with("\"ms\": 2.125", "\"ms\": \"fast\"").find("row 1: ms"), std::string::npos);
  EXPECT_NE(with("\"ms\": 2.125", "\"sm\": 2.125").find("row 1: ms"), std::string::npos);
  EXPECT_NE(with("\"ok\"", "\"fine\"").find("row 1: unknown status 'fine'"), std::string::npos);
}

TEST_F(StoreTest, PruneDropsWhatItIsToldTo) {
  Store store(file());
  for (int i = 0; i < 10; ++i) store.put(numbered_row(0, i));
  EXPECT_EQ(
      store.prune([](const StoreRow& r) { return r.candidate.config.get("number") % 2 == 1; }), 5);
  EXPECT_EQ(store.size(), 5);
  for (const StoreRow& r : store.rows()) EXPECT_EQ(r.candidate.config.get("number") % 2, 0);
}

TEST_F(StoreTest, PruneLeavesACopyThatBringsTheRowsBack) {
  Store store(file());
  for (int i = 0; i < 10; ++i) store.put(numbered_row(0, i));
  EXPECT_EQ(store.prune([](const StoreRow&) { return false; }), 0);
  EXPECT_FALSE(fs::exists(store.undo_path()));
  fs::permissions(file(), fs::perms(0600));
  EXPECT_EQ(store.prune([](const StoreRow&) { return true; }), 10);
  EXPECT_EQ(store.size(), 0);
  EXPECT_EQ(fs::status(store.undo_path()).permissions(), fs::perms(0600));
  const Store before(store.undo_path(), Store::Open::existing);
  EXPECT_TRUE(before.verify().empty());
  EXPECT_EQ(store.merge(before).added, 10);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 2);
}

// Nothing is deleted without a copy.
TEST_F(StoreTest, PruneNeedsItsCopy) {
  Store store(file());
  store.put(numbered_row(0, 1));
  fs::create_directories(store.undo_path() / "in the way");
  EXPECT_THROW(store.prune([](const StoreRow&) { return true; }), EnvironmentError);
  EXPECT_EQ(store.size(), 1);
}

TEST(StoreDate, IsOfTheCalendar) {
  EXPECT_EQ(parse_date("2026-01-31"), "2026-01-31T00:00:00.000Z");
  EXPECT_EQ(parse_date("2024-02-29T23:59"), "2024-02-29T23:59:00.000Z");
  EXPECT_EQ(parse_date("2026-01-31T12:00:59.123Z"), "2026-01-31T12:00:59.123Z");
  for (const char* text : {"", "2026", "2026-2-1", "31-12-2025", "2026-13-45", "2026-02-29",
                           "2026-01-00", "2026-01-31T24:00", "2026-01-31T12:60", "2026-01-31 12:00",
                           "2026-01-31T12:00:00.0000", "2026-01-31Z1", "2026-01-3x", "soon"})
    EXPECT_THROW(parse_date(text), InputError) << text;
}

TEST(StorePath, FollowsTheEnvironment) {
  const auto path = [](const char* db, const char* cache, const char* home) {
    const auto set = [](const char* name, const char* value) {
      if (value)
        setenv(name, value, 1);
      else
        unsetenv(name);
    };
    set("CONVLAB_DB", db);
    set("XDG_CACHE_HOME", cache);
    set("HOME", home);
    return Store::default_path().string();
  };
  EXPECT_EQ(path("/a/b.db", "/cache", "/home/me"), "/a/b.db");
  EXPECT_EQ(path(nullptr, "/cache", "/home/me"), "/cache/convlab/tune.db");
  EXPECT_EQ(path("", nullptr, "/home/me"), "/home/me/.cache/convlab/tune.db");
  EXPECT_EQ(path(nullptr, "relative", "/home/me"), "/home/me/.cache/convlab/tune.db");
  EXPECT_EQ(path(nullptr, nullptr, nullptr), "");
}

}  // namespace
}  // namespace convlab
