"""Whole nets: a multilayer perceptron over backends, and training steps over batch sizes."""

import collections
import pathlib
import shlex
import statistics
import typing

from charts import bars, stacks, table

PYTORCH = pathlib.Path(__file__).resolve().parents[1] / "peers" / "pytorch.py"


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
    fields = ("cpu", "gpu", "isa", "threads", "compiler", "commit", "openblas", "onednn", "driver",
              "cuda", "cublas", "cudnn")
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
    width, batch = (8, 16) if args.small else (256, 1024)
    cases = []
    for dtype in ("f32", "f64"):
        cases += [Mlp("cpu", dtype, width, batch, t) for t in threads]
        if args.python:
            cases += [Mlp("pytorch", dtype, width, batch, t) for t in threads]
        if args.device.startswith("cuda"):
            cases += [Mlp(args.device, dtype, width, batch, streams) for streams in (1, 2, 4)]
        if not args.small:
            cases += [Mlp("cpu", dtype, width, b, args.threads) for b in (16, 64, 256, 4096)]
            cases += [Mlp("cpu", dtype, w, batch, args.threads) for w in (384, 512)]
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
    log.keep_only(map(str, cases))

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
        if (case.width, case.batch) == (width, batch):
            chart[f"{case.backend} {case.dtype}, {case.on()}"] = r["both"]
    print("\nGFLOP/s by the FLOP model; of ideal: over that of one thread or stream, times them.\n")
    print(table(["backend", "type", "width", "batch", "on", "forward", "backward", "both",
                 "of ideal", "t_f ms", "t_b ms", "t_u ms"], rows))
    if chart:
        title = f"Forward and backward of 20 -> 5 x {width} -> 1 at batch {batch}"
        print(bars(title, chart, "GFLOP/s"))
        fastest = max(chart, key=chart.get)
        stacks(args, "mlp", f"{title}: {fastest} is fastest", "GFLOP/s", list(chart),
               {"both passes": list(chart.values())})
    print(f"Shares of the steps' time by routine, width {width}, batch {batch}:\n")
    for case in cases:
        if (case.width, case.batch) != (width, batch) or case.units != args.threads:
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
    nets, sizes = (("lenet",), (1, 2)) if args.small else (
        ("alexnet", "resnet18", "vgg16"), (4, 8, 16, 32, 64))
    for net in nets:
        for size in sizes:
            log.make(f"{net} {size}", timed(args, net, "--batch", size), keep_net)
    log.keep_only(f"{net} {size}" for net in nets for size in sizes)
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
        share, size = max((share, size) for size, share in parts[order[0]].items())
        stacks(args, f"batch-{net}",
               f"{net}: {order[0]} takes up to {share:.0f}% of a training step, at batch {size}",
               "% of a step's time",
               list(runs), {name: [parts[name].get(size, 0) for size in runs] for name in order})
        print("Algorithms, forward/backward_data/backward_filter where they differ:\n")
        layers = list(next(iter(runs.values()))["layers"])
        print(table(["layer"] + [f"batch {size}" for size in runs],
                    [[layer] + [run["layers"].get(layer, "") for run in runs.values()]
                     for layer in layers]))
