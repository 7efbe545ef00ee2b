// The sanitizers' settings, in every instrumented program, however it is started.

// Libraries that are not instrumented synchronise in ways that ThreadSanitizer cannot see; what
// they read and write is ignored. Barriers of OpenMP it learns from Archer, which clang's OpenMP
// runtime loads by itself.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }
