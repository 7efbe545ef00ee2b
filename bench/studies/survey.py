"""Every layer of whole nets: the best own algorithm over oneDNN's."""

import shlex
import statistics

from charts import table

NETS = ("alexnet", "vgg16", "googlenet", "googlenet2014", "resnet18", "resnet50")
BATCHES = (1, 16, 64)
LEAST = 0.97  # below this a layer is behind, above 1 / LEAST ahead


def keep_best(told):
    """Of each layer and pass the fastest own algorithm and the fastest peer."""
    kept = []
    for layer in told["layers"]:
        timed = [c for c in layer["candidates"] if c["status"] in ("ok", "dropped")]
        row = {"layer": layer["layer"], "pass": layer["pass"], "count": layer["count"]}
        for who, peer in (("own", False), ("onednn", True)):
            row[who] = min(({name: c[name] for name in ("algo", "config", "ms")} for c in timed
                            if c["algo"].startswith("onednn.") == peer),
                           key=lambda c: c["ms"], default=None)
        kept.append(row)
    fields = ("cpu", "isa", "threads", "compiler", "commit", "onednn")
    return {"races": kept, "date": told["provenance"]["date"],
            "machine": {f: told["provenance"][f] for f in fields if f in told["provenance"]}}


def survey(args, log):
    """How many layers are ahead, level and behind, and which are behind."""
    for batch in args.batches or BATCHES:
        for net in NETS:
            log.make(f"{net} batch {batch}",
                     [args.convlab, "tune", net, "--batch", str(batch), "--exclude", "fft",
                      "--format", "json", *shlex.split(args.options)], keep_best)
    rows, behind = [], []
    for name, run in log.runs.items():
        for which in ("fwd", "bwd_d", "bwd_w"):
            races = [r for r in run["races"] if r["pass"] == which and r["own"] and r["onednn"]]
            if not races:
                continue
            ratios = [r["onednn"]["ms"] / r["own"]["ms"] for r in races]
            ahead = sum(ratio > 1 / LEAST for ratio in ratios)
            late = sum(ratio < LEAST for ratio in ratios)
            own, onednn = (sum(r["count"] * r[who]["ms"] for r in races)
                           for who in ("own", "onednn"))
            rows.append([name, which, len(races), ahead, len(races) - ahead - late, late,
                         f"{statistics.geometric_mean(ratios):.2f}", f"{onednn / own:.2f}"])
            behind += [(ratio, [f"{name}: {r['layer']} {which}",
                                f"{r['own']['algo']} {r['own']['config']}",
                                f"{r['own']['ms']:.3f}", f"{ratio:.2f}"])
                       for ratio, r in zip(ratios, races) if ratio < LEAST]
    print(f"\nRatios are the time of oneDNN's faster algorithm, direct or Winograd, over that of our\n"
          f"fastest, filters packed before. Ahead: above {1 / LEAST:.2f}; behind: below {LEAST}. Sums count\n"
          "equal layers of the net as often as it has them.\n")
    print(table(["net", "pass", "layers", "ahead", "level", "behind", "geometric mean",
                 "ratio of sums"], rows))
    print("Behind, worst first:\n")
    print(table(["layer", "best own", "ms", "ratio"],
                [cells for _, cells in sorted(behind, key=lambda row: row[0])]))
