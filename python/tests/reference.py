"""Convolutions by plain loops over taps, in double."""

import numpy as np


def _per_axis(value, dims):
    return (value,) * dims if isinstance(value, int) else tuple(value)


def _padding(value, dims):
    if isinstance(value, int):
        value = (value,) * dims
    return [(p, p) if isinstance(p, int) else tuple(p) for p in value]


def _taps(w_shape, stride, dilation, out):
    """For each tap of the filter: its index, and the slices of the padded input that it meets."""
    for tap in np.ndindex(*w_shape[2:]):
        yield tap, tuple(
            slice(t * d, t * d + s * (o - 1) + 1, s)
            for t, d, s, o in zip(tap, dilation, stride, out))


def _forms(shape, w_shape, stride, padding, dilation):
    dims = len(w_shape) - 2
    stride, dilation = _per_axis(stride, dims), _per_axis(dilation, dims)
    pads = _padding(padding, dims)
    out = [(n + a + b - d * (k - 1) - 1) // s + 1
           for n, (a, b), k, s, d in zip(shape[2:], pads, w_shape[2:], stride, dilation)]
    return stride, dilation, pads, out


def conv(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    stride, dilation, pads, out = _forms(x.shape, w.shape, stride, padding, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    y = np.zeros((x.shape[0], w.shape[0], *out))
    k, c = w.shape[0] // groups, w.shape[1]
    for tap, where in _taps(w.shape, stride, dilation, out):
        for g in range(groups):
            part = padded[(slice(None), slice(g * c, (g + 1) * c), *where)]
            y[:, g * k:(g + 1) * k] += np.einsum(
                "nc...,kc->nk...", part, w[(slice(g * k, (g + 1) * k), slice(None), *tap)])
    if bias is not None:
        y += np.asarray(bias, np.float64).reshape(1, -1, *[1] * len(out))
    return y


def input_grad(size, w, grad, stride=1, padding=0, dilation=1, groups=1):
    w, grad = np.asarray(w, np.float64), np.asarray(grad, np.float64)
    stride, dilation, pads, out = _forms(size, w.shape, stride, padding, dilation)
    padded = np.zeros((size[0], size[1], *[n + a + b for n, (a, b) in zip(size[2:], pads)]))
    k, c = w.shape[0] // groups, w.shape[1]
    for tap, where in _taps(w.shape, stride, dilation, out):
        for g in range(groups):
            padded[(slice(None), slice(g * c, (g + 1) * c), *where)] += np.einsum(
                "nk...,kc->nc...", grad[:, g * k:(g + 1) * k],
                w[(slice(g * k, (g + 1) * k), slice(None), *tap)])
    return padded[(slice(None), slice(None),
                   *[slice(a, a + n) for n, (a, _) in zip(size[2:], pads)])]


def weight_grad(x, size, grad, stride=1, padding=0, dilation=1, groups=1):
    x, grad = np.asarray(x, np.float64), np.asarray(grad, np.float64)
    stride, dilation, pads, out = _forms(x.shape, size, stride, padding, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    w = np.zeros(size)
    k, c = size[0] // groups, size[1]
    for tap, where in _taps(size, stride, dilation, out):
        for g in range(groups):
            part = padded[(slice(None), slice(g * c, (g + 1) * c), *where)]
            w[(slice(g * k, (g + 1) * k), slice(None), *tap)] = np.tensordot(
                grad[:, g * k:(g + 1) * k], part,
                axes=([0, *range(2, grad.ndim)], [0, *range(2, grad.ndim)]))
    return w


def error(y, expected):
    return np.linalg.norm(np.asarray(y) - expected) / np.linalg.norm(expected)
