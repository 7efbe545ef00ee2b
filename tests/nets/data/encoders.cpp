#include "encoders.h"

#include <jpeglib.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace convlab::nets {

Bytes jpeg(JpegKind kind, int h, int w, const Bytes& colour) {
  jpeg_error_mgr errors;
  jpeg_compress_struct codec;
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &memory, &size);
  codec.image_height = JDIMENSION(h);
  codec.image_width = JDIMENSION(w);
  codec.input_components = int(colour.size());
  codec.in_color_space = colour.size() == 4   ? JCS_CMYK
                         : colour.size() == 3 ? JCS_RGB
                                              : JCS_GRAYSCALE;
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, 98, TRUE);
  if (kind == JpegKind::progressive) jpeg_simple_progression(&codec);
  if (kind == JpegKind::ycck) jpeg_set_colorspace(&codec, JCS_YCCK);
  jpeg_start_compress(&codec, TRUE);
  Bytes row;
  for (int x = 0; x < w; ++x)
    for (const std::uint8_t value : colour)
      row.push_back(colour.size() == 4 ? std::uint8_t(255 - value) : value);
  JSAMPROW line = row.data();
  for (int y = 0; y < h; ++y) jpeg_write_scanlines(&codec, &line, 1);
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  const Bytes file(memory, memory + size);
  std::free(memory);
  return file;
}

namespace {

void append_word(Bytes& to, std::uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) to.push_back(std::uint8_t(word >> shift));
}

void append_chunk(Bytes& file, std::string_view type, const Bytes& data) {
  append_word(file, std::uint32_t(data.size()));
  Bytes chunk(type.begin(), type.end());
  chunk.insert(chunk.end(), data.begin(), data.end());
  file.insert(file.end(), chunk.begin(), chunk.end());
  append_word(file, std::uint32_t(crc32(0, chunk.data(), uInt(chunk.size()))));
}

}  // namespace

Bytes png(int colour_type, int bits, std::uint32_t h, std::uint32_t w, const Bytes& rows,
          const Bytes& palette) {
  Bytes file{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  Bytes header;
  append_word(header, w);
  append_word(header, h);
  header.insert(header.end(), {std::uint8_t(bits), std::uint8_t(colour_type), 0, 0, 0});
  append_chunk(file, "IHDR", header);
  if (!palette.empty()) append_chunk(file, "PLTE", palette);
  Bytes filtered;
  const std::size_t row = rows.size() / h;
  for (std::size_t begin = 0; row > 0 && begin < rows.size(); begin += row) {
    filtered.push_back(0);
    filtered.insert(filtered.end(), rows.begin() + std::ptrdiff_t(begin),
                    rows.begin() + std::ptrdiff_t(begin + row));
  }
  Bytes packed(compressBound(filtered.size()));
  uLongf size = packed.size();
  compress(packed.data(), &size, filtered.data(), filtered.size());
  packed.resize(size);
  append_chunk(file, "IDAT", packed);
  append_chunk(file, "IEND", {});
  return file;
}

}  // namespace convlab::nets
