"""Layers of known nets: the best own algorithm over oneDNN's.

The best is the fastest of those that err no more than ERROR_LIMIT; a peer is compared as it is.
"""

import collections
import itertools
import math
import re
import statistics
import sys

from charts import draw, fills, table
from runs import read_runs

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
    "depthwise 3x3 to 7x7": {
        "MobileNetV2 features.1": "g32mb1ic32ih112oc32oh112kh3ph1",
        "MobileNetV2 features.2, /2": "g96mb16ic96ih112oc96oh56kh3sh2ph1",
        "MobileNetV2 features.15": "g960mb16ic960ih7oc960oh7kh3ph1",
        "MobileNetV3 features.5, 5x5": "g120mb16ic120ih28oc120oh28kh5ph2",
        "ConvNeXt-T stage 2, 7x7": "g192mb16ic192ih28oc192oh28kh7ph3",
    },
    "depthwise 13x13 to 31x31": {
        "RepLKNet-31B stage 1, 31x31": "g128mb4ic128ih56oc128oh56kh31ph15",
        "RepLKNet-31B stage 3, 27x27": "g512mb4ic512ih14oc512oh14kh27ph13",
        "RepLKNet-31B stage 4, 13x13": "g1024mb4ic1024ih7oc1024oh7kh13ph6",
    },
    "grouped": {
        "ResNeXt-50 layer1": "g32mb16ic128ih56oc128oh56kh3ph1",
        "ResNeXt-50 layer3": "g32mb16ic512ih14oc512oh14kh3ph1",
        "RegNetY-400MF stage 3": "g26mb16ic208ih14oc208oh14kh3ph1",
    },
    "dilated": {
        "DeepLabV3 layer3, by 2": "mb1ic256ih65oc256oh65kh3ph2dh1",
        "DeepLabV3 layer4, by 4": "mb1ic512ih65oc512oh65kh3ph4dh3",
        "DeepLabV3 ASPP, by 12": "mb1ic2048ih65oc256oh65kh3ph12dh11",
    },
    "transposed": {
        "U-Net up2, 2x2/2": "deconv:mb1ic512ih28oc256oh56kh2sh2ph0",
        "DCGAN, 4x4/2": "deconv:mb64ic256ih8oc128oh16kh4sh2ph1",
        "CycleGAN, 3x3/2": "deconv:mb1ic256ih64oc128oh128kh3sh2ph1",
    },
    "3-D": {
        "C3D conv3b": "mb1ic256id8ih28oc256od8oh28kd3kh3pd1ph1",
        "R3D-18 layer1": "mb1ic64id16ih56oc64od16oh56kd3kh3pd1ph1",
        "R3D-18 layer3.0, /2": "mb1ic128id8ih28oc256od4oh14kd3kh3sd2sh2pd1ph1",
    },
    "1-D": {
        "Whisper-base conv2, /2": "mb1ic512iw3000oc512ow1500kw3sw2pw1",
        "HiFi-GAN, 7 by 3": "mb1ic128iw6400oc128ow6400kw7pw9dw2",
        "Conformer, depthwise 31": "g256mb8ic256iw500oc256ow500kw31pw15",
    },
    "diffusion": {
        "SD U-Net 64x64": "mb2ic320ih64oc320oh64kh3ph1",
        "SD U-Net 32x32": "mb2ic640ih32oc640oh32kh3ph1",
        "SD U-Net 16x16": "mb2ic1280ih16oc1280oh16kh3ph1",
        "SD decoder 64x64": "mb1ic512ih64oc512oh64kh3ph1",
    },
}
# In the other classes frequencies of tiles are slow and never the best, those of whole images in all.
TILED = ("5x5 to 11x11", "depthwise 13x13 to 31x31")
KINDS = ("depthwise 3x3 to 7x7", "depthwise 13x13 to 31x31", "grouped", "dilated", "transposed", "3-D",
         "1-D", "diffusion")
CHARTS = {"layers": [kind for kind in LAYERS if kind not in KINDS], "layers-kinds": KINDS}
PASSES = ("fwd", "bwd_d", "bwd_w")
ALONE = "one thread, "  # before the name of a run
PEERS = {"direct": "onednn.direct", "Winograd": "onednn.winograd"}
ERROR_LIMIT = 1e-5  # relative, in the 2-norm, against sums in double


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


def merged(runs):
    """The candidates of these runs with their median times."""
    times = collections.defaultdict(list)
    for run in runs:
        for c in run["candidates"]:
            times[c["algo"], c["layouts"], c["config"]].append(c)
    return [{**same[0], "ms": statistics.median(ms for c in same for ms in c["ms"]),
             "pack_ms": statistics.median(c["pack_ms"] for c in same)} for same in times.values()]


def is_peer(c):
    return c["algo"].startswith("onednn.")


class Race:
    """All runs of one layer and pass together. A process has one version of the peers and all own
    algorithms; ratios are between what took turns in it, for the machine's mood changes."""

    def __init__(self, runs):
        self.own = [c for c in merged(runs) if not is_peer(c)]
        within = [c for c in self.own if c["rel_error"] <= ERROR_LIMIT]
        if not within:
            sys.exit(f"{runs[0]['name']}: no own algorithm errs at most {ERROR_LIMIT}")
        self.best = min(within, key=lambda c: c["ms"])
        self.peak = statistics.median(run["peak"] for run in runs)
        versions = collections.defaultdict(list)
        for run in runs:
            versions[run["onednn"]].append(run)
        self.versions = [merged(same) for same in versions.values()]

    def peer(self, algo):
        """Of the version that does best: its fastest candidate, and the ratios of its time to that of
        the best own one beside it: without packing, and with packing counted, where other candidates
        may be the best."""
        found = []
        for candidates in self.versions:
            peers = [c for c in candidates if c["algo"] == algo]
            own = [c for c in candidates if not is_peer(c) and c["rel_error"] <= ERROR_LIMIT]
            if peers and own:
                fastest = min(peers, key=lambda c: c["ms"])
                pair = [min(cost(c) for c in peers) / min(cost(c) for c in own)
                        for cost in (lambda c: c["ms"], lambda c: c["ms"] + c["pack_ms"])]
                found.append((fastest, pair))
        return min(found, key=lambda pair: pair[1][0], default=(None, None))

    def of_peak(self, c):
        return c["direct_GFLOP"] / c["eff_over_exec"] / c["ms"] * 1e3 / self.peak


def races_of(runs):
    """By class, layer and pass, from runs by name."""
    same = collections.defaultdict(list)
    for kind, problems in LAYERS.items():
        for layer, which in itertools.product(problems, PASSES):
            found = [run for name, run in runs.items()
                     if name.startswith(f"{kind}: {layer} {which}, round ")]
            if found:
                same[kind, layer, which] = found
    return {key: Race(found) for key, found in same.items()}


def beside(what, others, races):
    """What other times are over these: those of another ISA, or of one thread."""
    both = [key for key in races if key in others]
    ratios = {key: (others[key].best["ms"] / races[key].best["ms"],
                    others[key].peak / races[key].peak) for key in both}
    print(f"Times {what} over these, each with its own best algorithm; the peak there is "
          f"{statistics.median(peak for _, peak in ratios.values()):.2f} of this one:\n")
    print(table(["layer", *PASSES],
                [[layer] + [f"{ratios[kind, layer, which][0]:.2f}"
                            if (kind, layer, which) in ratios else "" for which in PASSES]
                 for kind, problems in LAYERS.items() for layer in problems
                 if any((kind, layer, which) in ratios for which in PASSES)]))


def how_many(there, of):
    return str(of) if there == of else f"{there} of {of}"


def layers(args, log):
    """Best of the own algorithms over oneDNN's, by layer, and what each algorithm errs."""
    for turn in range(args.rounds or 1):
        for kind, problems in LAYERS.items():
            for (layer, problem), which in itertools.product(problems.items(), PASSES):
                for number, program in enumerate(args.micro):
                    name = f"{kind}: {layer} {which}, round {turn + 1}, program {number + 1}"
                    slow = "fft" if kind in TILED else "fft,fft_tiled"
                    command = [program, "--race", f"--pass={which}", f"--exclude={slow}",
                               problem, "--benchmark_enable_random_interleaving=true",
                               f"--benchmark_repetitions={args.repetitions}",
                               f"--benchmark_min_time={args.min_time}", "--benchmark_format=json"]
                    log.make(name, command, keep_race)
                    if args.one_thread:  # at once: the machine's mood changes
                        command[3] += ",onednn"
                        log.make(ALONE + name, command, keep_race, OMP_NUM_THREADS="1")
    alone = {name: run for name, run in log.runs.items() if name.startswith(ALONE)}
    races = races_of({name: run for name, run in log.runs.items() if name not in alone})
    if not races:
        return
    measured = {kind: len({layer for of, layer, _ in races if of == kind}) for kind in LAYERS}
    ratios, rows, errors = collections.defaultdict(list), [], collections.defaultdict(float)
    inaccurate = []
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
            if fastest["rel_error"] > ERROR_LIMIT:
                inaccurate.append(f"{layer} {which} {algo}: {fastest['rel_error']:.1e}")
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
          "brackets with packing the filter counted on both sides. Best of those whose relative error\n"
          f"is at most {ERROR_LIMIT}; oneDNN's as they are.\n")
    planned = len(PASSES) * sum(map(len, LAYERS.values()))
    if len(races) < planned:
        print(f"Incomplete: {how_many(len(races), planned)} layers and passes were measured.\n")
    if inaccurate:
        print("Of oneDNN's, above that error:\n\n- " + "\n- ".join(inaccurate) + "\n")
    print(table(["class", "layers", "over", *PASSES],
                [[kind, how_many(measured[kind], len(problems)), f"oneDNN's {peer}"] +
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
    if args.beside:
        beside(f"in {args.beside.name}", races_of(read_runs(args.beside, "layers")), races)
    if alone:
        beside("with one thread", races_of({name[len(ALONE):]: run for name, run in alone.items()}),
               races)
    versions = sorted({run["onednn"] for run in log.runs.values()})
    peaks = [run["peak"] for run in log.runs.values()]
    print(f"- oneDNN: {', '.join(versions)}\n- peak, measured before each layer: "
          f"{statistics.median(peaks):.0f} GFLOP/s ({min(peaks):.0f} to {max(peaks):.0f})")
    for which, (chart, kinds) in itertools.product(PASSES, CHARTS.items()):
        both = [(layer, race, *race.peer(PEERS["direct"]))
                for (kind, layer, each), race in races.items() if each == which and kind in kinds]
        bars_of = [[layer, 100 * race.of_peak(race.best),
                    100 * race.of_peak(fastest) if fastest else None]
                   for layer, race, fastest, _ in both]
        ratios_of = [pair[0] for _, _, _, pair in both if pair]
        if not bars_of:
            continue
        draw(args, f"{chart}-{which}",
             f"set title \"{which}: the best own algorithm is faster than oneDNN's direct in "
             f"{sum(ratio > 1 for ratio in ratios_of)} of {len(ratios_of)} layers\"\n"
             "set ylabel 'executed FLOPs, % of the measured peak'\nset style data histograms\n"
             "set yrange [0:100]\nset xtics rotate by -60",
             [f'$data using {column} {fill} title "{title}"' for column, title, fill in
              zip(("2:xtic(1)", 3), ("best own", "oneDNN's direct"),
                  fills(("best own", "onednn.direct")))],
             bars_of)
