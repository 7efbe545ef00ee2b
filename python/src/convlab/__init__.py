"""The convolution algorithm lab: every way to compute a convolution, checked and raced on your machine.

    y = convlab.conv2d(x, w, padding=1)        # by the fastest algorithm for x's layout
    table = convlab.tune("resnet18", batch=1)  # measures which that is, layer by layer
"""

from importlib.metadata import version as _version

from . import openblas as _openblas

with _openblas.suitable_kernels():
    from . import _core
_openblas.warn_of(_core.advisable_openblas_core())

from . import torch
from .errors import EnvironmentError, Error, Failed, InputError, Interrupted, OutOfMemory
from .functions import (conv2d, conv2d_input_grad, conv2d_weight_grad, conv3d, conv3d_input_grad,
                        conv3d_weight_grad, plans)
from .net import Net
from .table import Table
from .verbs import doctor, problems, tune

__version__ = _version("convlab")

__all__ = [
    "conv2d", "conv2d_input_grad", "conv2d_weight_grad", "conv3d", "conv3d_input_grad",
    "conv3d_weight_grad", "plans", "problems", "tune", "doctor", "torch", "Table", "Net", "Error", "Failed",
    "InputError", "EnvironmentError", "OutOfMemory", "Interrupted"
]
