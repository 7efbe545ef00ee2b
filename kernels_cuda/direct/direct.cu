// direct: the definition itself, in register tiles. There are no matrices and no copy of the input:
// a block reads its part of the image once for all taps. The kernels are in pixels.cu (forward and
// backward_data) and filter.cu (backward_filter).
//
// f16 and bf16 are widened on their way to shared memory and accumulated in f32. Filters are packed
// with output channels innermost, so that neighbouring threads read neighbouring values.
#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/direct/direct.h"

namespace convlab::cuda {
namespace {

constexpr std::int64_t most_blocks = 65535;  // in y and z

DirectKernel kernel_of(const Config& c) {
  return c.choice<DirectKernel>("kernel", direct_kernel_names);
}
DirectPixels pixels_of(const ConvProblem& p, const Config& c, const DeviceInfo& card) {
  if (kernel_of(c) == DirectKernel::plain) return DirectPixels(p, int(c.get("rows")));
  return DirectPixels(p, card, int(c.get("k")), int(c.get("pixels")), int(c.get("warps")),
                      int(c.get("width")));
}
DirectFilter filter_of(const ConvProblem& p, const Config& c, const DeviceInfo& card) {
  const DirectKernel kernel = kernel_of(c);
  return DirectFilter(p, card, kernel, kernel == DirectKernel::plain ? 1 : int(c.get("warps")),
                      int(c.get("split")));
}

class PixelsPlan final : public ConvPlan {
 public:
  PixelsPlan(const ConvProblem& problem, const DirectPixels& direct)
      : problem_(problem), direct_(direct) {}
  std::size_t workspace_bytes() const noexcept override { return 0; }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(direct_.packed_elements() * size_of(problem_.dtype));
  }
  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    direct_.pack(problem_.dtype, w.data(), packed.data(), stream);
  }
  void run(const ConvArgs& args, Workspace, Stream& stream) const override {
    run_phase(args.phases, 0, stream, [&] { direct_.run(problem_, args, stream); });
  }

 private:
  const ConvProblem problem_;
  const DirectPixels direct_;
};

// Partial sums are f32, or f64.
std::int64_t sum_bytes(DType dtype) { return dtype == DType::f64 ? 8 : 4; }

class FilterPlan final : public ConvPlan {
 public:
  FilterPlan(const ConvProblem& problem, const DirectFilter& direct)
      : problem_(problem), direct_(direct) {}
  std::size_t workspace_bytes() const noexcept override {
    if (direct_.split == 1) return 0;
    return std::size_t(direct_.split * direct_.elements() * sum_bytes(problem_.dtype));
  }
  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    direct_.run(problem_, args, workspace, stream);
  }

 private:
  const ConvProblem problem_;
  const DirectFilter direct_;
};

class Direct final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "direct",
                               .version = 4,
                               .device = DeviceKind::cuda,
                               .origin = Origin::own,
                               .summary = "the definition, in register tiles",
                               .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device&) const override {
    if (auto refusal = refuse_all_but_relu(p)) return refusal;
    if (auto refusal = refuse_blocked_layouts(p)) return refusal;
    // Positions within an image, and coordinates with their padding, are counted in int.
    constexpr std::int64_t most = std::int64_t(1) << 31;
    const std::int64_t x_pixels = p.d * p.h * p.w, y_pixels = p.z * p.p * p.q;
    if (const std::int64_t image = std::max(p.c * x_pixels, p.k * y_pixels); image >= most)
      return Refusal{Field::image, "images of fewer than 2^31 elements", std::to_string(image)};
    const std::int64_t reach = std::max({p.z * p.stride_d + p.t * p.dilation_d + p.pad_d + p.d,
                                         p.p * p.stride_h + p.r * p.dilation_h + p.pad_h + p.h,
                                         p.q * p.stride_w + p.s * p.dilation_w + p.pad_w + p.w});
    if (reach >= most_reach)
      return Refusal{Field::image, "padded images of fewer than 2^26 slices, rows and columns",
                     std::to_string(reach)};
    // The numbers of blocks, with the smallest tiles.
    if (const std::int64_t filters = p.k * p.c / p.groups * p.t * ceil_div(p.r * p.s, 9);
        filters >= most)
      return Refusal{Field::filter, "fewer than 2^31 groups of 9 filter taps",
                     std::to_string(filters)};
    if (const std::int64_t pixels = p.n * std::max(y_pixels, x_pixels); pixels >= most)
      return Refusal{Field::size, "fewer than 2^31 pixels in all", std::to_string(pixels)};
    if (std::max(p.c, p.k) > 4 * most_blocks)
      return Refusal{Field::channels, fmt::format("at most {} channels", 4 * most_blocks),
                     std::to_string(std::max(p.c, p.k))};
    if (p.pass == Pass::backward_data && p.stride_d * p.stride_h * p.stride_w > most_blocks)
      return Refusal{Field::stride, fmt::format("strides whose product is at most {}", most_blocks),
                     std::to_string(p.stride_d * p.stride_h * p.stride_w)};
    return {};
  }

  std::vector<Config> configs(const ConvProblem& p, Device& device) const override {
    return p.pass == Pass::backward_filter ? filter_configs(p, device) : pixel_configs(p, device);
  }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    // Blocks hit in L2 on data that others have read. Register tiles execute their padding.
    const bool staged = kernel_of(config) == DirectKernel::staged;
    // A strip loads each row once for all taps. backward_filter without staging loads it for each.
    const bool strips = !staged && p.pass != Pass::backward_filter;
    PhaseWork product{.name = "product",
                      .flops = p.flops(),
                      .efficiency = staged   ? 0.35
                                    : strips ? 0.15
                                             : 0.1};
    const double x = double(p.x_bytes()), y = double(p.y_bytes()), w = double(p.filter_bytes());
    if (p.pass != Pass::backward_filter) {
      const DirectPixels d = pixels_of(p, config, device.info());
      const double inputs = p.pass == Pass::forward ? x : y, outputs = double(p.output_bytes());
      product.bytes_read = inputs + w + (p.epilogue.residual || p.accumulate ? outputs : 0);
      product.bytes_written = outputs;
      if (staged) {
        const double rows = double(d.h.phase_count()), columns = double(d.w.phase_count());
        const std::int64_t tile_h = 32 * d.pixels / d.tile_w;
        product.flops *= double(round_up(std::int64_t(rows), tile_h)) / rows *
                         double(round_up(std::int64_t(columns), d.tile_w)) / columns *
                         double(d.padded_channels) / double(d.out_channels);
      }
      return {{product}};
    }
    const DirectFilter d = filter_of(p, config, device.info());
    const double sums =
        d.split == 1 ? 0 : double(d.split) * double(d.elements()) * double(sum_bytes(p.dtype));
    product.bytes_read = x + y;
    product.bytes_written = d.split == 1 ? w : sums;
    if (staged) {
      const std::int64_t columns = std::int64_t(d.channels) * d.r * d.s;
      product.flops *= double(round_up(columns, 32 * DirectFilter::columns)) / double(columns) *
                       double(round_up(d.filters, d.tile_k())) / double(d.filters) *
                       double(round_up(p.p, d.tile_h)) / double(p.p) *
                       double(round_up(p.q, d.tile_w)) / double(p.q);
    }
    WorkEstimate estimate{{product}};
    estimate.phases.push_back({.name = "sum",
                               .flops = double(d.split > 1 ? d.split : 0) * double(d.elements()),
                               .bytes_read = sums,
                               .bytes_written = d.split == 1 ? 0 : w});
    return estimate;
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    const DeviceInfo& card = device.info();
    const auto expect = [&](bool right, const char* what) {
      if (!right) throw InputError(fmt::format("direct: '{}': expected {}", config.text(), what));
    };
    const bool staged = kernel_of(config) == DirectKernel::staged;
    if (staged) expect(is_one_of(config.get("warps"), {1, 2, 4, 8}), "warps=1, 2, 4 or 8");
    if (p.pass == Pass::backward_filter) {
      if (staged)
        config.require_only({"kernel", "warps", "split"});
      else
        config.require_only({"kernel", "split"});
      const std::int64_t split = config.get("split");
      expect(split >= 1 && split <= most_blocks, "split=1 to 65535");
      const DirectFilter d = filter_of(p, config, card);
      require_shared_memory("direct", config, std::int64_t(d.shared_bytes), card);
      expect(fits_grid(d), "more warps, or kernel=plain: these are more than 65535 blocks");
      return std::make_unique<FilterPlan>(p, d);
    }
    if (staged) {
      config.require_only({"kernel", "k", "pixels", "warps", "width"});
      const std::int64_t k = config.get("k"), pixels = config.get("pixels");
      expect(is_one_of(k, {8, 16}), "k=8 or 16");
      expect(is_one_of(pixels, {2, 4}), "pixels=2 or 4");
      expect(k == 8 || (pixels == 4 && p.dtype != DType::f64),
             "k=16 with pixels=4 and not with f64");
      expect(config.get("warps") <= most_warps_of(p, config), "warps=4 at most for such tiles");
      expect(is_one_of(config.get("width"), {8, 16, 32}), "width=8, 16 or 32");
    } else {
      config.require_only({"kernel", "rows"});
      expect(is_one_of(config.get("rows"), {4, 8}), "rows=4 or 8");
    }
    const DirectPixels d = pixels_of(p, config, card);
    require_shared_memory("direct", config, std::int64_t(d.shared_bytes), card);
    expect(fits_grid(d), "larger tiles, or kernel=plain: these are more than 65535 blocks");
    return std::make_unique<PixelsPlan>(p, d);
  }

 private:
  static bool is_one_of(std::int64_t value, std::initializer_list<std::int64_t> values) {
    return std::find(values.begin(), values.end(), value) != values.end();
  }
  static int most_warps_of(const ConvProblem& p, const Config& c) {
    return most_warps(int(c.get("k")), int(c.get("pixels")), int(sum_bytes(p.dtype)));
  }
  static bool fits_grid(const DirectPixels& d) {
    return d.kernel == DirectKernel::plain ||
           std::int64_t(d.groups) * (d.padded_channels / (d.k * d.warps)) <= most_blocks;
  }
  static bool fits_grid(const DirectFilter& d) {
    return d.kernel == DirectKernel::plain ||
           d.groups * ceil_div(d.filters, d.tile_k()) <= most_blocks;
  }
  template <class Work>
  static bool fits(const Work& d, const DeviceInfo& card) {
    return fits_grid(d) && fits_block(std::int64_t(d.shared_bytes), card);
  }

  // First the tiles that are a block or more for each multiprocessor, the largest first. A tile
  // needs as many output channels in a group as it has.
  static std::vector<Config> pixel_configs(const ConvProblem& p, Device& device) {
    const bool forward = p.pass == Pass::forward;
    const std::int64_t outputs = (forward ? p.k : p.c) / p.groups;
    const std::int64_t slices = forward ? p.z : p.d;
    const std::int64_t rows = forward ? p.p : ceil_div(p.h, p.stride_h);
    const std::int64_t columns = forward ? p.q : ceil_div(p.w, p.stride_w);
    struct Tile {
      std::int64_t k, pixels, warps;
    };
    std::vector<Config> large, small;
    for (const Tile t : {Tile{16, 4, 4}, Tile{8, 4, 8}, Tile{8, 4, 4}, Tile{8, 2, 8}, Tile{8, 2, 4},
                         Tile{8, 2, 2}}) {
      if ((t.k == 16 && p.dtype == DType::f64) || outputs < t.k) continue;
      if (t.warps > 2 && outputs <= t.k * t.warps / 2) continue;
      std::int64_t width = 32, best = 0;  // the width with the fewest pixels outside
      for (const std::int64_t w : {32, 16, 8})
        if (const std::int64_t area = round_up(columns, w) * round_up(rows, 32 * t.pixels / w);
            best == 0 || area < best)
          width = w, best = area;
      const Config config{{"kernel", "staged"},
                          {"k", t.k},
                          {"pixels", t.pixels},
                          {"warps", t.warps},
                          {"width", width}};
      if (t.warps > most_warps_of(p, config) ||
          !fits(pixels_of(p, config, device.info()), device.info()))
        continue;
      const std::int64_t phases = forward ? 1 : p.stride_h * p.stride_w;
      const std::int64_t blocks = p.n * slices * phases * p.groups * best / (32 * t.pixels) *
                                  ceil_div(outputs, t.k * t.warps);
      (blocks >= device.info().threads ? large : small).push_back(config);
    }
    std::reverse(small.begin(), small.end());
    large.insert(large.end(), small.begin(), small.end());
    // Long strips load less, if their warps occupy the device: eight on each multiprocessor.
    const std::int64_t warps = p.n * slices * (forward ? p.k : p.c) *
                               ceil_div(forward ? p.p : p.h, 8) * (forward ? p.q : p.w) / 32;
    const bool enough = warps >= 8 * device.info().threads;
    for (const int strip : {enough ? 8 : 4, enough ? 4 : 8})
      large.push_back({{"kernel", "plain"}, {"rows", strip}});
    return large;
  }

  // The partial sums take at most as much memory as this.
  static constexpr std::int64_t most_sums = std::int64_t(256) << 20;

  static std::vector<Config> filter_configs(const ConvProblem& p, Device& device) {
    std::vector<Config> configs;
    // Enough parts for two blocks, or eight, on each multiprocessor.
    const auto add = [&](const Config& tile, std::int64_t blocks, std::int64_t parts) {
      const std::int64_t most = std::min(
          {parts, most_blocks,
           std::max<std::int64_t>(most_sums / (p.filter_elements() * sum_bytes(p.dtype)), 1)});
      for (const std::int64_t waves : {2, 8}) {
        Config config = tile;
        config.set("split",
                   std::clamp<std::int64_t>(ceil_div(waves * device.info().threads, blocks), 1,
                                            std::max<std::int64_t>(most, 1)));
        if (std::find(configs.begin(), configs.end(), config) == configs.end())
          configs.push_back(std::move(config));
      }
    };
    const std::int64_t filters = p.k / p.groups, channels = p.c / p.groups;
    for (const std::int64_t warps : {8, 4, 2}) {
      if (filters < 8 || (warps > 2 && filters <= warps * 4)) continue;
      const Config tile{{"kernel", "staged"}, {"warps", warps}};
      const DirectFilter d(p, device.info(), DirectKernel::staged, int(warps), 1);
      if (fits(d, device.info()))
        add(tile,
            p.groups * ceil_div(filters, d.tile_k()) *
                ceil_div(channels * p.r * p.s, 32 * DirectFilter::columns) * p.t,
            p.n * p.z * ceil_div(p.p, d.tile_h) * ceil_div(p.q, d.tile_w));
    }
    add({{"kernel", "plain"}}, p.k * channels * ceil_div(p.r * p.s, 9) * p.t,
        ceil_div(p.n * p.z * p.p * p.q, 1024));
    return configs;
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_direct() { return std::make_unique<Direct>(); }

}  // namespace convlab::cuda
