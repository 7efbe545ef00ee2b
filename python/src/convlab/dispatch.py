"""Sees the convolutions that PyTorch dispatches. Imports PyTorch."""

import collections
import contextlib
import dataclasses
import random
import re
import statistics
import sys
import time
from collections.abc import Mapping

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from .captured import Convolution, Run

_TYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}

# All of them name their arguments alike. Modules and functions come as the first, under inference_mode as
# composite operators such as aten::conv2d, which decompose into it.
_FORWARD = {"aten::convolution", "aten::_convolution", "aten::convolution_overrideable",
            "aten::mkldnn_convolution", "aten::_slow_conv2d_forward", "aten::slow_conv3d_forward",
            "aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d",
            "aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d"}
_BACKWARD = {"aten::convolution_backward", "aten::convolution_backward_overrideable"}
_CONVOLUTION = re.compile(r"conv(\d|_|olution|$)")
_NOT_RUN = re.compile(r"(prepack|unpack\w*|weight|output_padding|stride|padding|dilation|groups|transpose)$")

_LONGEST = 1.0  # seconds of repetitions


class _Bound:
    """The arguments of an operator, by their names."""

    def __init__(self, operator, args, kwargs):
        self.operator, self.args, self.kwargs = operator, args, kwargs
        self.names = [argument.name for argument in operator._schema.arguments]
        self.values = {argument.name: argument.default_value
                       for argument in operator._schema.arguments if argument.has_default_value()}
        self.values.update(zip(self.names, args), **kwargs)

    def __getitem__(self, name):
        return self.values[name]

    def get(self, name, otherwise):
        return self.values.get(name, otherwise)

    def call(self):
        return self.operator(*self.args, **self.kwargs)

    def call_with(self, name, value):
        args, kwargs = list(self.args), dict(self.kwargs)
        place = self.names.index(name)
        if place < len(args):
            args[place] = value
        else:
            kwargs[name] = value
        return self.operator(*args, **kwargs)


def _refusal(tensor):
    """Why a tensor is none of a problem of convlab, or None."""
    kind = type(tensor)
    if kind is not torch.Tensor and not issubclass(kind, torch.nn.Parameter):
        return f"a tensor of the class {kind.__name__}"
    if tensor.is_quantized:
        return "a quantised tensor"
    if tensor.layout != torch.strided:
        return f"the layout {tensor.layout}"
    if tensor.device.type != "cpu":
        return f"the device {tensor.device.type}: only the CPU's are captured"
    if tensor.dtype not in _TYPES:
        return f"the type {tensor.dtype}"
    if any(not isinstance(size, int) for size in tensor.shape):
        return "symbolic sizes"
    if not 3 <= tensor.dim() <= 5:
        return f"a tensor of {tensor.dim()} dimensions"
    return "an empty tensor" if tensor.numel() == 0 else None


def _per_axis(values, axes):
    values = tuple(values) if isinstance(values, (list, tuple)) else (values,)
    return values * axes if len(values) == 1 else values


class Watch(TorchDispatchMode):
    """``found`` has the runs, ``skipped`` how many are left out for each reason."""

    def __init__(self, repetitions, modules):
        super().__init__()
        self.found, self.skipped = [], collections.Counter()
        self._repetitions, self._modules = repetitions, modules
        self._calls = []  # names of the modules whose forward runs
        self._weights = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema = getattr(operator, "_schema", None)
        name = schema.name if schema else ""
        if name in _FORWARD:
            return self._forward(name, _Bound(operator, args, kwargs))
        if name in _BACKWARD:
            return self._backward(_Bound(operator, args, kwargs))
        if _CONVOLUTION.search(name) and not _NOT_RUN.search(name):
            with self:
                result = operator.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
            self.skipped[f"the operator {name}"] += 1
        return operator(*args, **kwargs)

    def _time(self, call):
        """Returns the first result and the time in ms."""
        times, result = [], None
        while not times or (len(times) <= self._repetitions and sum(times) < _LONGEST):
            begin = time.perf_counter()
            again = call()
            times.append(time.perf_counter() - begin)
            if len(times) == 1:
                result = again
            del again
        return result, 1e3 * statistics.median(times[1:] or times)

    def _forward(self, name, bound):
        x = bound["input"] if "input" in bound.values else bound["self"]
        weight = bound["weight"]
        reason = _refusal(x) or _refusal(weight)
        if reason:
            self.skipped[reason] += 1
            return bound.call()
        y, ms = self._time(bound.call)
        transposed = bound.get("transposed", "transpose" in name)
        convolution = self._read(bound, x, weight, y, transposed)
        if convolution:
            module = next((n for n in reversed(self._calls) if n is not None), "")
            # The tensor is kept, so that no other takes its place in memory.
            self._weights.setdefault(_place(weight), (module, weight))
            self.found.append(Run(convolution.text(), "fwd", _TYPES[x.dtype],
                                  bound["bias"] is not None, module, ms))
        return y

    def _backward(self, bound):
        grad, x, weight = bound["grad_output"], bound["input"], bound["weight"]
        wanted = bound["output_mask"]
        passes = [i for i in (0, 1) if wanted[i]]
        reason = _refusal(grad) or _refusal(x) or _refusal(weight)
        if reason:
            self.skipped[reason] += len(passes)
            return bound.call()
        convolution = self._read(bound, x, weight, grad, bound["transposed"])
        result = bound.call()
        if not convolution:
            return result
        module = self._weights.get(_place(weight), ("",))[0]
        for i in passes:
            mask = [i == 0, i == 1, False]
            ms = self._time(lambda mask=mask: bound.call_with("output_mask", mask))[1]
            self.found.append(Run(convolution.text(), ("bwd_d", "bwd_w")[i], _TYPES[x.dtype], False,
                                  module, ms))
        return result

    def _read(self, bound, x, weight, y, transposed):
        """The convolution, or None and the reason is counted."""
        axes = x.dim() - 2
        stride, padding, dilation = (_per_axis(bound.get(name, 1), axes)
                                     for name in ("stride", "padding", "dilation"))
        extra = _per_axis(bound.get("output_padding", 0), axes)
        # The last step then lies behind all that the filter reaches, which no problem's text can say.
        if transposed and any(e >= s + p for e, s, p in zip(extra, stride, padding)):
            self.skipped["output padding of stride and padding, or more"] += 1
            return None
        return Convolution(bool(transposed), bound.get("groups", 1), x.shape[0], x.shape[1],
                           y.shape[1], tuple(x.shape[2:]), tuple(y.shape[2:]),
                           tuple(weight.shape[2:]), stride, padding, dilation)

    def _leave(self, *_):
        # What a hook returns takes the output's place, unless it is None.
        if self._calls:
            self._calls.pop()

    @contextlib.contextmanager
    def modules_named(self):
        """Knows which module runs. Hooks of all modules change none of them."""
        before = register_module_forward_pre_hook(
            lambda module, _: self._calls.append(self._modules.get(id(module))))
        try:
            after = register_module_forward_hook(self._leave, always_call=True)
            try:
                yield
            finally:
                after.remove()
        finally:
            before.remove()


def _place(tensor):
    return tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape)


@contextlib.contextmanager
def _random_numbers_kept():
    numpy = sys.modules.get("numpy")
    cards = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    python_state, numpy_state = random.getstate(), numpy and numpy.random.get_state()
    with torch.random.fork_rng(devices=list(cards)):
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy:
                numpy.random.set_state(numpy_state)


@contextlib.contextmanager
def _state_kept(model):
    """Buffers, gradients and modes of a module are restored, as values and as objects."""
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    modes = [(module, module.training) for module in modules]
    buffers = [(module, name, buffer, buffer.detach().clone()) for module in modules
               for name, buffer in module.named_buffers(recurse=False)
               if not torch.nn.parameter.is_lazy(buffer)]
    parameters = list(model.parameters()) if modules else []
    gradients = [(parameter, parameter.grad) for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for module, name, buffer, value in buffers:
            # RuntimeError: its elements share memory, so the model could not write there either.
            with torch.inference_mode(buffer.is_inference()), torch.no_grad(), \
                    contextlib.suppress(RuntimeError):
                buffer.copy_(value)
            if not isinstance(module, torch.jit.ScriptModule):
                module._buffers[name] = buffer
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, training in modes:
            module.training = training


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))


def _copied(value):
    """Copies, so that the model changes no input, and no gradient goes on into its history."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_copied, value))
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value


def _leaves(outputs):
    """The tensors to which gradients would be added."""
    nodes = [output.grad_fn for output in outputs]
    seen, leaves = set(nodes), []
    while nodes:
        node = nodes.pop()
        if type(node).__name__ == "AccumulateGrad":
            leaves.append(node.variable)
        for successor, _ in node.next_functions:
            if successor is not None and successor not in seen:
                seen.add(successor)
                nodes.append(successor)
    return leaves


def watched(model, inputs, kwargs, backward, repetitions):
    """Runs the model. Returns the Watch, and whether gradients were computed."""
    named = model.named_modules() if isinstance(model, torch.nn.Module) else ()
    watch = Watch(repetitions, {id(module): name for name, module in named})
    inputs, kwargs = _copied(inputs), _copied(kwargs)
    with _random_numbers_kept(), _state_kept(model), watch.modules_named(), watch:
        outputs = model(*inputs, **kwargs)
        outputs = [t for t in _tensors(outputs) if t.requires_grad and t.grad_fn is not None]
        leaves = _leaves(outputs) if backward else []
        if leaves:
            # Not backward(), which would add to .grad and run the hooks of optimizers. Ones are the gradient
            # of the sum.
            torch.autograd.grad(outputs, leaves, [torch.ones_like(t) for t in outputs],
                                allow_unused=True)
    return watch, bool(leaves)
