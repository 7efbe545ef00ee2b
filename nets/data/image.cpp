#include "nets/data/image.h"

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <initializer_list>
#include <new>
#include <utility>

#include "conv/error.h"
#include "nets/weights/file_io.h"

namespace convlab::nets {
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

// libjpeg reports errors through callbacks. They must not return from an error, nor throw.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg passes its address to callbacks
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX];
  bool out_of_memory;

  static void on_error(j_common_ptr codec) {
    auto* const errors = reinterpret_cast<JpegErrors*>(codec->err);
    codec->err->format_message(codec, errors->message);
    errors->out_of_memory = codec->err->msg_code == JERR_OUT_OF_MEMORY;
    std::longjmp(errors->leave, 1);
  }
  // Each scan of a progressive file passes over all pixels but may take only a few bytes. Encoders
  // make about ten.
  static void on_progress(j_common_ptr codec) {
    constexpr int most_scans = 100;
    const int scan = reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number;
    if (scan <= most_scans) return;
    auto* const errors = reinterpret_cast<JpegErrors*>(codec->err);
    std::snprintf(errors->message, sizeof(errors->message), "over %d scans", most_scans);
    std::longjmp(errors->leave, 1);
  }
  // Pixels are missing or wrong; other warnings (bytes between markers, an unknown version) are
  // harmless.
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
    progress_.progress_monitor = JpegErrors::on_progress;
    codec_.progress = &progress_;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&codec_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  Image decode(Bytes file) {
    guarded([this, file] {
      jpeg_mem_src(&codec_, file.data(), file.size());
      jpeg_read_header(&codec_, TRUE);
      // libjpeg converts four inks to CMYK, anything else to RGB.
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
  // Only C frames, and locals without destructors, may lie between setjmp and longjmp.
  template <class Calls>
  void guarded(Calls calls) {
    if (setjmp(errors_.leave) == 0) {
      calls();
      return;
    }
    if (errors_.out_of_memory) throw std::bad_alloc();
    fail(name_, fmt::format("is a damaged or truncated JPEG ({})", errors_.message));
  }

  // The light that the inks let through, rounded as Pillow does. Such files come only from Adobe,
  // which stores inks inverted.
  static void unmix(std::vector<std::uint8_t>& row) {
    for (std::size_t x = 0; x < row.size(); x += 4)
      for (int c = 0; c < 3; ++c) {
        const int black = row[x + 3], product = (255 - row[x + c]) * black + 128;
        row[x + c] = std::uint8_t(std::max(0, black - ((product + (product >> 8)) >> 8)));
      }
  }

  const std::string& name_;
  JpegErrors errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct codec_{};
};

// ---- PNG ----

struct PngErrors {
  std::jmp_buf leave;
  char message[200];

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* const errors = static_cast<PngErrors*>(png_get_error_ptr(png));
    std::snprintf(errors->message, sizeof(errors->message), "%s", message);
    std::longjmp(errors->leave, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
};

// libpng's full interface: the simplified one applies gamma.
class PngDecoder {
 public:
  PngDecoder(Bytes file, const std::string& name) : file_(file), name_(name) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &errors_, PngErrors::on_error,
                                  PngErrors::on_warning);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  Image decode() {
    guarded([this] {
      png_set_read_fn(png_, this, read);
      // Keeps only transparency among the optional chunks: no gamma, profile or text is unpacked.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_read_info(png_, info_);
    });
    const std::int64_t h = png_get_image_height(png_, info_), w = png_get_image_width(png_, info_);
    check_size(name_, h, w);
    const int depth = png_get_bit_depth(png_, info_), colour = png_get_color_type(png_, info_);
    if (depth == 16 && colour == PNG_COLOR_TYPE_GRAY)
      fail(name_, "is grey of 16 bits, which has no usual way to 8; convert it first");
    guarded([this] {
      png_set_expand(png_);
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      png_set_gray_to_rgb(png_);
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    std::vector<std::uint8_t> pixels(3 * h * w);
    std::vector<png_bytep> rows(h);
    for (std::int64_t y = 0; y < h; ++y) rows[y] = pixels.data() + 3 * w * y;
    if (png_get_rowbytes(png_, info_) != std::size_t(3 * w))
      fail(name_, "is a PNG of no known kind");
    guarded([this, rows = rows.data()] { png_read_image(png_, rows); });
    Image image{3, h, w, std::vector<std::uint8_t>(3 * h * w)};
    for (std::int64_t c = 0; c < 3; ++c)
      for (std::int64_t i = 0; i < h * w; ++i) image.pixels[c * h * w + i] = pixels[3 * i + c];
    return image;
  }

 private:
  static void read(png_structp png, png_bytep to, std::size_t bytes) {
    auto& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (bytes > self.file_.size()) png_error(png, "it ends too early");
    std::copy_n(self.file_.begin(), bytes, to);
    self.file_ = self.file_.subspan(bytes);
  }

  // Only C frames, and locals without destructors, may lie between setjmp and longjmp.
  template <class Calls>
  void guarded(Calls calls) {
    if (setjmp(errors_.leave) == 0) {
      calls();
      return;
    }
    fail(name_, fmt::format("is a damaged or truncated PNG ({})", errors_.message));
  }

  Bytes file_;  // the unread part
  const std::string& name_;
  PngErrors errors_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

bool begins_with(Bytes file, std::initializer_list<std::uint8_t> magic) {
  return file.size() >= magic.size() && std::equal(magic.begin(), magic.end(), file.begin());
}

}  // namespace

Image decode_image(Bytes file, const std::string& name) {
  try {
    if (begins_with(file, {0xFF, 0xD8, 0xFF})) return JpegDecoder(name).decode(file);
    if (begins_with(file, {0x89, 'P', 'N', 'G'})) return PngDecoder(file, name).decode();
  } catch (const std::bad_alloc&) {
    throw EnvironmentError(fmt::format("{}: out of memory", name));
  }
  if (file.empty()) fail(name, "is empty; expected a JPEG or PNG");
  const std::string kind = kind_of_content(std::as_bytes(file));
  fail(name, kind.empty() ? "is neither JPEG nor PNG"
                          : fmt::format("is {}; expected a JPEG or PNG", kind));
}

Image read_image(const std::string& path) {
  const std::vector<std::byte> file = read_file(path);
  return decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, path);
}

}  // namespace convlab::nets
