#!/usr/bin/env python3
"""Writes how PyTorch trains the nets of generate.py: training.safetensors beside this.

  tests/nets/pytorch/training.py

Twenty steps under each rule, in double, from the values in NET.safetensors. The batch is the file's,
and after it the same mirrored (or its features reversed, where there is no width); in each step the
labels of the one go up by one (targets change their sign) and those of the other by two.

Keys, <rule> being sgd or adam:
  <net>/<rule>/losses          of each step, before its update
  <net>/<rule>/after/<name>    running statistics after the last step

The metadata's <net>/<rule> says how far rounding carries PyTorch itself, since small nets with batch
norm over few pixels magnify it from step to step: "STEPS ERROR ERROR64", the number of steps whose
losses in float32 are right to a thousandth; the largest relative difference of them, and if those
are all, of the statistics; and that of all tensors when float64 gets its input off by an ulp.
"""

import pathlib

import torch
from generate import NETS, shrink, statistics
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

STEPS = 20
RULES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.002, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.001, weight_decay=0.01),
}


def train(net, given, rule, dtype, input_factor=1.0):
    values = {key[6:]: t.to(dtype) for key, t in given.items() if key.startswith("value/")}
    net.to(dtype).load_state_dict(values, strict=False)
    net.train()
    update = RULES[rule](net.parameters())
    x = given["input"].to(dtype) * input_factor
    x = torch.cat((x, x.flip(-1)))
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


def rounding(net, given, rule, expected):
    in_f32 = train(net, given, rule, torch.float32)
    losses = expected["losses"]
    wrong = (in_f32["losses"] - losses).abs() > 1e-3 * losses
    steps = int(wrong.nonzero()[0]) if wrong.any() else STEPS
    if steps == STEPS:
        f32_error = error(in_f32, expected)
    else:
        f32_error = error({"": in_f32["losses"][:steps]}, {"": losses[:steps]})
    off = train(net, given, rule, torch.float64, 1 + torch.finfo(torch.float64).eps)
    return f"{steps} {f32_error:.2g} {error(off, expected):.2g}"


def main():
    folder = pathlib.Path(__file__).parent
    tensors, metadata = {}, {"torch": torch.__version__}
    for name, how in NETS.items():
        given = load_file(folder / (name.replace(":", "_") + ".safetensors"))
        torch.manual_seed(0)
        net = how["make"]()
        if how.get("divisor", 1) > 1:
            shrink(net, how["divisor"], how["outputs"])
            net.eval()(torch.zeros(how["shape"]))
        for rule in RULES:
            results = train(net, given, rule, torch.float64)
            tensors |= {f"{name}/{rule}/{key}": t for key, t in results.items()}
            metadata[f"{name}/{rule}"] = rounding(net, given, rule, results)
            losses = results["losses"]
            print(f"{name}/{rule}: {losses[0]:.4f} to {losses[-1]:.4f},", metadata[f"{name}/{rule}"])
    save_file(tensors, folder / "training.safetensors", metadata)


if __name__ == "__main__":
    main()
