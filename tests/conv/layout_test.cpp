#include "conv/types/layout.h"

#include <gtest/gtest.h>

#include <set>

#include "conv/error.h"

namespace convlab {
namespace {

TEST(Layout, NamesRoundTrip) {
  for (Layout l : all_layouts) EXPECT_EQ(parse_layout(to_string(l)), l);
  for (DType t : all_dtypes) EXPECT_EQ(parse_dtype(to_string(t)), t);
  EXPECT_THROW(parse_layout("nchw32c"), InputError);
  EXPECT_THROW(parse_dtype("f8"), InputError);
}

TEST(TensorDesc, OffsetIsABijectionOntoTheElements) {
  for (Layout layout : all_layouts) {
    const TensorDesc t{2, 19, 3, 5, layout};
    std::set<std::int64_t> seen;
    for (std::int64_t n = 0; n < t.n; ++n)
      for (std::int64_t c = 0; c < t.padded_c(); ++c)
        for (std::int64_t h = 0; h < t.h; ++h)
          for (std::int64_t w = 0; w < t.w; ++w) seen.insert(t.offset(n, c, h, w));
    EXPECT_EQ(std::int64_t(seen.size()), t.elements());
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), t.elements() - 1);
  }
}

TEST(TensorDesc, KnownOffsets) {
  EXPECT_EQ((TensorDesc{1, 3, 2, 2, Layout::nhwc}.offset(0, 2, 1, 0)), 8);
  EXPECT_EQ((TensorDesc{1, 20, 2, 2, Layout::nchw16c}.offset(0, 17, 1, 1)), 64 + 48 + 1);
}

TEST(TensorDesc, ViewsLieInALargerTensor) {
  // Slice 1 of a depth of 3: what the whole has in its rows 1 * 2 and 1 * 2 + 1.
  for (const Layout layout : all_layouts) {
    const TensorDesc whole{2, 19, 3 * 2, 5, layout};
    const std::int64_t channel = layout == Layout::nhwc ? 0 : whole.channel_step();
    const TensorDesc slice{2, 19, 2, 5, layout, {whole.image_step(), channel}};
    const std::int64_t start = whole.offset(0, 0, 2, 0);
    for (std::int64_t n = 0; n < 2; ++n)
      for (std::int64_t c = 0; c < slice.padded_c(); ++c)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t w = 0; w < 5; ++w)
            EXPECT_EQ(start + slice.offset(n, c, h, w), whole.offset(n, c, 2 + h, w));
  }
}

}  // namespace
}  // namespace convlab
