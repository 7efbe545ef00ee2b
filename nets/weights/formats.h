// Shared by the readers and writers of array files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nets/weights/arrays.h"
#include "nets/weights/file_io.h"

namespace convlab::nets {

// A file of one format whose header has been read.
class ArraySource {
 public:
  virtual ~ArraySource() = default;
  // Reads all bytes of an array in the header. Throws InputError.
  virtual void read(const std::string& name, Span to) const = 0;
  // Throws InputError unless the whole file is unchanged since it was written.
  virtual void verify() const = 0;
  virtual bool has_checksum() const = 0;

  ArrayFile header;  // arrays without their bytes
};

// Throw InputError.
std::unique_ptr<ArraySource> open_safetensors(std::unique_ptr<ByteSource>);
std::unique_ptr<ArraySource> open_npz(std::unique_ptr<ByteSource>);

// A file's bytes as consecutive pieces, so that data need not be copied together. They point into
// the ArrayFile.
struct SafetensorsPieces {
  std::string header;  // with its length
  std::vector<ConstSpan> data;
};
SafetensorsPieces safetensors_pieces(const ArrayFile&);

// Throws InputError for an array whose byte count does not match its type and shape.
void require_whole(const std::string& name, const Array&);

// A name from a file, made safe for one line of a message.
std::string shown(std::string_view name);

}  // namespace convlab::nets
