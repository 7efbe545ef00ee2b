"""Products of matrices by size: own, OpenBLAS's, and cuBLAS's on a card."""

import collections
import re
import statistics

from charts import curves, table

SIZES = (512, 1024, 1760, 2048, 2560)
TRIED, TRIED_MIN_TIME = "small ", "0.001"  # before the names of --small's runs, which say nothing
BATCHES = (1, 2, 4, 7, 8, 16, 31, 32, 48, 64, 96, 128, 192, 256)
# Whose products, and of which types each program has some.
NAMES = {"own": "own", "openblas": "OpenBLAS", "cublas": "cuBLAS"}
TYPES, CARD_TYPES = ("f32", "f64"), ("f32", "f64", "tf32", "f16", "bf16")


def sizes_of(args):
    if not args.small:
        return SIZES
    return (16,) if args.device == "cuda" else SIZES[:1]  # the CPU's program has no smaller ones


def make_runs(args, log):
    def keep(told):
        context = told["context"]
        best = {}
        for case in told["benchmarks"]:
            name = re.sub(r"(/iterations:\d+)?/manual_time$", "", case["name"])
            best[name] = case.get("best_GFLOPs") or case["best_GBps"]
        machine = {name: context[name]
                   for name in ("cpu", "gpu", "isa", "threads", "openblas", "cublas")
                   if name in context}
        return {"best": best, "machine": machine, "date": context["date"]}

    card = args.device == "cuda"
    for dtype in CARD_TYPES if card else TYPES:
        for size in sizes_of(args):
            pattern = f"(gemm/.*/{dtype}/.*/{size}x.*x{size}/|transpose/.*{dtype}/{size}x)"
            command = [args.card_kernels if card else args.kernels,
                       f"--benchmark_filter={pattern}", "--benchmark_format=json"]
            if card:  # there, always the same number of products
                command.append(str(size))
            else:
                least = TRIED_MIN_TIME if args.small else args.min_time
                command.append(f"--benchmark_min_time={least}")
            name = f"card {dtype} {size}" if card else f"{dtype} {size}"
            log.make(TRIED + name if args.small else name, command, keep)


def gemm(args, log):
    """M = K over N: the curve, what transposed operands cost, and how to round a batch."""
    make_runs(args, log)
    log.keep_only([name for name in log.runs if name.startswith(TRIED) == args.small])
    best = {}
    for run in log.runs.values():
        best.update(run["best"])

    def rate(whose, dtype, ops, size, n):
        return best.get(f"gemm/{whose}/{dtype}/{ops}/{size}x{n}x{size}")

    def transpose_gbps(whose, dtype, size):
        if whose == "cublas":  # TF32 is f32 in memory; 16-bit types have no kernel
            dtype = "card/f32" if dtype == "tf32" else f"card/{dtype}"
        elif whose == "own":  # OpenBLAS's stands beside OpenBLAS's products
            return None
        return best.get(f"transpose/{dtype}/{size}x{size}")

    for dtype in CARD_TYPES:
        there = [whose for whose in NAMES
                 if any(rate(whose, dtype, "NN", size, 1) for size in sizes_of(args))]
        sizes = [size for size in sizes_of(args)
                 if there and all(rate(whose, dtype, "NN", size, 1) for whose in there)]
        if not sizes:
            continue
        listed = ", ".join(NAMES[whose] for whose in there)
        print(f"\n## {dtype}: GFLOP/s over N, M = K, NN: {listed}\n")
        rows = [[n] + [", ".join(f"{rate(whose, dtype, 'NN', size, n):.0f}" for whose in there)
                       for size in sizes]
                for n in BATCHES]
        print(table(["N"] + [f"M = K = {size}" for size in sizes], rows))
        first = collections.Counter(
            max(there, key=lambda whose: rate(whose, dtype, "NN", size, n))
            for size in sizes for n in BATCHES)
        (leader, times), = first.most_common(1)
        curves(args, f"gemm-{dtype}",
               f"{dtype}, M = K by N, NN: {NAMES[leader]} is fastest in {times} of "
               f"{first.total()} products", "N", "GFLOP/s", BATCHES,
               {f"{whose} {size}": [rate(whose, dtype, "NN", size, n) for n in BATCHES]
                for size in sizes for whose in there})

        transposing = [whose for whose in there
                       if all(transpose_gbps(whose, dtype, size) for size in sizes)]
        print(f"Transposed operands: speed over NN's, median over M: {listed}.")
        if transposing:
            print("And an explicit transpose of the M x K operand, as a share of the TN product's\n"
                  "time. It pays where that share is less than what TN loses.")
        print()
        header = ["N"] + [f"{NAMES[whose]} {ops}" for whose in there for ops in ("TN", "NT")]
        for whose in transposing:
            header += [f"transpose / {NAMES[whose]} TN", "pays"]
        rows = []
        for n in BATCHES:
            cells = [n]
            for whose in there:
                for ops in ("TN", "NT"):
                    cells.append("%.2f" % statistics.median(
                        rate(whose, dtype, ops, s, n) / rate(whose, dtype, "NN", s, n)
                        for s in sizes))
            for whose in transposing:
                shares, pays = [], 0
                for s in sizes:
                    bytes_moved = 2 * s * s * (8 if dtype == "f64" else 4)
                    transpose_s = bytes_moved / transpose_gbps(whose, dtype, s) / 1e9
                    tn_s, nn_s = (2 * s * s * n / rate(whose, dtype, ops, s, n) / 1e9
                                  for ops in ("TN", "NN"))
                    shares.append(transpose_s / tn_s)
                    pays += transpose_s + nn_s < tn_s
                cells += [f"{statistics.median(shares):.2f}", f"{pays} of {len(sizes)}"]
            rows.append(cells)
        print(table(header, rows))

        print("Rounding a batch up: time at N over time at the larger batch. Above 1, the larger is\n"
              "the faster one.\n")
        rows = []
        for n, rounded in ((7, 8), (31, 32), (48, 64), (96, 128)):
            for whose in there:
                gains = [n / rate(whose, dtype, "NN", s, n) * rate(whose, dtype, "NN", s, rounded)
                         / rounded for s in sizes]
                rows.append([f"{n} to {rounded}", NAMES[whose]] + [f"{gain:.2f}" for gain in gains])
        print(table(["N", "whose"] + [f"M = K = {size}" for size in sizes], rows))
