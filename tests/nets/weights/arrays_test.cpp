// Files of arrays: files written by Python, files written here, and everything that is refused.

#include "nets/weights/arrays.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "conv/error.h"
#include "nets/weights/file_io.h"

namespace convlab::nets {
namespace {

const std::filesystem::path data = CONVLAB_WEIGHTS_DATA;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

// A directory that is removed afterwards.
class ArrayFiles : public testing::Test {
 protected:
  ArrayFiles() { std::filesystem::create_directories(directory_); }
  ~ArrayFiles() override { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::size_t files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_))
      ++count;
    return count;
  }

 private:
  std::filesystem::path directory_ = std::filesystem::path(testing::TempDir()) /
                                     testing::UnitTest::GetInstance()->current_test_info()->name();
};

// ---- Files as written by Python ----

void expect_values(const ArrayFile& file, bool bf16) {
  EXPECT_EQ(file.arrays.size(), bf16 ? 9u : 8u);
  for (const auto& [name, array] : file.arrays) {
    SCOPED_TRACE(name);
    if (name == "number") {
      EXPECT_EQ(array, array_of(ElementType::f32, {}, std::array{2.5}));
    } else if (name == "nothing") {
      EXPECT_EQ(array, array_of(ElementType::f32, {0, 4}, {}));
    } else {
      EXPECT_EQ(name, to_string(array.type));
      EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
      const bool whole = name[0] == 'i' || name[0] == 'u';
      std::vector<double> values{0, 1, 2, 3, 4, 5};
      for (double& v : values) v -= whole ? 0 : 1.5;
      EXPECT_EQ(values_of(array), values);
    }
  }
}

TEST_F(ArrayFiles, OfPythonAreRead) {
  const ArrayFile file = read_arrays(data / "values.safetensors");
  expect_values(file, true);
  EXPECT_EQ(file.metadata.count("numpy"), 1u);
  expect_values(read_arrays(data / "values.npz"), false);
  expect_values(read_arrays(data / "values_compressed.npz"), false);
}

TEST_F(ArrayFiles, ComeBackAsTheyWere) {
  ArrayFile file = read_arrays(data / "values.safetensors");
  for (const char* name : {"a.safetensors", "a.npz"}) {
    SCOPED_TRACE(name);
    if (std::string(name) == "a.npz") {
      EXPECT_EQ(error_of([&] { to_npz(file); }),
                "npz has no type bf16: write safetensors, or convert it");
      file.arrays.erase("bf16");
      file.metadata.clear();
    }
    write_arrays(path(name), file);
    write_arrays(path(name), file);  // overwrites the existing file
    const ArrayFile back = read_arrays(path(name));
    EXPECT_EQ(back.arrays, file.arrays);
    EXPECT_EQ(back.metadata, file.metadata);
  }
  EXPECT_EQ(files(), 2u);
}

// Python's readers assume data aligned to 8 and to 64 bytes.
TEST(Safetensors, DataAreAligned) {
  const ArrayFile file = read_arrays(data / "values.safetensors");
  const std::vector<std::byte> bytes = to_safetensors(file);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  const std::string text(reinterpret_cast<const char*>(bytes.data()) + 8, header);
  EXPECT_LT(text.find("\"f64\""), text.find("\"f32\""));
  EXPECT_LT(text.find("\"f32\""), text.find("\"f16\""));
  EXPECT_LT(text.find("\"f16\""), text.find("\"u8\""));
}

TEST(Arrays, RoundToTheirType) {
  const auto rounded = [](ElementType type, double value) {
    return values_of(array_of(type, {1}, std::array{value})).front();
  };
  EXPECT_EQ(rounded(ElementType::f16, 1 + 1.0 / 2048), 1);  // half of the last place: to even
  EXPECT_EQ(rounded(ElementType::bf16, 1.0 / 3), 0.333984375);
  EXPECT_EQ(rounded(ElementType::f32, 1.0 / 3), double(1.0f / 3));
  EXPECT_EQ(rounded(ElementType::f64, 1.0 / 3), 1.0 / 3);
  EXPECT_EQ(rounded(ElementType::i64, -7), -7);
  EXPECT_THROW(array_of(ElementType::f32, {2}, std::array{1.0}), InputError);
  EXPECT_THROW(ArrayFile().at("a"), InputError);
}

// ---- Inconsistent safetensors ----

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(data_bytes, '\0');
}

std::string safetensors_error(const std::string& file) {
  // On the heap with its exact size, so that the address sanitizer sees any overrun.
  const std::vector<char> bytes(file.begin(), file.end());
  return error_of([&] { parse_safetensors(std::as_bytes(std::span(bytes)), "f"); });
}

std::string entry(const std::string& name, std::size_t begin, std::size_t end,
                  const std::string& shape) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":{},"data_offsets":[{},{}]}})", name, shape,
                     begin, end);
}

TEST(Safetensors, SaysWhatIsWrongWithAFile) {
  struct Case {
    std::string header;
    std::size_t data_bytes;
    std::string says;
  };
  const std::string a = entry("a", 0, 2, "[2]");
  const std::string shape_error = "f: a: sizes and offsets are whole numbers, 0 or more";
  const std::vector<Case> cases{
      {"{" + a + "}", 2, "accepted"},
      {"{" + a + "}   ", 2, "accepted"},
      {"{" + entry("a", 2, 4, "[2]") + "," + entry("b", 0, 2, "[1,2]") + "}", 4, "accepted"},
      {"{", 0, "f: the header is no JSON at its byte 2"},
      {"{} {}", 0, "f: the header is no JSON at its byte 4"},
      {"{\"\xff\":1}", 0, "f: the header is no JSON at its byte 3"},
      {"{\"a\":1e999}", 0, "f: the header has a number that is out of range"},
      {"[]", 0, "f: the header is no JSON object"},
      {"{" + a + "," + a + "}", 2, "f: the header has a twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2,
       "f: the header has dtype twice"},
      {R"({"a":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})", 2,
       "f: the header nests deeper than 3"},
      {std::string(1 << 20, '['), 0, "f: the header is no JSON object"},
      {R"({"a":{"shape":)" + std::string(1 << 20, '['), 0, "f: the header nests deeper than 3"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0]}})", 2,
       "f: a: expected dtype as text, shape as a list, data_offsets as a list of two"},
      {R"({"a":{"dtype":"U8","shape":[null],"data_offsets":[0,2]}})", 2, shape_error},
      {R"({"a":{"dtype":"U8","shape":2,"data_offsets":[0,2]}})", 2,
       "f: a: expected dtype as text, shape as a list, data_offsets as a list of two"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "f: the header has __metadata__ twice"},
      {R"({"__metadata__":{"a":"","a":""}})", 0, "f: the header has a twice"},
      {R"({"__metadata__":{"a":[]}})", 0, "f: __metadata__: a is no text"},
      {R"({"a":1})", 0, "f: a: expected an object with dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2]}})", 2,
       "f: a: expected an object with dtype, shape and data_offsets"},
      {R"({"a":{"dtype":1,"shape":[2],"data_offsets":[0,2]}})", 2,
       "f: a: expected dtype as text, shape as a list, data_offsets as a list of two"},
      {R"({"a":{"dtype":"U4","shape":[2],"data_offsets":[0,2]}})", 2,
       "f: a: type U4 is none of F16, BF16, F32, F64, I32, I64, U8"},
      {R"({"__metadata__":{"a":1}})", 0, "f: __metadata__: a is no text"},
      {R"({"__metadata__":[]})", 0, "f: __metadata__: expected an object of texts"},
      {"{" + entry("a", 0, 2, "[-2]") + "}", 2, shape_error},
      {"{" + entry("a", 0, 2, "[2.0]") + "}", 2, shape_error},
      {"{" + entry("a", 0, 2, "[18446744073709551615]") + "}", 2, shape_error},
      {"{" + entry("a", 0, 2, "[9223372036854775807,2]") + "}", 2,
       "f: a: its shape has more elements than can be counted"},
      {"{" + entry("a", 0, 2, "[4294967296,4294967296,2]") + "}", 2,
       "f: a: its shape has more elements than can be counted"},
      {"{" + entry("a", 0, 2, "[3]") + "}", 2,
       "f: a: U8 [3] takes 3 bytes, data_offsets are 0 to 2"},
      {"{" + entry("a", 2, 0, "[2]") + "}", 2,
       "f: a: U8 [2] takes 2 bytes, data_offsets are 2 to 0"},
      {"{" + a + "}", 1, "f: the header describes 2 bytes of data, the file has 1"},
      {"{" + a + "}", 3, "f: the header describes 2 bytes of data, the file has 3"},
      {"{" + a + "," + entry("b", 1, 3, "[2]") + "}", 3,
       "f: b: its data begin at 1, those before them end at 2"},
      {"{" + a + "," + entry("b", 3, 5, "[2]") + "}", 5,
       "f: b: its data begin at 3, those before them end at 2"},
      {"{" + entry("a", 1, 3, "[2]") + "}", 3,
       "f: a: its data begin at 1, those before them end at 0"}};
  for (const Case& c : cases)
    EXPECT_EQ(safetensors_error(file_of(c.header, c.data_bytes)), c.says) << c.header.substr(0, 99);

  EXPECT_EQ(safetensors_error("abc"), "f: 3 bytes are too few for a safetensors file");
  EXPECT_EQ(
      safetensors_error(std::string(8, '\xff')),
      "f: it is no safetensors: the header would be 18446744073709551615 bytes long, past the "
      "end of 8");
  EXPECT_EQ(safetensors_error(file_of("{}", 0).substr(0, 9)),
            "f: it is no safetensors: the header would be 2 bytes long, past the end of 9");
  // A message stays one short line whatever the name is.
  const std::string error =
      safetensors_error(file_of("{\"a\\n" + std::string(1000, 'x') + "\":1}", 0));
  EXPECT_TRUE(error.starts_with("f: a\\x0axxx")) << error;
  EXPECT_LT(error.size(), 200u);
}

TEST_F(ArrayFiles, SayWhatElseTheyAre) {
  const auto error = [&](const std::string& name, const std::string& content) {
    std::ofstream(path(name), std::ios::binary) << content;
    return error_of([&] { read_arrays(path(name)); }).substr(path(name).size());
  };
  const std::string pickle("\x80\x02}q\0.", 6), zip = "PK\3\4" + std::string(26, '\0');
  for (const char* name : {"w.safetensors", "w.npz"}) {
    EXPECT_NE(error(name, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
                  .find(": it is a git-lfs pointer (`git lfs pull`"),
              std::string::npos);
    EXPECT_NE(error(name, pickle + std::string(50, 'x')).find(": it is PyTorch's own format"),
              std::string::npos);
    EXPECT_NE(error(name, zip + "archive/data.pkl").find(": it is PyTorch's own format"),
              std::string::npos);
    EXPECT_NE(error(name, "<!DOCTYPE html><html></html>").find(": it is a web page"),
              std::string::npos);
  }
  EXPECT_EQ(error("w.safetensors", zip + "x.npy"),
            ": it is a zip archive, as an .npz, not safetensors");
  EXPECT_EQ(error("w.npz", file_of("{}", 0)), ": it is safetensors, not npz");
}

TEST_F(ArrayFiles, AreToldByTheirNamesInCapitalsToo) {
  const ArrayFile file = read_arrays(data / "values.npz");
  for (const char* name : {"X.SAFETENSORS", "X.Npz"}) {
    write_arrays(path(name), file);
    EXPECT_EQ(read_arrays(path(name)).arrays, file.arrays) << name;
  }
}

// ---- Lazy reading ----

// A file of 64 GB of which only the header exists: shapes are known without reading data.
TEST_F(ArrayFiles, AreNotReadBeforeTheyAreAskedFor) {
  constexpr std::uint64_t bytes = std::uint64_t(1) << 36;
  const std::string name = path("sparse.safetensors");
  std::ofstream(name, std::ios::binary)
      << file_of(fmt::format("{{{},{}}}", entry("a", 0, bytes, fmt::format("[{}]", bytes)),
                             entry("b", bytes, bytes + 4, "[4]")),
                 0);
  std::filesystem::resize_file(name, std::filesystem::file_size(name) + bytes + 4);
  const ArrayReader reader(name);
  EXPECT_EQ(reader.header().at("a").shape, (std::vector<std::int64_t>{std::int64_t(bytes)}));
  EXPECT_TRUE(reader.header().at("a").bytes.empty());
  EXPECT_EQ(reader.read("b").bytes, std::vector<std::byte>(4));
  EXPECT_EQ(error_of([&] { reader.read("c"); }), name + ": there is no array c");
  std::filesystem::resize_file(name, 1000);
  EXPECT_EQ(error_of([&] { reader.read("b"); }),
            fmt::format("{0}: cannot read '{0}': it became shorter meanwhile", name));
}

// A flip of any bit makes the file refused, or removes the checksum itself.
TEST_F(ArrayFiles, NoticeEachFlippedBit) {
  ArrayFile file;
  file.metadata["epoch"] = "3";
  file.arrays["a"] = array_of(ElementType::f32, {5}, std::array{1.0, 2.0, 3.0, 4.0, 5.0});
  std::vector<std::byte> bytes = to_safetensors(file);
  for (std::byte& byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      byte ^= std::byte(1 << bit);
      ArrayFile read;
      const std::string error = error_of([&] { read = parse_safetensors(bytes, "f"); });
      if (error == "accepted") {
        EXPECT_EQ(read.metadata.size(), 2u) << "at " << &byte - bytes.data() << " bit " << bit;
      }
      byte ^= std::byte(1 << bit);
    }
  file.metadata["a\"convlab_crc32"] = "00000000";  // resembles the checksum's key
  EXPECT_EQ(parse_safetensors(to_safetensors(file), "f").metadata, file.metadata);
  bytes.back() ^= std::byte(1);
  EXPECT_NE(error_of([&] { parse_safetensors(bytes, "f"); }).find("f: it is damaged: its checksum"),
            std::string::npos);
}

TEST(Safetensors, RefusesToWriteWhatCannotBeRead) {
  ArrayFile file;
  file.arrays["a"] = {ElementType::f32, {2}, std::vector<std::byte>(7)};
  EXPECT_EQ(error_of([&] { to_safetensors(file); }), "a: 7 bytes do not fill [2] of f32");
  EXPECT_EQ(error_of([&] { to_npz(file); }), "a: 7 bytes do not fill [2] of f32");
  EXPECT_EQ(error_of([&] { to_npz({}); }), "an npz holds one array at least");
  file.arrays = {{"__metadata__", {}}};
  file.arrays.begin()->second.bytes.resize(4);
  EXPECT_EQ(error_of([&] { to_safetensors(file); }), "an array cannot be called __metadata__");
  file.arrays = {};
  file.metadata["\xff"] = "";
  EXPECT_EQ(error_of([&] { to_safetensors(file); }), "a name or its metadata are no UTF-8");
}

// Any truncation or changed byte gives an error or another valid file, never an out-of-bounds read.
void expect_no_crash(std::vector<std::byte> bytes,
                     ArrayFile (*parse)(ConstSpan, const std::string&)) {
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + std::ptrdiff_t(length));
    EXPECT_THROW(parse(cut, "f"), InputError) << length;
  }
  for (std::byte& b : bytes) {
    const std::byte kept = b;
    for (const int change : {0x01, 0x80, 0xff}) {
      b = kept ^ std::byte(change);
      error_of([&] { parse(bytes, "f"); });
    }
    b = kept;
  }
}

TEST(Safetensors, SurvivesDamage) {
  expect_no_crash(read_file(data / "values.safetensors"), parse_safetensors);
}

TEST(Npz, SurvivesDamage) {
  expect_no_crash(read_file(data / "fortran.npz"), parse_npz);
  expect_no_crash(read_file(data / "zeros.npz"), parse_npz);
}

// ---- Refused npz ----

std::string npz_error(const std::string& name) {
  const std::string path = data / name;
  const std::string error = error_of([&] { read_arrays(path); });
  EXPECT_TRUE(error.starts_with(path + ": ")) << error;
  return error.substr(std::min(path.size() + 2, error.size()));
}

TEST(Npz, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(npz_error("fortran.npz"),
            "x.npy: it is in Fortran order: write it in C order, with numpy.ascontiguousarray");
  EXPECT_EQ(npz_error("pickled.npz"), "x.npy: it holds pickled Python objects, not numbers");
  EXPECT_EQ(npz_error("big_endian.npz"), "x.npy: type >f4 is none of <f2, <f4, <f8, <i4, <i8, |u1");
  EXPECT_EQ(npz_error("fields.npz"), "x.npy: it has elements of several fields");
}

// The file with each occurrence of a number replaced, in its encoding in a zip's directories.
std::vector<std::byte> replaced(std::vector<std::byte> bytes, std::uint32_t from,
                                std::uint32_t to) {
  int count = 0;
  for (std::size_t i = 0; i + sizeof(from) <= bytes.size(); ++i) {
    if (std::memcmp(&bytes[i], &from, sizeof(from)) != 0) continue;
    std::memcpy(&bytes[i], &to, sizeof(to));
    ++count;
  }
  EXPECT_GT(count, 1);
  return bytes;
}

TEST(Npz, RefusesABomb) {
  const std::vector<std::byte> zeros = read_file(data / "zeros.npz");
  const std::uint32_t size = 128 + 20000 * 8;  // header and data
  const auto error = [&](std::uint32_t claimed) {
    return error_of([&] { parse_npz(replaced(zeros, size, claimed), "f"); });
  };
  EXPECT_EQ(error(size), "accepted");
  EXPECT_NE(error(4'000'000'000).find("bytes cannot unpack to 4000000000"), std::string::npos)
      << error(4'000'000'000);
  // Deflate could produce this size, but the header inside says otherwise.
  EXPECT_NE(error(size + 8).find("is not what 160008 bytes of data hold"), std::string::npos)
      << error(size + 8);
}

// ---- On disk ----

TEST_F(ArrayFiles, NamesThePathThatIsWrong) {
  const ArrayFile file = read_arrays(data / "values.npz");
  EXPECT_EQ(error_of([&] { read_arrays("a.pt"); }),
            "'a.pt': expected a name that ends in .safetensors or .npz");
  EXPECT_EQ(error_of([&] { read_arrays(path("a.npz")); }),
            fmt::format("cannot read '{}': No such file or directory", path("a.npz")));
  std::filesystem::create_directory(path("b.npz"));
  EXPECT_EQ(error_of([&] { read_arrays(path("b.npz")); }),
            fmt::format("cannot read '{}': it is no file", path("b.npz")));
  EXPECT_EQ(error_of([&] { write_arrays(path("b.npz"), file); }),
            fmt::format("cannot write '{}': it is there and no file", path("b.npz")));
  EXPECT_EQ(error_of([&] { write_arrays(path("c/d.npz"), file); }),
            fmt::format("cannot write '{}': No such file or directory", path("c/d.npz")));
  std::ofstream(path("empty.safetensors"));
  EXPECT_EQ(error_of([&] { read_arrays(path("empty.safetensors")); }),
            path("empty.safetensors") + ": 0 bytes are too few for a safetensors file");
}

TEST_F(ArrayFiles, KeepPermissionsAndLinks) {
  ArrayFile file;
  file.arrays["a"] = array_of(ElementType::f32, {1}, std::array{1.0});
  namespace fs = std::filesystem;
  fs::create_directory(path("place"));
  const std::string target = path("place/t.safetensors"), link = path("l.safetensors");
  fs::create_symlink("place/t.safetensors", link);
  write_arrays(link, file);  // there is no target yet
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_regular_file(target));
  fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write);
  file.arrays["b"] = file.at("a");
  fs::create_symlink(link, path("again.safetensors"));
  write_arrays(path("again.safetensors"), file);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(fs::status(target).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(read_arrays(target).arrays, file.arrays);
  EXPECT_EQ(files(), 3u);
  fs::create_symlink("loop.npz", path("loop.npz"));
  EXPECT_NE(error_of([&] { write_arrays(path("loop.npz"), file); }), "accepted");
}

// A file size limit stops a write halfway, as a full disk does.
TEST_F(ArrayFiles, KeepTheOldOneWhenTheDiskIsFull) {
  ArrayFile file;
  file.arrays["a"] = array_of(ElementType::f32, {1}, std::array{1.0});
  write_arrays(path("a.safetensors"), file);
  ArrayFile larger;
  larger.arrays["a"] = array_of(ElementType::u8, {1 << 20}, std::vector<double>(1 << 20));

  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  struct rlimit small = limit;
  small.rlim_cur = 100'000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string error = "accepted";
  try {
    write_arrays(path("a.safetensors"), larger);
  } catch (const EnvironmentError& e) {
    error = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);

  EXPECT_EQ(error, fmt::format("cannot write '{}': File too large", path("a.safetensors")));
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(read_arrays(path("a.safetensors")).arrays, file.arrays);
}

}  // namespace
}  // namespace convlab::nets
