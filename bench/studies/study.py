#!/usr/bin/env python3
"""Studies that take many runs of the lab's programs, as Markdown.

  bench/studies/study.py gemm --log gemm.jsonl        products of M = K by N: own and OpenBLAS
  bench/studies/study.py mlp --log mlp.jsonl          throughput of 20 -> 5 x 256 -> 1, tanh
  bench/studies/study.py batch --log batch.jsonl      AlexNet, ResNet-18, VGG-16 over batch sizes
  bench/studies/study.py layers --log layers.jsonl    layers of known nets: own over oneDNN's

Each run is appended to the log, one that is there already is not made again, and the tables are of
all that it holds: a study can be stopped and goes on from there. --only TEXT runs the cases whose
name contains it; --only none runs nothing; --minutes N starts no more after that time. --plots DIR
also draws (gnuplot). Nothing else may run meanwhile; tune the nets first.

mlp compares backends: --device cuda adds a card's with one and two streams, --python PYTHON, of an
interpreter that has torch, PyTorch's on the CPU.
"""

import argparse
import collections
import itertools
import json
import math
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PYTORCH = ROOT / "bench" / "peers" / "pytorch.py"


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: exit {done.returncode}\n{done.stderr.strip()}")
    return json.loads(done.stdout)


class Log:
    """Runs by name, made once and kept as lines of JSON."""

    def __init__(self, path, only, minutes):
        self.path, self.only, self.runs = path, only, {}
        self.until = time.monotonic() + 60 * minutes
        if path.exists():
            for line in path.read_text().splitlines():
                run = json.loads(line)
                self.runs[run["name"]] = run

    def make(self, name, command, keep):
        if name in self.runs or (self.only and self.only not in name):
            return
        if time.monotonic() > self.until:
            return
        print(name, file=sys.stderr)
        words = [str(pathlib.Path(command[0]).name), *command[1:]]
        run = {"name": name, "command": shlex.join(words), **keep(call(command))}
        self.runs[name] = run
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def provenance(args, log):
    """What made it, and where; all values that the runs of a log had."""
    kept = {"command": [f"bench/studies/study.py {args.study} --log {args.log.name}"]}
    if args.study == "gemm":
        kept["command"][0] += f" --min-time {args.min_time}"
    elif args.options:
        kept["command"][0] += f" --options={shlex.quote(args.options)}"
    for run in log.runs.values():
        for name, value in run["machine"].items():
            if value not in kept.setdefault(name, []):
                kept[name].append(value)
    dates = sorted(run["date"] for run in log.runs.values() if "date" in run)
    if dates:
        kept["runs"] = [f"{len(log.runs)}, {dates[0]} to {dates[-1]}"]
    return "".join(f"- {name}: {', '.join(values)}\n" for name, values in kept.items())


def bars(title, values, unit):
    """One bar chart, drawn in text: name and value."""
    most = max(values.values())
    width = max(len(name) for name in values)
    lines = [f"{name:<{width}}  {'#' * round(50 * value / most)} {value:.1f}"
             for name, value in values.items()]
    return f"{title}, {unit}\n\n```\n" + "\n".join(lines) + "\n```\n"


# ---- plots, by gnuplot ----


def draw(args, name, settings, plots, data):
    """name.svg in --plots. `plots` are clauses for `plot`; "$data" is the table in them, whose
    cells are numbers, texts, or None for what is not there."""
    if not args.plots:
        return
    args.plots.mkdir(parents=True, exist_ok=True)
    path = args.plots / f"{name}.svg"
    cell = lambda value: '"?"' if value is None else json.dumps(value)
    rows = "\n".join(" ".join(cell(value) for value in row) for row in data)
    script = (f"set terminal svg size 900,480 dynamic noenhanced background rgb 'white'\n"
              f"set output {json.dumps(str(path))}\nset datafile missing '?'\n"
              f"$data << EOD\n{rows}\nEOD\nset key outside right\nset grid ytics\n{settings}\n"
              f"plot {', '.join(plots)}\n")
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def curves(args, name, title, x_label, y_label, x, series):
    """A curve for each of `series`, over the logarithm of x."""
    colours = {}
    plots = []
    for i, label in enumerate(series, 2):
        whose, what = label.split(" ", 1)
        colour = colours.setdefault(what, len(colours) + 1)
        plots.append(f"$data using 1:{i} with linespoints lc {colour} dt "
                     f"{1 if whose == 'own' else 2} pt {7 if whose == 'own' else 6} "
                     f"title {json.dumps(label)}")
    draw(args, name, f"set title {json.dumps(title)}\nset logscale x 2\n"
         f"set xlabel {json.dumps(x_label)}\nset ylabel {json.dumps(y_label)}\nset yrange [0:]",
         plots, [[n, *(values[row] for values in series.values())] for row, n in enumerate(x)])


def stacks(args, name, title, y_label, x, parts):
    """A stack of `parts` for each of x; with one part, plain bars."""
    # After eight parts the colours come again, hatched.
    plots = [f"$data using {i}{':xtic(1)' if i == 2 else ''} {'fs pattern 1 ' if i > 9 else ''}"
             f"title {json.dumps(part)}" for i, part in enumerate(parts, 2)]
    draw(args, name, f"set title {json.dumps(title)}\nset style data histograms\n"
         f"set style histogram rowstacked\nset style fill solid 0.8\nset boxwidth 0.7\n"
         f"set ylabel {json.dumps(y_label)}\nset yrange [0:]\nset xtics rotate by -30",
         plots, [[str(n), *(values[row] for values in parts.values())] for row, n in enumerate(x)])


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
        curves(args, f"gemm-{dtype}", f"M = K by N, NN, {dtype}", "N", "GFLOP/s", BATCHES,
               {f"{whose} {size}": [rate(whose, dtype, "NN", size, n) for n in BATCHES]
                for size in sizes for whose in ("own", "openblas")})

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


class Mlp(typing.NamedTuple):
    """20 -> 5 x width -> 1 on `units` threads of the CPU, or streams of a card, each of which has a
    part of the batch."""

    backend: str
    dtype: str
    width: int
    batch: int
    units: int

    @property
    def net(self):
        return f"mlp:20-{self.width}x5-1"

    def on(self):
        what = "stream" if self.backend.startswith("cuda") else "thread"
        return f"{self.units} {what}{'s' if self.units > 1 else ''}"

    def __str__(self):
        return f"{self.backend} {self.dtype} {self.net[4:]} batch {self.batch} {self.on()}"


def keep_peer(told):
    """What a study needs of pytorch.py."""
    median = {phase: statistics.median(run[phase] for run in told["runs"])
              for phase in told["runs"][0]}
    return {"iteration": {"t_f": median["forward_ms"], "t_b": median["backward_ms"],
                          "t_u": median["update_ms"]},
            "kinds": {}, "machine": {"pytorch": told["versions"]["torch"]}}


def mlp(args, log):
    """GFLOP/s of forward and backward over threads, batch and width, in both types."""
    threads = [t for t in (1, 2, 4, 8, 16, 32, 64) if t <= args.threads]
    cases = []
    for dtype in ("f32", "f64"):
        cases += [Mlp("cpu", dtype, 256, 1024, t) for t in threads]
        if args.python:
            cases += [Mlp("pytorch", dtype, 256, 1024, t) for t in threads]
        if args.device.startswith("cuda"):
            cases += [Mlp(args.device, dtype, 256, 1024, streams) for streams in (1, 2)]
        cases += [Mlp("cpu", dtype, 256, b, args.threads) for b in (16, 64, 256, 4096)]
        cases += [Mlp("cpu", dtype, w, 1024, args.threads) for w in (384, 512)]
    for case in cases:
        if case.backend == "pytorch":
            log.make(str(case), [args.python, str(PYTORCH), case.net, "--batch", str(case.batch),
                                 "--dtype", case.dtype, "--threads", str(case.units), "--train"],
                     keep_peer)
        elif case.backend == "cpu":
            log.make(str(case), timed(args, case.net, "--batch", case.batch, "--dtype", case.dtype,
                                      "--threads", case.units), keep_net)
        else:
            log.make(str(case), timed(args, case.net, "--batch", case.batch // case.units,
                                      "--dtype", case.dtype, "--device", case.backend, "--streams",
                                      case.units), keep_net)

    def rates(case):
        run = log.runs.get(str(case))
        if not run:
            return None
        forward, backward = mlp_flops([20] + 5 * [case.width] + [1], case.batch)
        t = run["iteration"]
        return {"forward": forward / t["t_f"] / 1e6, "backward": backward / t["t_b"] / 1e6,
                "both": (forward + backward) / (t["t_f"] + t["t_b"]) / 1e6, "run": run}

    rows, chart = [], {}
    for case in cases:
        r = rates(case)
        if not r:
            continue
        one = rates(case._replace(units=1))
        ideal = f"{r['both'] / one['both'] / case.units:.2f}" if one else ""
        t = r["run"]["iteration"]
        rows.append([case.backend, case.dtype, case.width, case.batch, case.on(),
                     f"{r['forward']:.0f}", f"{r['backward']:.0f}", f"{r['both']:.0f}", ideal,
                     f"{t['t_f']:.3f}", f"{t['t_b']:.3f}", f"{t['t_u']:.3f}"])
        if case.width == 256 and case.batch == 1024:
            chart[f"{case.backend} {case.dtype}, {case.on()}"] = r["both"]
    print("\nGFLOP/s by the FLOP model; of ideal: over that of one thread or stream, times them.\n")
    print(table(["backend", "type", "width", "batch", "on", "forward", "backward", "both",
                 "of ideal", "t_f ms", "t_b ms", "t_u ms"], rows))
    if chart:
        title = "Forward and backward of 20 -> 5 x 256 -> 1 at batch 1024"
        print(bars(title, chart, "GFLOP/s"))
        stacks(args, "mlp", title, "GFLOP/s", list(chart), {"both passes": list(chart.values())})
    print("Shares of the steps' time by routine, width 256, batch 1024:\n")
    for case in cases:
        if (case.width, case.batch) != (256, 1024) or case.units != args.threads:
            continue
        r = rates(case)
        if r and r["run"]["kinds"]:
            print(table([f"{case.backend} {case.dtype}, {case.on()}", "%"],
                        shares(r["run"]["kinds"], 1)))


def shares(parts, least):
    """Names and percentages, dearest first; what is below `least` percent together."""
    whole = sum(parts.values())
    known = {name: 100 * ms / whole for name, ms in parts.items() if whole}
    shown = sorted(((n, s) for n, s in known.items() if s >= least), key=lambda item: -item[1])
    rest = max(0, 100 - sum(share for _, share in shown))
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
        stacks(args, f"batch-{net}", f"{net}, a training step over the batch size", "% of its time",
               list(runs), {name: [parts[name].get(size, 0) for size in runs] for name in order})
        print("Algorithms, forward/backward_data/backward_filter where they differ:\n")
        layers = list(next(iter(runs.values()))["layers"])
        print(table(["layer"] + [f"batch {size}" for size in runs],
                    [[layer] + [run["layers"].get(layer, "") for run in runs.values()]
                     for layer in layers]))


# ---- layers ----

LAYERS = {
    "3x3, H >= 14": {
        "VGG 1_2": "mb4ic64ih224oc64oh224kh3ph1",
        "VGG 2_2": "mb4ic128ih112oc128oh112kh3ph1",
        "VGG 3_2": "mb4ic256ih56oc256oh56kh3ph1",
        "VGG 4_2": "mb4ic512ih28oc512oh28kh3ph1",
        "VGG 5_1": "mb4ic512ih14oc512oh14kh3ph1",
        "ResNet layer1": "mb16ic64ih56oc64oh56kh3ph1",
        "ResNet layer2": "mb16ic128ih28oc128oh28kh3ph1",
        "ResNet layer3": "mb16ic256ih14oc256oh14kh3ph1",
        "ResNet layer1, batch 1": "mb1ic64ih56oc64oh56kh3ph1",
    },
    "3x3, H = 13": {
        "AlexNet conv3": "mb16ic192ih13oc384oh13kh3ph1",
    },
    "3x3, H = 7, batch 16": {
        "ResNet layer4": "mb16ic512ih7oc512oh7kh3ph1",
    },
    "3x3, H = 7, batch 1": {
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
PEERS = {"direct": "onednn.direct", "Winograd": "onednn.winograd"}


def keep_race(told):
    """What the study needs of `micro_convolutions --race` with one problem and pass."""
    found = {}
    for case in told["benchmarks"]:
        if case.get("error_occurred"):
            sys.exit(f"{case['run_name']}: {case['error_message']}")
        if case["run_type"] != "iteration":  # means and medians over the repetitions
            continue
        _, _, algo, layouts, config, *_ = case["run_name"].split("/")
        kept = found.setdefault((algo, layouts, config), {"algo": algo, "layouts": layouts,
                                                          "config": config, "ms": []})
        kept["ms"].append(case["median_ms"])
        for counter in ("pack_ms", "rel_error", "workspace_bytes", "packed_filter_bytes",
                        "direct_GFLOP", "eff_over_exec"):
            kept[counter] = case[counter]
    context = told["context"]
    machine = {name: context[name] for name in ("cpu", "isa", "threads", "compiler", "commit")}
    return {"candidates": list(found.values()), "peak": float(context["peak_GFLOPs"]),
            "onednn": context["onednn"], "machine": machine, "date": context["date"]}


class Race:
    """All runs of one layer and pass together: the candidates with their median times."""

    def __init__(self, runs):
        times = collections.defaultdict(list)
        for run in runs:
            for c in run["candidates"]:
                # A peer of each version, but one own algorithm: that one is the same in each.
                version = run["onednn"] if c["algo"].startswith("onednn.") else ""
                times[c["algo"], c["layouts"], c["config"], version].append(c)
        self.candidates = [
            {**same[0], "ms": statistics.median(ms for c in same for ms in c["ms"]),
             "pack_ms": statistics.median(c["pack_ms"] for c in same)} for same in times.values()]
        self.own = [c for c in self.candidates if not c["algo"].startswith("onednn.")]
        self.best = min(self.own, key=lambda c: c["ms"])
        self.peak = statistics.median(run["peak"] for run in runs)

    def peer(self, algo):
        """Its fastest version, and the ratios of its time to the best own one: without packing, and
        with packing counted, where another candidate may be the best on either side."""
        peers = [c for c in self.candidates if c["algo"] == algo]
        if not peers:
            return None, None
        fastest = min(peers, key=lambda c: c["ms"])
        packed = [min(c["ms"] + c["pack_ms"] for c in who) for who in (peers, self.own)]
        return fastest, (fastest["ms"] / self.best["ms"], packed[0] / packed[1])

    def of_peak(self, c):
        return c["direct_GFLOP"] / c["eff_over_exec"] / c["ms"] * 1e3 / self.peak


def layers(args, log):
    """Best of the own algorithms over oneDNN's, by layer, and what each algorithm errs."""
    programs = args.micro or [str(BUILD / "bench" / "micro" / "micro_convolutions")]
    races = collections.defaultdict(list)
    for turn in range(args.rounds):
        for kind, problems in LAYERS.items():
            for (layer, problem), which in itertools.product(problems.items(), PASSES):
                for number, program in enumerate(programs):
                    name = f"{kind}: {layer} {which}, round {turn + 1}, program {number + 1}"
                    # Column matrices, and frequencies for small filters, are slow and never the best.
                    slow = "im2col,fft" if kind.startswith("5x5") else "im2col,fft,fft_tiled"
                    log.make(name, [program, "--race", f"--pass={which}", f"--exclude={slow}",
                                    problem, "--benchmark_enable_random_interleaving=true",
                                    f"--benchmark_repetitions={args.repetitions}",
                                    f"--benchmark_min_time={args.min_time}",
                                    "--benchmark_format=json"], keep_race)
                    if name in log.runs:
                        races[kind, layer, which].append(log.runs[name])
    races = {key: Race(runs) for key, runs in races.items()}
    if not races:
        return
    ratios, rows, errors = collections.defaultdict(list), [], collections.defaultdict(float)
    for (kind, layer, which), race in races.items():
        best, least = race.best, math.inf
        cells = [f"{layer} {which}", f"{best['algo']} {best['config']}", f"{best['ms']:.2f}",
                 f"{best['direct_GFLOP'] / best['ms'] * 1e3:.0f}", f"{100 * race.of_peak(best):.0f}"]
        for peer, algo in PEERS.items():
            fastest, pair = race.peer(algo)
            if fastest is None:
                cells += [""] * (3 if peer == "direct" else 2)
                continue
            cells += [f"{ratio:.2f}" for ratio in pair]
            ratios[kind, peer, which].append(pair)
            least = min(least, pair[0])
            if peer == "direct":
                cells.append(f"{100 * race.of_peak(fastest):.0f}")
        cells += [f"{best[f] / 2**20:.1f}" for f in ("workspace_bytes", "packed_filter_bytes")]
        rows.append((least, cells))
        for c in race.own:
            tile = re.search(r"tile=\d+", c["config"])
            # Winograd's transforms differ with the filter as well.
            what = f"{c['algo']} {tile[0]}, {kind.split(',')[0]}" if tile else c["algo"]
            errors[what, which] = max(errors[what, which], c["rel_error"])

    mean = statistics.geometric_mean
    print("\nGeometric means of oneDNN's time over the best own one's, filters packed before; in\n"
          "brackets with packing the filter counted on both sides.\n")
    print(table(["class", "layers", "over", *PASSES],
                [[kind, len(problems), f"oneDNN's {peer}"] +
                 [f"{mean(a for a, _ in pairs):.2f} ({mean(b for _, b in pairs):.2f})" if pairs else ""
                  for pairs in (ratios[kind, peer, which] for which in PASSES)]
                 for kind, problems in LAYERS.items() for peer in PEERS
                 if any(ratios[kind, peer, which] for which in PASSES)]))
    print("Worst first. GFLOP/s are direct convolution's over the time; % of peak is of what the\n"
          "algorithm executes, oneDNN's direct beside it.\n")
    print(table(["layer", "best own", "ms", "GFLOP/s", "% of peak", "over direct", "with packing",
                 "direct's % of peak", "over Winograd", "with packing", "workspace MiB",
                 "packed filter MiB"], [cells for _, cells in sorted(rows, key=lambda r: r[0])]))
    print("Largest relative error in the 2-norm over these layers, against sums in double:\n")
    print(table(["algorithm", *PASSES],
                [[what] + [f"{errors[what, which]:.1e}" if (what, which) in errors else ""
                           for which in PASSES] for what in sorted({w for w, _ in errors})]))
    versions = sorted({run["onednn"] for run in log.runs.values()})
    peaks = [run["peak"] for run in log.runs.values()]
    print(f"- oneDNN: {', '.join(versions)}\n- peak, measured before each layer: "
          f"{statistics.median(peaks):.0f} GFLOP/s ({min(peaks):.0f} to {max(peaks):.0f})")
    for which in PASSES:
        bars_of = [[layer, 100 * race.of_peak(race.best),
                    100 * race.of_peak(fastest) if fastest else None]
                   for (_, layer, each), race in races.items() if each == which
                   for fastest, _ in [race.peer(PEERS["direct"])]]
        if not bars_of:
            continue
        draw(args, f"layers-{which}",
             f"set title \"{which}: executed FLOPs, % of the measured peak\"\nset style data "
             "histograms\nset style fill solid 0.8\nset yrange [0:100]\nset xtics rotate by -60",
             ['$data using 2:xtic(1) title "best own"', '$data using 3 title "oneDNN\'s direct"'],
             bars_of)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {"gemm": gemm, "mlp": mlp, "batch": batch, "layers": layers}
    parser.add_argument("study", choices=studies)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="the cases whose name contains this")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start nothing after these")
    parser.add_argument("--plots", type=pathlib.Path, help="a directory for charts as SVG")
    parser.add_argument("--device", default="cpu", help="cuda: that of mlp as well")
    parser.add_argument("--python", help="an interpreter with torch, for mlp")
    parser.add_argument("--convlab", default=str(BUILD / "bench" / "convlab"))
    parser.add_argument("--kernels", default=str(BUILD / "bench" / "micro" / "micro_kernels"))
    parser.add_argument("--micro", action="append", metavar="PROGRAM",
                        help="micro_convolutions, layers; one of a build with another oneDNN "
                             "(-Ddnnl_DIR=...) may be given too, and they take turns")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each program, layers")
    parser.add_argument("--repetitions", type=int, default=5, help="of each candidate, layers")
    parser.add_argument("--min-time", default="0.1",
                        help="seconds a product, gemm; a repetition, layers")
    parser.add_argument("--threads", type=int, default=2, help="the most, mlp")
    parser.add_argument("--options", default="", help="more flags for convlab, in one word")
    args = parser.parse_args()
    log = Log(args.log, args.only, args.minutes)
    studies[args.study](args, log)
    if log.runs:
        print(provenance(args, log))


if __name__ == "__main__":
    main()
