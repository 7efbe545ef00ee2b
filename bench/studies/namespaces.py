"""Ranks on one machine with a network between them: a namespace each, joined by veth and a bridge.

Needs root, iproute2 with `tc`, and Open MPI. Every rank has cores of its own. Its link is limited
in both directions by tbf where it leaves the rank; netem delays it where the kernel has netem.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from runs import Refused

HUB = "convlab-hub"  # the bridge's namespace
PROBE = "convlab-probe"
NETWORK = "10.86.0"
LEAST_BURST_BYTES = 80 << 10  # else tbf cuts what TCP hands over at once into single packets
QUEUE_BYTES = 16 << 20


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise OSError(done.returncode, said, " ".join(words))


def missing():
    """What keeps this machine from having such ranks; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces want root"
    for program in ("ip", "tc", "mpirun", "taskset", "unshare"):
        if not shutil.which(program):
            return (f"there is no {program}: "
                    "apt-get install iproute2 util-linux openmpi-bin libopenmpi-dev")
    try:  # root in a container may not make any
        run("ip", "netns", "add", PROBE)
        run("ip", "netns", "del", PROBE)
    except OSError as error:
        return f"there are no network namespaces: {error.strerror}"
    return ""


def rank_space(rank):
    return f"convlab-rank{rank}"


def address(rank):
    return f"{NETWORK}.{rank + 1}"


def tear_down():
    """Ends what runs in the namespaces, and removes them with their links."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    spaces = [line.split()[0] for line in listed.stdout.splitlines() if line]
    for space in spaces:
        if space in (HUB, PROBE) or space.startswith(rank_space("")):
            pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True,
                                  check=False).stdout.split()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


# mpirun starts the other ranks by it, as by ssh. Each is a host of its own to Open MPI.
AGENT = """#!/bin/sh
rank=$((${{1##*.}} - 1))
shift
cores=$(echo {cores} | cut -d " " -f $((rank + 1)))
exec ip netns exec {space}$rank unshare --uts taskset -c $cores sh -c "hostname rank$rank; $*"
"""


def cores_of_ranks(ranks):
    """A list for taskset by rank: equal parts of this process's cores, one core at least."""
    usable = sorted(os.sched_getaffinity(0))
    each = max(len(usable) // ranks, 1)
    return [",".join(str(usable[(rank * each + i) % len(usable)]) for i in range(each))
            for rank in range(ranks)]


class Network:
    """`with Network(ranks)`. Namespaces that a killed study left are removed first."""

    def __init__(self, ranks):
        self.ranks, self.cores = ranks, cores_of_ranks(ranks)
        self.folder = None

    def __enter__(self):
        self.alone = (pathlib.Path(tempfile.gettempdir()) / "convlab-network.lock").open("w")
        try:
            fcntl.flock(self.alone, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
        except BlockingIOError:
            raise Refused("another network study runs on this machine: wait for it") from None
        tear_down()
        self.folder = tempfile.TemporaryDirectory()
        agent = pathlib.Path(self.folder.name) / "agent"
        agent.write_text(AGENT.format(space=rank_space(""), cores=" ".join(self.cores)))
        agent.chmod(0o755)
        try:
            run("ip", "netns", "add", HUB)
            run("ip", "-n", HUB, "link", "add", "hub", "type", "bridge")
            run("ip", "-n", HUB, "link", "set", "hub", "up")
            for rank in range(self.ranks):
                self.join(rank)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A second Ctrl-C, which `ip` would get as well, may not end it halfway.
        before = [(which, signal.signal(which, signal.SIG_IGN))
                  for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        try:
            tear_down()
            self.folder.cleanup()
        finally:
            for which, handler in before:
                signal.signal(which, handler)

    @staticmethod
    def join(rank):
        space, port = rank_space(rank), f"port{rank}"
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", space, "link", "add", "net0", "type", "veth", "peer", "name", port,
            "netns", HUB)
        run("ip", "-n", HUB, "link", "set", port, "master", "hub", "up")
        run("ip", "-n", space, "addr", "add", f"{address(rank)}/24", "dev", "net0")
        run("ip", "-n", space, "link", "set", "net0", "up")

    def limit(self, bits_per_s, latency_us=0):
        """Every rank's link. Raises OSError for a latency where the kernel has no netem."""
        burst = max(LEAST_BURST_BYTES, bits_per_s // 8 // 10000)  # 0.1 ms
        for rank in range(self.ranks):
            subprocess.run(["tc", "-n", rank_space(rank), "qdisc", "del", "dev", "net0", "root"],
                           capture_output=True, check=False)
            link = ["tc", "-n", rank_space(rank), "qdisc", "add", "dev", "net0"]
            run(*link, "root", "handle", "1:", "tbf", "rate", f"{bits_per_s}bit", "burst",
                str(burst), "limit", str(QUEUE_BYTES))
            if latency_us:
                run(*link, "parent", "1:1", "netem", "delay", f"{latency_us}us", "limit", "100000")

    def mpirun(self, *command):
        """The words that run this command on every rank, over TCP between the namespaces."""
        subnet = f"{NETWORK}.0/24"
        return ["ip", "netns", "exec", rank_space(0), "unshare", "--uts", "taskset", "-c",
                self.cores[0], "mpirun", "--quiet", "--allow-run-as-root", "--bind-to", "none",
                "--host", ",".join(address(rank) for rank in range(self.ranks)),
                "-n", str(self.ranks), "--mca", "plm_rsh_agent", f"{self.folder.name}/agent",
                "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", subnet,
                "--mca", "oob_tcp_if_include", subnet, *command]
