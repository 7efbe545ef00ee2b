#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "conv/error.h"
#include "nets/data/readers.h"

namespace convlab::nets {
namespace {

std::string name_in(const LoadedImages& images, std::int64_t index) {
  const auto source = std::prev(images.sources.upper_bound(index));
  return fmt::format("{} #{}", source->second, index - source->first);
}

class LoadedDataset final : public Dataset {
 public:
  explicit LoadedDataset(LoadedImages loaded)
      : loaded_(std::move(loaded)), pixels_(loaded_.shape.c * loaded_.shape.h * loaded_.shape.w) {}

  std::int64_t size() const override { return loaded_.labels.size(); }
  const std::vector<std::string>& classes() const override { return loaded_.classes; }
  std::int32_t label(std::int64_t index) const override { return loaded_.labels[index]; }
  Image image(std::int64_t index) const override {
    const auto first = loaded_.pixels.begin() + index * pixels_;
    return {loaded_.shape.c, loaded_.shape.h, loaded_.shape.w, {first, first + pixels_}};
  }
  std::string name(std::int64_t index) const override { return name_in(loaded_, index); }
  ImageShape shape() const override { return loaded_.shape; }
  PixelStatistics statistics() const override { return loaded_.statistics; }
  std::string format() const override { return loaded_.format; }
  std::vector<std::string> notes() const override { return loaded_.notes; }

 private:
  LoadedImages loaded_;
  std::int64_t pixels_;  // of one image
};

}  // namespace

void require_labels(const LoadedImages& images) {
  for (std::size_t i = 0; i < images.labels.size(); ++i)
    if (images.labels[i] >= images.classes.size())
      throw InputError(fmt::format("{} has the label {}; {} has 0 to {}",
                                   name_in(images, std::int64_t(i)), images.labels[i],
                                   images.format, images.classes.size() - 1));
}

std::unique_ptr<Dataset> make_dataset(LoadedImages loaded) {
  require_labels(loaded);
  return std::make_unique<LoadedDataset>(std::move(loaded));
}

}  // namespace convlab::nets
