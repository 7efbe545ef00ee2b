// A picture in memory, and decoding one from a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace convlab {

// 8-bit pixels, channel by channel (CHW).
struct Image {
  std::int64_t c = 0, h = 0, w = 0;
  std::vector<std::uint8_t> pixels;
};

// A JPEG or PNG file, told by its first bytes, as RGB: grey is repeated, alpha dropped, 16 bits are
// rounded to 8, CMYK is converted; a rotation noted in EXIF is not done. Throws InputError naming
// the file for one that is not there, is neither, is damaged or cut short, or has more than
// largest_image pixels.
Image read_image(const std::string& path);
// The same from memory; `name` is for messages.
Image decode_image(std::span<const std::uint8_t> file, const std::string& name);

inline constexpr std::int64_t largest_image = 100'000'000;

}  // namespace convlab
