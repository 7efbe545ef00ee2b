"""``torch.compile(model, backend="convlab")``. Imports PyTorch."""

import re
import warnings

import torch

from .errors import Error, InputError
from .optimize import Settings, build_program, race_whole
from .tracing import trace

_OPTIONS = {"max_error": 1e-4, "tune": False, "budget": None, "swap": "faster", "report": False}


def _name(placeholder):
    """``layer1.0.conv1.weight`` for ``l_self_modules_layer1_modules_0_modules_conv1_parameters_weight_``."""
    found = re.fullmatch(r"l_(?:self_)?(.*?)_?(?:parameters|buffers)_(.*?)_?", placeholder, re.IGNORECASE)
    if not found:
        return placeholder
    modules = re.sub(r"(^|_)modules_", ".", found[1]).strip("._")
    return f"{modules}.{found[2]}" if modules else found[2]


def _is_weight(placeholder, argument):
    return isinstance(argument, torch.nn.Parameter) or re.search("_(parameters|buffers)_", placeholder)


class Compiled:
    """Looks at the graph in the first call, when there are tensors to measure with."""

    def __init__(self, module, settings):
        self.module, self.settings, self.call, self.report = module, settings, None, None

    def __call__(self, *args):
        if self.call is None:
            self.call = self._made(args) or self.module.forward
        return self.call(*args)

    def _made(self, args):
        if not all(isinstance(a, torch.Tensor) for a in args):
            warnings.warn("convlab: PyTorch runs a graph whose sizes vary: expected "
                          'torch.compile(model, backend="convlab", dynamic=False)', stacklevel=3)
            return None
        training = torch.is_grad_enabled() and any(a.requires_grad for a in args)
        self.settings.training = training
        # What is tried out writes neither statistics nor gradients.
        copies = [a.detach().clone(memory_format=torch.preserve_format).requires_grad_(a.requires_grad)
                  for a in args]
        names = [node.name for node in self.module.graph.nodes if node.op == "placeholder"]
        try:
            with torch.random.fork_rng(devices=[]):
                traced = trace(self.module, tuple(copies), {})
                placeholders = [n.name for n in traced.graph.nodes if n.op == "placeholder"]
                if len(placeholders) != len(args) or traced.weights:
                    return None  # tensors that the graph holds itself
                traced = traced._replace(weights={
                    placeholder: _name(name) for placeholder, name, a in zip(placeholders, names, args)
                    if _is_weight(name, a)})
                program, self.report, whole = build_program(traced, [], copies, self.settings)
                self.report.before_ms, self.report.after_ms, self.report.error, is_close = race_whole(
                    program, whole, [], copies, self.settings)
        except Error as error:
            warnings.warn(f"convlab: PyTorch runs a graph: {error}", stacklevel=2)
            return None
        if not is_close:
            warnings.warn(f"convlab: PyTorch runs a graph: an error of {self.report.error:.1e} is above "
                          f"{self.settings.max_error:g}", stacklevel=2)
            return None
        if self.settings.report:
            print(self.report)
        if program is None or (self.report.after_ms > self.report.before_ms and not self.settings.all):
            return None
        for segment in program.children():
            segment.forget_weights()
        return program.forward


def backend(module, example_inputs, *, mode=None, options=None):
    """A backend of ``torch.compile``: graphs' parts run as nets where these are faster, in training too.

    options: ``max_error``, ``tune``, ``budget``, ``swap`` and ``report`` of ``convlab.torch.optimize``. Each
    graph is traced and measured in its first call. Graphs with sizes that vary stay PyTorch's.
    """
    options = dict(options or {})
    unknown = set(options) - set(_OPTIONS)
    if unknown:
        raise InputError(f"option {sorted(unknown)[0]}: expected {', '.join(_OPTIONS)}")
    options = {**_OPTIONS, **options}
    return Compiled(module, Settings(False, **options))
