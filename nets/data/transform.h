// The transformation of an image to a net's input.
#pragma once

#include <cstdint>
#include <vector>

#include "nets/data/dataset.h"

namespace convlab::nets {

// Applied in this order. Grey is repeated for a net that takes RGB; RGB becomes its luma for one
// that takes grey. Scaling is bilinear; each output pixel averages all input that it covers when
// the image shrinks (as Pillow and torchvision's `antialias` do). A crop larger than the image is
// zero outside it.
struct Transform {
  std::int64_t channels = 3, height = 32, width = 32;  // of the output
  std::int64_t resize = 0;           // the shorter side first becomes this long; 0: left as it is
  std::int64_t pad = 0;              // zeros around it, before cropping
  bool random_crop = false;          // else the middle
  bool random_resized_crop = false;  // 8% to 100% of the area, aspect 3/4 to 4/3, as for ImageNet;
                                     // excludes resize, pad and other crops
  bool random_flip = false;          // left to right, with probability 1/2
  std::vector<double> mean = {}, deviation = {};  // per channel: (pixel / 255 - mean) / deviation
  // Of the output: more than one make it channels x frames x height x width. The image moves left
  // by one pixel a frame, before the flip. There are no files of video.
  std::int64_t frames = 1;

  std::int64_t elements() const { return channels * frames * height * width; }
};

// The usual transform for training and testing on images of this size (channels x height x width is
// the net's input). Digits (grey datasets) are only padded or scaled. Below 128 pixels a side:
// scaled to the net's size; for training padded by an eighth, cropped and flipped. From 128: a
// random resized crop and flip for training; for testing the middle 7/8. A net whose input has no
// height and width takes the dataset's images unchanged, if it has as many inputs as they have
// pixels. Mean and deviation are the dataset's if known, else ImageNet's. Throws InputError for an
// input of neither form.
Transform usual_transform(const Dataset&, std::int64_t channels, std::int64_t height,
                          std::int64_t width, Split);

// Throws InputError for sizes below 1, or a mean or deviation that is not one number a channel.
void validate(const Transform&);

}  // namespace convlab::nets
