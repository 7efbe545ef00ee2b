"""The page that tests/gpu/run ends with, and readers of what its jobs wrote."""

import csv
import json
import math
import re
import subprocess

MOST_FAILURES = 40
# Of one job: where a kernel is wrong everywhere, other jobs must still be seen.
MOST_OF_A_JOB = 4


# ---- Readers

def read_text(path):
    """Empty where there is none."""
    return path.read_text(errors="replace") if path.exists() else ""


def read_json(path):
    """None where there is none, or half of one."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def read_check(path):
    """Rows and notes of `convlab check --format csv`; of a check that did not end the rows so far."""
    partial = path.with_name(path.name + ".partial")
    lines = read_text(path if path.exists() else partial).splitlines()
    notes = [line[len("# note: "):] for line in lines if line.startswith("# note: ")]
    return list(csv.DictReader(line for line in lines if not line.startswith("#"))), notes


def profile_metrics(path):
    """Of ncu's last launch, what a person asks first; empty where nothing was profiled."""
    wanted = ("Duration", "Compute (SM) Throughput", "Memory Throughput", "Achieved Occupancy",
              "Registers Per Thread")
    lines = [line for line in read_text(path).splitlines() if line.startswith('"')]
    found = {}
    for row in csv.DictReader(lines):
        # Two sections have a Memory Throughput: the first, in percent, counts.
        if row.get("Metric Name") in wanted and not (
                row["Metric Name"] == "Memory Throughput" and row["Metric Unit"] != "%"):
            found[row["Metric Name"]] = f"{row['Metric Value']} {row['Metric Unit']}".strip()
    return ", ".join(f"{name} {found[name]}" for name in wanted if name in found)


def ask_nvidia_smi():
    fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu"
    try:
        asked = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"],
                               capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return asked.stdout.splitlines() if asked.returncode == 0 else []


# ---- Parts of the page

def table(header, rows):
    """Numbers to the right."""
    def is_number(cells):
        return all(re.fullmatch(r"[-\d.e+ ()]+", str(cell)) for cell in cells)
    rule = ["---:" if is_number(column) else "---" for column in zip(*rows)]
    return [f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |"
            for row in [header, rule, *rows]]


def head(out, races):
    known = read_json(out / "machine.json") or {"provenance": {}, "smi": []}
    made_by = known["provenance"]
    wanted = ("gpu", "isa", "driver", "cuda", "cudnn", "cublas", "convlab", "commit", "date")
    lines = [f"- {name}: {made_by[name]}" for name in wanted if made_by.get(name)]
    lines += [f"- nvidia-smi: {line}" for line in known["smi"]]
    clocks = {told["provenance"].get("clocks") for told in races.values()} - {None}
    return lines + [f"- clocks while racing: {each}" for each in sorted(clocks)]


def counts(stage, planned, outcomes):
    """Of each result; jobs that were planned and have none are `to do`."""
    mine = [outcome for (of, _), outcome in outcomes.items() if of == stage]
    found = {result: sum(outcome["result"] == result for outcome in mine)
             for result in ("passed", "failed", "skipped", "unfinished")}
    found["to do"] = sum((stage, job.name) not in outcomes for job in planned[stage])
    found["seconds"] = round(sum(outcome["seconds"] for outcome in mine))
    return found


def stage_outcome(stage, planned, outcomes):
    """passed, skipped, or empty: it failed or is unfinished."""
    found = counts(stage, planned, outcomes)
    if found["failed"] or found["unfinished"] or found["to do"]:
        return ""
    return "passed" if found["passed"] else "skipped"


def stage_result(stage, planned, outcomes, reasons):
    if not planned[stage]:
        return f"skipped: {'; '.join(reasons[stage])}"
    return ", ".join(f"{n} {what}" for what, n in counts(stage, planned, outcomes).items()
                     if n and what != "seconds")


def stages(planned, outcomes, reasons):
    header = ["stage", "passed", "failed", "unfinished", "skipped", "to do", "seconds of jobs"]
    rows = []
    for stage in planned:
        found = counts(stage, planned, outcomes)
        rows.append([stage] + [found[name.split(" of")[0]] for name in header[1:]])
    skipped = {(stage, outcome["found"]): None for (stage, _), outcome in outcomes.items()
               if outcome["result"] == "skipped"}
    left_out = [(stage, reason) for stage, those in reasons.items() for reason in those]
    notes = [f"- {stage}: skipped: {reason}" for stage, reason in [*left_out, *skipped]]
    return [*table(header, rows), "", *notes[:20]]


def kind_of(problem):
    """A layer's class, by benchdnn's text."""
    size = {name: int(value) for name, value in re.findall(r"(ic|kh|kw|sh|sw)(\d+)", problem)}
    height = size.get("kh", size.get("kw", 1))
    if size.get("ic", 0) <= 4:
        return "first layer"
    if max(size.get("sh", 1), size.get("sw", 1)) > 1:
        return "strided"
    return f"{height}x{size.get('kw', height)}"


def best(layer, belongs):
    """The fastest of a layer's candidates that were measured and are accurate enough."""
    measured = [c for c in layer["candidates"] if belongs(c["algo"]) and c["ms"]
                and not c["predicted"] and c["status"] in ("ok", "dropped")]
    return min(measured, key=lambda c: c["ms"], default=None)


def compared(races, own):
    """For each type and layer its class, and the best of both sides or None."""
    for math_type, race in races.items():
        for layer in race["layers"]:
            yield (math_type, layer["layer"] or layer["problem"], kind_of(layer["problem"]),
                   best(layer, own.__contains__), best(layer, lambda a: a.startswith("cudnn.")))


def shown(candidate, digits):
    if not candidate:
        return ["-", "-", "-"]
    return [f"{candidate['ms']:.{digits}f}", f"{candidate['eff_gflops'] / 1000:.3g}",
            f"{candidate['algo'].replace('cudnn.', '')} {candidate['config']}".strip()]


def race(races, algos):
    own = {row["algo"] for row in algos if row["origin"] == "own"}
    rows, ratios, unknown = [], {}, {}
    for math_type, name, kind, ours, theirs in compared(races, own):
        if not ours and not theirs:
            unknown[math_type] = unknown.get(math_type, 0) + 1
            continue
        ratio = theirs["ms"] / ours["ms"] if ours and theirs else None
        if ratio:
            ratios.setdefault(kind, {}).setdefault(math_type, []).append(ratio)
        rows.append([f"{math_type} {name}", kind, *shown(ours, 4), *shown(theirs, 4),
                     f"{ratio:.2f}" if ratio else "-"])
    if not rows:
        return ["Nothing was measured."]
    lines = ["The ratio is cuDNN's time over our own: above 1 ours is faster. tf32 is f32 with",
             "errors up to 5e-3, which admits TF32. TFLOP/s count direct convolution's work.", ""]
    if ratios:
        def mean(r):
            return f"{math.exp(sum(map(math.log, r)) / len(r)):.2f} ({len(r)})" if r else "-"
        lines += ["Geometric means of the ratio, with the number of layers:", "",
                  *table(["class", *races], [[kind, *(mean(of.get(m)) for m in races)]
                                             for kind, of in ratios.items()]), ""]
    else:
        peers = any(row["algo"].startswith("cudnn.") for row in algos)
        lines += ["No layer was measured on both sides" + ("." if peers else ": there is no cuDNN; "
                                                           "`convlab doctor` says why."), ""]
    unsure = [f"{n} of {len(told['layers'])} in {math_type}" for math_type, told in races.items()
              if (n := sum(layer["verdict"] == "UNSURE" for layer in told["layers"]))]
    if unsure:
        lines += [f"UNSURE, which of the best two is faster: {', '.join(unsure)}.", ""]
    if unknown:
        missing = ", ".join(f"{n} in {math_type}" for math_type, n in unknown.items())
        lines += [f"Layers without a measurement: {missing}.", ""]
    return lines + table(["layer", "class", "own ms", "TFLOP/s", "own", "cuDNN ms", "TFLOP/s",
                          "cuDNN", "ratio"], rows)


def failed_in(races):
    """By type and algorithm the first candidate that failed, with its reason."""
    lines = []
    for math_type, told in races.items():
        failed = {}
        for layer in told["layers"]:
            for c in layer["candidates"]:
                if c["status"] in ("failed", "timeout"):
                    failed.setdefault(c["algo"], []).append((layer, c))
        for algo, those in failed.items():
            layer, c = those[0]
            name = f"{algo} {c['config']}".strip()
            more = f" (and {len(those) - 1} more)" if len(those) > 1 else ""
            lines.append(f"- race {math_type}: {name}, {layer['layer'] or layer['problem']}{more}: "
                         f"{c.get('reason') or c['status']}")
    return lines


def roofs(logs):
    found = read_json(logs / "ceilings" / "roofs.json")
    rows = [f"{row['level']} {row['what']} {row['G/s']:.4g} {row['unit']}"
            for row in (found or {"rows": []})["rows"]]
    return ["; ".join(rows) + "."] if rows else ["Not measured."]


def body(text):
    """A study's tables, a level below the page's own headings and without spare empty lines."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"^#", "##", text, flags=re.M)).strip().splitlines()


def roofline(told):
    header = ["layer", "algorithm", "ms", "TFLOP/s executed", "% of roof", "limit", "to save, ms"]
    rows = [[p["layer"], f"{p['algo']} {p['config']}".strip(), f"{p['ms']:.4f}",
             f"{p['attained_gflops'] / 1000:.3g}", f"{p['percent_of_roof']:.0f}", p["limit"],
             f"{p['headroom_ms']:.4f}"] for p in told["points"] if p["chosen"]]
    return [*(f"- {note}" for note in told["notes"]), "", *table(header, rows)]


def studies(logs):
    """The studies' page as lines, as far as there are any."""
    parts = []
    for path in sorted((logs / "studies").glob("roofline-*.json")):
        if told := read_json(path):
            parts += ["", f"## The raced layers under the card's roofs, {path.stem[9:]}", "",
                      *roofline(told)]
    titles = {"batch": "Training over batch sizes", "gemm": "Products of matrices",
              "mlp": "A perceptron, over streams"}
    for path in sorted((logs / "studies").glob("ranking-*.md")):
        titles[path.stem] = (f"Where a training step of {path.stem[8:]} goes, and what to improve "
                             "first")
    for name, title in titles.items():
        if lines := body(read_text(logs / "studies" / f"{name}.md")):
            parts += ["", f"## {title}", "", *lines]
    return parts


def failures(logs, outcomes, races):
    """Failed tests, failed candidates with the line that repeats them, and other failed jobs."""
    lines, left_out = [], 0
    for (stage, name), outcome in outcomes.items():
        if outcome["result"] not in ("failed", "unfinished"):
            continue
        mine = []
        if stage == "tests":
            text = read_text(logs / stage / f"{name}.txt")
            failed = re.findall(r"^\[  FAILED  \] (\w[\w/]*\.[\w/]+)", text, re.M)
            for test in dict.fromkeys(failed):
                mine.append(f"- {test}: `convlab_gpu_tests --gtest_filter={test}`")
        if stage == "check":
            mine = [f"- {row['algo']} {row['config']} {row['layouts']}, {row['layer']}: "
                    f"{row['reason'] or 'error ' + row['rel_error']}: `{row['repeat']}`"
                    for row in read_check(logs / stage / f"{name}.csv")[0]
                    if row["result"] == "FAILED"]
        # One that ended by itself with a table has said all by its rows.
        if not mine or outcome["exit"] not in (0, 1):
            mine.insert(0, f"- {stage} {name}: {outcome['result']}: {outcome['found']}")
            if outcome["result"] == "failed":
                mine[0] += f": `{outcome['command']}`"
        left_out += max(0, len(mine) - MOST_OF_A_JOB)
        lines += mine[:MOST_OF_A_JOB]
    left_out += max(0, len(lines) - MOST_FAILURES)
    lines = lines[:MOST_FAILURES]
    if left_out:
        lines.append(f"- and {left_out} more, in logs.tar.gz")
    return lines + failed_in(races)


def write(out, logs, outcomes, planned, reasons, algos, small):
    def replace(name, lines):
        new = out / f"{name}.new"
        new.write_text("\n".join([*lines, ""]))
        new.replace(out / name)
    races = {math_type: told for math_type in (job.name for job in planned["race"])
             if (told := read_json(logs / "race" / f"{math_type}.json"))}
    others = [": ".join(filter(None, [f"- {stage} {name}", outcome["result"], outcome["found"]]))
              for (stage, name), outcome in outcomes.items()
              if stage in ("memcheck", "profile", "tune", "nets", "studies")
              and outcome["result"] == "passed"]
    studied = studies(logs)
    tried = ": tried with --small, whose times say nothing" if small else ""
    page = [f"# convlab on a card{tried}", "",
            "Made by `tests/gpu/run`, which goes on with what is unfinished or to do when it is run "
            f"again with `--out {out.name}`.", "", *head(out, races),
            "", "## Ten layers, forward: own beside cuDNN", "", *race(races, algos),
            "", "## Stages", "", *stages(planned, outcomes, reasons),
            "", "## Failed or unfinished", "", *(failures(logs, outcomes, races) or ["Nothing."]),
            "", "## Ceilings", "", *roofs(logs),
            "", "## Other stages", "", *(others or ["Nothing yet."]),
            *(["", "The studies' tables are in [studies.md](studies.md)."] if studied else [])]
    replace("report.md", page)
    if studied:
        replace("studies.md", [f"# Studies on a card{tried}", "", *head(out, {}), *studied])
