#include "bench/reports/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace convlab {
namespace {

TEST(Shown, ImagesASecondHaveSignificantDigits) {
  EXPECT_EQ(show_images_per_s(0.01234), "0.01234");
  EXPECT_EQ(show_images_per_s(0.5), "0.5");
  EXPECT_EQ(show_images_per_s(7.125), "7.125");
  EXPECT_EQ(show_images_per_s(456.78), "456.8");
  EXPECT_EQ(show_images_per_s(12345.6), "12346");
}

Report sample() {
  Report report;
  report.columns = {"name", "ms", "bytes"};
  report.rows = {{"plain", ms_cell(1.23456), bytes_cell(2048)},
                 {"a,\"b\"|c", Cell(), bytes_cell(5)},
                 {"none", Cell(std::numeric_limits<double>::infinity(), "inf"), Cell()}};
  report.notes = {"a note"};
  report.provenance.fields = {{"cpu", "some cpu"}};
  return report;
}

TEST(Report, TableAlignsNumbersRightAndTextLeft) {
  EXPECT_EQ(render(sample(), Format::table),
            "name        ms    bytes\n"
            "-------  -----  -------\n"
            "plain    1.235  2.0 KiB\n"
            "a,\"b\"|c             5 B\n"
            "none       inf\n"
            "\n"
            "a note\n"
            "\n"
            "cpu         some cpu\n");
}

// A line's width in columns: every character in these tests is one column wide.
std::size_t columns(const std::string& line) {
  return std::size_t(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(Report, ATableKeepsToItsWidthAndItsLastTextWhole) {
  Report report;
  report.width = 60;
  report.columns = {"name", "ms", "why"};
  report.rows = {{"a_name_of_forty_characters_that_is_cut_up", ms_cell(1), "short"},
                 {"b", ms_cell(123), "it takes 3.2 times as long as the best, or so it seems"},
                 {"c", Cell(), "tile=4,schedule=private,block=49,stores=nontemporal"},
                 {"d", Cell(), "a_name_has_no_place_to_be_wrapped_at"}};
  report.notes = {"a note which is so long that it has to go on in one more line below"};
  const std::string text = render(report, Format::table);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), 60u) << line;
  EXPECT_EQ(text,
            "name                   ms why\n"
            "------------------- ----- ----------------------------------\n"
            "a_name_of…is_cut_up 1.000 short\n"
            "b                   123.0 it takes 3.2 times as long as the\n"
            "                          best, or so it seems\n"
            "c                         tile=4,schedule=private,block=49,\n"
            "                          stores=nontemporal\n"
            "d                         a_name_has_no_pla…to_be_wrapped_at\n"
            "\n"
            "a note which is so long that it has to go on in one more\n"
            "line below\n");
  EXPECT_FALSE(fits(report));
  report.width = 120;
  EXPECT_TRUE(fits(report));
  EXPECT_NE(render(report, Format::table).find("that_is_cut_up  1.000  short"), std::string::npos);
}

// Texts of problems, which differ in the middle. One cut serves the column.
TEST(Report, NamesAreCutWhereTheyStayDifferent) {
  Report report;
  report.width = 24;
  report.columns = {"name", "ms"};
  for (const char* const name : {"aaaaaaaaa1bbbbbbbbbb", "aaaaaaaaa2bbbbbbbbbb", "short"})
    report.rows.push_back({name, ms_cell(1)});
  const std::string text = render(report, Format::table);
  for (const char* const cut : {"aaaaaaaaa1…bbbbbbb 1.000", "aaaaaaaaa2…bbbbbbb 1.000"})
    EXPECT_NE(text.find(cut), std::string::npos) << text;
}

TEST(Report, WidthsAreOfCharactersNotBytes) {
  Report report;
  report.columns = {"× peer", "b"};
  report.rows = {{Cell(1.5, "1.50"), "x"}};
  EXPECT_EQ(render(report, Format::table), "× peer  b\n------  -\n  1.50  x\n");
}

TEST(Report, ATextMayStandForNoValue) {
  Report report;
  report.columns = {"a", "b"};
  report.rows = {{Cell::without_value("not measured"), "x"}};
  EXPECT_EQ(render(report, Format::csv), "a,b\n,x\n");
  EXPECT_NE(render(report, Format::md).find("| not measured | x |"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(render(report, Format::json))["rows"][0]["a"].is_null());
}

TEST(Report, WrapBreaksBetweenWordsElseAfterCommas) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrap("", 10), Lines());
  EXPECT_EQ(wrap("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap("a=1,b=2,c=3", 9), (Lines{"a=1,b=2,", "c=3"}));
  EXPECT_EQ(wrap("abcdefghij", 4), (Lines{"abcd", "efgh", "ij"}));
  EXPECT_EQ(wrap("algo 1.2 [1.1 1.3]", 14), (Lines{"algo 1.2", "[1.1 1.3]"}));
  EXPECT_EQ(wrap("one\ntwo", 20), (Lines{"one", "two"}));
  EXPECT_EQ(wrap("××××× ××", 5), (Lines{"×××××", "××"}));
}

TEST(Report, CsvHoldsNoFormulaAndNoLineOfAComment) {
  Report report;
  report.columns = {"a", "=b"};
  report.rows = {{"=1+1", "-"}, {"@x,\"", Cell(-1.5, "")}};
  report.notes = {"two\nlines"};
  report.provenance.fields = {{"command", "convlab\rx\ny"}};
  EXPECT_EQ(
      render(report, Format::csv),
      "# command: convlab x y\n# note: two lines\na,\"'=b\"\n\"'=1+1\",-\n\"'@x,\"\"\",-1.5\n");
  EXPECT_NE(render(report, Format::md).find("- command: convlab x y\n"), std::string::npos);
}

TEST(Report, CsvQuotesAndKeepsFullPrecision) {
  EXPECT_EQ(render(sample(), Format::csv),
            "# cpu: some cpu\n"
            "# note: a note\n"
            "name,ms,bytes\n"
            "plain,1.23456,2048\n"
            "\"a,\"\"b\"\"|c\",,5\n"
            "none,inf,\n");
}

TEST(Report, MarkdownEscapesBars) {
  EXPECT_EQ(render(sample(), Format::md),
            "| name | ms | bytes |\n"
            "|---|---:|---:|\n"
            "| plain | 1.235 | 2.0 KiB |\n"
            "| a,\"b\"\\|c |  | 5 B |\n"
            "| none | inf |  |\n"
            "\n"
            "a note\n"
            "\n"
            "- cpu: some cpu\n");
}

TEST(Report, JsonHasNumbersAsNumbersAndNoInfinities) {
  const auto json = nlohmann::json::parse(render(sample(), Format::json));
  EXPECT_EQ(json["provenance"]["cpu"], "some cpu");
  EXPECT_EQ(json["notes"][0], "a note");
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][0]["ms"], 1.23456);
  EXPECT_EQ(json["rows"][1]["name"], "a,\"b\"|c");
  EXPECT_TRUE(json["rows"][1]["ms"].is_null());
  EXPECT_TRUE(json["rows"][2]["ms"].is_null());
}

TEST(Report, JsonSaysWhetherItIsCompleteWhereThatCanBe) {
  Report report = sample();
  EXPECT_FALSE(nlohmann::json::parse(render(report, Format::json)).contains("complete"));
  report.complete = false;
  EXPECT_EQ(nlohmann::json::parse(render(report, Format::json))["complete"], false);
}

TEST(Report, JsonSurvivesBytesThatAreNotUtf8) {
  Report report;
  report.columns = {"name"};
  report.rows = {{"\xff"}};
  EXPECT_EQ(nlohmann::json::parse(render(report, Format::json))["rows"].size(), 1u);
}

TEST(Report, BytesInBinaryUnits) {
  EXPECT_EQ(show_bytes(0), "0 B");
  EXPECT_EQ(show_bytes(1023), "1023 B");
  EXPECT_EQ(show_bytes(1024), "1.0 KiB");
  EXPECT_EQ(show_bytes(10 << 20), "10 MiB");
  EXPECT_EQ(show_bytes(std::numeric_limits<std::int64_t>::max()), "8.0 EiB");
}

}  // namespace
}  // namespace convlab
