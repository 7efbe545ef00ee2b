// How fft_tiled runs.
//
// One register holds one pixel's block of channels (nchw16c, nchw8c), so transforms are
// straight-line code (codelets-inl.h). At each point the product is a complex matrix product
// [tiles, C] x [C, K]; spectra lie as
//   tiles    [point][tile][C block][re, im][lane]  the broadcast operand, and the result
//            (if channels are few, as an image's 3: the next power of two of lanes, 32 bytes, not
//            128; a transform takes as many tiles as fit a vector)
//   filters  [point][K block][C][re, im][lane]     read in one stream
//            (if outputs are few: [C block][K], and the lanes are C's)
//   dw       [point][C][K block][re, im][lane]     the result of [C, tiles] x [tiles, K]
// so one transform gives one element of every point.
//
// Tiles are processed in blocks. With spectra=private a block belongs to one thread, and its
// spectra stay in L2 while the filters stream by, if L2 holds four tiles. With spectra=shared a
// block belongs to all threads, which divide each phase, with barriers between phases. Such blocks
// are large, and filters are read once per block. In backward_filter spectra=private gives each
// thread parts of dw, summed over all blocks. A part is some channels, whose spectra no other
// thread touches; if x has too few channels, it is some filters.
//
// Elements of one point lie far from those of the next. If they do not fit in the cache, a
// transform that wrote them directly would touch a page for each. So a group of transforms goes to
// a small buffer first, and is copied point by point.
#include <hwy/cache_control.h>
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/device/thread_padding.h"
#include "kernels_cpu/fft_tiled/fft_tiled.h"
#include "kernels_cpu/fft_tiled/tiles.h"
#include "kernels_cpu/gemm/non_temporal.h"

namespace convlab::cpu {
namespace {

constexpr std::int64_t thread_padding = thread_padding_bytes / 4;  // floats

// Spectra of `items` channel blocks, or of their first lanes: [point][item][re, im][lane].
struct Spectra {
  std::int64_t element;       // floats of one item at one point
  std::int64_t point_stride;  // floats

  // An odd number of cache lines: powers of two would put every point of an item into the same
  // cache set.
  Spectra(std::int64_t items, std::int64_t lanes)
      : element(2 * lanes), point_stride((ceil_div(items * element, 16) | 1) * 16) {}
};

class FftTiledPlan final : public ConvPlan {
 public:
  FftTiledPlan(const ConvProblem& p, const Config& config, Device& device)
      : problem_(p),
        kernels_(fft_tile_kernels(config.get("tile"))),
        tiling_(p, config.get("tile")),
        device_(device),
        threads_(device.info().threads),
        tile_(config.get("tile")),
        tiles_(std::min(config.get("block"), tiling_.tiles)),
        shared_(spectra_of(config) == SpectraOf::all_threads),
        non_temporal_(stores_non_temporal(config)),
        filter_pass_(p.pass == Pass::backward_filter) {
    const std::int64_t item_bytes = kernels_.points * 2 * tiling_.block * 4;
    // Staged items take a quarter of L2. More than 2 KB at a time does not pay.
    const std::int64_t l2 = device.info().l2_bytes;
    staged_ = std::clamp<std::int64_t>(l2 / 4 / item_bytes, 1, 16);
    // A thread's own block takes the output channels in parts whose spectra fill the same share of
    // L2 as the input's.
    out_blocks_ = to_blocks();
    if (!shared_)
      out_blocks_ = std::clamp<std::int64_t>(l2 / 3 / (item_bytes * tiles_), 1, out_blocks_);
    // If all tiles are one block, the spectra of dy stay from part to part: small parts leave room
    // in L2 for them and x's.
    channels_ = summed_channels(p, item_bytes, blocks() == 1 ? l2 / 4 : l2);
  }

  std::size_t workspace_bytes() const noexcept override {
    return static_cast<std::size_t>((parts() * part_floats() + threads_ * scratch_floats()) * 4);
  }

  std::size_t packed_filter_bytes() const noexcept override {
    if (filter_pass_) return 0;
    return static_cast<std::size_t>(floats(filters()) * 4);
  }

  void pack_filter(ConstSpan span, Span packed, Stream&) const override {
    const float* const w = reinterpret_cast<const float*>(span.data());
    const std::int64_t block = tiling_.block, taps = problem_.r * problem_.s;
    const bool flipped = problem_.pass == Pass::backward_data;
    // Some channels lie along a vector: each block of them has a spectrum for each of the other
    // channels. Steps between channels are those of KCRS.
    struct Channels {
      std::int64_t count, step;
    };
    Channels along{tiling_.to.c, flipped ? taps : problem_.c * taps};
    Channels others{tiling_.from.c, flipped ? problem_.c * taps : taps};
    if (tiling_.few_outputs) std::swap(along, others);
    const float scale = 1.f / static_cast<float>(tile_ * tile_);
    const Buffer memory =
        device_.allocate(static_cast<std::size_t>(threads_ * scratch_floats() * 4));
#pragma omp parallel num_threads(threads_)
    {
      const int thread = omp_get_thread_num();
      const Member me{nullptr, memory.as<float>() + thread * scratch_floats(), thread,
                      omp_get_num_threads(), is_aligned_for_non_temporal(packed.data())};
      float* const plane = pixel_plane(me);
      write_items(me, tiling_.filters(), reinterpret_cast<float*>(packed.data()), filters(),
                  [&](std::int64_t i, TileSpectrum<float> to) {
                    const std::int64_t first = i / others.count * block, other = i % others.count;
                    const float* const from = w + first * along.step + other * others.step;
                    const std::int64_t lanes = std::min(block, along.count - first);
                    if (lanes < block) std::fill_n(plane, taps * block, 0.f);
                    for (std::int64_t lane = 0; lane < lanes; ++lane)
                      for (std::int64_t t = 0; t < taps; ++t)
                        plane[(flipped ? taps - 1 - t : t) * block + lane] =
                            scale * from[lane * along.step + t];
                    kernels_.forward({plane, {problem_.r, problem_.s, 0, 0, tile_, tile_}}, nullptr,
                                     me.scratch, to);
                  });
    }
  }

  void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
    float* const memory = reinterpret_cast<float*>(workspace.data());
#pragma omp parallel num_threads(threads_)
    {
      const int thread = omp_get_thread_num(), team = omp_get_num_threads();
      float* const scratch = memory + parts() * part_floats() + thread * scratch_floats();
      const Member all{memory, scratch, thread, team, team > 1};
      if (shared_ && filter_pass_) {
        sum_shared(all, args);
      } else if (shared_) {
        convolve_blocks(all, args, all_tiles());
      } else if (filter_pass_ && x_owners() == 1) {
        sum_private(all, args);
      } else {
        // Parts share nothing: any number of threads can run the planned parts.
        for (int part = thread; part < threads_; part += team)
          if (filter_pass_)
            sum_private({memory, scratch, part, threads_}, args);
          else
            convolve_blocks({memory + part * part_floats(), scratch, 0, 1}, args,
                            share(tiling_.tiles, part, threads_));
      }
    }
  }

 private:
  // One thread's view of a run. A team shares the memory and divides the work.
  struct Member {
    float* memory;
    float* scratch;
    int rank, team;
    // Non-temporal stores of spectra that do not fit in L2: packed filters, and spectra that a team
    // shares, since a line that another core has read is slow to write (winograd.h).
    bool non_temporal = false;

    void barrier() const {
      if (team > 1) {
#pragma omp barrier
      }
    }
    // f(first, last) for this member's part of [0, count), at most `most` at a time.
    template <class F>
    void share(std::int64_t count, std::int64_t most, const F& f) const {
      const std::int64_t end = (rank + 1) * count / team;
      for (std::int64_t i = rank * count / team; i < end; i += most) f(i, std::min(i + most, end));
    }
  };

  // Some channel blocks; a part of dw: blocks of k, and channels of c from the first on.
  struct Blocks {
    std::int64_t first, count;
  };
  struct Part {
    Blocks k;
    std::int64_t c, channels;
  };

  std::int64_t from_blocks() const { return tiling_.from.padded_c() / tiling_.block; }
  std::int64_t to_blocks() const { return tiling_.to.padded_c() / tiling_.block; }
  // Floats of one whole channel block at one point.
  std::int64_t element() const { return 2 * tiling_.block; }
  Spectra filters() const { return {tiling_.filters(), tiling_.block}; }
  Spectra inputs(std::int64_t tiles, std::int64_t blocks) const {
    return {tiles * blocks, tiling_.lanes};
  }
  Spectra inputs(std::int64_t tiles) const { return inputs(tiles, from_blocks()); }
  Spectra outputs(std::int64_t tiles, std::int64_t blocks) const {
    return {tiles * blocks, tiling_.block};
  }
  Spectra sums(const Part& part) const { return {part.channels * part.k.count, tiling_.block}; }

  std::int64_t blocks() const { return ceil_div(tiling_.tiles, tiles_); }
  // f(b, first, count) for each block b of these tiles. Blocks are of nearly equal size, none
  // larger than tiles_.
  template <class F>
  void for_each_block(Range tiles, const F& f) const {
    const std::int64_t blocks = ceil_div(tiles.size(), tiles_);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const Range block = share(tiles.size(), b, blocks);
      f(b, tiles.begin + block.begin, block.size());
    }
  }
  Range all_tiles() const { return {0, tiling_.tiles}; }

  // How many parts of the tiles have spectra of their own.
  int parts() const { return shared_ || filter_pass_ ? 1 : threads_; }
  std::int64_t floats(const Spectra& spectra) const {
    return kernels_.points * spectra.point_stride;
  }
  // The spectra of the input and the output of a block of tiles; in backward_filter also of dw, or
  // of the whole input, and each thread's parts of the outputs and of dw.
  std::int64_t part_floats() const {
    if (filter_pass_ && !shared_) return x_owners() * x_floats() + threads_ * own_floats();
    return floats(inputs(tiles_)) + floats(outputs(tiles_, out_blocks_)) +
           (filter_pass_ ? floats(sums({{0, to_blocks()}, 0, problem_.c})) : 0) + thread_padding;
  }
  std::int64_t own_floats() const {
    return floats(outputs(tiles_, 1)) + floats(sums({{0, 1}, 0, channels_})) + thread_padding;
  }
  // How many threads own channels of x and keep their spectra, of all tiles: all threads if the
  // channels divide nearly evenly, else one.
  std::int64_t x_owners() const {
    const std::int64_t most = ceil_div(from_blocks(), std::int64_t{threads_});
    return 8 * most * threads_ <= 9 * from_blocks() ? threads_ : 1;
  }
  std::int64_t x_floats() const {
    return blocks() * floats(inputs(tiles_, ceil_div(from_blocks(), x_owners()))) + thread_padding;
  }
  // If channels are few, several tiles are transformed at once, side by side in a vector.
  std::int64_t side_by_side() const { return tiling_.block / tiling_.lanes; }
  // A thread's scratch: for the codelets, for staged items, and for the pixels of a block of
  // filters or of tiles side by side.
  Spectra staged() const { return {staged_, tiling_.block}; }
  std::int64_t scratch_floats() const {
    const std::int64_t pixels =
        std::max(problem_.r * problem_.s, side_by_side() > 1 ? tile_ * tile_ : 0);
    return kernels_.scratch + floats(staged()) + round_up(pixels * tiling_.block, 16) +
           thread_padding;
  }
  float* pixel_plane(const Member& me) const {
    return me.scratch + kernels_.scratch + floats(staged());
  }

  bool leaves_l2(const Spectra& spectra) const {
    return 4 * floats(spectra) > device_.info().l2_bytes;
  }

  // transform(i, where) for this member's part of the items, where = item i of `to`.
  template <class F>
  void write_items(const Member& me, std::int64_t items, float* to, const Spectra& spectra,
                   const F& transform) const {
    float* const stage = me.scratch + kernels_.scratch;
    me.share(items, staged_, [&](std::int64_t first, std::int64_t last) {
      float* const there = to + first * element();
      const bool direct = !leaves_l2(spectra);
      const std::int64_t stride = direct ? spectra.point_stride : staged().point_stride;
      for (std::int64_t i = first; i < last; ++i)
        transform(i,
                  TileSpectrum<float>{(direct ? there : stage) + (i - first) * element(), stride});
      if (direct) return;
      for (std::int64_t p = 0; p < kernels_.points; ++p) {
        const float* const from = stage + p * stride;
        float* const at = there + p * spectra.point_stride;
        const std::int64_t count = (last - first) * element();
        me.non_temporal ? kernels_.copy_non_temporal(from, count, at)
                        : void(std::copy_n(from, count, at));
      }
    });
    if (me.non_temporal) hwy::FlushStream();
  }

  template <class F>
  void read_items(const Member& me, std::int64_t items, const float* from, const Spectra& spectra,
                  const F& transform) const {
    float* const stage = me.scratch + kernels_.scratch;
    me.share(items, staged_, [&](std::int64_t first, std::int64_t last) {
      const float* const there = from + first * element();
      const bool direct = !leaves_l2(spectra);
      const std::int64_t stride = direct ? spectra.point_stride : staged().point_stride;
      for (std::int64_t p = 0; p < (direct ? 0 : kernels_.points); ++p)
        std::copy_n(there + p * spectra.point_stride, (last - first) * element(),
                    stage + p * stride);
      for (std::int64_t i = first; i < last; ++i)
        transform(i, TileSpectrum<const float>{(direct ? there : stage) + (i - first) * element(),
                                               stride});
    });
  }

  // The spectra of tiles [first, first + count) of the input: all that the outputs read.
  void transform_input(const Member& me, const void* data, Blocks blocks, std::int64_t first,
                       std::int64_t count, float* to, const Spectra& spectra) const {
    if (side_by_side() > 1)
      me.share(ceil_div(count, side_by_side()), 1, [&](std::int64_t group, std::int64_t) {
        const std::int64_t begin = group * side_by_side();
        transform_side_by_side(me, data,
                               {first + begin, first + std::min(begin + side_by_side(), count)},
                               [&](std::int64_t tile) {
                                 return TileSpectrum<float>{to + (tile - first) * spectra.element,
                                                            spectra.point_stride};
                               });
      });
    else
      transform_tiles(me, tiling_.from, blocks, first, count, to, spectra,
                      [&](const FftTiling::Place& at, std::int64_t channel) {
                        return WindowIn{
                            static_cast<const float*>(data) + tiling_.from_offset(at, channel),
                            tiling_.from_window(at)};
                      });
  }

  // If channels are few, up to side_by_side() tiles at once: to(tile) is where the spectrum of each
  // goes.
  template <class F>
  void transform_side_by_side(const Member& me, const void* data, Range tiles, const F& to) const {
    const auto with_lanes = [&](auto lanes) {
      const std::int64_t block = tiling_.block;
      float* const plane = pixel_plane(me);
      std::fill_n(plane, tile_ * tile_ * block, 0.f);
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        const FftTiling::Place place = tiling_.place(tile);
        const Window at = tiling_.from_window(place);
        const float* const image = static_cast<const float*>(data) + tiling_.from_offset(place, 0);
        const std::int64_t top = std::max<std::int64_t>(0, -at.y),
                           left = std::max<std::int64_t>(0, -at.x);
        const std::int64_t bottom = std::min(tile_, at.h - at.y),
                           right = std::min(tile_, at.w - at.x);
        for (std::int64_t y = top; y < bottom; ++y)
          for (std::int64_t x = left; x < right; ++x)
            std::memcpy(plane + (y * tile_ + x) * block + (tile - tiles.begin) * lanes,
                        image + at.offset(at.y + y, at.x + x) * block, lanes * sizeof(float));
      }
      float* const stage = me.scratch + kernels_.scratch;
      const std::int64_t stride = staged().point_stride;
      kernels_.forward({plane, {tile_, tile_, 0, 0, tile_, tile_}}, nullptr, me.scratch,
                       {stage, stride});
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        const float* const from = stage + (tile - tiles.begin) * lanes;
        const TileSpectrum<float> there = to(tile);
        for (std::int64_t p = 0; p < kernels_.points; ++p)
          for (std::int64_t part = 0; part < 2; ++part)  // re, im
            std::memcpy(there.data + p * there.point_stride + part * lanes,
                        from + p * stride + part * block, lanes * sizeof(float));
      }
    };
    if (tiling_.lanes == 4)
      with_lanes(std::integral_constant<int, 4>());  // of an image: moves instead of calls
    else
      with_lanes(std::size_t(tiling_.lanes));
  }

  // The same for some channel blocks of dy, in backward_filter.
  void transform_gradient(const Member& me, const void* dy, Blocks k, std::int64_t first,
                          std::int64_t count, float* to, const Spectra& spectra) const {
    transform_tiles(me, tiling_.to, k, first, count, to, spectra,
                    [&](const FftTiling::Place& at, std::int64_t channel) {
                      return WindowIn{
                          static_cast<const float*>(dy) + tiling_.to_offset(at, channel),
                          tiling_.to_window(at)};
                    });
  }

  template <class F>
  void transform_tiles(const Member& me, const TensorDesc& desc, Blocks blocks, std::int64_t first,
                       std::int64_t count, float* to, const Spectra& spectra,
                       const F& window) const {
    const auto at = [&](std::int64_t i) {
      return window(tiling_.place(first + i / blocks.count),
                    (blocks.first + i % blocks.count) * tiling_.block);
    };
    const std::int64_t items = count * blocks.count;
    const bool from_memory = exceeds_caches(4 * desc.elements(), device_.info());
    write_items(me, items, to, spectra, [&](std::int64_t i, TileSpectrum<float> item) {
      const WindowIn next = at(std::min(i + 1, items - 1));
      kernels_.forward(at(i), from_memory && i + 1 < items ? &next : nullptr, me.scratch, item);
    });
  }

  // forward and backward_data.
  void convolve_blocks(const Member& me, const ConvArgs& args, Range tiles) const {
    for_each_block(tiles, [&](std::int64_t, std::int64_t first, std::int64_t count) {
      convolve(me, args, first, count);
    });
  }
  void convolve(const Member& me, const ConvArgs& args, std::int64_t first,
                std::int64_t count) const {
    const void* const data = problem_.pass == Pass::forward ? args.x : args.dy;
    const Spectra in = inputs(count);
    float* const in_data = me.memory;
    float* const out_data = in_data + floats(in);
    {
      const PhaseScope scope(args.phases, 0);
      transform_input(me, data, {0, from_blocks()}, first, count, in_data, in);
    }
    me.barrier();
    for (std::int64_t k = 0; k < to_blocks(); k += out_blocks_) {
      const std::int64_t blocks = std::min(out_blocks_, to_blocks() - k);
      const Spectra out = outputs(count, blocks);
      {
        const PhaseScope scope(args.phases, 1);
        const float* const w = static_cast<const float*>(args.w) + k * tiling_.from.c * element();
        me.share(kernels_.points, kernels_.points, [&](std::int64_t point, std::int64_t end) {
          const float* const a = in_data + point * in.point_stride;
          const float* const b = w + point * filters().point_stride;
          float* const sums = out_data + point * out.point_stride;
          if (tiling_.few_outputs)
            return kernels_.few_product({.points = end - point,
                                         .a_point = in.point_stride,
                                         .b_point = filters().point_stride,
                                         .out_point = out.point_stride,
                                         .a = a,
                                         .b = b,
                                         .out = sums,
                                         .a_row = from_blocks() * in.element,
                                         .out_row = element(),
                                         .rows = count,
                                         .blocks = from_blocks(),
                                         .few = tiling_.to.c});
          kernels_.product({.points = end - point,
                            .a_point = in.point_stride,
                            .b_point = filters().point_stride,
                            .out_point = out.point_stride,
                            .a = a,
                            .a_row = from_blocks() * in.element,
                            .a_group = in.element,
                            .group = tiling_.block,
                            .a_im = tiling_.lanes,
                            .b = b,
                            .b_depth = element(),
                            .b_block = element() * tiling_.from.c,
                            .out = sums,
                            .out_row = blocks * element(),
                            .rows = count,
                            .depth = tiling_.from.c,
                            .blocks = blocks,
                            .accumulate = false});
        });
      }
      me.barrier();
      {
        const PhaseScope scope(args.phases, 2);
        write_outputs(me, args, first, count, k, blocks, out_data, out);
      }
      me.barrier();
    }
  }

  // The outputs of channel blocks [k, k + blocks).
  void write_outputs(const Member& me, const ConvArgs& args, std::int64_t first, std::int64_t count,
                     std::int64_t k, std::int64_t blocks, const float* from,
                     const Spectra& spectra) const {
    const OutputEpilogue<float> output = output_epilogue<float>(
        problem_, args, non_temporal_ && is_aligned_for_non_temporal(args.out));
    read_items(me, count * blocks, from, spectra,
               [&](std::int64_t i, TileSpectrum<const float> item) {
                 const FftTiling::Place at = tiling_.place(first + i / blocks);
                 const std::int64_t channel = (k + i % blocks) * tiling_.block;
                 alignas(64) float bias[16] = {};  // lanes past K stay zero
                 if (output.bias != nullptr)
                   std::copy_n(output.bias + channel,
                               std::min(tiling_.block, tiling_.to.c - channel), bias);
                 kernels_.inverse(item, me.scratch,
                                  output.at(tiling_.to_offset(at, channel), 0).with_biases(bias),
                                  tiling_.to_window(at));
               });
    if (output.non_temporal) hwy::FlushStream();
  }

  // backward_filter if all threads share a block of tiles and the spectra of dw: each has some of
  // the points.
  void sum_shared(const Member& me, const ConvArgs& args) const {
    const Part all{{0, to_blocks()}, 0, problem_.c};
    const Blocks all_x{0, from_blocks()};
    float* const x_data = me.memory;
    float* const dy_data = x_data + floats(inputs(tiles_));
    float* const dw_data = dy_data + floats(outputs(tiles_, to_blocks()));
    for_each_block(all_tiles(), [&](std::int64_t, std::int64_t first, std::int64_t count) {
      const Spectra x = inputs(count), dy = outputs(count, to_blocks());
      {
        const PhaseScope scope(args.phases, 0);
        transform_input(me, args.x, all_x, first, count, x_data, x);
        transform_gradient(me, args.dy, all.k, first, count, dy_data, dy);
      }
      me.barrier();
      {
        const PhaseScope scope(args.phases, 1);
        add_products(me, all, all_x, x_data, x, dy_data, dy, count, dw_data, first > 0);
      }
      me.barrier();
    });
    write_filter_gradient(me, args, all, dw_data);
  }

  // The same if each thread has its own parts of dw, whose spectra stay in its L2 from the first
  // tile to the inverse transform.
  void sum_private(const Member& me, const ConvArgs& args) const {
    const bool owns_x = x_owners() > 1;
    float* const x_data = me.memory + (owns_x ? me.rank * x_floats() : 0);
    float* const dy_data = me.memory + x_owners() * x_floats() + me.rank * own_floats();
    float* const dw_data = dy_data + floats(outputs(tiles_, 1));
    const Member alone{nullptr, me.scratch, 0, 1};
    const Member& of_x = owns_x ? alone : me;

    Blocks x_blocks{0, owns_x ? 0 : from_blocks()};
    if (owns_x)
      me.share(from_blocks(), from_blocks(), [&](std::int64_t begin, std::int64_t end) {
        x_blocks = {begin, end - begin};
      });
    const auto x_of = [&](std::int64_t count) { return inputs(count, x_blocks.count); };
    const std::int64_t x_step = floats(x_of(tiles_));  // blocks of tiles lie one after the other
    {
      const PhaseScope scope(args.phases, 0);
      // Divided once, not in every block: with few channels, two threads would write the lines
      // between them.
      const Range mine = owns_x ? all_tiles() : share(tiling_.tiles, me.rank, me.team);
      if (side_by_side() > 1)
        for (std::int64_t tile = mine.begin; tile < mine.end; tile += side_by_side())
          transform_side_by_side(
              alone, args.x, {tile, std::min(tile + side_by_side(), mine.end)},
              [&](std::int64_t i) {
                const std::int64_t b = ceil_div((i + 1) * blocks(), tiling_.tiles) - 1;
                const Range block = share(tiling_.tiles, b, blocks());
                const Spectra x = x_of(block.size());
                return TileSpectrum<float>{x_data + b * x_step + (i - block.begin) * x.element,
                                           x.point_stride};
              });
      else
        for_each_block(all_tiles(), [&](std::int64_t b, std::int64_t first, std::int64_t count) {
          const Spectra x = x_of(count);
          const std::int64_t begin = std::max(first, mine.begin);
          const std::int64_t end = std::min(first + count, mine.end);
          if (begin < end)
            transform_input(alone, args.x, x_blocks, begin, end - begin,
                            x_data + b * x_step + (begin - first) * x_blocks.count * x.element, x);
        });
    }
    of_x.barrier();

    const std::int64_t c_begin = x_blocks.first * tiling_.block;
    const std::int64_t c_end =
        std::min(problem_.c, (x_blocks.first + x_blocks.count) * tiling_.block);
    const std::int64_t chunks = ceil_div(c_end - c_begin, channels_);
    std::int64_t transformed = -1;  // which block of k is, with all tiles
    of_x.share(to_blocks() * chunks, 1, [&](std::int64_t i, std::int64_t) {
      const std::int64_t c = c_begin + i % chunks * channels_;
      const Part part{{i / chunks, 1}, c, std::min(channels_, c_end - c)};
      for_each_block(all_tiles(), [&](std::int64_t b, std::int64_t first, std::int64_t count) {
        const Spectra dy = outputs(count, 1);
        if (transformed != part.k.first) {
          const PhaseScope scope(args.phases, 0);
          transform_gradient(alone, args.dy, part.k, first, count, dy_data, dy);
          if (count == tiling_.tiles) transformed = part.k.first;
        }
        const PhaseScope scope(args.phases, 1);
        add_products(alone, part, x_blocks, x_data + b * x_step, x_of(count), dy_data, dy, count,
                     dw_data, first > 0);
      });
      write_filter_gradient(alone, args, part, dw_data);
    });
  }

  // DW += X conj(DY) over `count` tiles, for a part of dw, from x's spectra of some blocks.
  void add_products(const Member& me, const Part& part, Blocks x_blocks, const float* x_data,
                    const Spectra& x, const float* dy_data, const Spectra& dy, std::int64_t count,
                    float* dw_data, bool accumulate) const {
    const Spectra dw = sums(part);
    const std::int64_t row = part.k.count * element();
    me.share(kernels_.points, kernels_.points, [&](std::int64_t point, std::int64_t end) {
      // Rows are channels of one block.
      for (std::int64_t c = part.c; c < part.c + part.channels;
           c = round_up(c + 1, tiling_.block)) {
        const std::int64_t next = round_up(c + 1, tiling_.block);
        kernels_.product({.points = end - point,
                          .a_point = x.point_stride,
                          .b_point = dy.point_stride,
                          .out_point = dw.point_stride,
                          .a = x_data + point * x.point_stride +
                               (c / tiling_.block - x_blocks.first) * x.element + c % tiling_.block,
                          .a_row = 1,
                          .a_group = x_blocks.count * x.element,
                          .group = 1,
                          .a_im = tiling_.lanes,
                          .b = dy_data + point * dy.point_stride,
                          .b_depth = row,
                          .b_block = element(),
                          .out = dw_data + point * dw.point_stride + (c - part.c) * row,
                          .out_row = row,
                          .rows = std::min(next, part.c + part.channels) - c,
                          .depth = count,
                          .blocks = part.k.count,
                          .accumulate = accumulate});
      }
    });
  }

  void write_filter_gradient(const Member& me, const ConvArgs& args, const Part& part,
                             const float* dw_data) const {
    const PhaseScope scope(args.phases, 2);
    const std::int64_t block = tiling_.block, taps = problem_.r * problem_.s;
    const float scale = 1.f / static_cast<float>(tile_ * tile_);
    float* const plane = pixel_plane(me);
    read_items(me, part.channels * part.k.count, dw_data, sums(part),
               [&](std::int64_t i, TileSpectrum<const float> item) {
                 const std::int64_t c = part.c + i / part.k.count;
                 const std::int64_t k = (part.k.first + i % part.k.count) * block;
                 kernels_.inverse(item, me.scratch, {.out = plane},
                                  {problem_.r, problem_.s, 0, 0, problem_.r, problem_.s});
                 for (std::int64_t lane = 0; lane < std::min(block, problem_.k - k); ++lane) {
                   float* const to =
                       static_cast<float*>(args.out) + ((k + lane) * problem_.c + c) * taps;
                   for (std::int64_t t = 0; t < taps; ++t) {
                     const float value = scale * plane[t * block + lane];
                     to[t] = problem_.accumulate ? to[t] + value : value;
                   }
                 }
               });
  }

  const ConvProblem problem_;
  const TileKernels& kernels_;
  const FftTiling tiling_;
  Device& device_;
  const int threads_;
  const std::int64_t tile_, tiles_;  // a tile's side; tiles in a block
  const bool shared_, non_temporal_, filter_pass_;
  std::int64_t staged_ = 1;      // items transformed before they are copied
  std::int64_t out_blocks_ = 0;  // output channel blocks worked on at a time
  std::int64_t channels_ = 0;    // of x in a thread's part of dw
};

}  // namespace

std::unique_ptr<ConvPlan> make_fft_tiled_plan(const ConvProblem& p, const Config& config,
                                              Device& device) {
  return std::make_unique<FftTiledPlan>(p, config, device);
}

}  // namespace convlab::cpu
