// A picture in memory, and decoding one from a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace convlab::nets {

// 8-bit pixels, channel by channel (CHW).
struct Image {
  std::int64_t c = 0, h = 0, w = 0;
  std::vector<std::uint8_t> pixels;
};

// Reads a JPEG or PNG file, recognised by its first bytes. The result equals Pillow's
// convert("RGB"), which torchvision uses. Throws InputError, naming the file, for one it refuses:
//
//   grey, grey with alpha   repeated; 1, 2 and 4 bits are scaled to 8
//   alpha, transparency     dropped: the colour below it counts
//   palette                 its colours; black beyond its end
//   16-bit colour           the upper 8 bits
//   16-bit grey             refused: Pillow clips it to white
//   CMYK and YCCK JPEG      as Adobe stores it, inverted
//   gamma, ICC profiles, EXIF orientation    ignored: the stored pixels, as they lie
//   12-bit and lossless JPEG, other files    refused
//   damaged, cut short      refused, where Pillow would guess
//   over 100 scans, over largest_image       refused: may take minutes or gigabytes
Image read_image(const std::string& path);
// The same from memory; `name` is for messages.
Image decode_image(std::span<const std::uint8_t> file, const std::string& name);

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION  // a fuzzer looks for more than slow inputs
inline constexpr std::int64_t largest_image = 100'000;
#else
inline constexpr std::int64_t largest_image = 100'000'000;
#endif

}  // namespace convlab::nets
