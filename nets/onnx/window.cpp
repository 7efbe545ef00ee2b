#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "conv/error.h"
#include "nets/onnx/attributes.h"
#include "nets/onnx/shapes.h"

namespace convlab::nets::onnx_reader {
namespace {

// An attribute with a value an axis, or `otherwise` for each.
Dims per_axis(const onnx::NodeProto& node, const char* name, std::size_t axes,
              std::int64_t otherwise, std::int64_t least) {
  Dims values = integers(node, name);
  if (values.empty()) values.assign(axes, otherwise);
  const bool ok = values.size() == axes && std::all_of(values.begin(), values.end(), [&](auto v) {
                    return v >= least && v <= largest_size;
                  });
  if (!ok)
    throw InputError(fmt::format("{}: {} {}: expected {} values from {} to {}", describe(node),
                                 name, fmt::join(values, " "), axes, least, largest_size));
  return values;
}

std::int64_t extent(const Window& w, std::size_t i) {
  return (w.kernel[i] - 1) * w.dilation[i] + 1;
}

bool pads_to_same(const std::string& auto_pad) {
  return auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
}

void share_padding(Window& w, std::size_t i, std::int64_t total, bool more_in_front) {
  const std::int64_t less = total / 2;
  w.pad_begin[i] = more_in_front ? total - less : less;
  w.pad_end[i] = total - w.pad_begin[i];
}

}  // namespace

Window window_of(const onnx::NodeProto& node, const Dims& image, const Dims& kernel) {
  const std::size_t axes = image.size();
  if (kernel.size() != axes)
    throw InputError(fmt::format("{}: a kernel of {} axes on an image of {}", describe(node),
                                 kernel.size(), axes));
  Window w{kernel, per_axis(node, "strides", axes, 1, 1), per_axis(node, "dilations", axes, 1, 1),
           Dims(axes, 0), Dims(axes, 0)};
  const std::string auto_pad = text(node, "auto_pad");
  if (pads_to_same(auto_pad)) {
    // Of a ConvTranspose the output decides: transposed_output.
    for (std::size_t i = 0; i < axes; ++i) {
      const std::int64_t out = (image[i] + w.stride[i] - 1) / w.stride[i];
      const std::int64_t total = (out - 1) * w.stride[i] + extent(w, i) - image[i];
      share_padding(w, i, std::max<std::int64_t>(total, 0), auto_pad == "SAME_LOWER");
    }
  } else if (auto_pad != "VALID") {
    const Dims pads = per_axis(node, "pads", 2 * axes, 0, -largest_size);
    std::copy_n(pads.begin(), axes, w.pad_begin.begin());
    std::copy_n(pads.begin() + std::ptrdiff_t(axes), axes, w.pad_end.begin());
  }
  return w;
}

Dims output_of(const Window& w, const Dims& image, bool ceil_mode) {
  Dims out;
  for (std::size_t i = 0; i < image.size(); ++i) {
    const std::int64_t room = image[i] + w.pad_begin[i] + w.pad_end[i] - extent(w, i);
    std::int64_t n = room < 0 ? 0 : room / w.stride[i] + 1;
    // The last window begins inside of the image or its front padding, as in PyTorch.
    if (ceil_mode && room >= 0 && room % w.stride[i] != 0 &&
        n * w.stride[i] < image[i] + w.pad_begin[i])
      ++n;
    out.push_back(n);
  }
  return out;
}

Dims transposed_output(const onnx::NodeProto& node, Window& w, const Dims& image) {
  const std::size_t axes = image.size();
  const Dims more = per_axis(node, "output_padding", axes, 0, 0);
  const bool given = attribute(node, "output_shape") != nullptr;
  const std::string auto_pad = text(node, "auto_pad");
  Dims out = given ? per_axis(node, "output_shape", axes, 1, 1) : Dims(axes);
  for (std::size_t i = 0; i < axes; ++i) {
    const std::int64_t whole = (image[i] - 1) * w.stride[i] + more[i] + extent(w, i);
    if (!given && pads_to_same(auto_pad)) out[i] = image[i] * w.stride[i];
    if (given || pads_to_same(auto_pad))
      share_padding(w, i, std::max<std::int64_t>(whole - out[i], 0), auto_pad != "SAME_UPPER");
    else
      out[i] = whole - w.pad_begin[i] - w.pad_end[i];
  }
  return out;
}

}  // namespace convlab::nets::onnx_reader
