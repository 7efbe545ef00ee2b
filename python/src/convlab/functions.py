"""Convolutions and their gradients."""

import functools
import operator
import sys

from . import _core
from .errors import InputError

_MOST = 2**31 - 1


def _integer(value, name, least):
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}: expected an integer") from None
    if not least <= number <= _MOST:
        raise InputError(f"{name} is {number}: expected {least} to {_MOST}")
    return number


def _per_axis(value, name, dims, least):
    """One number for all axes, or one for each."""
    if not isinstance(value, tuple):
        return [_integer(value, name, least)] * dims
    if len(value) == 1:
        value = value * dims
    if len(value) != dims:
        raise InputError(f"{name} is {value}: expected one number, or {dims}")
    return [_integer(v, name, least) for v in value]


def _is_pair(value):
    return isinstance(value, tuple) and len(value) == 2


@functools.lru_cache(maxsize=1024, typed=True)
def _window(dims, stride, padding, dilation, groups, kernel):
    stride = _per_axis(stride, "stride", dims, 1)
    dilation = _per_axis(dilation, "dilation", dims, 1)
    groups = _integer(groups, "groups", 1)
    if isinstance(padding, str) and padding == "valid":
        front = back = [0] * dims
    elif isinstance(padding, str) and padding == "same":
        if any(s != 1 for s in stride):
            raise InputError(f"padding is 'same' with stride {stride}: expected stride 1, or numbers")
        # As PyTorch does, an odd rest goes to the end.
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        front = [t // 2 for t in total]
        back = [t - f for t, f in zip(total, front)]
    elif isinstance(padding, str):
        raise InputError(f"padding is '{padding}': expected 'same', 'valid' or numbers")
    elif isinstance(padding, tuple) and len(padding) == dims and all(map(_is_pair, padding)):
        front = [_integer(p[0], "padding", 0) for p in padding]
        back = [_integer(p[1], "padding", 0) for p in padding]
    else:
        front = back = _per_axis(padding, "padding", dims, 0)
    return _core.Window(stride, front, back, dilation, groups)


def _hashable(value):
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


def _window_of(dims, stride, padding, dilation, groups, kernel):
    # Only "same" depends on the filter.
    kernel = tuple(kernel)[2:] if isinstance(padding, str) and padding == "same" else ()
    try:
        return _window(dims, _hashable(stride), _hashable(padding), _hashable(dilation), groups,
                       kernel)
    except TypeError:
        raise InputError(
            "stride, padding, dilation and groups: expected integers or tuples of them") from None


def _kernel(w, padding):
    if not isinstance(padding, str) or padding != "same":
        return ()
    shape = getattr(w, "shape", None)
    if shape is None:
        raise InputError(f"w is a {type(w).__name__}: expected an array")
    return tuple(shape)


def _torch():
    return sys.modules.get("torch")


def _is_torch(array):
    torch = _torch()
    return torch is not None and isinstance(array, torch.Tensor)


def _check_recorded(torch, arrays, names):
    """Refuses tensors of which PyTorch expects this call to record something."""
    if torch._C._is_tracing():
        raise InputError("a trace would keep this call's result: expected a call outside torch.jit.trace")
    forward = torch.autograd.forward_ad
    for array, name in zip(arrays, names):
        if forward._current_level >= 0 and forward.unpack_dual(array).tangent is not None:
            raise InputError(f"{name} has a tangent, and convlab records none: expected its primal")
        if array.requires_grad and torch.is_grad_enabled():
            raise InputError(f"{name} requires grad, and convlab records none: expected "
                             f"{name}.detach(), or a call under torch.no_grad()")


def _plain(array, name):
    """An array that records nothing, and whose memory has its values."""
    if not _is_torch(array):
        if hasattr(type(array), "mask"):
            raise InputError(f"{name} is a {type(array).__name__}: expected an array without a mask")
        return array
    _check_recorded(_torch(), (array,), (name,))
    if array.requires_grad:
        array = array.detach()
    return array.resolve_neg() if array.is_neg() else array


def _name(value, name):
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} is {value!r}: expected a name or None")
    return value


def _sizes(value, name):
    try:
        return [_integer(v, name, 1) for v in value]
    except TypeError:
        raise InputError(f"{name} is {value!r}: expected a sequence of sizes") from None


# What was done for tensors that lie in memory as these do, by _call_key. None: it copies one of them.
_calls = {}
_MOST_CALLS = 1024


def _call_key(torch, x, w, bias, rest):
    """All that decides what a call does; None where it is not to be remembered."""
    key = [rest, *map(type, rest)]  # 1.0 is refused, and equals 1
    for array in (x, w) if bias is None else (x, w, bias):
        # Subclasses may have no memory, as fake tensors.
        if type(array) is not torch.Tensor and type(array) is not torch.nn.Parameter:
            return None
        if array.layout is not torch.strided or not array.is_cpu or array.is_neg():
            return None
        key.append((array.dtype, array.shape, array.stride()))
    key = tuple(key)
    try:
        hash(key)
    except TypeError:  # a list of strides
        return None
    return key


def _remember(torch, key, arguments):
    call = _core.forward_call(*arguments)
    if call is not None:
        shape, form = call.shape(), torch.contiguous_format
        if call.is_channels_last():
            form = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        call = call, shape, form
    if len(_calls) >= _MOST_CALLS:
        _calls.clear()
    _calls[key] = call


def _run(torch, call, x, w, bias):
    arrays = (x, w) if bias is None else (x, w, bias)
    _check_recorded(torch, arrays, ("x", "w", "bias"))
    addresses = [array.data_ptr() for array in arrays]
    if not all(addresses):  # a tensor without memory
        return None
    call, shape, form = call
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=form)
    if type(y) is not torch.Tensor:  # a mode of PyTorch's makes others
        return None
    if bias is None:
        addresses.append(0)
    call.run(*addresses, y.data_ptr())
    return y


def _forward(dims, x, w, bias, stride, padding, dilation, groups, algo, activation):
    key = None
    if _is_torch(x):
        rest = (dims, stride, padding, dilation, groups, algo, activation)
        key = _call_key(_torch(), x, w, bias, rest)
        call = _calls.get(key)
        if call is not None:
            y = _run(_torch(), call, x, w, bias)
            if y is not None:
                return y
    window = _window_of(dims, stride, padding, dilation, groups, _kernel(w, padding))
    arguments = (_plain(x, "x"), _plain(w, "w"), None if bias is None else _plain(bias, "bias"),
                 window, _name(algo, "algo"), _name(activation, "activation"))
    y = _core.forward(*arguments, _is_torch(x))
    if key is not None:
        _remember(_torch(), key, arguments)
    return y


def _input_grad(dims, input_size, w, grad_output, stride, padding, dilation, groups, algo):
    window = _window_of(dims, stride, padding, dilation, groups, _kernel(w, padding))
    return _core.input_gradient(_sizes(input_size, "input_size"), _plain(w, "w"),
                                _plain(grad_output, "grad_output"), window, _name(algo, "algo"),
                                _is_torch(w))


def _weight_grad(dims, x, weight_size, grad_output, stride, padding, dilation, groups, algo):
    sizes = _sizes(weight_size, "weight_size")
    window = _window_of(dims, stride, padding, dilation, groups, sizes)
    return _core.weight_gradient(_plain(x, "x"), sizes, _plain(grad_output, "grad_output"), window,
                                 _name(algo, "algo"), _is_torch(x))


def conv2d(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, *, algo=None,
           activation=None):
    """Two-dimensional convolution (cross-correlation), as ``torch.nn.functional.conv2d``.

    x: N C H W, w: K C/groups R S, bias: K values or None; float32 or float64, on the CPU, of NumPy,
    PyTorch or any library with DLPack. An x that is dense in the order N C H W or N H W C
    (channels_last) is read in place, and so is a dense w; others are copied first.
    stride, dilation: an integer, or a pair for H and W.
    padding: an integer, a pair, 'same', 'valid', or ((top, bottom), (left, right)).
    algo: an algorithm or a family of them, as 'winograd'; None: the one that ``tune`` found fastest, and
    for what was never tuned the one predicted to be. Many work in blocks of channels: the times of
    converting x and y and of packing w count in the choice.
    activation: applied after the bias: 'relu', 'tanh', 'sigmoid', 'relu6', 'hardsigmoid', 'hardswish',
    'silu' or 'gelu'.

    Returns N K P Q in x's layout, of PyTorch if x is, else of NumPy. Records no gradient.
    Raises InputError (a ValueError) for arguments that do not fit, OutOfMemory.

    The first call for a problem plans it, and the first of a process measures the machine for half a
    second; later calls use the plan. Other threads run meanwhile.
    """
    return _forward(2, x, w, bias, stride, padding, dilation, groups, algo, activation)


def conv3d(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, *, algo=None,
           activation=None):
    """Three-dimensional convolution: x is N C D H W, w K C/groups T R S. Else as ``conv2d``."""
    return _forward(3, x, w, bias, stride, padding, dilation, groups, algo, activation)


def conv2d_input_grad(input_size, w, grad_output, stride=1, padding=0, dilation=1, groups=1, *,
                      algo=None):
    """The gradient of ``conv2d`` by x, as ``torch.nn.grad.conv2d_input``.

    input_size: x's shape, N C H W. w: K C/groups R S. grad_output: N K P Q.
    Returns N C H W in grad_output's layout, of PyTorch if w is, else of NumPy. Raises InputError,
    OutOfMemory.
    """
    return _input_grad(2, input_size, w, grad_output, stride, padding, dilation, groups, algo)


def conv3d_input_grad(input_size, w, grad_output, stride=1, padding=0, dilation=1, groups=1, *,
                      algo=None):
    """The gradient of ``conv3d`` by x, N C D H W. Else as ``conv2d_input_grad``."""
    return _input_grad(3, input_size, w, grad_output, stride, padding, dilation, groups, algo)


def conv2d_weight_grad(x, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1, *,
                       algo=None):
    """The gradient of ``conv2d`` by w, as ``torch.nn.grad.conv2d_weight``.

    x: N C H W. weight_size: w's shape, K C/groups R S. grad_output: N K P Q, copied unless it lies in
    x's layout. Returns K C/groups R S, of PyTorch if x is, else of NumPy. Raises InputError, OutOfMemory.
    """
    return _weight_grad(2, x, weight_size, grad_output, stride, padding, dilation, groups, algo)


def conv3d_weight_grad(x, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1, *,
                       algo=None):
    """The gradient of ``conv3d`` by w, K C/groups T R S. Else as ``conv2d_weight_grad``."""
    return _weight_grad(3, x, weight_size, grad_output, stride, padding, dilation, groups, algo)


def plans():
    """What this process has chosen so far, the latest first: a list of dicts.

    ``layout`` is x's as given, ``x_layout`` and ``y_layout`` are those that the algorithm works in.
    ``measured`` is False where the tuning store has no time and a prediction decided.
    """
    names = ("problem", "pass", "dtype", "layout", "x_layout", "y_layout", "algo", "config",
             "measured")
    return [dict(zip(names, plan)) for plan in _core.plans()]
