#!/usr/bin/env python3
"""Writes data/: array files as Python's own libraries write them.

  tests/nets/weights/generate.py

values.npz (stored), values_compressed.npz (deflated) and values.safetensors have one array a type,
named by it, of shape [2, 3] and values -1.5, -0.5, ... 3.5 (whole types: 0 ... 5); `number` has no
dimensions and the value 2.5, `nothing` the shape [0, 4]. The others are what a reader must refuse.
"""

import pathlib
import sys

import numpy
import safetensors
import torch
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).resolve().parent / "data"
VERSIONS = {
    "python": sys.version.split()[0],
    "numpy": numpy.__version__,
    "torch": torch.__version__,
    "safetensors": safetensors.__version__,
}


def tensors():
    made = {}
    for name, dtype in {
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "f32": torch.float32,
        "f64": torch.float64,
        "i32": torch.int32,
        "i64": torch.int64,
        "u8": torch.uint8,
    }.items():
        values = torch.arange(6, dtype=torch.float64).reshape(2, 3)
        made[name] = (values - 1.5 if dtype.is_floating_point else values).to(dtype)
    made["number"] = torch.tensor(2.5, dtype=torch.float32)
    made["nothing"] = torch.zeros(0, 4)
    return made


def main():
    DATA.mkdir(exist_ok=True)
    all_tensors = tensors()
    save_file(all_tensors, DATA / "values.safetensors", metadata=VERSIONS)
    arrays = {name: t.numpy() for name, t in all_tensors.items() if name != "bf16"}
    numpy.savez(DATA / "values.npz", **arrays)
    numpy.savez_compressed(DATA / "values_compressed.npz", **arrays)
    numpy.savez(DATA / "fortran.npz", x=numpy.asfortranarray(arrays["f32"]))
    numpy.savez(DATA / "pickled.npz", x=numpy.array([{}, None]))
    numpy.savez(DATA / "big_endian.npz", x=arrays["f32"].astype(">f4"))
    numpy.savez(DATA / "fields.npz", x=numpy.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    numpy.savez_compressed(DATA / "zeros.npz", x=numpy.zeros(20000))


if __name__ == "__main__":
    main()
