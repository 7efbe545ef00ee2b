#!/usr/bin/env python3
"""Writes pytorch.txt beside itself: small recurrent layers of each kind, computed in double by
PyTorch, which reference_test.cpp reproduces. Needs torch.

A problem is a line with its text and then an array a line: its name and its elements. The states'
gradients come from dy, dhn and dcn all at once.
"""
import pathlib

import torch

PROBLEMS = [
    f"{cell}:{sizes}"
    for cell in ("rnn", "rnn_relu", "gru", "lstm")
    for sizes in ("l1t4mb2sic3slc2dhc3dic3", "l2t3mb2sic3slc4dhc3dic3:bi")
]


def sizes_of(text):
    """l, t, mb, slc and dhc of a canonical text."""
    sizes, rest = {}, text.split(":")[1]
    for name in ("l", "t", "mb", "sic", "slc", "dhc", "dic"):
        rest = rest[len(name):]
        digits = len(rest) - len(rest.lstrip("0123456789"))
        sizes[name], rest = int(rest[:digits]), rest[digits:]
    return sizes


def layer_of(text):
    cell, sizes = text.split(":")[0], sizes_of(text)
    kinds = {"rnn": torch.nn.RNN, "rnn_relu": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}
    more = {"nonlinearity": "relu"} if cell == "rnn_relu" else {}
    return kinds[cell](sizes["slc"], sizes["dhc"], sizes["l"], bidirectional=text.endswith(":bi"),
                       dtype=torch.float64, **more)


def arrays_of(text):
    sizes = sizes_of(text)
    layer = layer_of(text)
    directions = 2 if text.endswith(":bi") else 1
    state = (sizes["l"] * directions, sizes["mb"], sizes["dhc"])
    lstm = text.startswith("lstm")

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    x, h0 = draw(sizes["t"], sizes["mb"], sizes["slc"]), draw(*state)
    c0 = draw(*state) if lstm else None
    y, last = layer(x, (h0, c0) if lstm else h0)
    hn, cn = last if lstm else (last, None)
    dy, dhn = torch.randn_like(y), torch.randn_like(hn)
    outputs, gradients = [y, hn], [dy, dhn]
    if lstm:
        dcn = torch.randn_like(cn)
        outputs.append(cn)
        gradients.append(dcn)
    torch.autograd.backward(outputs, gradients)
    arrays = {"x": x, "h0": h0, "weights": torch.cat([w.flatten() for w in layer.parameters()]),
              "y": y, "hn": hn, "dy": dy, "dhn": dhn, "dx": x.grad, "dh0": h0.grad,
              "dweights": torch.cat([w.grad.flatten() for w in layer.parameters()])}
    if lstm:
        arrays |= {"c0": c0, "cn": cn, "dcn": dcn, "dc0": c0.grad}
    return arrays


def main():
    torch.manual_seed(1)
    with open(pathlib.Path(__file__).with_suffix(".txt"), "w", encoding="ascii") as file:
        for text in PROBLEMS:
            print("problem", text, file=file)
            for name, array in arrays_of(text).items():
                print(name, *(f"{v:.17g}" for v in array.flatten().tolist()), file=file)


if __name__ == "__main__":
    main()
