"""Runs of the lab's programs, kept in a log."""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time


class Stopped(BaseException):
    """By a signal: the run in progress ends, the tables are still printed."""


class Failed(Exception):
    """A run of a program: its exit code and last words."""

    def __init__(self, text, code=0):
        super().__init__(text)
        self.code = code


class Refused(Exception):
    """Bad usage or input: one line, exit code 2."""


# What a run of each study keeps under its name. A log without it belongs to another study.
RESULT = {"gemm": "best", "mlp": "iteration", "batch": "iteration", "layers": "candidates",
          "rnn": "cases", "survey": "races", "verdicts": "rows", "network": "points", "compression": "epochs",
          "ceilings": "roofs", "benchdnn": "checked"}
BEGIN = '{"name": '  # of each line of a log

# ---- Programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILDS = ("build", "build-release")


def built(path):
    """A program of the first build that has it; where none has, of the first."""
    paths = [str(ROOT / build / path) for build in BUILDS]
    return next(filter(shutil.which, paths), paths[0])


FLAGS = {"--convlab": built("bench/convlab"), "--kernels": built("bench/micro/micro_kernels"),
         "--card-kernels": built("bench/micro/micro_gemm_cuda"),
         "--recurrent": built("bench/micro/micro_recurrent"),
         "--micro": built("bench/micro/micro_convolutions")}


def require(program):
    """Refuses a default that was not built. Starting it tells of one that the user named."""
    for flag, default in FLAGS.items():
        if program == default and not shutil.which(program):
            raise Refused(f"there is no {program}: build it, or name it by {flag}")


def call(command, variables, read=json.loads, codes=(0,)):
    """What `read` makes of the output. It raises ValueError for what is none of its format. Other
    exit codes than these are failures."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                          env={**os.environ, **variables})
    if done.returncode not in codes:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"exit {done.returncode}: {last}", done.returncode)
    try:
        return read(done.stdout)
    except ValueError:
        first = next(iter((done.stdout or done.stderr).strip().splitlines()), "nothing")
        expected = "JSON" if read is json.loads else "log"
        raise Failed(f"printed no {expected}: {first}") from None


# ---- Logs

def read_runs(path, study):
    """By name; none if there is no such file. A line that was cut off counts for nothing."""
    runs = {}
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            run = json.loads(line)
            known = (isinstance(run, dict) and isinstance(run.get("name"), str)
                     and isinstance(run.get("machine"), dict) and RESULT[study] in run)
        except (ValueError, RecursionError):
            known, run = line.startswith(BEGIN) or BEGIN.startswith(line), None
        if not known:
            raise Refused(f"{path} is no log of this study")
        if run:
            runs[run["name"]] = run
    return runs


class Log:
    """Runs by name, made once and kept as lines of JSON. One that fails costs only itself."""

    # Of all logs.
    failures = []  # a line each
    stopped = False

    def __init__(self, path, study, only, until):
        """`until`: no run starts after this time of the monotonic clock."""
        self.path, self.only, self.until = path, only, until
        self.runs = read_runs(path, study)
        if path.exists() and not ("\n" + path.read_text(errors="replace")).endswith("\n"):
            with path.open("a") as file:  # after a line that was cut off
                file.write("\n")

    def due(self, name):
        """Whether `make` would run anything."""
        return (not Log.stopped and name not in self.runs and self.only.search(name)
                and time.monotonic() <= self.until)

    def make(self, name, command, keep, read=json.loads, codes=(0,), keep_failure=None, **variables):
        """Where `keep_failure` is given, a failure is a result, and it says what is kept of it."""
        if not self.due(name):
            return
        require(command[0])
        if not os.access(self.path if self.path.exists() else self.path.absolute().parent, os.W_OK):
            raise Refused(f"--log {self.path}: cannot be written")
        print(name, file=sys.stderr)
        words = [f"{variable}={value}" for variable, value in variables.items()]
        words += [str(pathlib.Path(command[0]).name), *command[1:]]
        start = time.monotonic()
        try:
            kept = keep(call(command, variables, read, codes))
        except (Failed, LookupError, TypeError, AttributeError) as error:
            known = isinstance(error, Failed)
            if not known or not keep_failure:
                failed = error if known else f"printed something else: {error!r}"
                self.failures.append(f"{name}: {failed}")
                print(f"{shlex.join([*words[:len(variables)], *command])}: {failed}", file=sys.stderr)
                return
            kept = keep_failure(error)
        except Stopped:
            Log.stopped = True
            return
        run = {"name": name, "command": shlex.join(words),
               "seconds": round(time.monotonic() - start, 2), **kept}
        self.runs[name] = run
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")

    def keep_only(self, names):
        """Where the tables are of these runs alone: the log may have others."""
        self.runs = {name: self.runs[name] for name in names if name in self.runs}


def this_command():
    return shlex.join(["bench/studies/study.py", *sys.argv[1:]])


def provenance(log):
    """What made it, and where; all values that the runs of a log had."""
    kept = {"command": [this_command()]}
    for run in log.runs.values():
        for name, value in run["machine"].items():
            if value not in kept.setdefault(name, []):
                kept[name].append(value)
    dates = sorted(run["date"] for run in log.runs.values() if "date" in run)
    if dates:
        kept["runs"] = [f"{len(log.runs)}, {dates[0]} to {dates[-1]}"]
    return "".join(f"- {name}: {', '.join(values)}\n" for name, values in kept.items())
