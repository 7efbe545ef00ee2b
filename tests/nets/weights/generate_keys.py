#!/usr/bin/env python3
"""Writes torchvision.txt: names and shapes of all that torchvision's nets keep in state_dict().

  tests/nets/weights/generate_keys.py

A line `net NAME`, then a line for each module: its name, then each of its tensors with its shape,
`-` for none. The auxiliary classifiers of googlenet and inception_v3 are left out.
"""

import pathlib

import torch
import torchvision

NETS = (
    ["alexnet"]
    + [f"vgg{depth}{bn}" for bn in ("", "_bn") for depth in (11, 13, 16, 19)]
    + ["googlenet"]
    + [f"resnet{depth}" for depth in (18, 34, 50, 101, 152)]
    + ["resnext50_32x4d", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "densenet121"]
    + ["efficientnet_b0", "regnet_y_400mf", "inception_v3"]
    + ["shufflenet_v2_x1_0", "convnext_tiny", "deeplabv3_resnet50", "r3d_18"]
)
WITH_AUXILIARY = ("googlenet", "inception_v3")


def main():
    lines = [f"# torch {torch.__version__}, torchvision {torchvision.__version__}"]
    for name in NETS:
        options = {"weights_backbone": None} if name.startswith("deeplab") else {}
        options |= {"aux_logits": False, "init_weights": False} if name in WITH_AUXILIARY else {}
        # regnet computes its widths in tensors.
        with torch.device("cpu" if name.startswith("regnet") else "meta"):
            state = torchvision.models.get_model(name, weights=None, **options).state_dict()
        lines.append(f"net {name}")
        modules = {}
        for key, tensor in state.items():
            module, _, leaf = key.rpartition(".")
            shape = "x".join(map(str, tensor.shape)) or "-"
            modules.setdefault(module, []).append(f"{leaf} {shape}")
        lines += [f"{module} {' '.join(tensors)}" for module, tensors in modules.items()]
    path = pathlib.Path(__file__).resolve().parent / "data" / "torchvision.txt"
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
