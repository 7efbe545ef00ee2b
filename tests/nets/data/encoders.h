// Encodes JPEG and PNG files for the tests.
#pragma once

#include <cstdint>

#include "scratch.h"

namespace convlab::nets {

enum class JpegKind : std::uint8_t { grey, rgb, progressive, cmyk, ycck };
// An image of one colour: `channels` values. The last two kinds take inks, stored inverted as Adobe
// does.
Bytes jpeg(JpegKind, int h, int w, const Bytes& colour);

// Colour type (0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA) and bits per channel as in the
// PNG specification. `rows` are packed as there, without the filter byte. The palette is RGB.
Bytes png(int colour_type, int bits, std::uint32_t h, std::uint32_t w, const Bytes& rows,
          const Bytes& palette = {});

}  // namespace convlab::nets
