"""How far verdicts hold: whole fresh tuning runs, repeated quiet and beside noise."""

import collections
import contextlib
import math
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import typing

from charts import table
from runs import read_runs

NOISE = pathlib.Path(__file__).with_name("noise.py")
NOISES = ("bursts", "steady", "four-way", "sigstop", "quota")
AA, SLOWED = "A/A", "+5%"  # an algorithm twice, the second time as fast, and slowed
SLOWDOWN = 1.05
TWIN = ".twin"
# Small layers of GoogLeNet: many rows in little time. The nets besides give totals.
SMALL = ("mb1ic480ih14oc64oh14kh1ph0", "mb1ic512ih14oc112oh14kh1ph0", "mb1ic528ih14oc32oh14kh1ph0",
         "mb1ic832ih7oc256oh7kh1ph0", "mb1ic832ih7oc48oh7kh1ph0", "mb1ic96ih14oc208oh14kh3ph1",
         "mb1ic112ih14oc224oh14kh3ph1", "mb1ic16ih14oc48oh14kh3ph1", "mb1ic32ih14oc128oh14kh3ph1",
         "mb1ic832ih7oc32oh7kh1ph0", "mb1ic32ih14oc64oh14kh3ph1", "mb1ic160ih7oc320oh7kh3ph1",
         "mb1ic48ih7oc128oh7kh3ph1")
DECIDED = ("WIN", "TIE", "ONLY")


def key(candidate):
    layouts = ">".join(candidate["layouts"])
    return f"{candidate['algo']} {layouts} {candidate['config']}".rstrip()


def is_twin(candidate):
    return candidate.split(" ")[0].endswith(TWIN)


def twin_of(candidate):
    """The other of the pair."""
    algo, _, rest = candidate.partition(" ")
    return f"{algo.removesuffix(TWIN) if is_twin(candidate) else algo + TWIN} {rest}"


def keep_verdicts(told):
    """What the study needs of `convlab tune --format json`. Times are ms and, where the choice
    counts it, what packing the filter adds: in passes that read it, if any pass is backward. A
    candidate that was dropped without a run has a predicted time, and no error."""
    packs = any(layer["pass"] != "fwd" for layer in told["layers"])
    rows = []
    for layer in told["layers"]:
        if layer["verdict"] not in (*DECIDED, "UNSURE"):  # nothing works, or nothing was run
            continue
        pack = packs and layer["pass"] != "bwd_w"
        rows.append({"row": f"{layer['problem']} {layer['pass']}", "count": layer["count"],
                     "verdict": layer["verdict"],
                     "chosen": key(layer["chosen"]) if layer["chosen"] else "",
                     "times": {key(c): [c["ms"], c["pack_ms"] if pack else 0, c["status"]]
                               for c in layer["candidates"]
                               if c["status"] in ("ok", "dropped") and c["rel_error"]}})
    fields = ("cpu", "isa", "threads", "compiler", "commit", "openblas", "onednn")
    return {"rows": rows, "date": told["provenance"]["date"],
            "machine": {f: told["provenance"][f] for f in fields if f in told["provenance"]}}


@contextlib.contextmanager
def noise(kind, seed):
    """Yields whether it is there. It ends with this block, and with this process."""
    with subprocess.Popen([sys.executable, str(NOISE), kind, str(seed)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        told = program.stdout.readline().strip()
        if told != "ready":
            print(f"{kind}: skipped: {told}", file=sys.stderr)
        try:
            yield told == "ready"
        finally:
            program.stdin.close()
            program.wait()


class Case(typing.NamedTuple):
    condition: str
    target: str
    run: int

    def __str__(self):
        return f"{self.condition}, {self.target}, run {self.run}"


def cases(args):
    """Conditions take turns, so that what changes in hours meets all of them."""
    twins = () if args.twin == "none" else (AA, SLOWED)
    return [Case(condition, target, run) for run in range(1, args.runs + 1)
            for condition in ("quiet", *args.noise, *twins) for target in args.targets]


def make_run(args, log, case):
    """Whether more runs of the condition make sense."""
    variables, options = {}, shlex.split(args.options)
    if case.condition in (AA, SLOWED):
        options += ["--algos", args.twin]
        variables["CONVLAB_TWIN"] = args.twin + (f":{SLOWDOWN}" if case.condition == SLOWED else "")
    if log.due(str(case)):
        with contextlib.ExitStack() as stack:
            if case.condition in NOISES and not stack.enter_context(
                    noise(case.condition, case.run)):
                return False
            store = stack.enter_context(tempfile.TemporaryDirectory())
            log.make(str(case), [args.convlab, "tune",
                                 *(SMALL if case.target == "small" else [case.target]), "--fresh",
                                 "--db", f"{store}/tune.db", "--format", "json", *options],
                     keep_verdicts, **variables)
    rows = log.runs.get(str(case), {"rows": ()})["rows"]
    if variables and rows and not any(is_twin(c) for row in rows for c in row["times"]):
        print(f"{case.condition}: skipped: no candidate is named {args.twin}{TWIN}: this build "
              "does not know CONVLAB_TWIN", file=sys.stderr)
        return False
    return True


class Pool:
    """The times of one condition's runs together."""

    def __init__(self, runs):
        self.all = collections.defaultdict(lambda: collections.defaultdict(list))
        reported = collections.defaultdict(list)
        for case, run in runs:
            for row in run["rows"]:
                for candidate, times in row["times"].items():
                    self.all[case.target, row["row"]][candidate].append(times)
                if row["chosen"] in row["times"]:
                    reported[case.target, row["row"]].append(row["times"][row["chosen"]][0])
        self.reported = {name: statistics.median(times) for name, times in reported.items()}

    def time(self, name, candidate, packing=True):
        """A candidate's median over runs. Where it was dropped it has few samples: those times
        count only where it was dropped more often than not."""
        times = self.all[name][candidate]
        stayed = [t for t in times if t[2] == "ok"]
        of = stayed if 2 * len(stayed) >= len(times) else times
        return statistics.median(ms + (pack if packing else 0) for ms, pack, _ in of)

    def best(self, name, without=()):
        return min((self.time(name, c) for c in self.all[name] if c not in without),
                   default=math.inf)

    def knows(self, name, candidate):
        return name in self.reported and candidate in self.all[name]


class Rates:
    """Counts of one condition; rows that are not UNSURE are judged by the quiet pool."""

    def __init__(self, runs):
        self.counts = collections.Counter()
        self.totals = []  # of the judged rows of a target in one run, over the quiet ones
        seconds = collections.defaultdict(list)
        for case, run in runs:
            seconds[case.target].append(run["seconds"])
        self.seconds = sum(statistics.median(times) for times in seconds.values())

    def share(self, what, of="rows"):
        return 100 * self.counts[what] / self.counts[of] if self.counts[of] else None

    def worst_total(self):
        return max((100 * abs(ratio - 1) for ratio in self.totals), default=None)


def judge(runs, quiet):
    rates = Rates(runs)
    counts = rates.counts
    for case, run in runs:
        total = expected = 0
        for row in run["rows"]:
            name, chosen = (case.target, row["row"]), row["chosen"]
            counts["rows"] += 1
            counts["UNSURE"] += row["verdict"] == "UNSURE"
            if row["verdict"] == "UNSURE" or not quiet.knows(name, chosen):
                continue
            counts["judged"] += 1
            over_best = quiet.time(name, chosen) / quiet.best(name)
            counts["false WIN"] += row["verdict"] == "WIN" and over_best > 1.01
            counts["2% off"] += over_best > 1.02
            counts["3% off"] += over_best > 1.03
            ms = row["times"][chosen][0]
            counts["time"] += abs(ms / quiet.time(name, chosen, packing=False) - 1) <= 0.05
            total += row["count"] * ms
            expected += row["count"] * quiet.reported[name]
        if expected:
            rates.totals.append(total / expected)
    return rates


def judge_twins(condition, runs):
    """A/A: WIN says that every rival takes longer, and the twin does not. Slowed: the rows where
    the best leads all but its twin by as much, by the pooled times, have to be its WIN."""
    rates, pool = Rates(runs), Pool(runs)
    counts = rates.counts
    for case, run in runs:
        for row in run["rows"]:
            name, chosen, verdict = (case.target, row["row"]), row["chosen"], row["verdict"]
            if condition == AA:
                if twin_of(chosen) not in row["times"]:
                    continue
                wrong = verdict == "WIN"
            else:
                own = [c for c in pool.all[name] if not is_twin(c)]
                best = min(own, key=lambda c: pool.time(name, c), default=None)
                if not best or not pool.knows(name, twin_of(best)) or (
                        pool.best(name, (best, twin_of(best))) <
                        SLOWDOWN * pool.time(name, best)):
                    continue
                counts["true WIN"] += verdict == "WIN" and chosen == best
                wrong = verdict == "WIN" and is_twin(chosen)
            counts["rows"] += 1
            counts["judged"] += verdict != "UNSURE"
            counts["UNSURE"] += verdict == "UNSURE"
            counts["false WIN"] += wrong
    return rates


def rates_of(runs):
    """By condition, in the order of `cases`."""
    by_condition = collections.defaultdict(list)
    for name, run in runs.items():
        condition, rest = name.split(", ", 1)
        target, number = rest.rsplit(", run ", 1)
        by_condition[condition].append((Case(condition, target, int(number)), run))
    quiet = Pool(by_condition["quiet"])
    return {condition: judge_twins(condition, by_condition[condition])
            if condition in (AA, SLOWED) else judge(by_condition[condition], quiet)
            for condition in ("quiet", *NOISES, AA, SLOWED) if by_condition[condition]}


class Goal(typing.NamedTuple):
    """What has to hold of a condition's figure, which is None where nothing was counted."""

    text: str
    figure: typing.Callable[[Rates], float | None]
    holds: typing.Callable[[float], bool]


ROWS = 300
RIGHT = [Goal("WIN contradicted by over 1% in at most 1%", lambda r: r.share("false WIN", "judged"),
              lambda x: x <= 1),
         Goal("chosen over 2% slower than the best in at most 1%",
              lambda r: r.share("2% off", "judged"), lambda x: x <= 1)]
GOALS = {
    "quiet": [Goal("UNSURE in at most 5%", lambda r: r.share("UNSURE"), lambda x: x <= 5), *RIGHT],
    **{kind: [*RIGHT, Goal("times within 5% in at least 99%", lambda r: r.share("time", "judged"),
                           lambda x: x >= 99),
              Goal("totals within 2%", Rates.worst_total, lambda x: x <= 2)] for kind in NOISES},
    AA: [Goal("WIN in less than 1%", lambda r: r.share("false WIN"), lambda x: x < 1)],
    SLOWED: [Goal("WIN of the faster in at least 95%", lambda r: r.share("true WIN"),
                  lambda x: x >= 95)],
}


def cell(value, digits=1):
    return "" if value is None else f"{value:.{digits}f}"


def verdicts(args, log):
    """Verdicts of whole runs against the pooled times of the quiet ones."""
    skipped = set()
    for case in cases(args):
        if case.condition not in skipped and not make_run(args, log, case):
            skipped.add(case.condition)
    builds = {tuple(run["machine"].get(name) for name in ("cpu", "commit"))
              for run in log.runs.values()}
    if len(builds) > 1:
        sys.exit(f"{args.log}: has runs of several machines or builds; expected one log for each")
    rates = rates_of(log.runs)
    rows = []
    for condition, r in rates.items():
        twins = condition in (AA, SLOWED)
        off = [r.share(f"{p}% off", "judged") for p in (2, 3)]
        rows.append([condition, r.counts["rows"], cell(r.share("UNSURE")),
                     cell(r.share("false WIN", "rows" if twins else "judged")),
                     cell(r.share("true WIN")) if condition == SLOWED else "",
                     "" if twins or None in off else f"{off[0]:.1f} ({off[1]:.1f})",
                     "" if twins else cell(r.share("time", "judged")),
                     "" if twins else cell(r.worst_total()), cell(r.seconds)])
    print(f"""
A row is a layer and pass of one run. The pooled time of a candidate is its median over the quiet
runs. Rows that are not UNSURE are judged, and shares are of those: WIN is false where another
candidate's pooled time is over 1% less than the chosen one's; times and totals are compared with
pooled ones, and the largest difference of a total stands here. A/A registers {args.twin} twice, so
that WIN is false; {SLOWED} slows the second one, so that WIN of the first is true; their shares are
of all rows.
""")
    print(table(["condition", "rows", "UNSURE %", "false WIN %", "true WIN %",
                 "chosen > 2% (3%) off %", "times within 5% %", "totals within %",
                 "seconds a run"], rows))
    print(f"What has to hold, each over {ROWS} rows or more:\n")
    for condition, r in rates.items():
        for goal in GOALS[condition]:
            figure = goal.figure(r)
            if figure is None:
                continue
            few = f", of {r.counts['rows']} rows" if r.counts["rows"] < ROWS else ""
            print(f"- {condition}: {goal.text}: {figure:.1f}%{few}: "
                  f"{'holds' if goal.holds(figure) else 'FAILS'}")
    if args.beside and "quiet" in rates:
        there = rates_of(read_runs(args.beside, "verdicts")).get("quiet")
        if there and there.seconds:
            ratio = rates["quiet"].seconds / there.seconds
            print(f"- quiet: at most 2.5 times the seconds of {args.beside.name}: {ratio:.2f}: "
                  f"{'holds' if ratio <= 2.5 else 'FAILS'}")
    print()
