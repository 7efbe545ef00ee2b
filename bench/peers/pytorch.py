#!/usr/bin/env python3
"""Times one net of PyTorch on the CPU, in one way, and prints JSON.

  bench/peers/pytorch.py resnet18 --batch 16 --train
  bench/peers/pytorch.py vgg16 --batch 1 --way freeze --channels-last
  bench/peers/pytorch.py mlp:20-256x5-1 --batch 1024 --dtype f64 --train

Training is forward, cross-entropy (squared error after one output), backward and SGD with momentum,
each timed; inference is forward in inference mode. Random images, random weights. Needs torch, and
torchvision for its nets; --way openvino its package, --way onnxruntime its and onnx.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import platform
import sys
import time

import torch

WAYS = ("eager", "freeze", "compile", "openvino", "onnxruntime")


def resident_bytes(field):
    """VmRSS, or VmHWM: the most since reset_peak()."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/self/status")


def reset_peak():
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def mlp_widths(text):
    """mlp:20-256x5-1: 20, five times 256, 1."""
    widths = []
    for part in text.removeprefix("mlp:").split("-"):
        width, _, times = part.partition("x")
        widths += int(times or 1) * [int(width)]
    return widths


def mlp(widths):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def vision(models, name):
    options = {"aux_logits": False} if name == "googlenet" else {}
    return models.get_model(name, weights=None, **options)


def in_openvino(net, images, threads):
    import openvino

    core = openvino.Core()
    model = openvino.convert_model(net, example_input=images, input=[list(images.shape)])
    # By itself it takes bf16 where the CPU has instructions for it.
    model = core.compile_model(model, "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY"})
    request = model.create_infer_request()
    return lambda given: torch.from_numpy(request.infer({0: given.numpy()})[0])


def in_onnxruntime(net, images, threads):
    import onnxruntime

    exported = io.BytesIO()
    with contextlib.redirect_stdout(sys.stderr):
        torch.onnx.export(net, (images,), exported, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(exported.getvalue(), options,
                                           providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda given: torch.from_numpy(session.run(None, {name: given.numpy()})[0])


def optimise(net, images, way, threads):
    """A net for inference. freeze: TorchScript, batch norm folded, weights packed for oneDNN.
    compile: Inductor, with the weights as constants, so that it folds and packs them too."""
    if way == "openvino":
        return in_openvino(net, images, threads)
    if way == "onnxruntime":
        return in_onnxruntime(net, images, threads)
    if way == "freeze":
        scripted = torch.jit.freeze(torch.jit.trace(net, images))
        return torch.jit.optimize_for_inference(scripted)
    if way == "compile":
        torch._inductor.config.freezing = True
        return torch.compile(net)
    return net


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("net", help="as torchvision names it, or mlp:20-256x5-1")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f32")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--way", choices=WAYS, default="eager", help="training: eager or compile")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=5, help="to measure, after the warm-up")
    parser.add_argument("--min-runs", type=int, default=3)
    args = parser.parse_args()
    if args.train and args.way not in ("eager", "compile"):
        parser.error(f"--way {args.way} is for inference")

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    torch.set_default_dtype(torch.float64 if args.dtype == "f64" else torch.float32)
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    is_mlp = args.net.startswith("mlp:")
    if is_mlp:
        widths = mlp_widths(args.net)
        shape = (widths[0],)
    else:
        from torchvision import models  # an MLP does without

        if args.net not in models.list_models(models):
            parser.error(f"torchvision has no {args.net}")
        shape = (3, 224, 224)
    images = torch.randn(args.batch, *shape).contiguous(memory_format=layout)
    labels = torch.randn(args.batch, 1) if is_mlp else torch.randint(1000, (args.batch,))
    before_net = resident_bytes("VmRSS")

    net = mlp(widths) if is_mlp else vision(models, args.net)
    net = net.train(args.train).to(memory_format=layout)
    runs = []

    if args.train:
        forward = torch.compile(net) if args.way == "compile" else net
        loss_of = torch.nn.MSELoss() if is_mlp else torch.nn.CrossEntropyLoss()
        sgd = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, fused=True)

        def run():
            t0 = time.perf_counter()
            loss = loss_of(forward(images), labels)
            t1 = time.perf_counter()
            loss.backward()
            t2 = time.perf_counter()
            sgd.step()
            sgd.zero_grad(set_to_none=True)
            return t1 - t0, t2 - t1, time.perf_counter() - t2
    else:
        with torch.inference_mode(args.way in ("eager", "compile")), torch.no_grad():
            expected = net(images)
            net = optimise(net, images, args.way, args.threads)
            error = (net(images) - expected).norm() / expected.norm()
            if not error < 1e-4:
                sys.exit(f"{args.way} computes something else: relative error {error:.1e}")

        def run():
            t0 = time.perf_counter()
            net(images)
            return (time.perf_counter() - t0,)

    with torch.inference_mode(not args.train):
        warm_ups = 2 if args.train or args.way == "eager" else 4
        reset_peak()
        for _ in range(warm_ups):
            run()
        begin = time.perf_counter()
        while len(runs) < args.min_runs or time.perf_counter() - begin < args.seconds:
            runs.append(run())

    phases = ("forward_ms", "backward_ms", "update_ms")
    result = {
        "net": args.net,
        "batch": args.batch,
        "mode": "training" if args.train else "inference",
        "way": args.way,
        "channels_last": args.channels_last,
        "threads": args.threads,
        "runs": [{p: 1e3 * t for p, t in zip(phases, run)} for run in runs],
        "before_net_bytes": before_net,
        "peak_bytes": resident_bytes("VmHWM"),
        "versions": {
            "torch": torch.__version__,
            **({"torchvision": sys.modules["torchvision"].__version__} if not is_mlp else {}),
            **({args.way: importlib.metadata.version(args.way)} if args.way in sys.modules else {}),
            "python": platform.python_version(),
            "build": torch.__config__.show(),
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
