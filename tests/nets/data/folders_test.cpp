// Images in one folder a class.
#include <gtest/gtest.h>

#include "encoders.h"
#include "nets/data/dataset.h"

namespace convlab {
namespace {

Bytes dot(std::uint8_t grey) { return png(0, 8, 1, 1, {grey}); }

TEST(Folders, ClassesAreTheSortedFolderNames) {
  const Scratch scratch;
  scratch.write("train/dog/b.png", dot(2));
  scratch.write("train/dog/deeper/a.PNG", dot(3));
  scratch.write("train/cat/z.jpeg", jpeg(JpegKind::grey, 2, 3, {90}));
  scratch.write("train/cat/notes.txt", {'x'});
  scratch.write("train/.cache/x.png", dot(1));
  scratch.write("train/readme.png", dot(1));
  scratch.write("val/dog/v.png", dot(4));
  const auto train = open_dataset(scratch.path(), Split::train);
  EXPECT_EQ(train->classes(), (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(train->size(), 3);
  EXPECT_EQ(train->label(0), 0);
  EXPECT_EQ(train->label(1), 1);
  EXPECT_EQ(train->name(1), scratch.path("train/dog/b.png"));
  EXPECT_EQ(train->image(1).pixels, (Bytes{2, 2, 2}));
  EXPECT_EQ(train->image(0).w, 3);
  // A class has the label that it has in train/.
  const auto test = open_dataset(scratch.path(), Split::test);
  EXPECT_EQ(test->classes(), train->classes());
  ASSERT_EQ(test->size(), 1);
  EXPECT_EQ(test->label(0), 1);
}

TEST(Folders, EveryFifthIsHeldOutWhereThereIsNoTrain) {
  const Scratch scratch;
  for (const char* name : {"a", "b"})
    for (int i = 0; i < 7; ++i)
      scratch.write(std::string(name) + "/" + std::to_string(i) + ".png", dot(0));
  const auto train = open_dataset(scratch.path(), Split::train),
             test = open_dataset(scratch.path(), Split::test);
  EXPECT_EQ(train->size(), 12);
  ASSERT_EQ(test->size(), 2);
  EXPECT_EQ(test->name(1), scratch.path("b/4.png"));
  for (std::int64_t i = 0; i < train->size(); ++i)
    for (std::int64_t k = 0; k < test->size(); ++k) EXPECT_NE(train->name(i), test->name(k));
}

TEST(Folders, RefusesWhatIsMissing) {
  const Scratch scratch;
  const auto open = [&](Split split) {
    return [&, split] { open_dataset(scratch.path(), split); };
  };
  scratch.write("a/1.png", dot(0));
  expect_error(open(Split::train), {scratch.path().string() + " has 1 folder;", "at least two"});
  scratch.write("b/1.txt", {});
  expect_error(open(Split::train), {scratch.path("b").string() + " has no image", ".png"});
  scratch.write("b/1.png", dot(0));
  expect_error(open(Split::test), {"no image for testing", "every fifth"});
  scratch.write("train/a/1.png", dot(0));
  scratch.write("train/b/1.png", dot(0));
  expect_error(open(Split::test), {"neither test/ nor val/"});
  scratch.write("test/c/1.png", dot(0));
  expect_error(open(Split::test), {scratch.path("test/c").string(), "a class that"});
}

}  // namespace
}  // namespace convlab
