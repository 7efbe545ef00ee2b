// store_writer FILE WRITER FIRST COUNT: records numbered rows and prints each number once its row
// is on disk. The store's tests run several of these, and kill them.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "store_rows.h"

int main(int argc, char** argv) try {
  if (argc != 5) return 2;
  const int writer = std::atoi(argv[2]), first = std::atoi(argv[3]), count = std::atoi(argv[4]);
  convlab::Store store(argv[1]);
  for (int i = first; i < first + count; ++i) {
    store.put(convlab::numbered_row(writer, i));
    std::printf("%d\n", i);
    std::fflush(stdout);
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
