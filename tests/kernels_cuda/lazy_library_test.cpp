// Functions of libraries that are loaded at the first call.
#include "kernels_cuda/device/lazy_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>
#include <vector>

#include "conv/error.h"

namespace convlab::cuda {
namespace {

constinit LazyLibrary libm("libm", "libm.so.", 6, "", "install it");
CONVLAB_LAZY_FUNCTION(libm, cos);
CONVLAB_LAZY_FUNCTION(libm, frexp);

TEST(LazyLibrary, CallsWhatItLoads) {
  EXPECT_EQ(libm.obstacle(), "");
  EXPECT_EQ(cos(0.0), 1.0);
  int exponent = 0;
  EXPECT_EQ(frexp(12, &exponent), 0.75);
  EXPECT_EQ(exponent, 4);
}

TEST(LazyLibrary, IsLoadedOnceByManyThreads) {
  static constinit LazyLibrary library("libm", "libm.so.", 6, "", "install it");
  static const LazyFunction<decltype(::cos)> function{library, "cos"};
  std::vector<double> results(8);
  std::vector<std::thread> threads;
  for (double& result : results) threads.emplace_back([&result] { result = function(0.0); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, std::vector(8, 1.0));
}

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "none";
}

TEST(LazyLibrary, ThatIsMissingSaysInOneLineWhatToInstall) {
  static constinit LazyLibrary absent("Absent", "libabsent.so.", 7, "/nowhere", "install Absent 7");
  static const LazyFunction<int(int)> function{absent, "absent"};
  const std::string says =
      "Absent: libabsent.so.7: cannot open shared object file: No such file or directory; "
      "install Absent 7";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(message_of([] { function(1); }), says);
  EXPECT_EQ(absent.obstacle(), says);
}

TEST(LazyLibrary, WithoutOneOfItsFunctionsIsNotUsedAtAll) {
  static constinit LazyLibrary old("libm", "libm.so.", 6, "", "install a newer one");
  static const LazyFunction<double(double)> there{old, "cos"}, missing{old, "cos_of_tomorrow"};
  const std::string says = message_of([] { there(0.0); });
  EXPECT_TRUE(says.starts_with("libm: ")) << says;
  EXPECT_TRUE(says.ends_with("undefined symbol: cos_of_tomorrow; install a newer one")) << says;
}

// In a folder that the loader does not search, under a name that it does not know.
TEST(LazyLibrary, IsFoundInItsFolder) {
  Dl_info found{};
  ASSERT_NE(dladdr(dlsym(dlopen("libm.so.6", RTLD_NOW), "cos"), &found), 0);
  const std::string folder = testing::TempDir() + "convlab_lazy_library";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(found.dli_fname, folder + "/libcopied_libm.so.6",
                             std::filesystem::copy_options::overwrite_existing);
  LazyLibrary copied("copied", "libcopied_libm.so.", 6, folder.c_str(), "install it");
  const LazyFunction<decltype(::cos)> function{copied, "cos"};
  EXPECT_EQ(function(0.0), 1.0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace convlab::cuda
