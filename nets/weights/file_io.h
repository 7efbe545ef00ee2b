// Reading files, and replacing them atomically.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "conv/error.h"
#include "conv/types/span.h"

namespace convlab::nets {

// Random-access bytes.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::size_t size() const = 0;
  // The range lies within the size.
  virtual void read(std::size_t offset, Span to) const = 0;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(ConstSpan bytes) : bytes_(bytes) {}  // bytes outlive this
  std::size_t size() const override { return bytes_.size(); }
  void read(std::size_t offset, Span to) const override;

 private:
  ConstSpan bytes_;
};

class FileSource final : public ByteSource {
 public:
  // Throws InputError, naming the file, unless it is a readable regular file.
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
// The lines, without \r, byte order mark and empty lines.
std::vector<std::string> read_lines(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);

// Calls f. Its InputError and out-of-memory exceptions then name the file.
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

// The kind of file that the first bytes show, for messages about an unexpected file: "a git-lfs
// pointer (...)". Empty if unknown.
std::string kind_of_content(ConstSpan first);
inline constexpr std::size_t kind_bytes = 256;  // enough for that

// Writes the pieces one after another into a temporary file in the directory of `path`, fsyncs it,
// renames it over the old file, and fsyncs the directory. A crash of the process or machine leaves
// either the old file or the new one. If `path` is a link, its target is replaced. The new file has
// the permissions of the old one. Throws InputError for a path that cannot be written,
// EnvironmentError when the disk is full or fails; the temporary file is then removed.
void replace_file(const std::string& path, std::span<const ConstSpan> pieces);

// Throws as replace_file would, as far as can be known before there is data to write.
void require_replaceable(const std::string& path);

}  // namespace convlab::nets
