#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "autotune/measure/ceilings.h"
#include "autotune/store/provenance.h"
#include "autotune/store/store.h"
#include "bench/options/flags.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "bench/text.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/text/names.h"
#include "conv/text/text.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"

namespace convlab {
namespace {

struct Verb {
  std::string name, summary;
  VerbAction (*declare)(CLI::App&);
  bool takes_ranks = false;  // runs under mpirun
};

const std::vector<Verb> verbs{
    {"list", "Algorithms, what they support, and why they refuse", declare_list},
    {"doctor", "This machine and this build: what slows measurements down, and the remedy",
     declare_doctor},
    {"check", "Every algorithm against the reference", declare_check},
    {"tune", "The per-layer algorithm table of a net on this machine", declare_tune},
    {"bench", "One problem under every algorithm", declare_bench},
    {"sweep", "One problem over a range of sizes, threads or types: who wins where", declare_sweep},
    {"time", "A net step by step: where an iteration's time and memory go", declare_time, true},
    {"plan", "A net's layouts and algorithms, chosen as a whole, and whether that comes true",
     declare_plan},
    {"scaling", "Many machines that train one net together: simulated from the times of one",
     declare_scaling, true},
    {"train", "Trains a net on images, and classifies others to see how well", declare_train, true},
    {"predict", "Classifies images by a net with weights from a file", declare_predict},
    {"diff", "Two result files: what became faster, slower, or another algorithm", declare_diff},
    {"explain", "Why an algorithm won a layer, phase by phase", declare_explain},
    {"roofline", "How far each layer is from what this machine can do: ceilings, points, charts",
     declare_roofline},
    {"db", "The tuning store: show, verify, merge, export, import, prune", declare_db},
};

struct GivenVerb {
  const CLI::App* app;
  std::string command;  // down to this verb: "db show"
};

// The verb that the command line gives, then the verb below it.
std::vector<GivenVerb> given_verbs(const CLI::App& app) {
  std::vector<GivenVerb> given;
  for (std::vector<CLI::App*> next = app.get_subcommands(); !next.empty();
       next = next.front()->get_subcommands())
    given.push_back({next.front(),
                     (given.empty() ? "" : given.back().command + " ") + next.front()->get_name()});
  return given;
}

[[noreturn]] void refuse_double_dash(const std::string& command) {
  throw InputError(fmt::format("{}: nothing can follow '--': drop it", command));
}

// Refuses arguments the parser left over, with a guess at what was meant.
void refuse_extras(const CLI::App& app, const std::string& command) {
  if (app.remaining().empty()) return;
  const std::string extra = app.remaining().front();
  std::vector<std::string> flags, verbs;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(verb->get_name());
  if (extra == "--") refuse_double_dash(command);
  const bool is_flag = extra.starts_with('-') && extra != "-";
  if (is_flag && !verbs.empty())
    throw InputError(fmt::format("{}: unknown flag '{}': expected one of {} first, then its flags",
                                 command, extra, fmt::join(verbs, ", ")));
  if (is_flag)
    throw InputError(
        fmt::format("{}: unknown flag '{}': {}", command, extra, did_you_mean(extra, flags)));
  if (!verbs.empty())
    throw InputError(
        fmt::format("{}: unknown verb '{}': {}", command, extra, did_you_mean(extra, verbs)));
  throw InputError(
      fmt::format("{}: unexpected argument '{}': see convlab {} --help", command, extra, command));
}

// "--batch", or "TARGET" for an argument.
std::string shown_name(const CLI::Option& option) {
  const std::string name = option.get_single_name();
  return option.get_positional() ? name : "--" + name;
}

[[noreturn]] void refuse_missing_value(const CLI::Option& option) {
  const std::string name = shown_name(option);
  throw InputError(
      fmt::format("{} has no value: expected {} {}", name, name, option.get_type_name()));
}

// The parser would take the next word as the value of "--db=", and "--wide=" for "--wide".
void refuse_empty_assignments(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i];
        word.starts_with("--") && word.find('=') == word.size() - 1)
      throw InputError(fmt::format("{} has no value: expected one after '=', or no '='", word));
}

// Refuses what the parser takes for a value without a word: an empty text, and the next flag.
void require_values(const CLI::App& verb, const std::string& command) {
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& text : option->results()) {
      if (option->get_positional() && text.empty())
        throw InputError(fmt::format("{}: empty {}: see convlab {} --help", command,
                                     shown_name(*option), command));
      if (text.empty() || text.starts_with("--")) refuse_missing_value(*option);
    }
}

// A file that the command line names, and the flag or argument that names it.
struct NamedFile {
  std::string flag, path;
  bool written = false;
};

// Found by the value placeholders of flags and arguments: FILE or FILE.csv, and @FILE among the
// targets.
std::vector<NamedFile> named_files(const CLI::App& verb) {
  constexpr std::string_view written[] = {"--output",     "--trace",  "--svg", "--html",
                                          "--checkpoint", "--resume", "--log"};
  std::vector<NamedFile> files;
  for (const CLI::Option* option : verb.get_options()) {
    const std::string flag = shown_name(*option);
    const bool is_file =
        option->get_type_name().starts_with("FILE") || flag == "FILE" || flag == "IMAGE";
    const bool is_written =
        std::find(std::begin(written), std::end(written), flag) != std::end(written);
    for (const std::string& text : option->results())
      if (flag == "TARGET" && text.size() > 1 && text.starts_with('@'))
        files.push_back({flag, text.substr(1)});
      else if (is_file && text != "-")
        files.push_back({flag, text, is_written});
  }
  return files;
}

// The path with links resolved, whether or not the file exists yet.
std::filesystem::path place_of(std::filesystem::path path) {
  std::error_code error;
  constexpr int most_links = 40;
  for (int i = 0; i < most_links && std::filesystem::is_symlink(path, error); ++i)
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return std::filesystem::is_regular_file(a, error);
  const std::filesystem::path place = place_of(a);  // empty if the current directory is gone
  return !place.empty() && place == place_of(b);
}

// If `path` is a file that belongs to a store, returns the store's name: SQLite's side files, which
// it deletes or reads as part of the store, and the copy that `db prune` makes.
std::optional<std::string> store_beside(const std::string& path,
                                        const std::vector<NamedFile>& files) {
  const std::string place = place_of(path);
  for (const std::string_view suffix : {"-journal", "-wal", "-shm", ".undo"}) {
    if (!place.ends_with(suffix)) continue;
    const std::string store = place.substr(0, place.size() - suffix.size());
    if (Store::is_store(store) || is_same_file(store, Store::default_path())) return store;
    for (const NamedFile& file : files)
      if (file.flag == "--db" && is_same_file(file.path, store)) return store;
  }
  return {};
}

// Refuses to write over a file that is also read or written by this command, or over a tuning
// store. The contents would be lost.
void require_distinct_files(const CLI::App& verb) {
  const std::vector<NamedFile> files = named_files(verb);
  for (const NamedFile& file : files) {
    if (!file.written) continue;
    if (Store::is_store(file.path))
      throw InputError(
          fmt::format("{}: '{}' is a tuning store: name another file", file.flag, file.path));
    if (const std::optional<std::string> store = store_beside(file.path, files))
      throw InputError(fmt::format("{}: '{}' belongs to the tuning store '{}': name another file",
                                   file.flag, file.path, *store));
    for (const NamedFile& other : files) {
      const bool goes_on = (file.flag == "--checkpoint" && other.flag == "--resume") ||
                           (file.flag == "--resume" && other.flag == "--checkpoint");
      if (&file != &other && !goes_on && is_same_file(file.path, other.path))
        throw InputError(fmt::format("{}: '{}' is {} as well: name another file", file.flag,
                                     file.path, other.flag));
    }
  }
}

// Rewords the parser's own messages.
[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<GivenVerb> given = given_verbs(app);
  const auto [verb, command] = given.empty() ? GivenVerb{&app, ""} : given.back();
  const std::string text = error.what(), name = text.substr(0, text.find(':'));
  if (error.get_name() == "ArgumentMismatch") {
    const CLI::Option* const option = verb->get_option_no_throw(name);
    if (option && option->count() > 1)
      throw InputError(
          fmt::format("{} is given {}: say it once", name,
                      option->count() == 2 ? "twice" : fmt::format("{} times", option->count())));
    if (option) refuse_missing_value(*option);
  }
  if (error.get_name() == "RequiredError")
    for (const CLI::Option* option : verb->get_options())
      if (option->get_required() && option->count() == 0)
        throw InputError(fmt::format("{}: no {}: see convlab {} --help", command,
                                     option->get_single_name(), command));
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) refuse_double_dash(command);
  throw InputError(text);
}

void require_known_verb(int argc, const char* const* argv) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) names.push_back(verb.name);
  const std::string first = argc < 2 ? "" : argv[1];
  if (first == "--help" || first == "-h" || first == "--version") return;
  if (first.empty())
    throw InputError(
        fmt::format("no verb: expected one of {}; see convlab --help", fmt::join(names, ", ")));
  if (first.starts_with('-'))
    throw InputError(
        fmt::format("unknown flag '{}': expected one of {} first, then its flags; see convlab "
                    "--help",
                    first, fmt::join(names, ", ")));
  for (const std::string& name : names)
    if (name == first) return;
  throw InputError(fmt::format("unknown verb '{}': {}", first, did_you_mean(first, names)));
}

// Other verbs would do the same in every rank, and disturb one another.
void require_takes_ranks(const std::string& command) {
  const std::optional<nets::MpiPlace> place = nets::mpi_place();
  if (!place || place->size == 1) return;
  for (const Verb& verb : verbs)
    if (verb.name == command && !verb.takes_ranks)
      throw InputError(fmt::format("{} runs in one process: drop mpirun{}", command,
                                   command == "tune"
                                       ? ", and give each machine its part by --shard, as in 1/4"
                                       : ", under which train, time and scaling run"));
}

int run(int argc, const char* const* argv) {
  require_known_verb(argc, argv);
  require_takes_ranks(argv[1]);
  refuse_empty_assignments(argc, argv);
  CLI::App app(
      "The convolution algorithm lab: every way to compute a 2-D convolution, checked and raced "
      "on this machine.",
      "convlab");
  set_help_format(app);
  app.set_version_flag("--version", "convlab " CONVLAB_VERSION);
  app.footer(
      "Examples:\n"
      "  convlab tune resnet18 --batch 1         the fastest algorithm for each layer and pass\n"
      "  convlab list mb1ic64ih56oc64oh56kh3ph1  who takes this problem, and why others do not\n"
      "  convlab check resnet18 --pass fwd       are their results right?\n"
      "  convlab time resnet18 --batch 16        where the time of a training step goes\n"
      "  convlab doctor                          is this machine fit for measuring?\n"
      "convlab VERB --help shows a verb's flags and examples.\n\n"
      "Exit codes: 0 done; 1 a check failed, or no row has an algorithm; 2 bad usage or input; 3 "
      "the environment cannot do\n"
      "it; 130 interrupted, after printing what was done.");
  VerbAction action;
  for (const Verb& verb : verbs) {
    CLI::App* const sub = app.add_subcommand(verb.name, verb.summary);
    // Unexpected arguments are refused below, with a better message than the parser's.
    sub->allow_extras();
    sub->callback([&action, act = verb.declare(*sub)] { action = act; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    std::ostringstream out, err;
    const int code = app.exit(request, out, err);
    if (!is_silent()) Output(std::string()).write(out.str());
    return code;
  } catch (const CLI::ParseError& error) {
    refuse(app, error);
  }
  for (const auto& [verb, command] : given_verbs(app)) {
    refuse_extras(*verb, command);
    require_values(*verb, command);
    require_distinct_files(*verb);
  }
  return action();
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string raw((std::istreambuf_iterator<char>(file)), {});
  std::string text =
      variables_in_force() + set_variables({"CONVLAB_IGNORE_DISTURBANCES"}) + "convlab";
  for (std::size_t at = raw.find('\0'); at != std::string::npos && at + 1 < raw.size();) {
    const std::string argument = raw.c_str() + at + 1;
    text += " " + shell_word(argument);
    at += 1 + argument.size();
  }
  return text;
}

// mpirun ends all ranks as soon as one ends with an error. The one that speaks is given the time to
// say its own; if this process still runs then, the error is of this rank alone.
void wait_for_the_speaker() {
  std::signal(SIGTERM, SIG_DFL);
  sleep(2);
}

// Runs it and says what goes wrong. Returns the exit code.
int run_and_say(int argc, const char* const* argv) {
  const auto fail = [](int code, const std::string& what) {
    std::fflush(stdout);
    std::string rank;
    if (is_silent()) {
      wait_for_the_speaker();
      be_silent(false);
      rank = fmt::format("rank {}: ", nets::mpi_place()->rank);
    }
    say(printable(rank + what));  // one line, whatever names it contains
    return code;
  };
  try {
    const int code = run(argc, argv);
    if (code != 0 && is_silent()) wait_for_the_speaker();
    return code;
  } catch (const AlreadySaid& error) {
    if (is_silent()) wait_for_the_speaker();
    return error.exit_code;
  } catch (const InputError& error) {
    return fail(2, error.what());
  } catch (const CeilingsInterrupted& stopped) {
    return fail(interrupted_exit_code, stopped.what());
  } catch (const std::bad_alloc&) {
    return fail(3, "out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    std::error_code gone;
    (void)std::filesystem::current_path(gone);
    if (gone) return fail(3, "the current directory was deleted: change to one that exists");
    return fail(3, fmt::format("{}: {}", error.path1().string(), error.code().message()));
  } catch (const std::exception& error) {
    return fail(3, error.what());
  }
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  const std::optional<nets::MpiPlace> place = nets::mpi_place();
  be_silent(place && place->rank > 0);
  return run_and_say(argc, argv);
}

Provenance command_provenance() {
  return {{{"convlab", CONVLAB_VERSION}, {"command", command_line()}}};
}

Provenance provenance(const Device& device) {
  Provenance p = command_provenance();
  for (auto& field : collect_provenance(device.info()).fields) p.fields.push_back(std::move(field));
  // A CPU whose unit is switched off is, in the store too, one without it.
  for (const auto& [variable, key] :
       {std::pair{"CONVLAB_AMX", cpu::matrix_unit_key}, {"CONVLAB_AVX512_BF16", cpu::dot_unit_key}})
    if (const char* const value = std::getenv(variable);
        value && std::string_view(value) == "off" && device.info().kind == DeviceKind::cpu)
      p.fields.emplace_back(key, value);
  return p;
}

}  // namespace convlab
