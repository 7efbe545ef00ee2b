// The command line and its files: tuning stores and outputs.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/options/options.h"
#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

using nlohmann::json;

TEST_F(ProgramTest, ASecondRunResumesFromTheStore) {
  // A single candidate, because noise between several may trigger another race.
  const Words command{"tune",    tiny,     "--pass",   "fwd",  "--threads", "1",
                      "--algos", "im2col", "--layout", "nchw", "--format",  "json"};
  const Ran first = run(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_FALSE(contains(first.err, "resuming")) << first.err;
  const Ran second = run(command);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(contains(second.err, "resuming")) << second.err;
  EXPECT_EQ(json::parse(first.out)["layers"], json::parse(second.out)["layers"]);
  const Ran fresh = run(command + Words{"--fresh"});
  EXPECT_EQ(fresh.exit_code, 0);
  EXPECT_FALSE(contains(fresh.err, "resuming")) << fresh.err;
}

TEST_F(ProgramTest, TheStoreIsWhereItIsSaidToBe) {
  EXPECT_EQ(tune().exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "tune.db"));  // CONVLAB_DB
  EXPECT_EQ(tune({"--db", directory_ / "other.db"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "other.db"));
  EXPECT_EQ(run({"tune", tiny, "--pass", "fwd", "--algos", "im2col"},
                {{"CONVLAB_DB", ""}, {"XDG_CACHE_HOME", directory_ / "cache"}})
                .exit_code,
            0);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "cache" / "convlab" / "tune.db"));
}

TEST_F(ProgramTest, AStoreThatCannotBeUsedIsNamedAndLeftAlone) {
  write_file(directory_ / "tune.db", "this is no store");
  const Ran foreign = tune();
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_EQ(lines(foreign.err), 1) << foreign.err;
  EXPECT_TRUE(contains(foreign.err, "tune.db")) << foreign.err;
  EXPECT_EQ(read_file(directory_ / "tune.db"), "this is no store");
  const Ran unwritable = tune({"--db", "/proc/convlab/tune.db"});
  EXPECT_EQ(unwritable.exit_code, 3);
  EXPECT_EQ(lines(unwritable.err), 1) << unwritable.err;
  EXPECT_TRUE(contains(unwritable.err, "/proc/convlab")) << unwritable.err;
}

TEST_F(ProgramTest, OutputIsWrittenWholeOrNotAtAll) {
  const std::string file = directory_ / "table.csv";
  write_file(file, "old");
  EXPECT_EQ(run({"tune", "resnet19", "--output", file}).exit_code, 2);
  EXPECT_EQ(read_file(file), "old");
  const Ran ran = tune({"--format", "csv", "--output", file});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(contains(read_file(file), "layer,problem")) << read_file(file);
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
}

// A suffix that is not a format of any verb is just part of the name.
TEST_F(ProgramTest, ASuffixNamesAFormatThatTheVerbHas) {
  const std::string prints = "': this verb prints table, csv, json, md",
                    formats = prints + ", not hpp: expected another",
                    of_list = prints + ", problems, not hpp: expected another";
  for (const Words& verb : {Words{"list"}, Words{"check", tiny}, Words{"bench", tiny},
                            Words{"sweep", tiny, "-a", "n=1"}, Words{"time", "lenet"},
                            Words{"plan", "lenet"}, Words{"doctor"}, Words{"db", "show"}}) {
    const Ran ran = run(verb + Words{"--output", directory_ / "x.hpp"});
    EXPECT_EQ(ran.exit_code, 2) << verb[0];
    EXPECT_EQ(lines(ran.err), 1) << ran.err;
    EXPECT_TRUE(contains(ran.err, "convlab: --output: '")) << ran.err;
    EXPECT_TRUE(contains(ran.err, verb[0] == "list" ? of_list : formats)) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "x.hpp")) << verb[0];
  }
  const Ran csv = run({"explain", tiny, "--output", directory_ / "x.csv"});
  EXPECT_EQ(csv.exit_code, 2);
  EXPECT_TRUE(contains(csv.err, "prints table, json, md, not csv")) << csv.err;
  const Ran rows = run({"db", "export", "--output", directory_ / "x.csv"});
  EXPECT_EQ(rows.exit_code, 2);
  EXPECT_TRUE(contains(rows.err, "prints json, not csv")) << rows.err;

  EXPECT_EQ(run({"list", "--output", directory_ / "x.hpp", "--format", "md"}).exit_code, 0);
  EXPECT_TRUE(read_file(directory_ / "x.hpp").starts_with("| algo |"));
  EXPECT_EQ(run({"list", "--output", directory_ / "x.txt"}).exit_code, 0);
  EXPECT_TRUE(read_file(directory_ / "x.txt").starts_with("algo "));
}

TEST_F(ProgramTest, DbCarriesRowsFromStoreToStore) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string other = directory_ / "other.db", file = directory_ / "rows.json";
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
  EXPECT_EQ(run({"db", "export", "--output", file}).exit_code, 0);
  EXPECT_EQ(run({"db", "import", file, "--db", other}).exit_code, 0);
  const auto rows = [&](const Words& more) {
    const Ran ran = run(Words{"db", "show", "--format", "json"} + more);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return rows_of(ran.out);
  };
  const json here = rows({});
  ASSERT_GE(here.size(), 1u);
  EXPECT_EQ(rows({std::string(tiny) + "n\"any name\"", "--pass", "fwd"}), here);
  EXPECT_EQ(rows({tiny, "--pass", "bwd_d"}).size(), 0u);
  EXPECT_EQ(rows({"--dtype", "f32"}), here);
  EXPECT_EQ(rows({"--dtype", "bf16"}).size(), 0u);
  EXPECT_EQ(rows({strided}).size(), 0u);
  std::istringstream table(run({"db", "show"}).out);
  for (std::string line; std::getline(table, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_TRUE(contains(run({"db", "show", "--wide"}).out, "rel_error"));
  EXPECT_EQ(rows({"--db", other}), here);
  const Ran merged = run({"db", "merge", other});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_TRUE(contains(merged.out, std::to_string(here.size()) + " kept")) << merged.out;
  json former = json::parse(read_file(file));
  former["rows"][0]["protocol"] = 1;
  write_file(file, former.dump());
  const std::string third = directory_ / "third.db";
  EXPECT_EQ(run({"db", "import", file, "--db", third}).exit_code, 0);
  const Ran dry = run({"db", "prune", "--stale", "--dry-run", "--db", third});
  EXPECT_TRUE(contains(dry.out, "1 of ")) << dry.out;
  EXPECT_TRUE(contains(run({"db", "prune", "--stale", "--db", third}).out, " 1 row removed ("));
  EXPECT_EQ(rows({"--db", third}).size() + 1, here.size());
  EXPECT_EQ(run({"db", "merge", third + ".undo", "--db", third}).exit_code, 0);
  EXPECT_EQ(rows({"--db", third}).size(), here.size());
  // A family's name matches its algorithms, including those of other builds.
  former["rows"][0]["algo"] = "elsewhere.direct";
  write_file(file, former.dump());
  EXPECT_EQ(run({"db", "import", file}).exit_code, 0);
  EXPECT_EQ(rows({"--algos", "elsewhere"}).size(), 1u);
  for (const char* verb : {"show", "prune"}) {
    const Ran unknown = run({"db", verb, "--algos", "else"});
    EXPECT_EQ(unknown.exit_code, 2) << unknown.out;
    EXPECT_TRUE(contains(unknown.err, "unknown algorithm 'else': expected one of ")) << unknown.err;
  }
  EXPECT_TRUE(contains(run({"db", "show", "--format", "csv"}).out, ",status,predicted,ms,"));
  EXPECT_TRUE(contains(run({"db", "prune", "--dtype", "f64"}).out, "nothing matched"));
  EXPECT_EQ(run({"db", "prune", "--algos", "im2col"}).exit_code, 0);
  EXPECT_EQ(rows({"--algos", "im2col"}).size(), 0u);
  const Ran none = run({"db", "prune", "--algos", "im2col"});
  EXPECT_TRUE(contains(none.out, "nothing matched")) << none.out;
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "not an exported tuning store"},
           {"{\n  \"rows\": [x]}",
            "rows.json: line 2, column 12: not JSON (invalid literal): expected"},
           {"", "line 1, column 1: not JSON (unexpected end of input)"}}) {
    write_file(file, text);
    const Ran bad = run({"db", "import", file});
    EXPECT_EQ(bad.exit_code, 2);
    EXPECT_TRUE(contains(bad.err, says)) << bad.err;
    EXPECT_FALSE(contains(bad.err, "json.exception")) << bad.err;
  }
  write_file(file, "{}");
  EXPECT_TRUE(contains(run({"db", "merge", file}).err, "`convlab db import`"));
}

// Both backends fill the store. A build knows the algorithms of one or of both.
TEST_F(ProgramTest, StaleRowsAreNotThoseOfAnotherDevice) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string file = directory_ / "rows.json", other = directory_ / "other.db";
  ASSERT_EQ(run({"db", "export", "--output", file}).exit_code, 0);
  json rows = json::parse(read_file(file));
  json& row = rows["rows"][0];
  Algos algos;
  append_all_algos(algos);
  for (const ConvAlgo* algo : algos.conv.for_device(DeviceKind::cuda)) {
    const ConvAlgo* const same = algos.conv.find(DeviceKind::cpu, algo->info().id);
    if (same && same->info().version == algo->info().version) continue;
    row["algo"] = algo->info().id;
    row["version"] = algo->info().version;
  }
  row["fingerprint"] = "cuda=" + row["fingerprint"].get<std::string>();
  write_file(file, rows.dump());
  ASSERT_EQ(run({"db", "import", file, "--db", other}).exit_code, 0);
  const Ran ran = run({"db", "prune", "--stale", "--db", other});
  EXPECT_TRUE(contains(ran.out, "nothing matched: 0 of ")) << ran.out;
}

TEST_F(ProgramTest, AStoreIsNoOutput) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db", fresh = directory_ / "fresh.db";
  const std::string before = read_file(store);
  for (const Words& words :
       {Words{"db", "export", "--output", store}, Words{"db", "show", "--output", store},
        Words{"list", "--output", store},
        Words{"db", "export", "--db", fresh, "--output", store}}) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_TRUE(contains(ran.err, "tuning store")) << ran.err;
  }
  EXPECT_EQ(read_file(store), before);
  EXPECT_EQ(tune({"--db", fresh, "--output", fresh}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

TEST_F(ProgramTest, NoFileIsReadAndWrittenOrWrittenTwice) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db", list = directory_ / "list",
                    before = directory_ / "before.json", plan = directory_ / "plan.json",
                    fresh = directory_ / "fresh";
  write_file(list, std::string(tiny) + "\n");
  ASSERT_EQ(tune({"--output", before}).exit_code, 0);  // JSON by its suffix
  ASSERT_EQ(run({"plan", "lenet", "--no-audit", "--output", plan}).exit_code, 0);
  std::filesystem::create_symlink(before, directory_ / "link");
  const std::vector<Words> cases{
      {"diff", before, before, "--output", before},
      {"diff", before, before, "--output", directory_ / "link"},
      {"diff", before, before, "--output", directory_.path() / "." / "before.json"},
      {"diff", "--before", before, "--after", before, "--output", before},
      {"list", "@" + list, "--output", list},
      {"time", "lenet", "--plan", plan, "--trace", plan},
      {"time", "lenet", "--trace", fresh, "--output", fresh},
      {"predict", "lenet", "a.png", "--weights", before, "--output", before},
      {"train", "lenet", "--data", "synthetic", "--weights", before, "--log", before},
      {"train", "lenet", "--data", "synthetic", "--checkpoint", fresh, "--log", fresh},
      {"train", "lenet", "--data", "synthetic", "--log", store},
      // None of these exists yet.
      {"train", "lenet", "--data", "synthetic", "--checkpoint", "new", "--log", "./new"},
      {"train", "lenet", "--data", "synthetic", "--checkpoint", fresh, "--log",
       directory_ / "dangling"},
      {"db", "export", "--db", store, "--output", store + "-journal"},
      {"tune", tiny, "--db", "new.db", "--output", "./new.db.undo"},
      {"tune", tiny, "--output", directory_ / "wal"},
  };
  std::filesystem::create_symlink(store + "-wal", directory_ / "wal");
  std::filesystem::create_symlink("fresh", directory_ / "dangling");
  std::map<std::string, std::string> contents;
  for (const std::string& file : {store, list, before, plan}) contents[file] = read_file(file);
  for (const Words& words : cases) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.exit_code, 2) << words[0] << ran.err;
    EXPECT_TRUE(contains(ran.err, "name another file")) << ran.err;
  }
  for (const auto& [file, content] : contents) EXPECT_EQ(read_file(file) == content, true) << file;
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

TEST_F(ProgramTest, VerifyExitsOneForADamagedStore) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db";
  const std::string whole = read_file(store);
  write_file(store, whole.substr(0, whole.size() - 4096));
  const Ran ran = run({"db", "verify"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.out, "is damaged")) << ran.out;
  EXPECT_EQ(run({"db", "show"}).exit_code, 2);
  write_file(store, whole);
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
}

TEST_F(ProgramTest, DamagedRowsGoAndComeBackByTheLineThatPruneSays) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db";
  std::string damaged = read_file(store);
  const std::string algo = "im2col", config = "rows=";  // at most a byte, the version, is between
  for (std::size_t at = 0; (at = damaged.find(algo, at)) != std::string::npos; ++at)
    if (damaged.find(config, at) <= at + algo.size() + 1) damaged[at] = 'j';
  write_file(store, damaged);
  ASSERT_EQ(run({"db", "verify"}).exit_code, 1);

  const Ran dry = run({"db", "prune", "--damaged", "--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_TRUE(contains(dry.out, "nothing was removed")) << dry.out;
  const Ran pruned = run({"db", "prune", "--damaged"});
  EXPECT_EQ(pruned.exit_code, 0) << pruned.err;
  EXPECT_TRUE(contains(pruned.out, " removed, 0 left")) << pruned.out;
  EXPECT_TRUE(contains(pruned.out, "to undo: cp " + store + ".undo " + store)) << pruned.out;
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
  EXPECT_TRUE(contains(read_file(store + ".undo"), "jm2col"));
}

// Damages only the index's copy of a key; the row has its values in other columns too.
TEST_F(ProgramTest, PruneSaysThatItMadeADamagedIndexAnew) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db", whole = read_file(store);
  const json rows = rows_of(run({"db", "show", "--format", "json"}).out);
  bool found = false;
  for (std::size_t at = 0; !found && (at = whole.find("im2col", at)) != std::string::npos; ++at) {
    std::string damaged = whole;
    damaged[at] = 'j';
    write_file(store, damaged);
    if (run({"db", "verify"}).exit_code != 1 || run({"db", "export"}).exit_code != 0) continue;
    found = true;
    const Ran pruned = run({"db", "prune", "--damaged"});
    EXPECT_EQ(pruned.exit_code, 0) << pruned.err;
    EXPECT_TRUE(contains(pruned.out, ": 0 damaged rows removed, ")) << pruned.out;
    EXPECT_TRUE(contains(pruned.out, "\nthe index was damaged, and was made anew\n")) << pruned.out;
    EXPECT_TRUE(contains(pruned.out, "to undo: cp " + store + ".undo " + store)) << pruned.out;
    EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
    EXPECT_EQ(rows_of(run({"db", "show", "--format", "json"}).out), rows);
  }
  EXPECT_TRUE(found);
  const Ran sound = run({"db", "prune", "--damaged"});
  EXPECT_FALSE(contains(sound.out, "anew")) << sound.out;
}

}  // namespace
}  // namespace convlab
