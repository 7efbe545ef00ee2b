#include "nets/weights/notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "conv/error.h"
#include "conv/text/text.h"
#include "nets/weights/file_io.h"
#include "nets/weights/formats.h"

namespace convlab::nets {
namespace {

using Metadata = std::map<std::string, std::string>;

// "3x32x32" or "0.5,0.25"; fails if a part between the separators is malformed or empty.
template <class T>
std::vector<T> parse_numbers(const std::string& text, char separator) {
  std::vector<T> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    T number{};
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (stop != end && *stop != separator))
      throw InputError(
          fmt::format("'{}' are no numbers separated by '{}'", shown(text), separator));
    numbers.push_back(number);
    if (stop == end) return numbers;
    at = stop + 1;
  }
}

bool is_deviation(const std::string& key) { return key == "deviation" || key == "std"; }

// Used without `input`.
PixelStatistics parse_pixels(const Metadata& metadata) {
  PixelStatistics pixels;
  const auto refuse_alone = [](const std::string& key, const char* other) {
    throw InputError(fmt::format("{} without {}: expected both", key, other));
  };
  for (const auto& [key, value] : metadata) {
    if (key == "resize" || key == "pad") refuse_alone(key, "input");
    if (key == "mean") pixels.mean = parse_numbers<double>(value, ',');
    if (is_deviation(key)) pixels.deviation = parse_numbers<double>(value, ',');
  }
  if (pixels.mean.empty() && pixels.deviation.empty()) return {};
  if (pixels.mean.empty()) refuse_alone("deviation", "mean");
  if (pixels.deviation.empty()) refuse_alone("mean", "deviation");
  Transform transform;
  transform.channels = std::int64_t(pixels.mean.size());
  transform.mean = pixels.mean;
  transform.deviation = pixels.deviation;
  validate(transform);
  return pixels;
}

Transform parse_transform(const Metadata& metadata, const std::string& input) {
  const auto shape = parse_numbers<std::int64_t>(input, 'x');
  if (shape.size() != 3 && shape.size() != 4)
    throw InputError(
        fmt::format("input '{}': expected CHANNELSxHEIGHTxWIDTH or CHANNELSxFRAMESxHEIGHTxWIDTH",
                    shown(input)));
  Transform transform;
  transform.channels = shape.front();
  if (shape.size() == 4) transform.frames = shape[1];
  transform.height = shape.rbegin()[1];
  transform.width = shape.back();
  for (const auto& [key, value] : metadata) {
    if (key == "resize") transform.resize = parse_numbers<std::int64_t>(value, ',').front();
    if (key == "pad") transform.pad = parse_numbers<std::int64_t>(value, ',').front();
    if (key == "mean") transform.mean = parse_numbers<double>(value, ',');
    if (is_deviation(key)) transform.deviation = parse_numbers<double>(value, ',');
  }
  validate(transform);
  return transform;
}

}  // namespace

std::map<std::string, std::string> to_metadata(const WeightsNotes& notes) {
  Metadata metadata;
  if (!notes.net.empty()) metadata["net"] = notes.net;
  if (!notes.classes.empty())
    metadata["classes"] = fmt::format("{}", fmt::join(notes.classes, "\n"));
  if (!notes.transform) return metadata;
  const Transform& t = *notes.transform;
  const std::string frames = t.frames > 1 ? fmt::format("{}x", t.frames) : "";
  metadata["input"] = fmt::format("{}x{}{}x{}", t.channels, frames, t.height, t.width);
  metadata["resize"] = fmt::format("{}", t.resize);
  metadata["pad"] = fmt::format("{}", t.pad);
  if (!t.mean.empty()) metadata["mean"] = fmt::format("{}", fmt::join(t.mean, ","));
  if (!t.deviation.empty()) metadata["deviation"] = fmt::format("{}", fmt::join(t.deviation, ","));
  return metadata;
}

WeightsNotes notes_of(const Metadata& metadata, const std::string& name) {
  return in_file(name + ": in its metadata", [&] {
    WeightsNotes notes;
    for (const auto& [key, value] : metadata) {
      if (key == "net") notes.net = value;
      if (key == "classes") notes.classes = lines_of(value);
      if (key == "input") notes.transform = parse_transform(metadata, value);
    }
    if (!notes.transform) notes.pixels = parse_pixels(metadata);
    require_class_names("classes", notes.classes);
    return notes;
  });
}

void require_class_names(const std::string& where, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (!is_plain(name))
      throw InputError(
          fmt::format("{}: '{}' as a class's name: expected UTF-8 without control characters",
                      where, shown(name)));
}

}  // namespace convlab::nets
