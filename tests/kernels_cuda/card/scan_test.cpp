// Scanning and sampling of results in a card's memory.
#include <cmath>
#include <cstring>

#include "conv/optional/scanning_device.h"
#include "conv/types/element_type.h"
#include "tests/kernels_cuda/card/card_device.h"

namespace convlab::cuda {
namespace {

class CudaScan : public CardTest {
 protected:
  ScanningDevice& scanner() { return dynamic_cast<ScanningDevice&>(*device_); }
};

TEST_F(CudaScan, CountsAndGathersEveryType) {
  for (const DType dtype : all_dtypes)
    with_element_type(dtype, [&]<class T>(T) {
      // More than one round of the grid's threads, and a ragged end.
      for (const std::int64_t count : {1, 255, 300'003}) {
        std::vector<T> values(std::size_t(count), T(-1.5));
        Buffer there = upload(values);
        EXPECT_EQ(scanner().count_not_finite(dtype, there.span(), *stream_), 0);
        values.front() = T(double(INFINITY));
        values.back() = T(double(NAN));
        values[std::size_t(count / 2)] = T(-double(INFINITY));
        there = upload(values);
        EXPECT_EQ(scanner().count_not_finite(dtype, there.span(), *stream_),
                  std::min<std::int64_t>(count, 3))
            << to_string(dtype) << count;

        std::vector<std::int64_t> places;
        for (std::int64_t i = count - 1; i >= 0; i -= 97) {
          places.push_back(i);
          values[std::size_t(i)] = T(double(i % 100));
        }
        there = upload(values);
        std::vector<T> got(places.size());
        scanner().gather(dtype, there.data(), places, std::as_writable_bytes(std::span(got)),
                         *stream_);
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(double(got[i]), double(places[i] % 100)) << to_string(dtype) << i;
      }
    });
}

}  // namespace
}  // namespace convlab::cuda
