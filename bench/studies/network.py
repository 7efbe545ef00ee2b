"""Training steps of ranks over a network of known bandwidth: predicted beside measured."""

import collections
import os
import re
import shlex
import statistics
import subprocess
import sys

import namespaces
from charts import table
from runs import Refused, require

UNITS = {"Mbit": 10**6, "Gbit": 10**9}
MOST_RANKS = 254  # addresses of their network


def rate(text):
    """Bits per second of "100Mbit"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([MG]bit)", text)
    if not found or not float(found[1]):
        raise ValueError(f"{text!r}: expected a rate as in 100Mbit or 2.5Gbit")
    return round(float(found[1]) * UNITS[found[2]])


def grid(args):
    """(net, batch, bandwidths); small nets exchange little, and want slow links."""
    small, large = ["100Mbit", "1Gbit"], ["1Gbit", "2.5Gbit", "5Gbit", "10Gbit"]
    if args.nets:
        cases = [(*net.split(":"), small + large[1:]) for net in args.nets]
    elif args.small:
        cases = [("lenet", 16, small), ("resnet20", 4, small)]
    else:
        cases = [("alexnet", 16, large), ("googlenet", 4, large), ("resnet50", 2, large)]
    return [(net, int(batch), args.rates or rates) for net, batch, rates in cases]


def keep(told):
    fields = ("cpu", "isa", "threads", "compiler", "commit")
    return {"link": told["network"],
            "points": [{"exchange": p["exchange"], "ms": p["ms"], "hidden": p["hidden"],
                        "exchange_ms": p["exchange_ms"], "exposed_ms": p["exposed_ms"],
                        "measured": p["measured"]}
                       for p in told["points"] if "measured" in p],
            "machine": {f: told["provenance"][f] for f in fields if f in told["provenance"]},
            "date": told["provenance"]["date"]}


def check_nets(args, nets):
    """Before there are namespaces, where each case would fail by itself."""
    require(args.convlab)
    for net in dict.fromkeys(nets):
        listed = subprocess.run([args.convlab, "list", net], capture_output=True, text=True,
                                check=False)
        if listed.returncode:
            said = listed.stderr.strip().splitlines() or [f"{net}: exit {listed.returncode}"]
            raise Refused(said[-1].removeprefix("convlab: "))


def make_runs(args, log, cases):
    if args.ranks > len(os.sched_getaffinity(0)):
        print(f"{args.ranks} ranks have fewer cores: their times mean nothing", file=sys.stderr)
    threads = args.rank_threads or max(len(os.sched_getaffinity(0)) // args.ranks, 1)
    with namespaces.Network(args.ranks) as network:
        for name, net, batch, bandwidth, latency in cases:
            if not log.due(name):
                continue
            try:
                network.limit(rate(bandwidth), latency)
            except OSError as error:
                if not latency:
                    raise
                print(f"{name}: left out, no netem here ({error.strerror})", file=sys.stderr)
                continue
            command = [args.convlab, "scaling", net, "--batch", str(batch), "--workers",
                       str(args.ranks), "--threads", str(threads), "--format",
                       "json", *shlex.split(args.options)]
            if args.small:
                command += ["--iterations", "3"]
            log.make(name, network.mpirun(*command), keep)


def percent(share):
    return f"{100 * share:.0f}%"


def errors(ratios):
    """How far predictions are off, in the median and at most."""
    off = [abs(ratio - 1) for ratio in ratios]
    return percent(statistics.median(off)), percent(max(off))


def show(log, cases):
    rows, ratios, hidden = [], [], collections.defaultdict(list)
    for name, *_ in cases:
        if name not in log.runs:
            continue
        run = log.runs[name]
        link = (f"{1e6 * run['link']['latency_s']:.0f} us, "
                f"{8e-9 * run['link']['bytes_per_s']:.2f} Gbit/s")
        for p in run["points"]:
            m = p["measured"]
            ratios.append(m["ratio"])
            hidden[p["exchange"]].append((p["hidden"], m["hidden"]))
            rows.append([name, link, p["exchange"], f"{p['ms']:.1f}", f"{m['ms']:.1f}",
                         f"{m['ratio']:.2f}", f"{p['exchange_ms']:.1f}", f"{m['exchange_ms']:.1f}",
                         percent(p["hidden"]), percent(m["hidden"])])
    if not rows:
        return
    print(table(["case", "link as measured", "exchange", "ms predicted", "measured", "ratio",
                 "t_comm predicted", "measured", "hidden predicted", "measured"], rows))
    middle, worst = errors(ratios)
    print(f"Predicted iterations are off by {middle} in the median of {len(ratios)}, by {worst} at "
          "most.\n")
    print(table(["exchange", "runs", "hidden predicted", "measured"],
                [[exchange, len(pairs), *(percent(statistics.median(side))
                                          for side in zip(*pairs))]
                 for exchange, pairs in hidden.items()]))


def network(args, log):
    cases = [(f"{net} batch {batch} {args.ranks} ranks {bandwidth}"
              + (f" {latency} us" if latency else ""), net, batch, bandwidth, latency)
             for net, batch, bandwidths in grid(args)
             for bandwidth in bandwidths for latency in args.latencies]
    if args.ranks > MOST_RANKS:
        raise Refused(f"--ranks {args.ranks}: expected 2 to {MOST_RANKS}")
    if due := [net for name, net, *_ in cases if log.due(name)]:
        check_nets(args, due)
    print("## Training over a network\n")
    if due:
        if reason := namespaces.missing():
            print(f"network: {reason}", file=sys.stderr)
            log.failures.append(reason)
        else:
            make_runs(args, log, cases)
    log.keep_only(name for name, *_ in cases)
    show(log, cases)
