// Arrays of Python's libraries, read through DLPack or the buffer protocol, and made for them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conv/device.h"
#include "conv/types/layout.h"

namespace convlab::python {

namespace nb = nanobind;

std::string shown(std::span<const std::int64_t>);  // "(2, 3, 4)"

// An array on the CPU of f32 or f64 that the caller gave, and its name in messages. Only made,
// copied and destroyed with the GIL.
class InputArray {
 public:
  // Throws InputError for anything else than an array of `ndim` dimensions; `axes` says what they
  // are, "N C H W".
  InputArray(nb::handle, const char* name, std::size_t ndim, const char* axes);

  const char* name() const { return name_; }
  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t elements() const;  // throws InputError if they overflow 2^60
  // Whether its memory is a tensor of this layout, nchw or nhwc, with nothing in between. Every
  // filter and vector that is dense is nchw.
  bool is(Layout) const;
  const std::byte* data() const { return data_; }
  // Writes the elements densely in the order of this layout. Any strides: of views, zero or
  // negative.
  void copy(Layout, std::byte* to) const;

 private:
  std::vector<std::size_t> order(Layout) const;  // axes, the slowest first

  nb::ndarray<nb::ro> array_;
  const char* name_;
  DType dtype_ = DType::f32;
  std::vector<std::int64_t> shape_, strides_;  // strides in elements
  const std::byte* data_ = nullptr;
};

DType parse_type(const std::string& name);  // "float32" or "float64", else throws InputError

// Throws InputError.
void require_type(const InputArray&, DType, const char* of);
void require_shape(const InputArray&, const std::vector<std::int64_t>&, const std::string& why);

// An array of PyTorch or NumPy; `layout` is the order of its N C ... axes. It owns this memory, or
// shares it with others.
nb::object to_python(std::byte* data, std::shared_ptr<Buffer> owner, DType,
                     const std::vector<std::int64_t>& shape, Layout, bool torch);
nb::object to_python(Buffer, DType, const std::vector<std::int64_t>& shape, Layout, bool torch);

}  // namespace convlab::python
