#!/usr/bin/env python3
"""Races `convlab time` against PyTorch, and in inference OpenVINO and ONNX Runtime on PyTorch's net:
rounds in which each runs every case in a process of its own.

  bench/peers/compare.py --log race.jsonl --rounds 3            all cases
  bench/peers/compare.py --log race.jsonl --case vgg16:16:train --way eager-nhwc
  bench/peers/compare.py --log race.jsonl --case mobilenet_v2:1:infer --way openvino --way onnxruntime
  bench/peers/compare.py --log race.jsonl --rounds 0            only the table, in Markdown

Each run is appended to the log, and the table is made of all that it holds: a long race can be run
in parts. Within a round the order is rotated; a ratio is a peer's time over convlab's of the same
round, and the table has their median. Tune first (`convlab tune NET --batch N`); run with a Python
that has torch and torchvision, and for those ways openvino, and onnxruntime with onnx.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

PEER = pathlib.Path(__file__).with_name("pytorch.py")
CASES = (
    "resnet18:16:train",
    "vgg16:16:train",
    "alexnet:64:train",
    "resnet18:1:infer",
    "vgg16:1:infer",
    "alexnet:1:infer",
)
# Eager PyTorch in the better of two layouts is the peer; what its compilers make is told beside it.
WAYS = {
    "eager-nchw": ["--way", "eager"],
    "eager-nhwc": ["--way", "eager", "--channels-last"],
    "freeze-nchw": ["--way", "freeze"],
    "freeze-nhwc": ["--way", "freeze", "--channels-last"],
    "compile-nchw": ["--way", "compile"],
    "compile-nhwc": ["--way", "compile", "--channels-last"],
    "openvino": ["--way", "openvino"],
    "onnxruntime": ["--way", "onnxruntime"],
}
COMPILERS = {"freeze": "freeze", "compile": "compile", "openvino": "OpenVINO",
             "onnxruntime": "ONNX Runtime"}


def run(command, environment):
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: exit {done.returncode}\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def run_convlab(args, net, batch, train):
    command = [args.convlab, "time", net, "--batch", batch, "--format", "json"]
    command += ["--threads", str(args.threads)] + ([] if train else ["--forward-only"])
    command += ["--iterations", str(args.iterations)] if args.iterations else []
    command += shlex.split(args.options)
    told = run(command, None)
    times = told["iteration"]
    return {
        "command": shlex.join(command[1:]),
        "ms": statistics.median(times["samples_ms"]),
        "without_update_ms": times["ms"] - times["t_u"],
        "bytes": told["memory"]["resident_peak"] - told["memory"]["resident_before"],
        "provenance": told["provenance"],
        "kinds": told["kinds"],
    }


def run_pytorch(args, net, batch, train, way):
    command = [sys.executable, str(PEER), net, "--batch", batch, "--threads", str(args.threads)]
    command += WAYS[way] + (["--train"] if train else []) + ["--seconds", str(args.seconds)]
    # Waiting threads spin, as GNU OpenMP's do by themselves on a machine that idles.
    told = run(command, {**os.environ, "OMP_NUM_THREADS": str(args.threads)})
    sums = [sum(times.values()) for times in told["runs"]]
    without_update = [sum(times.values()) - times.get("update_ms", 0) for times in told["runs"]]
    return {
        "command": shlex.join([PEER.name] + command[2:]),
        "ms": statistics.median(sums),
        "without_update_ms": statistics.median(without_update),
        "bytes": told["peak_bytes"] - told["before_net_bytes"],
        "provenance": told["versions"],
    }


def race(args, case, number):
    net, batch, mode = case.split(":")
    train = mode == "train"
    ways = [way for way in args.way if not train or way.startswith(("eager", "compile"))]
    runners = ["convlab", *ways]
    turn = number % len(runners)
    for runner in runners[turn:] + runners[:turn]:
        if runner == "convlab":
            result = run_convlab(args, net, batch, train)
        else:
            result = run_pytorch(args, net, batch, train, runner)
        print(f"{case} round {number}: {runner} {result['ms']:.1f} ms", file=sys.stderr)
        with open(args.log, "a") as log:
            log.write(json.dumps({"case": case, "round": number, "runner": runner, **result}) + "\n")


def read(log):
    """Runs by case, by runner, by round."""
    cases = {}
    for line in open(log):
        entry = json.loads(line)
        rounds = cases.setdefault(entry["case"], {}).setdefault(entry["runner"], {})
        rounds[entry["round"]] = entry
    return cases


def median_of(rounds, field):
    return statistics.median(entry[field] for entry in rounds.values())


def ratio(ours, theirs, field):
    """Median over the rounds that both ran, with the least and the greatest."""
    both = sorted(set(ours) & set(theirs))
    ratios = [theirs[r][field] / ours[r][field] for r in both]
    return statistics.median(ratios), min(ratios), max(ratios)


def fastest(runners, beginning):
    ways = [way for way in runners if way.startswith(beginning)]
    return min(ways, key=lambda way: median_of(runners[way], "ms"), default=None)


def table(log):
    rows = [
        "| case | convlab images/s | PyTorch images/s | ratio (least, greatest) | without update "
        f"| {' | '.join(COMPILERS.values())} | convlab MiB | PyTorch MiB | rounds |",
        "|---" * (8 + len(COMPILERS)) + "|",
    ]
    cases = read(log)
    for case in sorted(cases, key=lambda c: CASES.index(c) if c in CASES else len(CASES)):
        runners = cases[case]
        ours, peer = runners.get("convlab"), fastest(runners, "eager")
        if not ours or not peer:
            continue
        theirs = runners[peer]
        net, batch, mode = case.split(":")

        def images(rounds):
            return 1e3 * int(batch) / median_of(rounds, "ms")

        def other(beginning):
            way = fastest(runners, beginning)
            return f"{ratio(ours, runners[way], 'ms')[0]:.2f}" if way else "–"

        mid, least, greatest = ratio(ours, theirs, "ms")
        without = f"{ratio(ours, theirs, 'without_update_ms')[0]:.2f}" if mode == "train" else "–"
        mib = [median_of(rounds, "bytes") / 2**20 for rounds in (ours, theirs)]
        rows.append(
            f"| {net} {mode} batch {batch} | {images(ours):.1f} | {images(theirs):.1f} ({peer}) "
            f"| {mid:.2f} ({least:.2f}, {greatest:.2f}) | {without} "
            f"| {' | '.join(map(other, COMPILERS))} | {mib[0]:.0f} | {mib[1]:.0f} | {len(ours)} |"
        )
    return "\n".join(rows)


def provenance(log):
    """What the runs say about themselves, once each."""
    lines = []
    for runners in read(log).values():
        for rounds in runners.values():
            for entry in rounds.values():
                told = {k: v for k, v in entry["provenance"].items() if k not in ("command", "build")}
                lines.append(entry["command"])
                lines += [f"{key}: {value}" for key, value in told.items()]
    return "\n".join(dict.fromkeys(lines))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--convlab", default="build/bench/convlab", help="the program")
    parser.add_argument("--log", required=True, help="JSON lines, appended to")
    parser.add_argument("--case", action="append", help=f"NET:BATCH:train|infer; {' '.join(CASES)}")
    parser.add_argument("--way", action="append", choices=WAYS, help="default: the eager ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of PyTorch's runs")
    parser.add_argument("--iterations", type=int, help="of convlab's")
    parser.add_argument("--options", default="", help="more for `convlab time`")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    args.way = args.way or ["eager-nchw", "eager-nhwc"]
    for case in args.case or CASES:
        rounds = read(args.log).get(case, {}) if os.path.exists(args.log) else {}
        first = max((r for runs in rounds.values() for r in runs), default=0) + 1
        for number in range(first, first + args.rounds):
            race(args, case, number)
    print(table(args.log))
    print("\n```\n" + provenance(args.log) + "\n```")


if __name__ == "__main__":
    main()
