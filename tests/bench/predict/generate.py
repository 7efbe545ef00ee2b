#!/usr/bin/env python3
"""Writes lenet.safetensors, a LeNet-5 with seven classes and random weights, noise in a.png and
b.png, and logits.json, what PyTorch computes for them: one list an image.

  tests/bench/predict/generate.py

Weights are such that float16, as which they are stored, holds them exactly.
"""

import json
import pathlib
import sys

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "nets" / "pytorch"))
from generate import lenet  # noqa: E402

MEAN, DEVIATION = 0.125, 0.25
CLASSES = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu"]


def main():
    torch.manual_seed(0)
    net = lenet(len(CLASSES))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_((3 * parameter).half().float())
    metadata = {
        "net": f"lenet:{len(CLASSES)}",
        "classes": "\n".join(CLASSES),
        "input": "1x28x28",
        "resize": "0",
        "pad": "0",
        "mean": str(MEAN),
        "deviation": str(DEVIATION),
        "torch": torch.__version__,
    }
    save_file({k: v.half() for k, v in net.state_dict().items()}, HERE / "lenet.safetensors", metadata)
    net.double().eval()
    logits = []
    random = numpy.random.default_rng(0)
    for name in ("a.png", "b.png"):
        pixels = random.integers(0, 256, (28, 28), dtype=numpy.uint8)
        Image.fromarray(pixels).save(HERE / name)
        x = (torch.tensor(pixels, dtype=torch.float64) / 255 - MEAN) / DEVIATION
        logits.append(net(x[None, None])[0].tolist())
    (HERE / "logits.json").write_text(json.dumps(logits) + "\n")


if __name__ == "__main__":
    main()
