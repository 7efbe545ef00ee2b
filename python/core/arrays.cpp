#include "arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "conv/error.h"

namespace convlab::python {
namespace {

// So that sums and products of two sizes do not overflow.
constexpr std::int64_t most_size = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t most_elements = std::int64_t{1} << 60;

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

std::string class_name(nb::handle object) { return text_of(object.type().attr("__name__")); }

std::string describe(nb::handle object) {
  return nb::hasattr(object, "dtype")
             ? fmt::format("{} of {}", class_name(object), text_of(object.attr("dtype")))
             : class_name(object);
}

// Elements may lie at any address, so they are moved as bytes.
template <std::size_t bytes>
std::byte* copy_axes(const std::byte* from, std::span<const std::int64_t> shape,
                     std::span<const std::int64_t> strides, std::byte* to) {
  const std::int64_t step = strides.front() * std::int64_t(bytes);
  if (shape.size() > 1) {
    for (std::int64_t i = 0; i < shape.front(); ++i)
      to = copy_axes<bytes>(from + i * step, shape.subspan(1), strides.subspan(1), to);
    return to;
  }
  for (std::int64_t i = 0; i < shape.front(); ++i, to += bytes)
    std::memcpy(to, from + i * step, bytes);
  return to;
}

}  // namespace

std::string shown(std::span<const std::int64_t> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

InputArray::InputArray(nb::handle object, const char* name, std::size_t ndim, const char* axes)
    : name_(name) {
  if (!nb::try_cast(object, array_, false) || !array_.is_valid()) {
    if (class_name(object).ends_with("Tracer"))  // jax's, in jit, grad and vmap
      throw InputError(
          fmt::format("{} is a {}, which has no elements yet: expected a call outside of jax's "
                      "transformations, or through jax.pure_callback",
                      name, class_name(object)));
    throw InputError(
        fmt::format("{} is a {}: expected an array of float32 or float64 on the CPU, of "
                    "NumPy, PyTorch or another library with DLPack",
                    name, describe(object)));
  }
  if (const int device = array_.device_type(); device != nb::device::cpu::value)
    throw InputError(
        fmt::format("{} is on another device (DLPack's type {}): expected the CPU", name, device));
  if (array_.dtype() == nb::dtype<float>())
    dtype_ = DType::f32;
  else if (array_.dtype() == nb::dtype<double>())
    dtype_ = DType::f64;
  else
    throw InputError(
        fmt::format("{} is a {}: expected float32 or float64", name, describe(object)));
  for (std::size_t i = 0; i < array_.ndim(); ++i) {
    shape_.push_back(std::int64_t(array_.shape(i)));
    strides_.push_back(array_.stride(i));
  }
  if (shape_.size() != ndim)
    throw InputError(fmt::format("{} is {}: expected {} dimension{}, {}", name, shown(shape_), ndim,
                                 ndim == 1 ? "" : "s", axes));
  for (const std::int64_t size : shape_)
    if (size < 1 || size > most_size)
      throw InputError(
          fmt::format("{} is {}: expected sizes from 1 to {}", name, shown(shape_), most_size));
  if (array_.data_handle() == nullptr)
    throw InputError(fmt::format("{} is a {} without memory: expected one that holds its elements",
                                 name, describe(object)));
  data_ = static_cast<const std::byte*>(array_.data_handle()) + array_.byte_offset();
}

std::int64_t InputArray::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape_) {
    if (count > most_elements / size)
      throw InputError(
          fmt::format("{} is {}: expected at most 2^60 elements", name_, shown(shape_)));
    count *= size;
  }
  return count;
}

std::vector<std::size_t> InputArray::order(Layout layout) const {
  std::vector<std::size_t> axes(shape_.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (layout == Layout::nhwc) std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
  return axes;
}

bool InputArray::is(Layout layout) const {
  if (reinterpret_cast<std::uintptr_t>(data_) % std::uintptr_t(size_of(dtype_)) != 0) return false;
  const std::vector<std::size_t> axes = order(layout);
  std::int64_t step = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    // No second element, so the stride says nothing.
    if (shape_[*axis] != 1 && strides_[*axis] != step) return false;
    step *= shape_[*axis];
  }
  return true;
}

void InputArray::copy(Layout layout, std::byte* to) const {
  std::vector<std::int64_t> shape, strides;
  for (const std::size_t axis : order(layout)) {
    shape.push_back(shape_[axis]);
    strides.push_back(strides_[axis]);
  }
  if (size_of(dtype_) == 8)
    copy_axes<8>(data_, shape, strides, to);
  else
    copy_axes<4>(data_, shape, strides, to);
}

DType parse_type(const std::string& name) {
  if (name == "float32") return DType::f32;
  if (name == "float64") return DType::f64;
  throw InputError(fmt::format("dtype is '{}': expected float32 or float64", name));
}

void require_type(const InputArray& array, DType dtype, const char* of) {
  const auto name = [](DType t) { return t == DType::f64 ? "float64" : "float32"; };
  if (array.dtype() != dtype)
    throw InputError(fmt::format("{} is {}: expected {}, as {}", array.name(), name(array.dtype()),
                                 name(dtype), of));
}

void require_shape(const InputArray& array, const std::vector<std::int64_t>& shape,
                   const std::string& why) {
  if (array.shape() != shape)
    throw InputError(fmt::format("{} is {}: expected {}, {}", array.name(), shown(array.shape()),
                                 shown(shape), why));
}

nb::object to_python(std::byte* data, std::shared_ptr<Buffer> owned, DType dtype,
                     const std::vector<std::int64_t>& shape, Layout layout, bool torch) {
  std::vector<std::size_t> sizes(shape.begin(), shape.end());
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = layout == Layout::nhwc ? shape[1] : 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (layout == Layout::nhwc && axis == 1) continue;
    strides[axis] = step;
    step *= shape[axis];
  }
  if (layout == Layout::nhwc) {
    strides[1] = 1;
  }
  using Shared = std::shared_ptr<Buffer>;
  auto held = std::make_unique<Shared>(std::move(owned));
  const nb::capsule owner(held.get(), [](void* p) noexcept { delete static_cast<Shared*>(p); });
  held.release();  // NOLINT(bugprone-unused-return-value): the capsule has it now
  const nb::dlpack::dtype type = dtype == DType::f64 ? nb::dtype<double>() : nb::dtype<float>();
  const auto array = [&]<class Library>(Library) {
    return nb::cast(nb::ndarray<Library, nb::device::cpu>(data, sizes.size(), sizes.data(), owner,
                                                          strides.data(), type));
  };
  return torch ? array(nb::pytorch()) : array(nb::numpy());
}

nb::object to_python(Buffer buffer, DType dtype, const std::vector<std::int64_t>& shape,
                     Layout layout, bool torch) {
  std::byte* const data = buffer.data();
  return to_python(data, std::make_shared<Buffer>(std::move(buffer)), dtype, shape, layout, torch);
}

}  // namespace convlab::python
