// JPEG and PNG files as the tests want them.
#pragma once

#include <cstdint>

#include "scratch.h"

namespace convlab::nets {

enum class JpegKind : std::uint8_t { grey, rgb, progressive, cmyk, ycck };
// Of one colour each: `channels` values, inks for the last two, stored inverted as Adobe does.
Bytes jpeg(JpegKind, int h, int w, const Bytes& colour);

// Colour type (0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA) and bits a channel as the PNG
// specification has them; `rows` are packed as there, without the filter's byte. The palette, RGB.
Bytes png(int colour_type, int bits, std::uint32_t h, std::uint32_t w, const Bytes& rows,
          const Bytes& palette = {});

}  // namespace convlab::nets
