"""Recurrent layers over the batch: a product a step, all inputs as one product, persistent weights.

The last part of the page says which published findings hold on this machine. Appleyard et al. 2016
(arXiv:1604.01946) compute all inputs as one product and transpose the weights; Diamos et al. 2016
keep the recurrent weights on chip.
"""

import collections
import itertools
import re
import statistics

from charts import curves, table

STEPS, HIDDEN = 64, (512, 768, 2048)
BATCHES = (1, 2, 4, 8, 16, 24, 31, 32, 33, 48, 64, 96, 128, 160, 192, 256)
SMALL_STEPS, SMALL_HIDDEN, SMALL_BATCHES = 8, (64,), (1, 4, 16, 31, 32, 33)
TRIED, TRIED_MIN_TIME = "small ", "0.001"  # before the names of --small's runs, which say nothing
TURNS = 3
PHASES_AGAIN = 64  # larger batches are divided into phases in the first turn only
PASSES = {"fwd": "forward", "bwd_d": "backward_data"}
GAINS_AT = (1, 4, 16, 64)
# The table of memory.
MEMORY_STEPS, MEMORY_CELLS, MEMORY_LAYERS, MEMORY_BATCH = (16, 32, 64, 128, 256, 512), (
    "rnn", "gru", "lstm"), 4, 64
# A difference counts where the quartiles of both times are apart, and their medians by this: less
# is what virtual machines change by from minute to minute.
LEAST = 0.05
NEAR_BEST = 0.9


# ---- Runs

def keep(told):
    """What the study needs of `micro_recurrent --json`."""
    fields = ("problem", "pass", "algo", "config", "recompute", "workspace_bytes",
              "packed_weights_bytes", "activations_bytes", "y_bytes")
    timed = ("ms", "pack_ms", "exec_GFLOP", "phase_shares")  # not with --memory
    context = told["context"]
    return {"cases": [{**{f: case[f] for f in fields}, **{f: case[f] for f in timed if f in case}}
                      for case in told["benchmarks"]],
            "machine": {f: context[f] for f in ("cpu", "isa", "threads", "compiler", "commit",
                                                "openblas", "onednn") if f in context},
            "date": context["date"]}


class Plan:
    """What the flags ask for."""

    def __init__(self, args):
        self.small = args.small
        self.steps = args.steps or (SMALL_STEPS if args.small else STEPS)
        self.hidden = sorted(set(args.hidden or (SMALL_HIDDEN if args.small else HIDDEN)))
        # report's batches are the survey's.
        named = args.batches if args.study == "rnn" else None
        self.batches = sorted(set(named or (SMALL_BATCHES if args.small else BATCHES)))
        self.turns = args.rounds or TURNS
        self.min_time = TRIED_MIN_TIME if args.small else args.min_time

    def problem(self, h, n):
        return f"rnn:l1t{self.steps}mb{n}dhc{h}"

    def name(self, h, n, turn):
        return f"{TRIED if self.small else ''}{self.problem(h, n)}, turn {turn}"

    def memory_name(self):
        return f"{TRIED if self.small else ''}memory, H = {self.hidden[0]}"

    def memory_problems(self):
        return [f"{cell}:l{MEMORY_LAYERS}t{t}mb{MEMORY_BATCH}dhc{self.hidden[0]}"
                for cell in MEMORY_CELLS for t in MEMORY_STEPS]


def make_runs(args, plan, log):
    """In turns over all problems, so that a slow phase of the machine affects all alike."""
    for recompute in ("", ", recomputing"):
        command = [args.recurrent, "--json", "--memory", "--pass=fwd,bwd_d"]
        command += ["--recompute"] if recompute else []
        log.make(plan.memory_name() + recompute, command + plan.memory_problems(), keep)
    for turn, h, n in itertools.product(range(1, plan.turns + 1), plan.hidden, plan.batches):
        command = [args.recurrent, "--json", "--pass=fwd,bwd_d", f"--min-time={plan.min_time}"]
        command += ["--phases"] if turn == 1 or n <= PHASES_AGAIN else []
        log.make(plan.name(h, n, turn), [*command, plan.problem(h, n)], keep)


# ---- What was measured

class Point:
    """One candidate at one H, N and pass: its times in all turns."""

    def __init__(self):
        self.turns, self.cases = {}, []

    def add(self, turn, case):
        self.turns[turn] = case["ms"]
        self.cases.append(case)

    @property
    def case(self):
        """What is the same in all turns."""
        return self.cases[0]

    def pack_ms(self):
        return statistics.median(case["pack_ms"] for case in self.cases)

    def input_share(self):
        """Of a run's time, or None."""
        shares = [case["phase_shares"]["inputs"] for case in self.cases
                  if "inputs" in case.get("phase_shares", {})]
        return statistics.median(shares) if shares else None

    def ms(self):
        return statistics.median(ms for turn in self.turns.values() for ms in turn)

    def rate(self):
        return self.case["exec_GFLOP"] / self.ms() * 1e3

    def rates_between(self):
        """GFLOP/s at the upper and at the lower quartile of the times."""
        times = sorted(ms for turn in self.turns.values() for ms in turn)
        times = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else 3 * times
        return [self.case["exec_GFLOP"] / ms * 1e3 for ms in (times[2], times[0])]

    def is_below(self, other):
        """By more than noise."""
        return (self.rates_between()[1] < other.rates_between()[0]
                and self.rate() < (1 - LEAST) * other.rate())

    def over(self, other):
        """The ratio of rates, within turns where both had one: the median of them."""
        both = [turn for turn in self.turns if turn in other.turns]
        if not both:
            return self.rate() / other.rate()
        work = self.case["exec_GFLOP"] / other.case["exec_GFLOP"]
        return work * statistics.median(statistics.median(other.turns[turn])
                                        / statistics.median(self.turns[turn]) for turn in both)

    def memory(self):
        """Bytes: what the backward pass needs of the forward pass, and the workspace."""
        return (self.case["y_bytes"] + self.case["activations_bytes"]
                + self.case["workspace_bytes"])


class Measured:
    """Points by H, N, pass and strategy, an algorithm with its config."""

    def __init__(self, plan, log):
        self.hidden, self.batches = [], []  # of which there is something
        self.points = collections.defaultdict(dict)
        for turn, h, n in itertools.product(range(1, plan.turns + 1), plan.hidden, plan.batches):
            run = log.runs.get(plan.name(h, n, turn))
            for case in run["cases"] if run else []:
                strategy = f"{case['algo']} {case['config']}".strip()
                found = self.points[h, n, case["pass"]]
                found.setdefault(strategy, Point()).add(turn, case)
        self.hidden = [h for h in plan.hidden if any(key[0] == h for key in self.points)]
        self.batches = [n for n in plan.batches if any(key[1] == n for key in self.points)]

    def strategies(self, h, which):
        return list(dict.fromkeys(strategy for n in self.batches
                                  for strategy in self.points.get((h, n, which), {})))

    def best(self, algo, h, n, which, packed=None):
        """The fastest config of an algorithm; of those that pack the weights, or that do not."""
        found = [point for point in self.points.get((h, n, which), {}).values()
                 if point.case["algo"] == algo
                 and packed in (None, point.case["packed_weights_bytes"] > 0)]
        return max(found, key=Point.rate, default=None)

    def curve(self, of):
        """of(n), where there is something."""
        return {n: point for n in self.batches if (point := of(n))}

    def best_curve(self, algo, h, which, packed=None):
        return self.curve(lambda n: self.best(algo, h, n, which, packed))

    def strategy_curve(self, strategy, h, which):
        return self.curve(lambda n: self.points.get((h, n, which), {}).get(strategy))


def losses(curve):
    """N: the smaller batch with the highest rate, and the ratio of rates, where N loses to it."""
    found = {}
    for n, point in curve.items():
        smaller = {m: p for m, p in curve.items() if m < n}
        if smaller:
            m = max(smaller, key=lambda m: smaller[m].rate())
            if point.is_below(smaller[m]):
                found[n] = m, point.rate() / smaller[m].rate()
    return found


def near_best(curve, rate=None):
    """The smallest batch with 90% of `rate`, or of the best of the curve."""
    rate = rate or max(point.rate() for point in curve.values())
    return next((n for n, point in curve.items() if point.rate() >= NEAR_BEST * rate), None)


def ratio(value):
    return "" if value is None else f"{value:.2f}"


def over(point, other):
    return point.over(other) if point and other else None


# ---- Tables

def print_curves(args, plan, m):
    print("GFLOP/s executed, medians. oneDNN's bwd_d computes dweights as well, which counts.\n")
    for h in m.hidden:
        series, first = {}, collections.Counter()
        for which, name in PASSES.items():
            strategies = m.strategies(h, which)
            found = {s: m.strategy_curve(s, h, which) for s in strategies}
            batches = [n for n in m.batches if any(n in curve for curve in found.values())]
            print(f"H = {h}, {name}:\n")
            print(table(["N", *strategies],
                        [[n] + [f"{found[s][n].rate():.0f}" if n in found[s] else ""
                                for s in strategies] for n in batches]))
            for s in strategies:
                series[f"{which} {s}"] = [found[s][n].rate() if n in found[s] else None
                                          for n in m.batches]
            first.update(max((s for s in strategies if n in found[s]),
                             key=lambda s: found[s][n].rate()) for n in batches)
        (leader, times), = first.most_common(1)
        curves(args, f"rnn-{h}", f"RNN, T = {plan.steps}, H = {h}: {leader} is fastest in {times} of "
               f"{first.total()} races", "N", "GFLOP/s", m.batches, series)


def print_losses(m):
    print("## Is throughput monotonic in the batch?\n")
    print("Every N that is slower than a smaller batch by more than noise: the quartiles of their\n"
          f"times are apart, and the medians by over {LEAST:.0%}. In brackets the smaller batch and the\n"
          "ratio of GFLOP/s.\n")
    rows = []
    for which in PASSES:
        for strategy in dict.fromkeys(s for h in m.hidden for s in m.strategies(h, which)):
            rows.append([strategy, which] + [
                ", ".join(f"{n} ({smaller}: {r:.2f})" for n, (smaller, r) in
                          losses(m.strategy_curve(strategy, h, which)).items()) or "none"
                for h in m.hidden])
    print(table(["strategy", "pass"] + [f"H = {h}" for h in m.hidden], rows))


def print_multiples(m):
    rows = []
    for n in m.batches:
        if n % 32 or not {n - 1, n + 1} <= set(m.batches):
            continue
        for which in PASSES:
            for strategy in dict.fromkeys(s for h in m.hidden for s in m.strategies(h, which)):
                found = [m.strategy_curve(strategy, h, which) for h in m.hidden]
                rows.append([n, strategy, which] + [
                    ", ".join(ratio(over(curve.get(n), curve.get(n + by))) for by in (-1, 1))
                    for curve in found])
    if rows:
        print("Multiples of 32: GFLOP/s at N over those at N - 1 and at N + 1.\n")
        print(table(["N", "strategy", "pass"] + [f"H = {h}" for h in m.hidden], rows))


def print_near_best(m):
    print(f"The smallest batch with {NEAR_BEST:.0%} of a strategy's best throughput:\n")
    rows = []
    for which in PASSES:
        for strategy in dict.fromkeys(s for h in m.hidden for s in m.strategies(h, which)):
            found = [m.strategy_curve(strategy, h, which) for h in m.hidden]
            rows.append([strategy, which] + [near_best(curve) if curve else "" for curve in found])
    print(table(["strategy", "pass"] + [f"H = {h}" for h in m.hidden], rows))


def peers(m):
    return list(dict.fromkeys(p.case["algo"] for found in m.points.values()
                              for p in found.values() if "." in p.case["algo"]))


def print_gains(m):
    print("## Persistent weights\n")
    print("`persistent`'s GFLOP/s over those of the others, each with its fastest config:\n")
    rows = []
    for which, other, n in itertools.product(PASSES, ("stepwise", "batched_input", *peers(m)),
                                             GAINS_AT):
        gains = [over(m.best("persistent", h, n, which), m.best(other, h, n, which))
                 for h in m.hidden]
        if any(gains):
            rows.append([which, other, n, *map(ratio, gains)])
    print(table(["pass", "over", "N"] + [f"H = {h}" for h in m.hidden], rows))


def transpose_gain(m, h, n, which, packing=False):
    """Time with weights as they lie over that with transposed ones, of batched_input."""
    plain, packed = (m.best("batched_input", h, n, which, packed) for packed in (False, True))
    if not plain or not packed:
        return None
    gain = packed.over(plain)
    return gain / (1 + packed.pack_ms() / packed.ms()) if packing else gain


def print_transposes(m):
    print("## Transposed weights\n")
    print("backward_data (TN) over forward (NN), GFLOP/s of weights as they lie:\n")
    names = ("stepwise", "batched_input")
    rows = [[n] + [ratio(over(m.best(name, h, n, "bwd_d", False), m.best(name, h, n, "fwd", False)))
                   for name in names for h in m.hidden] for n in m.batches]
    print(table(["N"] + [f"{name}, H = {h}" for name in names for h in m.hidden], rows))
    print("Time of `batched_input` with weights as they lie over that with weights transposed before,\n"
          "in brackets with the transpose counted. Above 1, transposing pays.\n")

    def cell(h, n, which):
        gains = [transpose_gain(m, h, n, which, packing) for packing in (False, True)]
        return f"{gains[0]:.2f} ({gains[1]:.2f})" if gains[0] else ""
    print(table(["N"] + [f"{which}, H = {h}" for which in PASSES for h in m.hidden],
                [[n] + [cell(h, n, which) for which in PASSES for h in m.hidden]
                 for n in m.batches]))


def input_share(point):
    return point.input_share() if point else None


def print_shares(m):
    print("## The product of the inputs\n")
    print("Its share of the forward pass's time, %, one product a step and all steps as one. It has\n"
          "half of the FLOPs.\n")
    names = ("stepwise", "batched_input")
    rows = []
    for n in m.batches:
        shares = [input_share(m.best(name, h, n, "fwd")) for name in names for h in m.hidden]
        rows.append([n] + ["" if share is None else f"{100 * share:.0f}" for share in shares])
    print(table(["N"] + [f"{name}, H = {h}" for name in names for h in m.hidden], rows))


def print_memory(plan, log):
    runs = [log.runs.get(plan.memory_name() + recompute) for recompute in ("", ", recomputing")]
    kept, workspaces = {}, {}  # by cell, algorithm and recompute, then by T and by T and pass
    for case in (case for run in runs if run for case in run["cases"]):
        cell, t = re.match(r"(\w+):l\d+t(\d+)mb", case["problem"]).groups()
        if cell == "rnn" and case["recompute"]:  # has nothing to recompute
            continue
        key = cell, case["algo"], case["recompute"]
        kept.setdefault(key, {})[int(t)] = case["y_bytes"] + case["activations_bytes"]
        # An algorithm's first config is its default.
        workspaces.setdefault((*key, int(t)), {}).setdefault(case["pass"], case["workspace_bytes"])
    if not kept:
        return
    print("## Memory over T\n")
    print(f"MiB of {MEMORY_LAYERS} layers, H = {plan.hidden[0]}, N = {MEMORY_BATCH}, in training: what is "
          "kept from forward to\nbackward (y and activations) + the larger workspace of forward and "
          "backward_data.\n")
    rows = []
    for cell in MEMORY_CELLS:
        for (of, algo, recompute), sizes in kept.items():
            if of == cell:
                rows.append([cell, algo + (", recomputing" if recompute else "")] + [
                    f"{sizes[t] / 2**20:.0f} + "
                    f"{max(workspaces[of, algo, recompute, t].values()) / 2**20:.0f}"
                    if t in sizes else "" for t in MEMORY_STEPS])
    print(table(["cell", "strategy"] + [f"T = {t}" for t in MEMORY_STEPS], rows))


# ---- What holds here

def spans(numbers, among):
    """As "1 to 8, 32": runs of neighbours in `among`."""
    runs = []
    for i, n in enumerate(among):
        if n in numbers:
            if runs and runs[-1][1] == i - 1:
                runs[-1] = runs[-1][0], i
            else:
                runs.append((i, i))
    return ", ".join(f"{among[a]} to {among[b]}" if b > a + 1 else
                     ", ".join(str(among[i]) for i in range(a, b + 1)) for a, b in runs)


def verdict(holds):
    """Of what holds or not by H, or by H and N."""
    if all(holds.values()):
        return "**confirmed**"
    if not any(holds.values()):
        return "**refuted**"
    by_h, same = collections.defaultdict(dict), collections.defaultdict(list)
    for key, value in holds.items():
        h, n = key if isinstance(key, tuple) else (key, None)
        by_h[h][n] = value
    for h, values in by_h.items():
        if all(values.values()):
            same[""].append(h)
        elif any(values.values()):
            same[" at N = " + spans([n for n in values if values[n]], list(values))].append(h)
    parts = (f"H = {', '.join(map(str, hidden))}{where}" for where, hidden in same.items())
    return f"**confirmed in part**, for {'; '.join(parts)}"


def between(values, digits=2):
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def monotonic(m):
    found = {(h, which): losses(m.best_curve("stepwise", h, which)) for h in m.hidden
             for which in PASSES}
    holds = {h: any(found[h, which] for which in PASSES) for h in m.hidden}
    worst = min(((r, n, smaller, h, which) for (h, which), lost in found.items()
                 for n, (smaller, r) in lost.items()), default=None)
    text = f"Throughput of a product a step is not monotonic in the batch: {verdict(holds)}."
    if worst:
        r, n, smaller, h, which = worst
        text += (f" The largest loss is N = {n}'s, which reaches {r:.2f} of N = {smaller}'s GFLOP/s "
                 f"({which}, H = {h}).")
    return text


def inputs_as_one(m):
    gains, steps = {}, {}
    for h, n in itertools.product(m.hidden, m.batches):
        batched = m.best("batched_input", h, n, "fwd")
        gain, share = over(batched, m.best("stepwise", h, n, "fwd")), input_share(batched)
        if gain and share is not None:
            gains[h, n], steps[h, n] = gain, 1 - share
    if not gains:
        return None
    dominates = {key: share >= 0.6 for key, share in steps.items()}
    return (f"All input products as one pay: {verdict({k: g > 1 + LEAST for k, g in gains.items()})}; "
            f"forward is {between(gains.values())} times as fast. The recurrent products dominate then, "
            f"with 60% of the time or more: {verdict(dominates)}; they take "
            f"{between([100 * share for share in steps.values()], 0)}%.")


def multiples_of_32(m):
    holds, ratios = {}, []
    for h, n in itertools.product(m.hidden, m.batches):
        found = []
        for which in PASSES:
            curve = m.best_curve("stepwise", h, which)
            if n % 32 == 0 and {n - 1, n, n + 1} <= set(curve):
                found.append([curve[other].is_below(curve[n]) for other in (n - 1, n + 1)])
                ratios += [curve[n].over(curve[other]) for other in (n - 1, n + 1)]
        if found:
            holds[h, n] = all(map(all, found))
    if not holds:
        return None
    return (f"Batches in multiples of 32 are faster than their neighbours, in both passes and by more "
            f"than noise: {verdict(holds)}. Their GFLOP/s are {between(ratios)} times the neighbours'.")


def transposes(m):
    differ, pays, ratios, gains = {}, {}, [], []
    for h, n in itertools.product(m.hidden, m.batches):
        tn, nn = (m.best("stepwise", h, n, which, False) for which in ("bwd_d", "fwd"))
        if not tn or not nn:
            continue
        ratios.append(tn.over(nn))
        differ[h, n] = tn.is_below(nn) or nn.is_below(tn)
        slower = "bwd_d" if ratios[-1] < 1 else "fwd"
        gain = transpose_gain(m, h, n, slower, packing=True)
        if differ[h, n] and gain:
            pays[h, n] = gain > 1 + LEAST
            gains.append(gain)
    if not differ:
        return None
    text = (f"NN and TN differ: {verdict(differ)}; backward_data has {between(ratios)} times forward's "
            "GFLOP/s.")
    if pays:
        text += (f" Transposing the slower pass's weights pays there, the transpose counted: "
                 f"{verdict(pays)}; it makes that pass {between(gains)} times as fast.")
    return text


def bound_by_weights(m):
    holds, growths, rates = {}, [], []
    for h in m.hidden:
        curve = m.best_curve("stepwise", h, "fwd")
        if not {1, 4} <= set(curve):
            continue
        growths.append(curve[4].ms() / curve[1].ms())
        holds[h] = growths[-1] < 2
        batched = m.best("batched_input", h, 1, "fwd")
        share = input_share(batched)
        if share is not None:
            # U's bytes of all steps: 4 H^2 T; the FLOPs of both products are 4 H^2 T as well.
            rates.append(batched.case["exec_GFLOP"] / (batched.ms() * (1 - share)) * 1e3)
    if not holds:
        return None
    text = (f"At small batches the product is bound by reading the weights: {verdict(holds)}; four "
            f"times the work, N = 4 for 1, takes {between(growths)} times as long.")
    if rates:
        text += f" At N = 1 the steps of `batched_input` read U at {between(rates, 0)} GB/s."
    return text


def persistent_pays(m):
    holds, gains, own = {}, [], []
    for h, n in itertools.product(m.hidden, (n for n in m.batches if n <= 4)):
        found = [(over(point, m.best("stepwise", h, n, which)),
                  over(point, m.best("batched_input", h, n, which)))
                 for which in PASSES if (point := m.best("persistent", h, n, which))]
        found = [pair for pair in found if None not in pair]
        if found:
            holds[h, n] = min(gain for gain, _ in found) >= 2
            gains += [gain for gain, _ in found]
            own += [gain for _, gain in found]
    if not holds:
        return None
    return (f"Persistent weights multiply the throughput of small batches, N up to 4, at least "
            f"twofold: {verdict(holds)}. `persistent` is {between(gains)} times as fast as a product a "
            f"step, and {between(own)} times as fast as `batched_input`.")


def less_memory(m, steps):
    holds, parts = {}, []
    for h in m.hidden:
        stepwise, persistent = (m.best_curve(algo, h, "fwd") for algo in ("stepwise", "persistent"))
        if not stepwise or not persistent:
            continue
        best = max(point.rate() for point in stepwise.values())
        needed, enough = near_best(stepwise), near_best(persistent, best)
        holds[h] = enough is not None and enough < needed
        if enough is None:
            parts.append(f"H = {h}: no batch is enough")
            continue
        there, here = stepwise[needed].memory(), persistent[enough].memory()
        parts.append(f"H = {h}: N = {enough} instead of {needed}, {here / 2**20:.1f} instead of "
                     f"{there / 2**20:.1f} MiB")
    if not holds:
        return None
    return (f"Persistent weights cut the memory needed, because smaller batches are fast enough: "
            f"{verdict(holds)}. For {NEAR_BEST:.0%} of the best throughput of a product a step, T = "
            f"{steps}, forward: {'; '.join(parts)} (y, activations and workspace).")


def print_findings(plan, m):
    print("## What holds here\n")
    found = [monotonic(m), inputs_as_one(m), multiples_of_32(m), transposes(m), bound_by_weights(m),
             persistent_pays(m), less_memory(m, plan.steps)]
    for text in filter(None, found):
        print(f"- {text}")
    print()


def rnn(args, log):
    """GFLOP/s over the batch by strategy, and what follows from them."""
    plan = Plan(args)
    make_runs(args, plan, log)
    names = [plan.memory_name(), plan.memory_name() + ", recomputing"]
    names += [plan.name(h, n, turn) for turn, h, n in
              itertools.product(range(1, plan.turns + 1), plan.hidden, plan.batches)]
    log.keep_only(names)
    m = Measured(plan, log)
    if m.points:
        print(f"\nVanilla RNN, T = {plan.steps}, I = H, one layer and direction, training. The candidates "
              "of a problem take\nturns in one process, and all problems in "
              f"{plan.turns} turns.\n")
        print_curves(args, plan, m)
        print_near_best(m)
        print_losses(m)
        print_multiples(m)
        print_gains(m)
        print_transposes(m)
        print_shares(m)
    print_memory(plan, log)
    if m.points:
        print_findings(plan, m)
