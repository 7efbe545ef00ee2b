#include "nets/weights/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "conv/error.h"
#include "nets/run/finite.h"
#include "nets/weights/formats.h"

namespace convlab::nets {
namespace {

using Strings = std::vector<std::string>;

constexpr std::string_view batches_tracked = ".num_batches_tracked";

ElementType type_of(const Net& net) {
  return net.value_type() == DType::f64 ? ElementType::f64 : ElementType::f32;
}

bool is_floating(ElementType type) {
  return type == ElementType::f16 || type == ElementType::bf16 || type == ElementType::f32 ||
         type == ElementType::f64;
}

// "aux1" of "aux1.conv.conv.weight" in torchvision's googlenet, "AuxLogits" in its inception_v3;
// else empty.
std::string auxiliary_head(const std::string& net, const std::string& key) {
  const std::string plain = net.substr(0, net.find(':'));
  for (const auto& [of, head] :
       {std::pair{"googlenet", "aux1"}, {"googlenet", "aux2"}, {"inception_v3", "AuxLogits"}})
    if (plain == of && key.starts_with(std::string(head) + ".")) return head;
  return "";
}

// "3 missing (a, b, c)", the first few of them.
std::string some_of(std::string_view what, const Strings& keys) {
  constexpr std::size_t most = 5;
  const std::span<const std::string> first(keys.data(), std::min(keys.size(), most));
  return fmt::format("{} {} ({}{})", keys.size(), what, fmt::join(first, ", "),
                     keys.size() > most ? ", ..." : "");
}

// "module." if the file has every missing key with that prefix, as DataParallel and compiled
// modules write them.
std::string prefix_of(const Strings& missing, const ArrayFile& file) {
  for (const auto& [key, array] : file.arrays) {
    if (missing.empty() || !key.ends_with("." + missing.front())) continue;
    const std::string prefix = key.substr(0, key.size() - missing.front().size());
    if (std::all_of(missing.begin(), missing.end(),
                    [&](const std::string& name) { return file.arrays.contains(prefix + name); }))
      return prefix;
  }
  return "";
}

// Compares names, types and shapes only.
LoadedWeights compared(const Net& net, const ArrayFile& file, const std::string& name, Fit fit) {
  const auto shapes = weight_shapes(net.parameters());
  LoadedWeights result;
  std::set<std::string> heads;
  Strings wrong;  // misshapen, with the shapes
  for (const auto& [key, array] : file.arrays) {
    if (key.starts_with(optimizer_prefix)) continue;
    const auto known = shapes.find(key);
    if (known == shapes.end()) {
      if (const std::string head = auxiliary_head(net.graph().name(), key); !head.empty())
        heads.insert(head);
      else
        result.unexpected.push_back(shown(key));
    } else if (!key.ends_with(batches_tracked) &&
               (array.shape != known->second || !is_floating(array.type))) {
      result.misshapen.push_back(key);
      wrong.push_back(fmt::format("{} is {} {}, not {} {}", key, to_string(array.type),
                                  shown(to_string(array.shape)), to_string(type_of(net)),
                                  to_string(known->second)));
    }
  }
  for (const Parameter& p : net.parameters())
    if (!file.arrays.contains(p.name)) result.missing.push_back(p.name);
  result.ignored.assign(heads.begin(), heads.end());

  Strings problems;
  if (!result.missing.empty()) problems.push_back(some_of("missing", result.missing));
  if (!result.unexpected.empty()) problems.push_back(some_of("unexpected", result.unexpected));
  if (!wrong.empty()) problems.push_back(some_of("misshapen", wrong));
  if (const std::string prefix = prefix_of(result.missing, file); !prefix.empty())
    problems.push_back(
        fmt::format("the names begin with '{0}': save them without it, key.removeprefix('{0}')",
                    shown(prefix)));
  if (fit == Fit::strict && !problems.empty())
    throw InputError(fmt::format("{}: not the weights of {}: {}", name, net.graph().name(),
                                 fmt::join(problems, "; ")));
  return result;
}

// Loads the arrays that are in the file with the right shape; `read` returns one. None is written
// unless all are finite.
template <class Read>
void copy_weights(Net& net, const ArrayFile& header, const std::string& name,
                  const LoadedWeights& fitting, Read read) {
  const std::set<std::string> left(fitting.misshapen.begin(), fitting.misshapen.end());
  const auto for_each_fitting = [&](auto f) {  // f(parameter, its array as the net's type)
    for (const Parameter& p : net.parameters()) {
      if (!header.arrays.contains(p.name) || left.contains(p.name)) continue;
      const Array& array = read(p.name);
      if (array.type == type_of(net))
        f(p, array);
      else
        f(p, array_of(type_of(net), p.shape, values_of(array)));
    }
  };
  Strings broken;
  for_each_fitting([&](const Parameter& p, const Array& array) {
    if (!all_finite(array.bytes, net.value_type())) broken.push_back(p.name);
  });
  if (!broken.empty())
    throw InputError(fmt::format(
        "{}: unusable weights: {}", name,
        some_of(fmt::format("infinite or NaN in {}", to_string(type_of(net))), broken)));
  for_each_fitting([&](const Parameter& p, const Array& a) { net.write(p.value, a.bytes); });
  net.parameters_changed();
}

}  // namespace

std::map<std::string, std::vector<std::int64_t>> weight_shapes(
    const std::vector<Parameter>& parameters) {
  constexpr std::string_view running_mean = ".running_mean";
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Parameter& p : parameters) {
    shapes[p.name] = p.shape;
    if (p.name.ends_with(running_mean))
      shapes[p.name.substr(0, p.name.size() - running_mean.size()) + std::string(batches_tracked)];
  }
  return shapes;
}

LoadedWeights load_weights(Net& net, const ArrayReader& file, Fit fit) {
  LoadedWeights result = compared(net, file.header(), file.path(), fit);
  file.verify();
  copy_weights(net, file.header(), file.path(), result,
               [&](const std::string& key) { return file.read(key); });
  return result;
}

LoadedWeights load_weights(Net& net, const ArrayFile& file, const std::string& name, Fit fit) {
  for (const auto& [key, array] : file.arrays)
    if (bytes_of(array.type, array.shape) != array.bytes.size())
      throw InputError(fmt::format("{}: {} has {} bytes, which {} of {} has not", name, shown(key),
                                   array.bytes.size(), to_string(array.type),
                                   to_string(array.shape)));
  LoadedWeights result = compared(net, file, name, fit);
  copy_weights(net, file, name, result,
               [&](const std::string& key) -> const Array& { return file.at(key); });
  return result;
}

ArrayFile weights_of(Net& net) {
  ArrayFile file;
  for (const auto& [key, shape] : weight_shapes(net.parameters()))
    if (key.ends_with(batches_tracked))
      file.arrays[key] =
          array_of(ElementType::i64, shape, std::array{double(net.counters().updates)});
  for (const Parameter& p : net.parameters()) {
    Array array{type_of(net), p.shape, {}};
    array.bytes.resize(std::size_t(p.count) * size_of(array.type));
    net.read(p.value, array.bytes);
    file.arrays[p.name] = std::move(array);
  }
  return file;
}

std::int64_t outputs_of(const ArrayFile& file, const Graph& graph) {
  const auto weight = file.arrays.find(graph.nodes()[graph.head()].name + ".weight");
  if (weight == file.arrays.end() || weight->second.shape.empty() ||
      bytes_of(weight->second.type, weight->second.shape) == 0)
    return 0;
  return weight->second.shape.front();
}

}  // namespace convlab::nets
