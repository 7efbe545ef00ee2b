#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app("The convolution algorithm lab.", "convlab");
  app.set_version_flag("--version", "convlab " CONVLAB_VERSION);
  CLI11_PARSE(app, argc, argv);
}
