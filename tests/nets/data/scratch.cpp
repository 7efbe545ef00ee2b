#include "scratch.h"

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace convlab::nets {

Scratch::Scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "convlab-data-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp " + name);
  directory_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::filesystem::path Scratch::write(const std::string& name, const Bytes& bytes) const {
  const std::filesystem::path file = path(name);
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  return file;
}

}  // namespace convlab::nets
