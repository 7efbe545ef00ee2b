// CONVLAB_TWIN: an algorithm's twin is of its family, and its names match the twin.
#include "bench/options/twin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "autotune/candidates.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

using Ids = std::vector<std::string>;

class Twin : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("CONVLAB_TWIN"); }

  static AlgoRegistry registry_with(const char* twin) {
    ::setenv("CONVLAB_TWIN", twin, 1);
    AlgoRegistry registry;
    append_cpu_algos(registry);
    append_twin(registry);
    return registry;
  }
  static Ids ids(const AlgoRegistry& registry, const Ids& algos, const Ids& exclude) {
    Ids found;
    for (const ConvAlgo* algo : admitted_algos(registry, DeviceKind::cpu, algos, exclude))
      found.push_back(algo->info().id);
    return found;
  }
};

TEST_F(Twin, IsOfItsAlgorithmsFamily) {
  const AlgoRegistry registry = registry_with("direct_plain:2");
  const Ids direct{"direct", "direct_first_layer", "direct_grouped", "direct_plain",
                   "direct_plain.twin"};
  const Ids both{"direct_plain", "direct_plain.twin"};
  EXPECT_EQ(registry.get(DeviceKind::cpu, "direct_plain.twin").info().family, "direct");
  EXPECT_EQ(ids(registry, {"direct"}, {}), direct);
  EXPECT_EQ(ids(registry, {"direct_plain"}, {}), both);
  EXPECT_EQ(ids(registry, both, {"direct"}), Ids{});
  EXPECT_EQ(ids(registry, {"direct_plain"}, {"direct_plain.twin"}), Ids{"direct_plain"});
}

TEST_F(Twin, OfAnAlgorithmWithoutAFamilyIsNamedByItsId) {
  const AlgoRegistry registry = registry_with("fft");
  EXPECT_EQ(ids(registry, {"fft"}, {}), (Ids{"fft", "fft.twin"}));
  EXPECT_EQ(ids(registry, {"fft", "direct_plain"}, {"fft"}), Ids{"direct_plain"});
}

TEST_F(Twin, OfAnUnknownAlgorithmIsRefused) {
  EXPECT_THROW(registry_with("direc"), InputError);
  EXPECT_THROW(registry_with("direct:0.5"), InputError);
  try {
    registry_with("direct:1e400");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("CONVLAB_TWIN: '1e400' does not fit"))
        << error.what();
  }
}

}  // namespace
}  // namespace convlab
