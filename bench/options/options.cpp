#include "bench/options/options.h"

#include <fmt/format.h>
#include <omp.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>

#include "autotune/candidates.h"
#include "autotune/store/store.h"
#include "bench/options/twin.h"
#include "bench/output.h"
#include "conv/error.h"
#include "conv/refusals.h"
#include "conv/text/counted.h"
#include "conv/text/names.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/device/cpu_limits.h"
#include "kernels_cuda/cuda.h"

namespace convlab {
namespace {

template <class T, class Parse>
std::vector<T> parse_list(const std::string& text, const Parse& parse) {
  std::vector<T> values;
  for (const std::string& item : split_list(text)) {
    const T value = parse(item);
    if (std::find(values.begin(), values.end(), value) != values.end())
      throw InputError(fmt::format("'{}' stands twice in '{}'", item, text));
    values.push_back(value);
  }
  return values;
}

template <class T>
T parse_whole(const std::string& what, const std::string& text, T least,
              T most = std::numeric_limits<T>::max()) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < least || value > most)
    throw InputError(fmt::format("{} '{}': expected a whole number, {}", what, text,
                                 most < std::numeric_limits<T>::max()
                                     ? fmt::format("{} to {}", least, most)
                                     : fmt::format("{} or more", least)));
  return value;
}

std::int64_t parse_batch(const std::string& text) {
  return parse_whole<std::int64_t>("batch", text, 1);
}

std::map<std::string, std::int64_t> parse_dims(const std::string& text) {
  std::map<std::string, std::int64_t> dims;
  for (const std::string& item : split_list(text)) {
    const std::size_t equals = item.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw InputError(fmt::format("'{}': expected NAME=N, as in height=224", item));
    dims[item.substr(0, equals)] = parse_whole<std::int64_t>("size", item.substr(equals + 1), 1);
  }
  return dims;
}

// "cuda" is cuda:0.
DeviceChoice parse_device(const std::string& text) {
  if (text == "cpu") return {};
  DeviceChoice card;
  card.kind = DeviceKind::cuda;
  if (text == "cuda") return card;
  const std::string prefix = "cuda:";
  if (!text.starts_with(prefix))
    throw InputError(fmt::format("unknown device '{}': expected cpu or cuda[:i]", text));
  card.index = parse_whole<int>("card", text.substr(prefix.size()), 0);
  return card;
}

constexpr std::array<std::string_view, 6> format_names{"table", "csv", "json",
                                                       "md",    "hpp", "problems"};

Format parse_format(const std::string& text) {
  return Format(index_of_name("format", text, format_names));
}

void add_dims(CLI::App& app, CommonOptions& o) {
  add_parsed(
      app, "--dim", [&o](const std::string& text) { o.dims = parse_dims(text); },
      "Sizes that an ONNX model leaves open, by their names there: height=224,width=224",
      "NAME=N,...");
}

}  // namespace

void add_targets(CLI::App& app, CommonOptions& o, const std::string& target_description) {
  add_texts(app, "TARGET", o.targets, target_description);
  add_parsed(
      app, "--batch",
      [&o](const std::string& text) { o.batches = parse_list<std::int64_t>(text, parse_batch); },
      "Batch sizes; default: 1 for nets, a problem's or a model's own otherwise", "N,...");
  add_dims(app, o);
  add_passes(app, o);
  add_dtype(app, o, "f32, f64, f16 or bf16; default: f32");
}

void add_dtype(CLI::App& app, CommonOptions& o, const std::string& description) {
  add_parsed(
      app, "--dtype",
      [&o](const std::string& text) {
        o.dtype = parse_dtype(text);
        o.dtype_given = true;
      },
      description, "TYPE");
}

void add_recompute(CLI::App& app, CommonOptions& o) {
  add_flag(
      app, "--recompute", o.recompute,
      "A gru or lstm in training saves hidden states only; its bwd_d computes the gates again");
}

void add_passes(CLI::App& app, CommonOptions& o) {
  add_parsed(
      app, "--pass",
      [&o](const std::string& text) { o.passes = parse_list<Pass>(text, parse_pass); },
      "fwd, bwd_d, bwd_w; default: all three", "PASS,...");
}

void add_net(CLI::App& app, CommonOptions& o, const std::string& batch_description) {
  add_parsed(
      app, "NET", [&o](const std::string& name) { o.targets = {name}; },
      "A net: resnet18, vgg16, mlp:20-256x5-1, rnn:28-128x2-10:lstm, resnet18:10 (with 10 "
      "classes); `convlab list` names them all. Or your own as an ONNX model, model.onnx",
      "");
  add_dims(app, o);
  add_parsed(
      app, "--batch", [&o](const std::string& text) { o.batches = {parse_batch(text)}; },
      batch_description, "N");
  add_parsed(
      app, "--dtype",
      [&o](const std::string& text) {
        if (text != "f32" && text != "f64" && text != "bf16")
          throw InputError(fmt::format("'{}': nets run in f32, f64 or bf16", text));
        o.dtype = parse_dtype(text);
      },
      "f32, f64, or bf16, which stores activations in bf16; default: f32", "TYPE");
}

void add_device(CLI::App& app, CommonOptions& o) {
  add_parsed(
      app, "--device", [&o](const std::string& text) { o.device = parse_device(text); },
      "cpu, or cuda or cuda:i for a card; default: cpu", "DEVICE");
  add_parsed(
      app, "--threads", [&o](const std::string& text) { o.threads = parse_threads(text); },
      "Threads of the CPU; default: OMP_NUM_THREADS, else one a core that this process may use, by "
      "its affinity and its CPU quota",
      "N");
}

int parse_threads(const std::string& text) {
  return parse_whole<int>("threads", text, 1, most_threads);
}

void add_layout(CLI::App& app, CommonOptions& o) {
  add_parsed(
      app, "--layout",
      [&o](const std::string& text) {
        static constexpr std::array<std::string_view, 4> names{"auto", "nchw", "nhwc", "nchwc"};
        index_of_name("layout", text, names);
        o.layout = text;
      },
      "auto (each algorithm as it likes best), nchw, nhwc, or nchwc (channel blocks of "
      "one vector, CPU only); default: auto",
      "LAYOUT");
}

void add_cache(CLI::App& app, CommonOptions& o) {
  add_parsed(
      app, "--cache", [&o](const std::string& text) { o.cache = parse_cache_mode(text); },
      "hot (operands as the last run left them) or cold (out of every cache); default: hot",
      "MODE");
}

void add_seed(CLI::App& app, CommonOptions& o) {
  add_seed(
      app, [&o](std::uint64_t seed) { o.seed = seed; },
      "Seed of the random data and of the order of runs; default: 1");
}

void add_seed(CLI::App& app, const std::function<void(std::uint64_t)>& take,
              const std::string& help) {
  add_parsed(
      app, "--seed",
      [take](const std::string& text) { take(parse_whole<std::uint64_t>("seed", text, 0)); }, help,
      "N");
}

void add_output(CLI::App& app, CommonOptions& o, const std::vector<std::string>& formats) {
  const auto is_given = std::make_shared<bool>(false);
  add_parsed(
      app, "--format",
      [&o, formats, is_given](const std::string& text) {
        if (std::find(formats.begin(), formats.end(), text) == formats.end())
          throw InputError(fmt::format("'{}': expected one of {}", text, fmt::join(formats, ", ")));
        o.format = parse_format(text);
        *is_given = true;
      },
      fmt::format("{}; default: table", fmt::join(formats, ", ")), "FORMAT");
  add_parsed(
      app, "--output",
      [&o, formats, is_given](const std::string& path) {
        o.output = path;
        if (*is_given) return;
        const std::string format = format_of_suffix(path, formats);
        if (!format.empty()) o.format = parse_format(format);
      },
      "Write there instead of to stdout, all or nothing, by default in the format of the suffix, "
      "if it is one; - is stdout",
      "FILE");
}

std::string format_of_suffix(const std::string& path, const std::vector<std::string>& formats) {
  const std::string suffix = std::filesystem::path(path).extension();
  const std::string name = suffix.empty() ? "" : suffix.substr(1);
  if (std::find(format_names.begin(), format_names.end(), name) == format_names.end()) return "";
  if (std::find(formats.begin(), formats.end(), name) == formats.end())
    throw InputError(fmt::format("'{}': this verb prints {}, not {}: expected another suffix", path,
                                 fmt::join(formats, ", "), name));
  return name;
}

void add_svg(CLI::App& app, std::string& file, const std::string& description) {
  add_parsed(
      app, "--svg",
      [&file](const std::string& text) {
        const std::string suffix = std::filesystem::path(text).extension();
        if (!suffix.empty() && suffix != ".svg")
          throw InputError(
              fmt::format("'{}': expected a name that ends in .svg, the format it is in", text));
        file = text;
      },
      description, "FILE");
}

void add_db(CLI::App& app, CommonOptions& o) {
  add_text(
      app, "--db", o.db,
      "The tuning store, which verbs that measure create, with its folder, where it is missing; "
      "default: $CONVLAB_DB, else $XDG_CACHE_HOME/convlab/tune.db",
      "FILE");
}

void add_layer(CLI::App& app, CommonOptions& o) {
  add_text(app, "--layer", o.layer, "Only this layer of a net: layer1.0.conv1", "NAME");
}

void add_wide(CLI::App& app, CommonOptions& o, const std::string& columns) {
  add_flag(app, "--wide", o.wide, fmt::format("Tables with {} as well", columns));
}

std::unique_ptr<Device> open_device(const CommonOptions& o) {
  DeviceChoice choice = o.device;
  choice.threads = o.threads;
  if (choice.kind == DeviceKind::cuda && o.threads > 0)
    throw InputError("--threads is about the CPU: drop it, or say --device cpu");
  std::unique_ptr<Device> device = make_device(choice);
  if (const int cores = usable_cores(); o.threads > cores)
    say(fmt::format("--threads {} of {}: threads take turns, and wait for one another", o.threads,
                    counted(cores, "core")));
  return device;
}

std::unique_ptr<Device> make_device(const DeviceChoice& choice) {
  // The last device made decides. A device without an explicit count gets the process's initial
  // one.
  static const int threads_at_start = omp_get_max_threads();
  omp_set_num_threads(threads_at_start);
  omp_set_dynamic(0);
  omp_set_num_threads(start_threads(choice.threads));
  if (choice.kind == DeviceKind::cuda) return make_cuda_device(choice.index);
  return make_cpu_device({.threads = omp_get_max_threads(), .isa = choice.isa});
}

void append_all_algos(Algos& algos) {
  append_cpu_algos(algos.conv);
  append_cuda_algos(algos.conv);
  append_twin(algos.conv);
  append_cpu_recurrent_algos(algos.recurrent);
  append_cuda_recurrent_algos(algos.recurrent);
}

std::optional<Layout> chosen_layout(const CommonOptions& o, const Device& device) {
  if (o.layout == "auto") return {};
  if (o.layout == "nchwc" && device.info().kind == DeviceKind::cuda)
    throw InputError("--layout nchwc is the CPU's: a card takes nchw and nhwc");
  if (o.layout == "nchwc") return blocked_layout(device.info());
  return parse_layout(o.layout);
}

std::string db_path_if_any(const CommonOptions& o) {
  const std::string path = o.db.empty() ? Store::default_path().string() : o.db;
  // Empty for a symlink loop; the store reports it.
  const auto place = [](const std::string& file) {
    std::error_code error;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(file), error);
  };
  if (!path.empty() && !o.output.empty() && !place(path).empty() && place(o.output) == place(path))
    throw InputError(
        fmt::format("--output: '{}' is the tuning store: name another file", o.output));
  return path;
}

std::string db_path(const CommonOptions& o) {
  const std::string path = db_path_if_any(o);
  if (path.empty())
    throw EnvironmentError(
        "no place for the tuning store: HOME is not set; name a file with --db or CONVLAB_DB");
  return path;
}

}  // namespace convlab
