"""PyTorch's models.

    captured = convlab.torch.capture(model, x)  # the convolutions that ran, with their times
    table = convlab.tune(captured)              # what PyTorch takes beside what convlab takes
    model = convlab.torch.optimize(model, x)    # the model with parts replaced by faster nets

PyTorch is imported by the first call. It is not a requirement of the package.
"""

import re

from .captured import Captured
from .errors import EnvironmentError, InputError
from .functions import _integer

__all__ = ["capture", "optimize", "Captured"]

# capture: hooks of modules that run after errors too. optimize: torch.export that keeps batch norms.
_LEAST = (2, 1)
_LEAST_TO_OPTIMIZE = (2, 6)


def _import(at_least=_LEAST):
    least = ".".join(map(str, at_least))
    try:
        import torch
    except ImportError:
        raise EnvironmentError(f"PyTorch is not installed: expected {least} or newer") from None
    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if version and tuple(map(int, version.groups())) < at_least:
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


def optimize(model, *example_inputs, training=False, kwargs=None, max_error=1e-4, tune=False, budget=None,
             swap="faster", report=True):
    """Returns the model with parts of it replaced by convlab's nets, where these are faster.

    model: a ``torch.nn.Module`` on the CPU, in float32 or float64. example_inputs, kwargs: its arguments,
    of the sizes and types that later calls have.
    training: False for inference, whose results have no gradient. True for training with autograd. The
    model is put into this mode.
    max_error: of the outputs beside the model's, and in training of all gradients, by the 2-norm.
    tune: first races the algorithms of all convolutions, as ``convlab.tune`` does; budget: how long at most,
    ``"60s"``. Without it the tuning store decides, and predictions where it has nothing.
    swap: ``"faster"`` replaces what wins on this machine, ``"all"`` whatever can be replaced.
    report: whether to print what was done, or the file to print to. It is ``convlab_report`` of the result.

    PyTorch traces the model (``torch.export``). Runs of operators with one input and one output and at least
    one convolution become nets, in which batch norms and activations fuse and layouts stay as they are
    between layers. Each is timed beside PyTorch in channels_last. What has no layer stays PyTorch's.

    The result is a module that shares the model's parameters, buffers and submodules, with their names:
    ``state_dict``, optimizers, ``deepcopy``, pickling and ``torch.save`` work as with the model. Inputs of
    other sizes or types, another mode and other surroundings run the model as it was, with one warning. It
    follows ``torch.set_num_threads``.

    Raises InputError, EnvironmentError if PyTorch is older than 2.6 or cannot trace the model, and Failed if
    the outputs are not close enough. The model is then as it was.
    """
    torch = _import(_LEAST_TO_OPTIMIZE)
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"{type(model).__name__} is no torch.nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError("the model is torch.jit's: expected the module that it was made from")
    if hasattr(model, "_orig_mod"):
        raise InputError("the model is compiled: expected the one that was given to torch.compile, and "
                         "torch.compile of the result")
    if not example_inputs and not kwargs:
        raise InputError("no example inputs: expected those of a call of the model")
    if swap not in ("faster", "all"):
        raise InputError(f"swap is {swap!r}: expected 'faster' or 'all'")
    if not isinstance(max_error, (int, float)) or not max_error > 0:
        raise InputError(f"max_error is {max_error!r}: expected a number above 0")
    from . import optimize as flow
    from .optimized import Optimized

    if isinstance(model, Optimized):
        raise InputError("the model is optimized already: expected the one that it was made from")
    settings = flow.Settings(bool(training), float(max_error), tune, budget, swap, report)
    return flow.optimized(model, example_inputs, dict(kwargs or {}), settings)
