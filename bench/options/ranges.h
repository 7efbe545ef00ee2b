// Lists of whole numbers on the command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convlab {

inline constexpr std::size_t most_range_values = 1000;

// A whole number from 1 to 2^40. Throws InputError, as all functions here.
std::int64_t parse_count(std::string_view);
// "7", "1:8", "1:256:*2" or "7:56:+7".
std::vector<std::int64_t> parse_range(const std::string&);
// Ranges with commas between them, "1,2:16:*2". Refuses repeated values.
std::vector<std::int64_t> parse_ranges(const std::string&);

}  // namespace convlab
