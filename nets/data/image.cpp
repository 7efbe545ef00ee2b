#include "nets/data/image.h"

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <initializer_list>
#include <utility>

#include "conv/error.h"
#include "nets/weights/file_io.h"

namespace convlab {
namespace {

using Bytes = std::span<const std::uint8_t>;

[[noreturn]] void fail(const std::string& name, const std::string& why) {
  throw InputError(fmt::format("{}: {}", name, why));
}

void check_size(const std::string& name, std::int64_t h, std::int64_t w) {
  if (h < 1 || w < 1 || h * w > largest_image)
    fail(name, fmt::format("says it is {}x{} pixels; at most {} are read", w, h, largest_image));
}

// ---- JPEG ----

// libjpeg reports by calling back and must not return from an error, nor be left by an exception.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands back its address
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX];

  static void on_error(j_common_ptr codec) {
    auto* const errors = reinterpret_cast<JpegErrors*>(codec->err);
    codec->err->format_message(codec, errors->message);
    std::longjmp(errors->leave, 1);
  }
  // Pixels are missing or wrong; other warnings (bytes between markers, an unknown version) are
  // about what does not matter.
  static void on_message(j_common_ptr codec, int level) {
    if (level >= 0) return;
    switch (codec->err->msg_code) {
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_JPEG_EOF:
      case JWRN_MUST_RESYNC:
        on_error(codec);
    }
  }
};

class JpegDecoder {
 public:
  explicit JpegDecoder(const std::string& name) : name_(name) {
    codec_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = JpegErrors::on_error;
    errors_.manager.emit_message = JpegErrors::on_message;
    guarded([this] { jpeg_create_decompress(&codec_); });
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&codec_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  Image decode(Bytes file) {
    guarded([this, file] {
      jpeg_mem_src(&codec_, file.data(), file.size());
      jpeg_read_header(&codec_, TRUE);
      // Of four inks libjpeg makes CMYK; of anything else, RGB.
      const bool inks = codec_.jpeg_color_space == JCS_CMYK || codec_.jpeg_color_space == JCS_YCCK;
      codec_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    });
    check_size(name_, codec_.image_height, codec_.image_width);
    guarded([this] { jpeg_start_decompress(&codec_); });
    const std::int64_t h = codec_.output_height, w = codec_.output_width;
    Image image{3, h, w, std::vector<std::uint8_t>(3 * h * w)};
    std::vector<std::uint8_t> row(w * codec_.output_components);
    for (std::int64_t y = 0; y < h; ++y) {
      guarded([this, line = row.data()]() mutable { jpeg_read_scanlines(&codec_, &line, 1); });
      if (codec_.out_color_space == JCS_CMYK) unmix(row);
      const std::int64_t step = codec_.output_components;
      for (int c = 0; c < 3; ++c)
        for (std::int64_t x = 0; x < w; ++x) image.pixels[(c * h + y) * w + x] = row[x * step + c];
    }
    guarded([this] { jpeg_finish_decompress(&codec_); });
    return image;
  }

 private:
  // Only C frames, and locals without destructors, stand between setjmp and longjmp.
  template <class Calls>
  void guarded(Calls calls) {
    if (setjmp(errors_.leave) == 0) {
      calls();
      return;
    }
    fail(name_, fmt::format("is a damaged or truncated JPEG ({})", errors_.message));
  }

  // Light that the inks let through. Adobe, who alone writes such files, stores inks inverted.
  void unmix(std::vector<std::uint8_t>& row) const {
    for (std::size_t x = 0; x < row.size(); x += 4)
      for (int c = 0; c < 3; ++c) {
        const bool inverted = codec_.saw_Adobe_marker;
        const int ink = inverted ? row[x + c] : 255 - row[x + c],
                  black = inverted ? row[x + 3] : 255 - row[x + 3];
        row[x + c] = std::uint8_t((ink * black + 127) / 255);
      }
  }

  const std::string& name_;
  JpegErrors errors_{};
  jpeg_decompress_struct codec_{};
};

// ---- PNG ----

// libpng's simplified interface keeps its jumps to itself.
class PngDecoder {
 public:
  explicit PngDecoder(const std::string& name) : name_(name) { png_.version = PNG_IMAGE_VERSION; }
  ~PngDecoder() { png_image_free(&png_); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  Image decode(Bytes file) {
    require(png_image_begin_read_from_memory(&png_, file.data(), file.size()));
    const std::int64_t h = png_.height, w = png_.width;
    check_size(name_, h, w);
    png_.format = PNG_FORMAT_RGBA;  // asked for RGB it would blend with a background
    png_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(png_));
    require(png_image_finish_read(&png_, nullptr, pixels.data(), 0, nullptr));
    Image image{3, h, w, std::vector<std::uint8_t>(3 * h * w)};
    for (std::int64_t c = 0; c < 3; ++c)
      for (std::int64_t i = 0; i < h * w; ++i) image.pixels[c * h * w + i] = pixels[4 * i + c];
    return image;
  }

 private:
  void require(int done) const {
    if (!done) fail(name_, fmt::format("is a damaged or truncated PNG ({})", png_.message));
  }

  const std::string& name_;
  png_image png_{};
};

bool begins_with(Bytes file, std::initializer_list<std::uint8_t> magic) {
  return file.size() >= magic.size() && std::equal(magic.begin(), magic.end(), file.begin());
}

}  // namespace

Image decode_image(Bytes file, const std::string& name) {
  if (begins_with(file, {0xFF, 0xD8, 0xFF})) return JpegDecoder(name).decode(file);
  if (begins_with(file, {0x89, 'P', 'N', 'G'})) return PngDecoder(name).decode(file);
  fail(name, file.empty() ? "is empty; expected a JPEG or PNG" : "is neither JPEG nor PNG");
}

Image read_image(const std::string& path) {
  const std::vector<std::byte> file = read_file(path);
  return decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, path);
}

}  // namespace convlab
