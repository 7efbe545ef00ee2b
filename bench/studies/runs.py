"""Runs of the lab's programs, kept in a log."""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import time


class Stopped(BaseException):
    """By a signal: the run in progress ends, the tables are still printed."""


class Failed(Exception):
    """A run of a program: its exit code and last words."""


def call(command, variables):
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, **variables})
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"exit {done.returncode}: {last}")
    return json.loads(done.stdout)


def read_runs(path):
    """By name; none if there is no such file. A line that was cut off counts for nothing."""
    runs = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            run = json.loads(line)
        except ValueError:
            continue
        runs[run["name"]] = run
    return runs


class Log:
    """Runs by name, made once and kept as lines of JSON. One that fails costs only itself."""

    # Of all logs.
    failures = []  # a line each
    stopped = False

    def __init__(self, path, only, until):
        """`until`: no run starts after this time of the monotonic clock."""
        self.path, self.only, self.until, self.runs = path, only, until, read_runs(path)
        if path.exists() and not ("\n" + path.read_text()).endswith("\n"):
            with path.open("a") as file:  # after a line that was cut off
                file.write("\n")

    def due(self, name):
        """Whether `make` would run anything."""
        return (not Log.stopped and name not in self.runs and self.only.search(name)
                and time.monotonic() <= self.until)

    def make(self, name, command, keep, **variables):
        if not self.due(name):
            return
        print(name, file=sys.stderr)
        words = [f"{variable}={value}" for variable, value in variables.items()]
        words += [str(pathlib.Path(command[0]).name), *command[1:]]
        start = time.monotonic()
        try:
            told = call(command, variables)
        except Failed as failed:
            self.failures.append(f"{name}: {failed}")
            print(f"{shlex.join([*words[:len(variables)], *command])}: {failed}", file=sys.stderr)
            return
        except Stopped:
            Log.stopped = True
            return
        run = {"name": name, "command": shlex.join(words),
               "seconds": round(time.monotonic() - start, 2), **keep(told)}
        self.runs[name] = run
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")


def provenance(args, log):
    """What made it, and where; all values that the runs of a log had."""
    kept = {"command": [f"bench/studies/study.py {args.study} --log {args.log.name}"]}
    if args.study == "gemm":
        kept["command"][0] += (" --device cuda" if args.device == "cuda"
                               else f" --min-time {args.min_time}")
    if args.study == "verdicts":
        kept["command"][0] += f" --targets {','.join(args.targets)} --twin {args.twin}"
    if args.study == "network":
        kept["command"][0] += f" --ranks {args.ranks}"
    if args.study != "gemm" and args.options:
        kept["command"][0] += f" --options={shlex.quote(args.options)}"
    for run in log.runs.values():
        for name, value in run["machine"].items():
            if value not in kept.setdefault(name, []):
                kept[name].append(value)
    dates = sorted(run["date"] for run in log.runs.values() if "date" in run)
    if dates:
        kept["runs"] = [f"{len(log.runs)}, {dates[0]} to {dates[-1]}"]
    return "".join(f"- {name}: {', '.join(values)}\n" for name, values in kept.items())
