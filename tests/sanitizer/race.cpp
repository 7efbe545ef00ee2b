// Can ThreadSanitizer tell a race from a correct OpenMP loop here? With "race" as an argument two
// threads add to one variable; without it they reduce, and reading what the previous loop wrote is
// ordered by that loop's barrier, which the sanitizer knows only through Archer.
#include <cstdio>
#include <cstring>
#include <vector>

int main(int argc, char** argv) {
  const bool racy = argc > 1 && std::strcmp(argv[1], "race") == 0;
  constexpr int size = 1000;
  std::vector<long> values(size);
  long total = 0;
  for (int round = 0; round < 50; ++round) {
#pragma omp parallel num_threads(2)
    {
#pragma omp for
      for (int i = 0; i < size; ++i) values[i] += i;
      if (racy) {
#pragma omp for
        for (int i = 0; i < size; ++i) total += values[size - 1 - i];
      } else {
#pragma omp for reduction(+ : total)
        for (int i = 0; i < size; ++i) total += values[size - 1 - i];
      }
    }
  }
  std::printf("%ld\n", total);
}
