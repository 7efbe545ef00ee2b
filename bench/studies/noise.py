#!/usr/bin/env python3
"""Disturbs this machine until its standard input ends: `noise.py KIND [SEED]`.

  bursts     one core burns for 0.05 to 1.5 s of every 0.25 to 4.5 s
  steady     one core burns all the time
  four-way   four programs burn
  sigstop    a worker process of a tuning run is stopped for 0.2 to 2 s now and then; the run must
             have been started by the program that started this one
  quota      the program that started this one, and what that starts, get one core by a cgroup

Says "ready" on its standard output once it is at work. Exits 3, with the reason, where the machine
does not offer it. Whoever starts it holds the other end of its standard input: when that program
ends, in whatever way, so does this one, with all that it started.
"""

import os
import pathlib
import random
import select
import signal
import sys
import time

CGROUPS = pathlib.Path("/sys/fs/cgroup")
PERIOD_US = 100000


def ended(seconds=0.0):
    """Whether standard input ends within that time: nobody writes to it."""
    return bool(select.select([0], [], [], seconds)[0])


def burn(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until and not ended():
        pass


def bursts(seed):
    pick = random.Random(seed)
    while not ended(pick.uniform(0.2, 3)):
        burn(pick.uniform(0.05, 1.5))


def steady(_seed):
    burn(float("inf"))


def four_way(_seed):
    # A burner sees the end of standard input by itself, even when this process was killed.
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            burn(float("inf"))
            os._exit(0)
        children.append(child)
    burn(float("inf"))
    for child in children:
        os.waitpid(child, 0)


def parents():
    """The parent of each process."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold spaces and brackets.
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # ended meanwhile
            pass
    return found


def workers(grandparent):
    """The program that started this one runs the tuner, which runs them."""
    parent_of = parents()
    tuners = {pid for pid, parent in parent_of.items()
              if parent == grandparent and pid != os.getpid()}
    return sorted(pid for pid, parent in parent_of.items() if parent in tuners)


def send(pid, which):
    try:
        os.kill(pid, which)
    except ProcessLookupError:
        pass


def sigstop(seed):
    pick = random.Random(seed)
    starter = os.getppid()  # now: later, when that has ended, another one adopts this process
    while not ended(pick.uniform(0.5, 4)):
        found = workers(starter)
        if not found:
            continue
        pid = pick.choice(found)
        send(pid, signal.SIGSTOP)
        try:
            ended(pick.uniform(0.2, 2))
        finally:
            send(pid, signal.SIGCONT)


def group_of(pid):
    """The folder of a process's CPU cgroup: version 1 where that has the CPU controller, else 2."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return CGROUPS / "cpu" / path.lstrip("/")
    return CGROUPS / path.lstrip("/")  # the last line is version 2's, without controllers


def make_group(name):
    """A cgroup whose processes share one core."""
    if (CGROUPS / "cpu" / "cgroup.procs").exists():
        group, limits = CGROUPS / "cpu" / name, {"cpu.cfs_period_us": PERIOD_US,
                                                 "cpu.cfs_quota_us": PERIOD_US}
    else:
        group, limits = CGROUPS / name, {"cpu.max": f"{PERIOD_US} {PERIOD_US}"}
    group.mkdir()
    try:
        for file, value in limits.items():
            (group / file).write_text(str(value))
    except OSError:
        group.rmdir()
        raise
    return group


def move(pid, group):
    (group / "cgroup.procs").write_text(str(pid))


def quota(_seed):
    pid = os.getppid()
    try:
        before = group_of(pid)
        group = make_group(f"convlab-noise-{os.getpid()}")
    except OSError as error:
        print(f"no CPU quota: {error}", flush=True)
        sys.exit(3)
    try:
        move(pid, group)
        ready()
        ended(None)
    finally:
        # When that program was killed, what it started may be there still.
        while members := (group / "cgroup.procs").read_text().split():
            for member in members:
                try:
                    move(member, before)
                except ProcessLookupError:
                    pass
        group.rmdir()


def ready():
    print("ready", flush=True)


KINDS = {"bursts": bursts, "steady": steady, "four-way": four_way, "sigstop": sigstop,
         "quota": quota}


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in KINDS:
        print(f"noise.py: expected one of {', '.join(KINDS)}", file=sys.stderr)
        return 2
    # Ctrl-C goes to all programs of a terminal: the one that started this one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    make = KINDS[sys.argv[1]]
    if make is not quota:  # which is at work later
        ready()
    make(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
