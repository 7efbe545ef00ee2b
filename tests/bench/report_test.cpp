#include "bench/report.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace convlab {
namespace {

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

TEST(Report, CsvQuotesAndKeepsFullPrecision) {
  EXPECT_EQ(render(sample(), Format::csv),
            "# cpu: some cpu\n"
            "# a note\n"
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
