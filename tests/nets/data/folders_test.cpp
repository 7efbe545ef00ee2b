// Images in one folder per class.
#include <gtest/gtest.h>

#include <algorithm>

#include "encoders.h"
#include "nets/data/dataset.h"

namespace convlab::nets {
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

std::vector<std::string> names_of(const Dataset& images) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < images.size(); ++i) names.push_back(images.name(i));
  return names;
}

// Visible files are read; other files are counted and named.
TEST(Folders, ReadWhatAPersonSees) {
  namespace fs = std::filesystem;
  const Scratch scratch;
  scratch.write("cat/1.png", dot(1));
  scratch.write("cat/.ipynb_checkpoints/1-checkpoint.png", dot(1));
  scratch.write("cat/._1.png", dot(1));
  scratch.write("cat/2.webp", dot(1));
  scratch.write("stray.png", dot(1));
  scratch.write(".hidden/1.png", dot(1));
  const Scratch elsewhere;
  for (int i = 0; i < 4; ++i) elsewhere.write("dogs/more/" + std::to_string(i) + ".png", dot(2));
  fs::create_symlink(elsewhere.path("dogs"), scratch.path("dog"));
  fs::create_directory(scratch.path("eel"));
  fs::create_symlink(elsewhere.path("dogs/more"), scratch.path("eel/linked"));
  fs::create_symlink(elsewhere.path("dogs/more/0.png"), scratch.path("eel/0.png"));
  fs::create_symlink(scratch.path(), scratch.path("eel/all"));  // would make a cat an eel
  fs::create_symlink("linked", scratch.path("eel/z_linked"));   // would read the same images again
  fs::create_symlink(scratch.path("none.png"), scratch.path("eel/broken.png"));
  const auto train = open_dataset(scratch.path(), Split::train),
             test = open_dataset(scratch.path(), Split::test);
  EXPECT_EQ(train->classes(), (std::vector<std::string>{"cat", "dog", "eel"}));
  EXPECT_EQ(train->size() + test->size(), 1 + 4 + 5);
  EXPECT_EQ(names_of(*train).front(), scratch.path("cat/1.png"));
  EXPECT_EQ(test->size(), 1);
  const std::vector<std::string> notes = train->notes();
  EXPECT_EQ(notes, test->notes());
  const auto expect_note = [&](const std::string& begin, const std::string& says) {
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.starts_with(begin) && note.find(says) != note.npos;
    })) << begin;
  };
  EXPECT_EQ(notes.size(), 5u);
  expect_note("skipped 3 that are hidden: ", scratch.path("cat/.ipynb_checkpoints"));
  expect_note("skipped 1 that is neither .jpg, .jpeg nor .png: ", scratch.path("cat/2.webp"));
  expect_note("skipped 1 that is a broken link: ", scratch.path("eel/broken.png"));
  expect_note("skipped 2 that are a link to a folder that is read already: ",
              scratch.path("eel/all"));
  expect_note("skipped 1 that is in no class's folder: ", scratch.path("stray.png"));
}

TEST(Folders, SayWhichPartsAreNotRead) {
  const Scratch scratch;
  for (const char* name : {"train/a/1.png", "train/b/1.png", "test/a/1.png", "val/a/1.png"})
    scratch.write(name, dot(1));
  EXPECT_EQ(open_dataset(scratch.path(), Split::test)->notes(),
            (std::vector{scratch.path("test").string() + " has 1 of the 2 classes of " +
                             scratch.path("train").string(),
                         scratch.path("val").string() + " is not read: train/ and test/ are"}));
}

TEST(Folders, RefusesNamesThatCannotBeKept) {
  for (const char* name : {"caf\xe9", "two\nlines", "\x1b[2J"}) {
    const Scratch scratch;
    for (const std::string folder : {"train/", "test/"})
      for (const std::string kind : {"cat", name}) scratch.write(folder + kind + "/1.png", dot(1));
    for (const Split split : {Split::train, Split::test})
      expect_error([&] { open_dataset(scratch.path(), split); },
                   {scratch.path("train").string() + ": '", "as a class's name", "UTF-8"});
  }
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
  scratch.write("val/1.png", dot(0));
  expect_error(open(Split::test),
               {scratch.path("val").string() + " has no folders; expected one a class"});
  scratch.write("test/c/1.png", dot(0));
  expect_error(open(Split::test), {scratch.path("test/c").string(), "a class that"});
}

}  // namespace
}  // namespace convlab::nets
