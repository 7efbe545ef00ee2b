// Files: read, and replaced by all of their new contents or not at all.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "conv/error.h"
#include "conv/span.h"

namespace convlab::nets {

// Bytes that are read where they are wanted.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::size_t size() const = 0;
  // `to` lies within the size.
  virtual void read(std::size_t offset, Span to) const = 0;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(ConstSpan bytes) : bytes_(bytes) {}  // which outlive this
  std::size_t size() const override { return bytes_.size(); }
  void read(std::size_t offset, Span to) const override;

 private:
  ConstSpan bytes_;
};

class FileSource final : public ByteSource {
 public:
  // Throws InputError, naming the file, unless it is one and can be read.
  explicit FileSource(std::string path);
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  std::size_t size() const override { return size_; }
  void read(std::size_t offset, Span to) const override;

 private:
  void require(bool fine, const char* why) const;

  std::string path_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

std::vector<std::byte> read_file(const std::string& path);
// Its lines, without \r, a byte order mark, and lines that are empty.
std::vector<std::string> read_lines(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);

// Calls f. What f throws about its input, and running out of memory, then names the file.
template <class F>
auto in_file(const std::string& name, F f) {
  try {
    return f();
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", name, error.what()));
  } catch (const std::bad_alloc&) {
    throw EnvironmentError(fmt::format("{}: out of memory", name));
  }
}

// What a file's first bytes say it is, for messages about one that is something else than expected:
// "a git-lfs pointer (...)". Empty where they say nothing.
std::string kind_of_content(ConstSpan first);
inline constexpr std::size_t kind_bytes = 256;  // are enough to tell

// Writes the pieces one after another into a temporary file in the directory of `path`, fsyncs it,
// renames it over what was there, and fsyncs the directory: a process or a machine that dies
// meanwhile leaves the old file or the new one. A link stays one, and the file that it leads to is
// replaced; the new file has the permissions of the old one. Throws InputError for a path that
// cannot be written, EnvironmentError when the disk is full or fails; nothing is left of the
// temporary file then.
void replace_file(const std::string& path, std::span<const ConstSpan> pieces);

// Throws as replace_file would, where that shows before there is anything to write.
void require_replaceable(const std::string& path);

}  // namespace convlab::nets
