"""What rounding gradients to bf16 on their way does to training: losses by epoch, side by side."""

import csv
import shlex
import statistics

from charts import table
from runs import call, require

EXCHANGES = {"f32": [], "bf16": ["--compress", "bf16"]}
MEASURES = {"loss": "loss", "test loss": "test_loss"}


def read_log(text):
    """The rows of `train --log -`, above the result."""
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("top-1")))
    if not rows or "test_top1" not in rows[0]:
        raise ValueError
    return [{name: float(row[name]) for name in ("loss", "test_loss", "test_top1")}
            for row in rows]


def machine(args):
    told = call([args.convlab, "list", "--format", "json"], {})["provenance"]
    fields = ("cpu", "isa", "compiler", "commit")
    return {"machine": {f: told[f] for f in fields if f in told}, "date": told["date"]}


def size_of(args):
    """Images and epochs."""
    return (640, 2) if args.small else (2560, 10)


def make_runs(args, log, cases, seeds):
    images, epochs = size_of(args)
    for case, net, batch in cases:
        for seed in seeds:
            for exchange, flags in EXCHANGES.items():
                name = f"{case} {exchange} seed {seed}"
                if not log.due(name):
                    continue
                require(args.convlab)
                of = machine(args)
                command = [args.convlab, "train", net, "--batch", batch * args.ranks, "--data",
                           f"synthetic:{images}", "--epochs", epochs, "--seed", seed, "--threads",
                           args.rank_threads or 1, "--deterministic", "--log", "-", *flags,
                           *shlex.split(args.options)]
                log.make(name, ["mpirun", "--quiet", "--allow-run-as-root", "--oversubscribe",
                                "--bind-to", "none", "-n", str(args.ranks), *map(str, command)],
                         lambda rows, of=of: {"epochs": rows, **of}, read_log)


def spread(values):
    return f"{min(values):.4f} to {max(values):.4f}"


def show(log, cases, seeds):
    ends = []
    for case, *_ in cases:
        # By exchange, of each seed that has both.
        runs = {exchange: [log.runs[f"{case} {exchange} seed {seed}"]["epochs"] for seed in seeds
                           if all(f"{case} {e} seed {seed}" in log.runs for e in EXCHANGES)]
                for exchange in EXCHANGES}
        if not runs["f32"]:
            continue
        print(f"### {case}, mean of {len(runs['f32'])} seeds\n")
        print(table(["epoch", *(f"{what} {e}" for what in MEASURES for e in runs)],
                    [[epoch + 1, *(f"{statistics.mean(run[epoch][field] for run in runs[e]):.4f}"
                                   for field in MEASURES.values() for e in runs)]
                     for epoch in range(len(runs["f32"][0]))]))
        for exchange, of_seeds in runs.items():
            last = {field: [run[-1][field] for run in of_seeds]
                    for field in (*MEASURES.values(), "test_top1")}
            ends.append([case, exchange,
                         *(cell for field in MEASURES.values()
                           for cell in (f"{statistics.mean(last[field]):.4f}", spread(last[field]))),
                         f"{100 * statistics.mean(last['test_top1']):.1f}%"])
    if ends:
        print("### After the last epoch\n")
        print(table(["case", "exchange", *(head for what in MEASURES for head in (what, "of seeds")),
                     "test top-1"], ends))


def compression(args, log):
    """Trainings that differ in how gradients travel alone: plans are deterministic. Seeds show what
    chance makes of the loss."""
    images, epochs = size_of(args)
    cases = [(f"{net} batch {batch} {args.ranks} ranks, {epochs} epochs of {images}", net, int(batch))
             for net, batch in (item.split(":") for item in args.nets or ["resnet20:32"])]
    seeds = range(1, 1 + (2 if args.small else args.runs))
    print("## Gradients rounded to bf16\n")
    make_runs(args, log, cases, seeds)
    log.keep_only(f"{case} {e} seed {seed}" for case, *_ in cases for e in EXCHANGES
                  for seed in seeds)
    show(log, cases, seeds)
