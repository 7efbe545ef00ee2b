"""Jobs of tests/gpu/run: processes with a time limit, whose outcomes are kept."""

import ctypes
import dataclasses
import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
import typing
import zlib

LONGEST = 100  # seconds for a job without a budget, the first time
SHORTEST = 3  # seconds; with less left no job is begun
POLITE = 10  # seconds between SIGTERM and SIGKILL
GRACE = 15  # seconds after which a job that ends itself is told to
DONE = ("passed", "failed", "skipped")


def say(text):
    print(f"gpu: {text}", file=sys.stderr, flush=True)


@dataclasses.dataclass
class Job:
    stage: str
    name: str
    command: typing.Callable  # of the seconds that it has
    judge: typing.Callable  # (exit code, its log) -> result, what was found
    alone: bool = False  # nothing else may run: it times, or takes most of the card's memory
    ends_itself: bool = False  # when its time is over


@dataclasses.dataclass
class Running:
    job: Job
    process: subprocess.Popen
    command: list
    start: float
    end: float  # when it gets SIGTERM
    told: float = 0  # when it got it

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def ended(self):
        """Kills what it left in its process group, while the group's number is still its own."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if not os.waitid(os.P_PID, self.process.pid, flags):
            return False
        self.signal(signal.SIGKILL)
        self.process.wait()
        return True


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def read_outcomes(path):
    """By stage and name, the last of each."""
    outcomes = {}
    text = path.read_text(errors="replace") if path.exists() else ""
    if text and not text.endswith("\n"):
        path.write_text(text + "\n")  # the next line is another one
    for line in text.splitlines():
        try:
            outcome = json.loads(line)
            outcomes[outcome["stage"], outcome["name"]] = outcome
        except (ValueError, LookupError, TypeError):  # the machine went away while it was written
            continue
    return outcomes


class Lab:
    """The folder of results, and the jobs that run."""

    def __init__(self, out, logs):
        self.out, self.logs, self.store = out, logs, out / "tune.db"
        self.running = []
        self.cores = len(os.sched_getaffinity(0))
        if (out / "logs.tar.gz").exists():
            try:
                with tarfile.open(out / "logs.tar.gz") as tar:
                    tar.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.12
                    tar.extractall(logs)
            except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
                say(f"logs.tar.gz is damaged ({error}): what lies behind runs again")
        # Logs are packed after each stage. A job whose log was lost before that runs again.
        self.outcomes = {key: outcome for key, outcome in read_outcomes(out / "jobs.jsonl").items()
                         if self.log(*key).exists()}

    def log(self, stage, name):
        return self.logs / stage / f"{name}.txt"

    def result(self, job):
        """passed, failed, skipped, unfinished (out of time), or empty: not begun."""
        return self.outcomes.get((job.stage, job.name), {}).get("result", "")

    def done(self, job):
        return self.result(job) in DONE

    def record(self, run, code, seconds, result, found):
        job = run.job
        outcome = {"stage": job.stage, "name": job.name, "result": result, "exit": code,
                   "seconds": round(seconds, 1), "found": found, "command": shlex.join(run.command)}
        self.outcomes[job.stage, job.name] = outcome
        with (self.out / "jobs.jsonl").open("a") as file:
            file.write(json.dumps(outcome) + "\n")
        if result in ("failed", "unfinished"):
            say(f"{job.stage} {job.name}: {result}: {found}")

    def start(self, job, seconds, threads):
        """With so many OpenMP threads; 0: as many as it likes."""
        log = self.log(job.stage, job.name)
        log.parent.mkdir(exist_ok=True)
        for suffix in (".csv", ".csv.partial"):
            log.with_suffix(suffix).unlink(missing_ok=True)  # an earlier run's
        command = job.command(seconds)
        environment = {**({"OMP_NUM_THREADS": str(threads)} if threads else {}), **os.environ}
        with log.open("w") as file:
            process = subprocess.Popen(
                command, cwd=self.logs, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent)
        now = time.monotonic()
        self.running.append(
            Running(job, process, command, now, now + seconds + GRACE * job.ends_itself))

    def reap(self):
        """Records those that have ended, and ends those whose time is over."""
        now = time.monotonic()
        for run in list(self.running):
            if run.ended():
                self.running.remove(run)
                code, job = run.process.returncode, run.job
                try:
                    result, found = job.judge(code, self.log(job.stage, job.name))
                except Exception as error:  # other jobs still want the card
                    result, found = "failed", f"unreadable output: {error!r}"
                if run.told and result != "passed":
                    result = "unfinished"
                    found = f"no end within {run.told - run.start:.0f} s; {found}"
                self.record(run, code, now - run.start, result, found)
            elif run.told and now > run.told + POLITE:
                run.signal(signal.SIGKILL)
            elif now > run.end and not run.told:
                run.signal(signal.SIGTERM)
                run.told = now

    def wait(self, most):
        """Until at most so many are running."""
        while len(self.running) > most:
            time.sleep(0.02)
            self.reap()

    def run(self, jobs, until, at_once):
        """What is not done and can begin in time; last what had no end before: it may hang."""
        def order(job):
            return self.result(job) == "unfinished", job.alone
        jobs = sorted((job for job in jobs if not self.done(job)), key=order)
        for turn, job in enumerate(jobs):
            self.wait(0 if job.alone else at_once - 1)
            left = until - time.monotonic()
            if left < SHORTEST:
                break
            limit = left if self.result(job) == "unfinished" else min(left, LONGEST)
            if job.ends_itself:  # equal shares
                limit = max(SHORTEST, left / sum(other.ends_itself for other in jobs[turn:]))
            self.start(job, limit, 0 if job.alone else -(-self.cores // at_once))
            if job.alone:
                self.wait(0)
        self.wait(0)

    def stop(self):
        """Ends all children, politely at first. Their outcomes are not recorded: they run again."""
        for run in self.running:
            run.signal(signal.SIGTERM)
        end = time.monotonic() + POLITE / 2
        while self.running and time.monotonic() < end:
            self.running = [run for run in self.running if not run.ended()]
            time.sleep(0.02)
        for run in self.running:
            run.signal(signal.SIGKILL)
            run.process.wait()
        self.running = []

    def pack(self):
        """All or nothing: who is cut off here leaves the last archive."""
        new = self.out / "logs.tar.gz.new"
        with tarfile.open(new, "w:gz", compresslevel=5) as tar:
            tar.add(self.logs, ".")
        new.replace(self.out / "logs.tar.gz")
