#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "conv/error.h"
#include "nets/data/readers.h"

namespace convlab {
namespace {

class LoadedDataset final : public Dataset {
 public:
  explicit LoadedDataset(LoadedImages loaded)
      : loaded_(std::move(loaded)), pixels_(loaded_.shape.c * loaded_.shape.h * loaded_.shape.w) {
    for (std::int64_t i = 0; i < size(); ++i)
      if (loaded_.labels[i] >= loaded_.classes.size())
        throw InputError(fmt::format("{} has the label {}; {} has 0 to {}", name(i),
                                     loaded_.labels[i], loaded_.format,
                                     loaded_.classes.size() - 1));
  }

  std::int64_t size() const override { return loaded_.labels.size(); }
  const std::vector<std::string>& classes() const override { return loaded_.classes; }
  std::int32_t label(std::int64_t index) const override { return loaded_.labels[index]; }
  Image image(std::int64_t index) const override {
    const auto first = loaded_.pixels.begin() + index * pixels_;
    return {loaded_.shape.c, loaded_.shape.h, loaded_.shape.w, {first, first + pixels_}};
  }
  std::string name(std::int64_t index) const override {
    const auto source = std::prev(loaded_.sources.upper_bound(index));
    return fmt::format("{} #{}", source->second, index - source->first);
  }
  ImageShape shape() const override { return loaded_.shape; }
  PixelStatistics statistics() const override { return loaded_.statistics; }
  std::string format() const override { return loaded_.format; }

 private:
  LoadedImages loaded_;
  std::int64_t pixels_;  // of one image
};

}  // namespace

std::unique_ptr<Dataset> make_dataset(LoadedImages loaded) {
  return std::make_unique<LoadedDataset>(std::move(loaded));
}

}  // namespace convlab
