"""PyTorch's models.

    captured = convlab.torch.capture(model, x)  # the convolutions that ran, with their times
    table = convlab.tune(captured)              # what PyTorch takes beside what convlab takes

PyTorch is imported by the first call. It is not a requirement of the package.
"""

import re

from .captured import Captured
from .errors import EnvironmentError, InputError
from .functions import _integer

__all__ = ["capture", "Captured"]

# Hooks of modules that run after errors too.
_LEAST = (2, 1)


def _import():
    least = ".".join(map(str, _LEAST))
    try:
        import torch
    except ImportError:
        raise EnvironmentError(f"PyTorch is not installed: expected {least} or newer") from None
    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if version and tuple(map(int, version.groups())) < _LEAST:
        raise EnvironmentError(f"PyTorch is {torch.__version__}: expected {least} or newer")
    return torch


def capture(model, *inputs, backward=True, kwargs=None, runs=5):
    """Runs a model once and returns the convolutions that PyTorch computed, a :class:`Captured`.

    model: a module, in its present mode, or any function of tensors. inputs, kwargs: its arguments; they
    are copied, and the copies require gradients where the originals do.
    backward: also the gradients of the sum of all outputs, in tuples, lists, dicts and dataclasses too. What
    requires no gradient has no backward pass: nothing has one under ``torch.no_grad()``.
    runs: each convolution is repeated as often where it stands, a second at most. Its time is the median by
    the wall clock around PyTorch's operator, with that operator's overhead and its conversions of layouts.
    The first repetition counts only if it is the only one. The gradients of the input and of the filter are
    timed apart.

    The model is left as it was: buffers, gradients, training or not, random numbers. Sizes are those of
    PyTorch's operators, so padding by an operator of its own is part of the input ('same' of even filters,
    'reflect'). Runs that are no problem of convlab are counted by reason in ``skipped``: other types and
    devices, and operators of which sizes are not read.

    Raises InputError if no convolution ran, EnvironmentError without PyTorch 2.1 or newer, and whatever
    the model raises.
    """
    torch = _import()
    if not callable(model):
        raise InputError(f"{type(model).__name__} is no model: expected a module or a function")
    runs = _integer(runs, "runs", 1)
    from . import dispatch

    watch, with_backward = dispatch.watched(model, inputs, dict(kwargs or {}), bool(backward), runs)
    if not watch.found:
        reasons = "".join(f"; skipped {n}: {reason}" for reason, n in watch.skipped.items())
        raise InputError("the model ran no convolution that convlab takes" + reasons)
    return Captured(watch.found, watch.skipped, with_backward, torch.get_num_threads(),
                    torch.__version__)
