#!/usr/bin/env python3
"""Studies that take many runs of the lab's programs, as Markdown.

  bench/studies/study.py gemm --log gemm.jsonl        products of M = K by N: own and OpenBLAS
  bench/studies/study.py mlp --log mlp.jsonl          throughput of 20 -> 5 x 256 -> 1, tanh
  bench/studies/study.py batch --log batch.jsonl      AlexNet, ResNet-18, VGG-16 over batch sizes
  bench/studies/study.py layers --log layers.jsonl    layers of known nets: own over oneDNN's

Each run is appended to the log, one that is there already is not made again, and the tables are of
all that it holds: a study can be stopped and goes on from there. --only TEXT runs the cases whose
name contains it; --only none runs nothing. Nothing else may run meanwhile; tune the nets first.
"""

import argparse
import collections
import json
import math
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: exit {done.returncode}\n{done.stderr.strip()}")
    return json.loads(done.stdout)


class Log:
    """Runs by name, made once and kept as lines of JSON."""

    def __init__(self, path, only):
        self.path, self.only, self.runs = path, only, {}
        if path.exists():
            for line in path.read_text().splitlines():
                run = json.loads(line)
                self.runs[run["name"]] = run

    def make(self, name, command, keep):
        if name in self.runs or (self.only and self.only not in name):
            return
        print(name, file=sys.stderr)
        run = {"name": name, "command": shlex.join(command[1:]), **keep(call(command))}
        self.runs[name] = run
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def provenance(log):
    kept = {}
    for run in log.runs.values():
        kept.update(run["machine"])
    return "".join(f"- {name}: {value}\n" for name, value in kept.items())


def bars(title, values, unit):
    """One bar chart, drawn in text: name and value."""
    most = max(values.values())
    width = max(len(name) for name in values)
    lines = [f"{name:<{width}}  {'#' * round(50 * value / most)} {value:.1f}"
             for name, value in values.items()]
    return f"{title}, {unit}\n\n```\n" + "\n".join(lines) + "\n```\n"


# ---- gemm ----

SIZES = (512, 1024, 1760, 2048, 2560)
BATCHES = (1, 2, 4, 7, 8, 16, 31, 32, 48, 64, 96, 128, 192, 256)


def gemm(args, log):
    """M = K over N: the curve, what transposed operands cost, and how to round a batch."""

    def keep(told):
        context = told["context"]
        best = {}
        for case in told["benchmarks"]:
            name = re.sub(r"/manual_time$", "", case["name"])
            best[name] = case.get("best_GFLOPs") or case["best_GBps"]
        machine = {name: context[name] for name in ("cpu", "isa", "threads", "openblas")}
        return {"best": best, "machine": machine, "date": context["date"]}

    for dtype in ("f32", "f64"):
        for size in SIZES:
            pattern = f"(gemm/.*/{dtype}/.*/{size}x.*x{size}/|transpose/{dtype}/{size}x)"
            log.make(f"{dtype} {size}", [args.kernels, f"--benchmark_filter={pattern}",
                                         "--benchmark_format=json",
                                         f"--benchmark_min_time={args.min_time}"], keep)
    best = {}
    for run in log.runs.values():
        best.update(run["best"])

    def rate(whose, dtype, ops, size, n):
        return best.get(f"gemm/{whose}/{dtype}/{ops}/{size}x{n}x{size}")

    for dtype in ("f32", "f64"):
        sizes = [size for size in SIZES if rate("own", dtype, "NN", size, 1)]
        if not sizes:
            continue
        print(f"\n## {dtype}: GFLOP/s over N, M = K, NN: own, OpenBLAS's\n")
        rows = [[n] + [f"{rate('own', dtype, 'NN', size, n):.0f}, "
                       f"{rate('openblas', dtype, 'NN', size, n):.0f}" for size in sizes]
                for n in BATCHES]
        print(table(["N"] + [f"M = K = {size}" for size in sizes], rows))

        print("Transposed operands: speed over NN's, median over M, own and OpenBLAS's; and an\n"
              "explicit transpose of the M x K operand, as a share of the TN product's time by\n"
              "OpenBLAS. It pays where that share is less than what TN loses.\n")
        rows = []
        for n in BATCHES:
            cells = [n]
            for whose in ("own", "openblas"):
                for ops in ("TN", "NT"):
                    cells.append("%.2f" % statistics.median(
                        rate(whose, dtype, ops, s, n) / rate(whose, dtype, "NN", s, n)
                        for s in sizes))
            shares, pays = [], 0
            for s in sizes:
                bytes_moved = 2 * s * s * (4 if dtype == "f32" else 8)
                transpose_s = bytes_moved / best[f"transpose/{dtype}/{s}x{s}"] / 1e9
                tn_s, nn_s = (2 * s * s * n / rate("openblas", dtype, ops, s, n) / 1e9
                              for ops in ("TN", "NN"))
                shares.append(transpose_s / tn_s)
                pays += transpose_s + nn_s < tn_s
            cells += [f"{statistics.median(shares):.2f}", f"{pays} of {len(sizes)}"]
            rows.append(cells)
        print(table(["N", "own TN", "own NT", "OpenBLAS TN", "OpenBLAS NT", "transpose / TN",
                     "pays"], rows))

        print("Rounding a batch up: time at N over time at the larger batch. Above 1, the larger is\n"
              "the faster one.\n")
        rows = []
        for n, rounded in ((7, 8), (31, 32), (48, 64), (96, 128)):
            for whose in ("own", "openblas"):
                gains = [n / rate(whose, dtype, "NN", s, n) * rate(whose, dtype, "NN", s, rounded)
                         / rounded for s in sizes]
                rows.append([f"{n} to {rounded}", whose] + [f"{gain:.2f}" for gain in gains])
        print(table(["N", "whose"] + [f"M = K = {size}" for size in sizes], rows))


# ---- nets ----


def keep_net(told):
    """What a study needs of `convlab time --format json`."""
    kinds = collections.defaultdict(float)
    algos, layers = collections.defaultdict(float), {}
    for step in told["steps"]:
        chosen = []
        for phase, entry in step["phases"].items():
            kind = step["kind"]
            if entry.get("algo"):
                algos[f"{entry['algo']} {phase}"] += entry["ms"]
                chosen.append(entry["algo"])
            kinds[f"{kind} {phase}"] += entry["ms"]
        if chosen:
            layers[step["layer"]] = "/".join(dict.fromkeys(chosen))
    flops = sum(entry["eff_gflops"] * entry["ms"] * 1e6
                for step in told["steps"] for entry in step["phases"].values()
                if "eff_gflops" in entry)
    fields = ("cpu", "isa", "threads", "compiler", "commit", "openblas", "onednn")
    return {"iteration": told["iteration"], "kinds": kinds, "algos": algos, "layers": layers,
            "flops": flops, "memory": told["memory"]["total"],
            "machine": {f: told["provenance"][f] for f in fields if f in told["provenance"]},
            "date": told["provenance"]["date"]}


def timed(args, *words):
    command = [args.convlab, "time", *(str(word) for word in words), "--format", "json"]
    return command + shlex.split(args.options)


def mlp_flops(widths, batch):
    """For n_b samples a layer of n_l outputs and n_{l-1} inputs takes, forward,
    n_b n_l (2 n_{l-1} - 1), bias and tanh 3 n_b n_l; backward tanh n_b n_l, the weights' gradient
    n_l n_{l-1} (2 n_b - 1), the bias's n_l (n_b - 1), and the inputs' n_b n_{l-1} (2 n_l - 1)."""
    forward = backward = 0
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        forward += batch * outputs * (2 * inputs - 1) + 3 * batch * outputs
        backward += (batch * outputs + outputs * inputs * (2 * batch - 1) + outputs * (batch - 1))
        if i > 0:  # nobody needs the data's gradient
            backward += batch * inputs * (2 * outputs - 1)
    return forward, backward


def mlp(args, log):
    """GFLOP/s of forward and backward over threads, batch and width, in both types."""
    threads = [t for t in (1, 2, 4, 8, 16, 32, 64) if t <= args.threads]
    cases = []
    for dtype in ("f32", "f64"):
        cases += [(dtype, 256, 1024, t) for t in threads]
        cases += [(dtype, 256, b, args.threads) for b in (16, 64, 256, 4096)]
        cases += [(dtype, w, 1024, args.threads) for w in (384, 512)]

    def name_of(dtype, width, batch, threads):
        return f"{dtype} 20-{width}x5-1 batch {batch} threads {threads}"

    for case in cases:
        dtype, width, batch, count = case
        log.make(name_of(*case), timed(args, f"mlp:20-{width}x5-1", "--batch", batch, "--dtype",
                                       dtype, "--threads", count), keep_net)

    def rates(case):
        run = log.runs.get(name_of(*case))
        if not run:
            return None
        widths = [20] + 5 * [case[1]] + [1]
        forward, backward = mlp_flops(widths, case[2])
        t = run["iteration"]
        return {"forward": forward / t["t_f"] / 1e6, "backward": backward / t["t_b"] / 1e6,
                "both": (forward + backward) / (t["t_f"] + t["t_b"]) / 1e6, "run": run}

    rows, chart = [], {}
    for case in cases:
        r = rates(case)
        if not r:
            continue
        dtype, width, batch, count = case
        one = rates((dtype, width, batch, 1))
        ideal = f"{r['both'] / one['both'] / count:.2f}" if one else ""
        t = r["run"]["iteration"]
        rows.append([dtype, width, batch, count, f"{r['forward']:.0f}", f"{r['backward']:.0f}",
                     f"{r['both']:.0f}", ideal, f"{t['t_f']:.3f}", f"{t['t_b']:.3f}",
                     f"{t['t_u']:.3f}"])
        if width == 256 and batch == 1024:
            chart[f"{dtype}, {count} threads"] = r["both"]
    print("\nGFLOP/s by the FLOP model; of ideal: over that of one thread times the threads.\n")
    print(table(["type", "width", "batch", "threads", "forward", "backward", "both", "of ideal",
                 "t_f ms", "t_b ms", "t_u ms"], rows))
    if chart:
        print(bars("Forward and backward of 20 -> 5 x 256 -> 1 at batch 1024", chart, "GFLOP/s"))
    print("Shares of the steps' time by routine, width 256, batch 1024, all threads:\n")
    for dtype in ("f32", "f64"):
        r = rates((dtype, 256, 1024, args.threads))
        if r:
            print(table([dtype, "%"], shares(r["run"]["kinds"], 1)))


def shares(parts, least):
    """Names and percentages, dearest first; what is below `least` percent together."""
    whole = sum(parts.values())
    known = {name: 100 * ms / whole for name, ms in parts.items() if whole}
    shown = sorted(((n, s) for n, s in known.items() if s >= least), key=lambda item: -item[1])
    rest = 100 - sum(share for _, share in shown)
    return [[name, f"{share:.1f}"] for name, share in shown] + [["the rest", f"{rest:.1f}"]]


def batch(args, log):
    """Training steps over batch sizes: where the time goes and which algorithm each layer got."""
    nets, sizes = ("alexnet", "resnet18", "vgg16"), (4, 8, 16, 32, 64)
    for net in nets:
        for size in sizes:
            log.make(f"{net} {size}", timed(args, net, "--batch", size), keep_net)
    for net in nets:
        runs = {size: log.runs[f"{net} {size}"] for size in sizes if f"{net} {size}" in log.runs}
        if not runs:
            continue
        print(f"\n## {net}, a training step\n")
        rows, parts = [], collections.defaultdict(dict)
        for size, run in runs.items():
            t = run["iteration"]
            rows.append([size, f"{t['ms']:.1f}", f"{t['images_per_s']:.1f}", f"{t['t_f']:.1f}",
                         f"{t['t_b']:.1f}", f"{t['t_u']:.1f}", f"{t['t_h2d']:.2f}",
                         f"{run['flops'] / size / 1e9:.1f}", f"{run['memory'] / 2**20:.0f}"])
            steps = sum(run["kinds"].values())
            known = {"copies from the host": t["t_h2d"], **run["algos"],
                     "pooling backward": run["kinds"].get("pooling bwd_d", 0)}
            known["everything else"] = steps - sum(run["algos"].values()) - known["pooling backward"]
            for name, ms in known.items():
                parts[name][size] = 100 * ms / (steps + t["t_h2d"])
        print(table(["batch", "ms", "images/s", "t_f", "t_b", "t_u", "t_h2d", "GFLOP an image",
                     "MiB"], rows))
        print("Shares of time, %:\n")
        order = sorted(parts, key=lambda name: -max(parts[name].values()))
        print(table(["part"] + [f"batch {size}" for size in runs],
                    [[name] + [f"{parts[name].get(size, 0):.1f}" for size in runs]
                     for name in order]))
        print("Algorithms, forward/backward_data/backward_filter where they differ:\n")
        layers = list(next(iter(runs.values()))["layers"])
        print(table(["layer"] + [f"batch {size}" for size in runs],
                    [[layer] + [run["layers"].get(layer, "") for run in runs.values()]
                     for layer in layers]))


# ---- layers ----

LAYERS = {
    "3x3": {
        "VGG 1_2": "mb4ic64ih224oc64oh224kh3ph1",
        "VGG 2_2": "mb4ic128ih112oc128oh112kh3ph1",
        "VGG 3_2": "mb4ic256ih56oc256oh56kh3ph1",
        "VGG 4_2": "mb4ic512ih28oc512oh28kh3ph1",
        "VGG 5_1": "mb4ic512ih14oc512oh14kh3ph1",
        "ResNet layer1": "mb16ic64ih56oc64oh56kh3ph1",
        "ResNet layer2": "mb16ic128ih28oc128oh28kh3ph1",
        "ResNet layer3": "mb16ic256ih14oc256oh14kh3ph1",
        "AlexNet conv3": "mb16ic192ih13oc384oh13kh3ph1",
        "ResNet layer1, batch 1": "mb1ic64ih56oc64oh56kh3ph1",
    },
    "3x3 of 7x7": {
        "ResNet layer4": "mb16ic512ih7oc512oh7kh3ph1",
        "ResNet layer4, batch 1": "mb1ic512ih7oc512oh7kh3ph1",
    },
    "3x3/2": {
        "ResNet layer2.0": "mb16ic64ih56oc128oh28kh3sh2ph1",
        "ResNet layer3.0": "mb16ic128ih28oc256oh14kh3sh2ph1",
        "ResNet layer4.0": "mb16ic256ih14oc512oh7kh3sh2ph1",
    },
    "1x1": {
        "64 to 256": "mb16ic64ih56oc256oh56kh1ph0",
        "1024 to 256": "mb16ic1024ih14oc256oh14kh1ph0",
        "512 to 1024, /2": "mb16ic512ih28oc1024oh14kh1sh2ph0",
    },
    "C = 3": {
        "VGG 1_1": "mb4ic3ih224oc64oh224kh3ph1",
        "ResNet conv1, 7x7/2": "mb16ic3ih224oc64oh112kh7sh2ph3",
        "AlexNet conv1, 11x11/4": "mb16ic3ih224oc64oh55kh11sh4ph2",
    },
    "5x5 to 11x11": {
        "AlexNet conv2, 5x5": "mb16ic64ih27oc192oh27kh5ph2",
        "convnet-benchmarks L1, 11x11": "mb8ic3ih128oc96oh118kh11ph0",
        "convnet-benchmarks L2, 9x9": "mb8ic64ih64oc128oh56kh9ph0",
        "convnet-benchmarks L3, 9x9": "mb8ic128ih32oc128oh24kh9ph0",
        "convnet-benchmarks L4, 7x7": "mb8ic128ih16oc128oh10kh7ph0",
    },
}
PASSES = ("fwd", "bwd_d", "bwd_w")


def keep_layer(told):
    """What a study needs of `convlab bench --format json` with one problem and pass."""
    (layer,) = told["layers"]
    fields = ("algo", "config", "ms", "pack_ms", "rel_error", "workspace_bytes",
              "packed_filter_bytes")
    provenance = told["provenance"]
    return {"candidates": [{f: c.get(f) for f in fields} for c in layer["candidates"]
                           if c["status"] in ("ok", "dropped") and c.get("ms")],
            "machine": {f: provenance[f] for f in ("cpu", "isa", "threads", "compiler", "commit",
                                                   "onednn") if f in provenance},
            "date": provenance["date"]}


def layers(args, log):
    """Best of the own algorithms over oneDNN's, by layer, and what each algorithm errs."""
    rows, ratios = [], collections.defaultdict(list)
    errors = collections.defaultdict(float)
    for kind, problems in LAYERS.items():
        for layer, problem in problems.items():
            for which in PASSES:
                name = f"{kind}: {layer} {which}"
                log.make(name, [args.convlab, "bench", problem, "--pass", which, "--exclude",
                                "im2col,fft", "--format", "json", *shlex.split(args.options)],
                         keep_layer)
                if name not in log.runs:
                    continue
                found = log.runs[name]["candidates"]
                own = [c for c in found if not c["algo"].startswith("onednn.")]
                for c in own:
                    tile = re.search(r"tile=\d+", c["config"])
                    variant = c["algo"] + (f" {tile[0]}" if tile else "")
                    errors[variant] = max(errors[variant], c["rel_error"])
                best = min(own, key=lambda c: c["ms"])
                cells = [f"{layer} {which}", f"{best['algo']} {best['config']}",
                         f"{best['ms']:.2f}"]
                least = math.inf
                for peer in ("onednn.direct", "onednn.winograd"):
                    times = [c for c in found if c["algo"] == peer]
                    if not times:
                        cells += ["", ""]
                        continue
                    packed = [min(c["ms"] + (c["pack_ms"] or 0) for c in who)
                              for who in (times, own)]
                    pair = (min(c["ms"] for c in times) / best["ms"], packed[0] / packed[1])
                    cells += [f"{ratio:.2f}" for ratio in pair]
                    ratios[kind, which, peer].append(pair)
                    least = min(least, pair[0])
                cells += [f"{best[f] / 2**20:.1f}" for f in ("workspace_bytes",
                                                             "packed_filter_bytes")]
                rows.append((least, cells))
    print("\nGeometric means of oneDNN's time over the own best's; in brackets with packing the\n"
          "filter counted on both sides.\n")
    mean = statistics.geometric_mean
    print(table(["class", "pass", "over", "layers", "ratio"],
                [[*key, len(pairs), f"{mean(a for a, _ in pairs):.2f} "
                  f"({mean(b for _, b in pairs):.2f})"] for key, pairs in ratios.items()]))
    print("Worst first:\n")
    print(table(["layer", "best of the own", "ms", "over direct", "packed", "over Winograd",
                 "packed", "workspace MiB", "packed MiB"],
                [cells for _, cells in sorted(rows, key=lambda row: row[0])]))
    print("Largest relative error in the 2-norm over these layers, against sums in double:\n")
    print(table(["algorithm", "error"], [[name, f"{error:.1e}"]
                                         for name, error in sorted(errors.items())]))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {"gemm": gemm, "mlp": mlp, "batch": batch, "layers": layers}
    parser.add_argument("study", choices=studies)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="the cases whose name contains this")
    parser.add_argument("--convlab", default=str(BUILD / "bench" / "convlab"))
    parser.add_argument("--kernels", default=str(BUILD / "bench" / "micro" / "micro_kernels"))
    parser.add_argument("--min-time", default="0.1", help="seconds a product, gemm")
    parser.add_argument("--threads", type=int, default=2, help="the most, mlp")
    parser.add_argument("--options", default="", help="more flags for convlab, in one word")
    args = parser.parse_args()
    log = Log(args.log, args.only)
    studies[args.study](args, log)
    if log.runs:
        print(provenance(log))


if __name__ == "__main__":
    main()
