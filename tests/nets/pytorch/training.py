#!/usr/bin/env python3
"""Writes how PyTorch trains the nets of generate.py: training.safetensors beside this.

  tests/nets/pytorch/training.py [NET...]

Nets that are not named keep what the file has. Twenty steps under each rule, in double, from the values
in NET.safetensors. The batch is the file's, and after it the same mirrored (or its features reversed, where there is no width); in each step the
labels of the one go up by one (targets change their sign) and those of the other by two.

Keys, <rule> being sgd or adam:
  <net>/<rule>/losses          of each step, before its update
  <net>/<rule>/after/<name>    running statistics after the last step

The metadata's <net>/<rule> is "RATE STEPS ERROR ERROR64": the learning rate, and how far rounding
carries PyTorch itself, since small nets with batch norm over few pixels magnify it from step to step:
the number of steps whose losses in float32, also with noise of F32_NOISE in the input, are right to a
thousandth; the largest relative difference of them, and if those are all, of the statistics; and that
of all tensors when float64 gets noise of an ulp in its input. Each noise is drawn DRAWS times.
"""

import pathlib
import sys

import torch
from generate import NETS, shrink, statistics
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

STEPS = 20
F32_NOISE = 1e-6  # about what a Winograd convolution rounds
DRAWS = 4  # where a ReLU's or a maximum's side is decided by rounding, few draws of noise see it
RULES = {
    "sgd": (0.002, lambda p, rate: torch.optim.SGD(p, rate, momentum=0.9, weight_decay=0.01)),
    "adam": (0.001, lambda p, rate: torch.optim.Adam(p, rate, weight_decay=0.01)),
}
# With batch norm over the few pixels of their last layers a step of the usual size makes these
# chaotic: an ulp grows to 3e-7 and more in twenty steps.
GENTLER = {net: 0.01 for net in ("resnet50", "mobilenet_v2", "resnext50_32x4d", "regnet_y_400mf",
                                 "inception_v3", "shufflenet_v2_x1_0", "densenet121",
                                 "deeplabv3_resnet50")}
# PyTorch's own gradient of it multiplies by 1.0f / 6.0f in double too, which is off by 3e-8.
F.hardsigmoid = lambda x, inplace=False: F.relu6(x + 3) / 6


def train(net, given, rule, rate, dtype, noise=0.0, draw=0):
    values = {key[6:]: t.to(dtype) for key, t in given.items() if key.startswith("value/")}
    net.to(dtype).load_state_dict(values, strict=False)
    net.train()
    update = RULES[rule][1](net.parameters(), rate)
    x = torch.cat((given["input"], given["input"].flip(-1))).to(dtype)
    x *= 1 + noise * torch.randn(x.shape, dtype=dtype, generator=torch.manual_seed(draw))
    losses = []
    for step in range(STEPS):
        output = net(x)
        if "targets" in given:
            targets = given["targets"].to(dtype) * (-1) ** step
            loss = F.mse_loss(output, torch.cat((targets, targets)))
        else:
            labels = given["labels"].long()
            labels = torch.cat((labels + step, labels + 2 * step)) % output.shape[1]
            loss = F.cross_entropy(output, labels)
        losses.append(loss.item())
        update.zero_grad()
        loss.backward()
        update.step()
    after = {"after/" + name: t.double().clone() for name, t in statistics(net).items()}
    return {"losses": torch.tensor(losses, dtype=torch.float64)} | after


def error(results, expected):
    return max(((results[k] - t).norm() / t.norm()).item() for k, t in expected.items())


def rounding(net, given, rule, rate, expected):
    in_f32 = [train(net, given, rule, rate, torch.float32)]
    in_f32 += [train(net, given, rule, rate, torch.float32, F32_NOISE, i) for i in range(DRAWS)]
    losses = expected["losses"]
    wrong = sum((run["losses"] - losses).abs() > 1e-3 * losses for run in in_f32)
    steps = int(wrong.nonzero()[0]) if wrong.any() else STEPS
    if steps == STEPS:
        f32_error = max(error(run, expected) for run in in_f32)
    else:
        f32_error = max(error({"": run["losses"][:steps]}, {"": losses[:steps]}) for run in in_f32)
    ulp = torch.finfo(torch.float64).eps
    f64_error = max(error(train(net, given, rule, rate, torch.float64, ulp, i), expected)
                    for i in range(DRAWS))
    return f"{rate:.6g} {steps} {f32_error:.2g} {f64_error:.2g}"


def main():
    folder = pathlib.Path(__file__).parent
    path = folder / "training.safetensors"
    tensors, metadata = {}, {}
    if names := sys.argv[1:]:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
            metadata = file.metadata()
    metadata["torch"] = torch.__version__
    for name in names or NETS:
        how = NETS[name]
        given = load_file(folder / (name.replace(":", "_") + ".safetensors"))
        torch.manual_seed(0)
        net = how["make"]()
        if how.get("divisor", 1) > 1:
            shrink(net, how["divisor"], how["outputs"])
            net.eval()(torch.zeros(how["shape"]))
        for rule in RULES:
            rate = RULES[rule][0] * GENTLER.get(name, 1)
            results = train(net, given, rule, rate, torch.float64)
            tensors |= {f"{name}/{rule}/{key}": t for key, t in results.items()}
            metadata[f"{name}/{rule}"] = rounding(net, given, rule, rate, results)
            losses = results["losses"]
            print(f"{name}/{rule}: {losses[0]:.4f} to {losses[-1]:.4f},", metadata[f"{name}/{rule}"])
    save_file(tensors, path, metadata)


if __name__ == "__main__":
    main()
