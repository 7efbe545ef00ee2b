"""Products of matrices by size: own and OpenBLAS's."""

import re
import statistics

from charts import curves, table

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
