#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "bench/options/net_options.h"
#include "bench/options/targets.h"
#include "bench/options/tune_options.h"
#include "bench/output.h"
#include "bench/reports/nets/predict_report.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/text/text.h"
#include "nets/data/loader.h"
#include "nets/onnx/net.h"
#include "nets/weights/file_io.h"
#include "nets/weights/notes.h"
#include "nets/weights/weights.h"
#include "nets/zoo/zoo.h"

namespace convlab {

using namespace nets;
namespace {

struct Options {
  NetArguments net;
  std::string weights, classes;
  std::vector<std::string> images;
  PixelStatistics pixels;
};

// Images without labels.
class ImageFiles : public Dataset {
 public:
  explicit ImageFiles(const std::vector<std::string>& files) : files_(files) {}
  std::int64_t size() const override { return std::int64_t(files_.size()); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int32_t label(std::int64_t) const override { return 0; }
  Image image(std::int64_t i) const override { return read_image(name(i)); }
  std::string name(std::int64_t i) const override { return files_[std::size_t(i)]; }

 private:
  const std::vector<std::string>& files_;
  std::vector<std::string> classes_{"unknown"};
};

// Runs before a net is planned. Decoding many images would take as long as classifying them, so
// beyond the first few it only checks that they can be opened.
void require_images(const ImageFiles& images) {
  constexpr std::int64_t decoded = 16;
  for (std::int64_t i = 0; i < images.size(); ++i)
    if (i < decoded || !std::ifstream(images.name(i))) static_cast<void>(images.image(i));
}

// --classes, else the weights' own names; empty if they have none.
std::vector<std::string> class_names(const Options& o, const WeightsNotes& notes,
                                     std::int64_t outputs) {
  std::vector<std::string> names = notes.classes;
  if (!o.classes.empty()) {
    names = read_lines(o.classes);
    require_class_names(o.classes, names);
  }
  if (o.classes.empty() ? !names.empty() && std::int64_t(names.size()) != outputs
                        : std::int64_t(names.size()) != outputs)
    throw InputError(fmt::format("{}: names of {} classes, but {} has {} outputs",
                                 o.classes.empty() ? o.weights : o.classes, names.size(), o.weights,
                                 outputs));
  return names;
}

// The transform with which the weights were tested, if they say so, else the usual one for images
// of this size. Flags override either.
Transform input_transform(const Options& o, const WeightsNotes& notes, const Dataset& images,
                          const Shape& input) {
  Transform t = notes.transform ? *notes.transform
                                : usual_transform(images, input.c, input.h, input.w, Split::test);
  normalise(t, notes.pixels, o.weights + ": ");
  normalise(t, o.pixels);
  if (t.elements() != input.c * input.h * input.w)
    throw InputError(fmt::format("{}: is for an input of {}x{}x{}, the net's is {}x{}x{}",
                                 o.weights, t.channels, t.height, t.width, input.c, input.h,
                                 input.w));
  return t;
}

void read_weights(Net& net, const ArrayReader& file) {
  const LoadedWeights loaded = load_weights(net, file);
  if (!loaded.ignored.empty())
    say(fmt::format("{}: ignored the auxiliary classifiers {}, which {} here leaves out",
                    file.path(), fmt::join(loaded.ignored, ", "), net.graph().name()));
}

std::vector<double> as_doubles(const Buffer& buffer, DType dtype) {
  const auto values = [&]<class T>(const T* data) {
    return std::vector<double>(data, data + buffer.bytes() / sizeof(T));
  };
  return dtype == DType::f64 ? values(buffer.as<double>()) : values(buffer.as<float>());
}

// The logits of every image, or of those done before `stop`.
std::vector<Prediction> classify(Net& net, DataLoader& loader,
                                 const std::vector<std::string>& names, Device& device,
                                 const std::atomic<bool>& stop) {
  const Shape& y = net.graph().nodes().back().shape;
  const DType dtype = net.value_type();
  const Buffer output = device.allocate_pinned(std::size_t(y.n * y.c * size_of(dtype)));
  std::vector<Prediction> predictions;
  Progress progress;
  loader.start(0);
  while (const Batch* batch = stop ? nullptr : loader.next()) {
    progress.bar(predictions.size(), names.size(), "images");
    net.set_input(batch->input);
    net.forward();
    net.read_output(output.span());
    const std::vector<double> logits = as_doubles(output, dtype);
    for (std::int64_t i = 0; i < batch->images; ++i) {
      const auto first = logits.begin() + i * y.c;
      predictions.push_back({names[predictions.size()], {first, first + y.c}});
    }
  }
  return predictions;
}

// "scaled to 256, cropped to 224x224 and normalised as for ImageNet"
std::string show(const Transform& t) {
  return fmt::format("{}cropped to {}x{} and normalised as for ImageNet",
                     t.resize > 0 ? fmt::format("scaled to {}, ", t.resize) : "", t.height,
                     t.width);
}

// The number of classes is part of the net's name.
std::string name_with_outputs(const std::string& name, const ArrayReader& weights) {
  const Graph plain = make_net(name, 1);
  try {
    return make_net(name, 1, outputs_of(weights.header(), plain)).name();
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", weights.path(), error.what()));
  }
}

void require_images_for(const Graph& net) {
  const Shape &x = net.nodes().front().shape, &y = net.nodes().back().shape;
  if (y.pixels() > 1)
    throw InputError(fmt::format(
        "predict: {} scores {}x{} pixels, not an image: expected a net that classifies images, as "
        "resnet18",
        net.name(), y.h, y.w));
  if (x.d > 1)
    throw InputError(fmt::format(
        "predict: {} takes {} slices of {}x{} pixels, not an image: expected a net of images, as "
        "resnet18",
        net.name(), x.d, x.h, x.w));
}

int run(const Options& given) {
  Options o = given;
  // An image was given instead of the net.
  const bool is_own = !o.net.common.targets.empty() && is_model(o.net.common.targets.front());
  if (o.images.empty() && !is_own && !o.net.common.targets.empty() &&
      std::filesystem::is_regular_file(o.net.common.targets.front()))
    throw InputError(
        fmt::format("predict: no net: '{}' is a file: expected a net before the images, as in "
                    "`convlab predict resnet18 --weights resnet18.safetensors cat.jpg`",
                    o.net.common.targets.front()));
  if (!o.net.common.targets.empty()) require_net(o.net, "predict");
  if (o.net.common.targets.empty() || o.images.empty())
    throw InputError(fmt::format(
        "predict: no {}: expected a net and images, as in `convlab predict resnet18 --weights "
        "resnet18.safetensors cat.jpg`",
        o.net.common.targets.empty() ? "net" : "image"));
  if (o.weights.empty() && !is_own)
    throw InputError("predict: no weights: expected --weights FILE, a .safetensors or .npz");
  if (!o.weights.empty() && is_own)
    throw InputError(fmt::format("--weights: '{}' has weights of its own: drop one",
                                 o.net.common.targets.front()));
  o.net.forward_only = true;
  if (!is_own) require_images_for(make_net(o.net.common.targets.front(), 1));
  Output output(o.net.common.output);
  std::optional<OnnxNet> model;
  std::optional<ArrayReader> weights;
  WeightsNotes notes;
  std::string& name = o.net.common.targets.front();
  if (is_own) {
    o.weights = name;
    model.emplace(read_onnx_net(name, sizes_of(o.net.common, {})));
    require_images_for(model->graph());
  } else {
    naming("--weights", [&] { weights.emplace(o.weights); });
    notes = notes_of(weights->header().metadata, o.weights);
    name = name_with_outputs(name, *weights);
    if (!notes.net.empty() && notes.net != name)
      throw InputError(fmt::format("{}: the weights of {}, not of {}", o.weights, notes.net, name));
  }
  const Graph one = model ? model->graph() : make_net(name, 1);
  Predictions predictions;
  predictions.net = one.name();
  predictions.weights = o.weights;

  const ImageFiles images(o.images);
  const Shape input = one.nodes().front().shape;
  const Transform transform = input_transform(o, notes, images, input);
  validate(transform);
  predictions.classes = class_names(o, notes, one.nodes().back().shape.c);
  require_images(images);
  const std::unique_ptr<Device> device = open_device(o.net.common);
  Algos all;
  append_all_algos(all);
  const NetAlgos algos = all;
  const PlannedNet planned = planned_net(o.net, "predict", algos, *device);
  Net net(planned.graph, planned.plan, algos, *device, {.loss = Loss::none});
  if (model)
    load_weights(net, model->weights(), name);
  else
    read_weights(net, *weights);
  model.reset();
  net.freeze();

  const std::atomic<bool>& stop = stop_on_interrupt();
  DataLoader loader(images, transform,
                    {.batch = planned.plan.batch, .dtype = net.value_type(), .bad_images = 0},
                    *device);
  if (!planned.advice.empty()) say(planned.advice);
  if (is_own && (o.pixels.mean.empty() || o.pixels.deviation.empty()))
    say(
        fmt::format("{}: says nothing about its input: images are {} (--mean and --deviation say "
                    "otherwise)",
                    name, show(transform)));
  predictions.images = classify(net, loader, o.images, *device, stop);
  predictions.complete = !stop;
  predictions.provenance = provenance(*device);
  output.write(render(predictions, o.net.common.format));
  return stop ? interrupted_exit_code : 0;
}

}  // namespace

VerbAction declare_predict(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_net(app, o->net.common, "Images at a time; default: 1, or a model's own");
  add_texts(app, "IMAGE", o->images, "JPEG or PNG files");
  add_text(
      app, "--weights", o->weights,
      "A .safetensors or .npz with torchvision's names, as `convlab train` writes them; an ONNX "
      "model has its own",
      "FILE");
  add_text(app, "--classes", o->classes,
           "Names of the classes, one a line; default: those in the weights, else numbers", "FILE");
  add_normalisation(app, o->pixels);
  add_device(app, o->net.common);
  add_layout(app, o->net.common);
  add_limits(app, o->net.tune);
  add_algo_choice(app, o->net.tune);
  add_db(app, o->net.common);
  add_plan_file(app, o->net);
  add_output(app, o->net.common, {"table", "csv", "json", "md"});
  set_footer(
      app,
      "Prints the five most likely classes of each image with their probabilities; --format json\n"
      "also has the logits. The weights decide the number of classes, and their metadata how an\n"
      "image becomes the input; without any it is scaled, cropped in the middle and normalised as\n"
      "for ImageNet. Algorithms and layouts come from the tuning store, as for `time\n"
      "--forward-only`.\n\n"
      "Examples:\n"
      "  convlab predict resnet18 --weights resnet18.safetensors cat.jpg dog.png\n"
      "  convlab predict resnet18 --weights resnet18.safetensors --classes imagenet.txt cat.jpg\n"
      "  convlab predict resnet20 --weights trained.safetensors --batch 16 --format json *.png\n"
      "  convlab predict vgg16 --weights vgg16.npz --device cuda cat.jpg\n"
      "  convlab predict model.onnx cat.jpg    your own net, with its weights\n\n"
      "From PyTorch: safetensors.torch.save_file(model.state_dict(), 'resnet18.safetensors').");
  return [o] { return run(*o); };
}

}  // namespace convlab
