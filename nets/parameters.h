// The parameters of a net: named, kept in device memory, initialised and updated.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "nets/net.h"
#include "nets/run/arena.h"

namespace convlab::nets {

// A parameter's initial values.
struct Initial {
  // recurrent: as PyTorch's recurrent layers, uniform within 1 / sqrt(fan_in) = 1 / sqrt(H).
  // constant: `value`.
  enum class Kind : std::uint8_t { zero, one, he, glorot, recurrent, constant } kind = Kind::zero;
  std::int64_t fan_in = 1, fan_out = 1;  // products per output, and per input
  double value = 0;
};

// For a filter or a weight matrix of this node.
Initial initial_weights(const Graph&, NodeId);

class Parameters {
 public:
  explicit Parameters(DType dtype) : dtype_(dtype) {}

  // Returns its index. A trained parameter has a gradient once allocate was called with gradients.
  std::size_t add(std::string name, std::vector<std::int64_t> shape, Initial, bool trained = true);
  // The same, directly behind the one added before and together with it: a block whose values,
  // gradients and state are each one array.
  std::size_t add_joined(std::string name, std::vector<std::int64_t> shape, Initial);
  // Once, after all were added. Everything starts at zero.
  void allocate(bool with_gradients, Device&, Stream&);

  const Parameter& operator[](std::size_t i) const { return list_[i]; }
  const std::vector<Parameter>& list() const { return list_; }
  Span gradients() const { return gradients_; }
  // Frees its value, which is null afterwards. Of a block, all parts are released or none.
  void release(std::size_t i);
  // Its value is in the caller's memory from now on, and the net's own is freed; null: in memory of
  // the net again, with undefined contents. Throws InputError for a part of a block.
  void place(std::size_t i, std::byte* value, Device&);
  // All gradients lie there from now on, as in gradients(), and their own memory is freed.
  void place_gradients(Span);

  // Known before allocate; excludes released values.
  std::size_t value_bytes() const { return bytes_; }
  std::size_t value_bytes(std::size_t i) const { return bytes_of_[i]; }
  std::size_t trained_bytes() const {
    return trained_bytes_;
  }                                                  // of the gradients, if there are any
  std::size_t state_bytes(const UpdateRule&) const;  // for updates by this rule
  std::size_t state_bytes() const { return state_[0].bytes() + state_[1].bytes(); }

  void initialise(std::uint64_t seed, Device&, Stream&);

  // Allocates the optimizer's state if this is the first rule that needs it.
  void start_optimizer(const UpdateRule&, Device&, Stream&);
  void begin_update(const UpdateRule&, Device&, Stream&);  // start_optimizer, and counts the update
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  // A block's first parameter stands for the block; the others have no update of their own.
  void update(const UpdateRule&, std::size_t i, Device&, Stream&) const;

 private:
  std::size_t append(std::string name, std::vector<std::int64_t> shape, Initial, bool trained,
                     bool joined);
  std::int64_t block_count(std::size_t first) const;  // elements

  DType dtype_;
  std::vector<Parameter> list_;
  std::vector<Initial> initial_;
  std::vector<bool> trained_, joined_;
  std::vector<std::size_t> bytes_of_;  // by which each made its block larger, padding included
  std::vector<std::size_t> trained_offsets_;  // bytes, into gradients and state
  std::size_t bytes_ = 0, trained_bytes_ = 0;
  std::vector<Buffer> values_;  // empty where joined_
  Buffer own_gradients_;
  Span gradients_;               // of own_gradients_, or the caller's
  std::array<Buffer, 2> state_;  // velocity, or Adam's averages
  std::int64_t updates_ = 0;
};

}  // namespace convlab::nets
