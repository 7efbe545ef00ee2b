// Reads inputs of n, 2n and 4n entries of each kind, for callgrind to count. For each kind it
// prints one line on stdout and makes three calls of counted_run. See linear.sh.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/logs/log.h"
#include "conv/problem.h"
#include "nets/data/dataset.h"
#include "nets/weights/arrays.h"
#include "nets/weights/file_io.h"
#include "nets/weights/notes.h"

// The function that linear.sh tells callgrind to count.
extern "C" [[gnu::noinline]] void counted_run(const std::function<void()>& run) { run(); }

namespace convlab::nets {
namespace {

namespace fs = std::filesystem;

// Prepares an input of this many entries and returns the function that reads it.
using Work = std::function<std::function<void()>(int entries)>;

ArrayFile arrays(int entries) {
  ArrayFile file;
  for (int i = 0; i < entries; ++i)
    file.arrays[fmt::format("layer{:06}.weight", i)] =
        array_of(ElementType::f32, {1}, std::vector<double>{1});
  return file;
}

std::function<void()> folders(const fs::path& place, int entries) {
  const fs::path directory = place / std::to_string(entries);
  for (int i = 0; i < entries; ++i) {
    const fs::path folder = directory / fmt::format("class{}", i % (entries / 2));
    fs::create_directories(folder);
    std::ofstream(folder / fmt::format("{}.png", i)) << "x";
    std::ofstream(folder / fmt::format(".{}.png", i)) << "x";
  }
  return [directory] { open_dataset(directory, Split::train); };
}

int run(const fs::path& place) {
  const auto in_memory = [](auto parse, auto input) { return [parse, input] { parse(input); }; };
  const std::vector<std::pair<const char*, Work>> works{
      {"safetensors",
       [&](int n) {
         return in_memory([](const auto& bytes) { parse_safetensors(bytes, "f"); },
                          to_safetensors(arrays(n)));
       }},
      {"metadata",
       [&](int n) {
         ArrayFile file = arrays(1);
         for (int i = 0; i < n; ++i) file.metadata[fmt::format("key{}", i)] = "value";
         return in_memory([](const auto& bytes) { parse_safetensors(bytes, "f"); },
                          to_safetensors(file));
       }},
      {"writing safetensors",
       [&](int n) { return in_memory([](const auto& file) { to_safetensors(file); }, arrays(n)); }},
      {"npz",
       [&](int n) {
         return in_memory([](const auto& bytes) { parse_npz(bytes, "f"); }, to_npz(arrays(n)));
       }},
      {"writing npz",
       [&](int n) { return in_memory([](const auto& file) { to_npz(file); }, arrays(n)); }},
      {"classes",
       [&](int n) {
         std::map<std::string, std::string> metadata;
         for (int i = 0; i < n; ++i) metadata["classes"] += fmt::format("class {}\n", i);
         return in_memory([](const auto& all) { notes_of(all, "f"); }, metadata);
       }},
      {"folders", [&](int n) { return folders(place, n); }},
      {"logs",
       [&](int n) {
         std::string text;
         for (int i = 0; i < n; ++i) {
           text += fmt::format("MIOpenDriver conv -n {} -F 1\n", i + 1);
           text += fmt::format(
               "dnnl_verbose,exec,cpu,convolution,jit,forward_training,src_f32:: "
               "wei_f32:: dst_f32::,attr-a{}:1,alg:x,mb1ic8ih8oc8kh3,1\n",
               i);
         }
         return in_memory([](const auto& all) { read_log(all, "f"); }, text);
       }},
      {"problems", [&](int n) {
         const fs::path path = place / fmt::format("problems{}.txt", n);
         std::ofstream file(path);
         for (int i = 0; i < n; ++i) file << fmt::format("mb1ic{}ih8oc8kh3ph1n\"l{}\"\n", i + 1, i);
         return [path] { read_problem_file(path); };
       }}};
  for (const auto& [name, work] : works) {
    fmt::print("{}\n", name);
    for (const int entries : {200, 400, 800}) counted_run(work(entries));
  }
  return 0;
}

}  // namespace
}  // namespace convlab::nets

int main() {
  std::string place = (std::filesystem::temp_directory_path() / "convlab-work-XXXXXX").string();
  if (!mkdtemp(place.data())) return 3;
  const int code = convlab::nets::run(place);
  std::filesystem::remove_all(place);
  return code;
}
