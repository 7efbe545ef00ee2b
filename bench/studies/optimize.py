#!/usr/bin/env python3
"""What convlab.torch.optimize does with torchvision's models.

    optimize.py coverage --log coverage.jsonl [MODEL ...]
        every classification model (or those named) at batch 1 with random weights: taken whole, in part
        or not, the error, and which operators PyTorch keeps
    optimize.py race --log race.jsonl --case resnet18:1 --case resnet50:16:train [--budget 60s]
        the time of a call in rounds, one way after another: eager in channels_last, torch.compile,
        OpenVINO, ONNX Runtime, and optimize
    optimize.py table --log FILE
        what a log says, as Markdown

A log has a line a model, and a second run goes on with what is missing. Each model runs in a process of its
own. Needs convlab, torch and torchvision; ways whose package is missing are left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def append(path, row):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def make(name, training=False):
    import torch
    import torchvision

    torch.manual_seed(1)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **options).train(training)
    if training:  # a second process has the same dropout
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    size = {"inception_v3": 299, "vit_h_14": 224}.get(name, 224)
    return model, size


# ---- Coverage ----


def cover(name):
    import convlab
    import torch
    from convlab import optimize as flow

    flow._ROUNDS = 1  # times are not the question
    model, size = make(name)
    x = torch.randn(1, 3, size, size)
    row = {"model": name}
    begin = time.time()
    try:
        report = convlab.torch.optimize(model, x, swap="all", report=False).convlab_report
    except convlab.Error as error:
        return {**row, "taken": "not", "reason": str(error)}
    total = sum(isinstance(m, (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)) for m in model.modules())
    kept = sum(row["convolutions"] for row in report.segments if row["kept"])
    whole = report.kept == 1 and not report.left and len(report.segments) == 1
    return {**row, "taken": "whole" if whole else "in part" if report.kept else "not",
            "segments": report.kept, "convolutions": kept, "modules": total, "error": report.error,
            "left": {name: count for name, (count, _) in report.left.items()},
            "refused": [r["reason"] for r in report.segments if not r["kept"]],
            "seconds": round(time.time() - begin, 1)}


def models(names):
    if names:
        return names
    import torchvision

    return sorted(torchvision.models.list_models(module=torchvision.models))


# ---- Times ----


def ways(name, batch, training, budget):
    """name of the way -> a call, made when it is asked for."""
    import numpy as np
    import torch

    model, size = make(name, training)
    x = torch.randn(batch, 3, size, size)
    labels = torch.arange(batch) % 1000

    def step(m, given):
        if not training:
            def call():
                with torch.no_grad():
                    return m(given)
            return call

        def call():
            m.zero_grad(set_to_none=True)
            y = m(given)
            y = y if isinstance(y, torch.Tensor) else y[0]
            torch.nn.functional.cross_entropy(y, labels).backward()
        return call

    def eager():
        other = make(name, training)[0].to(memory_format=torch.channels_last)
        return step(other, x.to(memory_format=torch.channels_last))

    def inductor():
        other = make(name, training)[0].to(memory_format=torch.channels_last)
        return step(torch.compile(other), x.to(memory_format=torch.channels_last))

    def exported():
        import io
        file = io.BytesIO()
        torch.onnx.export(model, (x,), file, dynamo=False, opset_version=17)
        return file.getvalue()

    def openvino():
        import openvino as ov
        core = ov.Core()
        net = core.compile_model(ov.convert_model(model, example_input=x, input=[list(x.shape)]), "CPU",
                                 {"INFERENCE_NUM_THREADS": torch.get_num_threads(),
                                  "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"})
        request, array = net.create_infer_request(), np.ascontiguousarray(x.numpy())
        return lambda: request.infer([array])

    def onnxruntime():
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = ort.InferenceSession(exported(), options, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: x.numpy()}
        return lambda: session.run(None, feed)

    def optimized():
        import convlab
        return step(convlab.torch.optimize(model, x, training=training, budget=budget, report=sys.stderr), x)

    found = {"eager": eager, "torch.compile": inductor, "convlab": optimized}
    if not training:
        found.update({"openvino": openvino, "onnxruntime": onnxruntime})
    return found


def race(case, budget, rounds):
    name, _, rest = case.partition(":")
    batch, _, mode = rest.partition(":")
    row = {"case": case, "model": name, "batch": int(batch or 1), "training": mode == "train", "ms": {},
           "missing": {}}
    calls = {}
    for way, start in ways(name, row["batch"], row["training"], budget).items():
        try:
            calls[way] = start()
            calls[way]()
        except Exception as error:  # a package or a compiler that is not there
            calls.pop(way, None)
            row["missing"][way] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
    times = {way: [] for way in calls}
    for _ in range(rounds):
        for way, call in calls.items():
            begin = time.perf_counter()
            call()
            times[way].append(1e3 * (time.perf_counter() - begin))
    row["ms"] = {way: statistics.median(own) for way, own in times.items()}
    return row


# ---- Tables ----


def table(rows):
    rows = list(rows)
    if rows and "case" in rows[0]:
        names = ["eager", "torch.compile", "openvino", "onnxruntime", "convlab"]
        print("| case | " + " | ".join(f"{n} ms" for n in names) + " | to eager | to the best other |")
        print("|---|" + "--:|" * (len(names) + 2))
        for row in rows:
            ms = row["ms"]
            cells = [f"{ms[n]:.2f}" if n in ms else "" for n in names]
            others = [ms[n] for n in names[:-1] if n in ms]
            ours = ms.get("convlab")
            ratios = [f"{ms['eager'] / ours:.2f}" if ours and "eager" in ms else "",
                      f"{min(others) / ours:.2f}" if ours and others else ""]
            print("| " + " | ".join([row["case"], *cells, *ratios]) + " |")
        return
    print("| model | taken | segments | convolutions | error | PyTorch keeps |")
    print("|---|---|--:|--:|--:|---|")
    for row in rows:
        left = ", ".join(f"{count} {name}" for name, count in sorted(
            row.get("left", {}).items(), key=lambda item: -item[1])[:4])
        error = f"{row['error']:.1e}" if row.get("error") is not None else ""
        print(f"| {row['model']} | {row['taken']} | {row.get('segments', '')} | "
              f"{row.get('convolutions', '')} of {row.get('modules', '')} | {error} | "
              f"{left or row.get('reason', '')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["coverage", "race", "table"])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--log", required=True)
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--budget")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    warnings.simplefilter("ignore")
    if options.verb == "table":
        return table(read(options.log))
    if options.one:
        row = cover(options.one) if options.verb == "coverage" else race(options.one, options.budget,
                                                                         options.rounds)
        return append(options.log, row)
    done = {row.get("case") or row["model"] for row in read(options.log)}
    wanted = models(options.models) if options.verb == "coverage" else options.case
    for name in wanted:
        if name in done:
            continue
        extra = ["--budget", options.budget] if options.budget else []
        code = subprocess.run([sys.executable, __file__, options.verb, "--log", options.log, "--one", name,
                               "--rounds", str(options.rounds), *extra], check=False).returncode
        if code:
            print(f"{name}: ended with {code}", file=sys.stderr)


if __name__ == "__main__":
    main()
