"""One page about one machine, at one commit: what it can do at best, and all studies of it."""

import argparse
import contextlib
import io
import os
import re
import sys

from charts import table
from gemm import gemm
from layers import layers
from nets import batch, mlp
from rnn import rnn
from runs import Log, Refused, this_command
from survey import survey


def keep_roofs(told):
    provenance = told["provenance"]
    fields = ("cpu", "isa", "threads", "compiler", "commit", "openblas", "onednn")
    return {"roofs": told["rows"], "date": provenance["date"],
            "machine": {f: str(provenance[f]) for f in fields if f in provenance}}


def ceilings(args, log):
    """What this machine gives at best."""
    log.make("ceilings", [args.convlab, "roofline", "--remeasure", "--format", "json"], keep_roofs)
    for run in log.runs.values():
        roofs = {(f"{r['level']} {r['what']}, {r['unit']}",
                  f"{r['isa']}, {r['threads']} thread{'s'[:r['threads'] > 1]}"): r
                 for r in run["roofs"]}
        rows, columns = (list(dict.fromkeys(key[i] for key in roofs)) for i in (0, 1))
        print("In brackets the spread of the samples in %.\n")
        print(table(["level", *columns],
                    [[row] + [f"{roofs[row, c]['G/s']:.1f} ({roofs[row, c]['noise_%']:.0f})"
                              if (row, c) in roofs else "" for c in columns] for row in rows]))


# In this order: the survey tunes what the training steps run.
SECTIONS = {"ceilings": ("Ceilings", ceilings),
            "layers": ("Layers of known nets, own over oneDNN's", layers),
            "survey": ("Every layer of six nets, own over oneDNN's", survey),
            "batch": ("Training steps over batch sizes", batch),
            "mlp": ("A perceptron", mlp),
            "gemm": ("Products of matrices", gemm),
            "rnn": ("Recurrent layers over the batch", rnn)}


def sections(text):
    names = text.split(",")
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(f"{name!r} is no section: expected some of "
                                             + ",".join(SECTIONS))
    return names


def body(told):
    """What a study printed, a level below the page's own headings and without spare empty lines."""
    told = re.sub(r"^#", "##", told, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", told).strip()


def report(args):
    """Makes the runs that are missing in the folder args.log, then prints the page."""
    args.log.mkdir(parents=True, exist_ok=True)
    # A store of the page's own: one that was there before may be of another commit.
    os.environ["CONVLAB_DB"] = str(args.log / "tune.db")
    parts, machine, dates, runs = [], {}, [], 0
    for name in args.sections:
        title, study = SECTIONS[name]
        log = Log(args.log / f"{name}.jsonl", name, args.only, args.until)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            study(args, log)
        if not log.runs:
            continue
        runs += len(log.runs)
        parts.append(f"## {title}\n\n{body(printed.getvalue())}\n")
        for run in log.runs.values():
            for field, value in run["machine"].items():
                if value not in machine.setdefault(field, []):
                    machine[field].append(value)
            dates.append(run["date"])
    if not parts:
        raise Refused(f"{args.log}: there are no runs")
    commits = machine.get("commit", [])
    if len(commits) > 1:
        sys.exit(f"{args.log}: has runs of commits {', '.join(commits)}: a page is of one; remove the "
                 "others' logs, or name another folder")
    title = ", ".join([*machine.get("cpu", ["some machine"]), *machine.get("isa", [])])
    rows = [[field, ", ".join(values)] for field, values in machine.items()]
    rows.append(["runs", f"{runs}, {min(dates)} to {max(dates)}"])
    page = (f"# {args.title or title}\n\nGenerated; f32 unless said, hot caches. Made by\n\n"
            f"    {this_command()}\n\n{table(['', ''], rows)}\n" + "\n".join(parts))
    print(page, end="")
