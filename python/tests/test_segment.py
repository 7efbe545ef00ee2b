"""Parts of a model as nets: convlab._core.Graph and Segment, which convlab.torch.optimize builds."""

import threading

import numpy as np
import pytest
import reference
from convlab import InputError, _core


def values(segment, random):
    """Fills the parameters and buffers, and returns them in double by name."""
    known = {}
    for i, (name, shape, _) in enumerate(segment.parameters()):
        value = random(*shape, dtype="f8")
        if name.endswith("running_var") or "bn" in name and name.endswith("weight"):
            value = np.abs(value) + 0.5
        known[name] = value
        segment.set(i, value.astype(dtype_of(segment, i)))
    return known


def dtype_of(segment, i):
    return segment.get(i).dtype


def per_channel(v, dims=4):
    return v.reshape(1, -1, *[1] * (dims - 2))


def channels_last(x):
    """The same values in the order N H W C, as NumPy's view."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def block(g, x, name, filters, stride=1):
    """A residual block; the shortcut has a convolution of its own."""
    y = g.conv(x, name + ".conv1", filters, [3], [stride], [1], [1], 1, False)
    y = g.activation(g.batch_norm(y, name + ".bn1"), name + ".relu1", "relu")
    y = g.conv(y, name + ".conv2", filters, [3, 3], [1, 1], [1, 1], [1, 1], 1, False)
    y = g.batch_norm(y, name + ".bn2")
    s = g.batch_norm(g.conv(x, name + ".short", filters, [1], [stride], [0], [1], 1, True),
                     name + ".bn3")
    return g.activation(g.add(name + ".add", [y, s]), name + ".relu2", "relu")


def small_net(batch=2):
    g = _core.Graph("small", (batch, 3, 12, 10))
    x = g.conv(0, "conv", 8, [3], [1], [1], [1], 1, True)
    x = block(g, x, "block", 16, 2)
    g.linear(g.global_avg_pool(x, "pool"), "fc", 5, True)
    return g


class Reference:
    """small_net in double."""

    def __init__(self, w, training):
        self.w, self.training, self.statistics = w, training, {}

    def norm(self, x, name):
        w = self.w
        mean, var = w[name + ".running_mean"], w[name + ".running_var"]
        if self.training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            n = x.size // x.shape[1]
            self.statistics[name + ".running_mean"] = 0.9 * w[name + ".running_mean"] + 0.1 * mean
            self.statistics[name + ".running_var"] = (0.9 * w[name + ".running_var"] +
                                                      0.1 * var * n / (n - 1))
        x = (x - per_channel(mean)) / np.sqrt(per_channel(var) + 1e-5)
        return x * per_channel(w[name + ".weight"]) + per_channel(w[name + ".bias"])

    def __call__(self, x):
        w = self.w
        x = reference.conv(x, w["conv.weight"], w["conv.bias"], padding=1)
        y = reference.conv(x, w["block.conv1.weight"], stride=2, padding=1)
        y = np.maximum(self.norm(y, "block.bn1"), 0)
        y = self.norm(reference.conv(y, w["block.conv2.weight"], padding=1), "block.bn2")
        s = reference.conv(x, w["block.short.weight"], w["block.short.bias"], stride=2)
        y = np.maximum(y + self.norm(s, "block.bn3"), 0)
        return y.mean((2, 3)) @ w["fc.weight"].T + w["fc.bias"]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype, limit", [("float32", 1e-4), ("float64", 1e-10)])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_net(random, training, dtype, limit, last, threads):
    g = small_net()
    assert g.shape(0) == (2, 3, 12, 10) and g.shape(1) == (2, 8, 12, 10)
    segment = _core.Segment(g, training, training, dtype, limit, threads, last)
    w = values(segment, random)
    for order in (np.asarray, channels_last, lambda x: x[:, :, ::-1]):
        x = order(random(2, 3, 12, 10, dtype=dtype))
        expected = Reference(w, training)
        y = segment.forward(x, False)
        assert y.shape == (2, 5) and y.dtype == dtype
        assert reference.error(y, expected(x.astype("f8"))) < limit
        names = [name for name, _, _ in segment.parameters()]
        for name, value in expected.statistics.items():
            assert reference.error(segment.get(names.index(name)), value) < 1e-5, name
        w.update(expected.statistics)


@pytest.mark.parametrize("last", [False, True])
def test_gradients(random, last):
    """Each gradient against a difference of the net's own value in a random direction."""
    segment = _core.Segment(small_net(), True, True, "float64", None, 2, last)
    w = values(segment, random)
    x, dy = random(2, 3, 12, 10, dtype="f8"), random(2, 5, dtype="f8")
    if last:
        x = channels_last(x)
    segment.forward(x, False)
    dx = segment.backward(dy, False)
    assert dx.shape == x.shape and dx.strides == x.strides
    gradients = segment.gradients(False)
    again = segment.gradients(False)
    assert all(a is None or np.array_equal(a, b) for a, b in zip(gradients, again))

    def value(x, w):
        return (Reference(w, True)(x) * dy).sum()

    def slope(of):
        return (of(1e-5) - of(-1e-5)) / 2e-5

    direction = random(*x.shape, dtype="f8")
    expected = slope(lambda t: value(x + t * direction, w))
    assert (dx * direction).sum() == pytest.approx(expected, rel=1e-4)
    for (name, shape, trained), gradient in zip(segment.parameters(), gradients):
        assert trained == (gradient is not None)
        if not trained:
            continue
        direction = random(*shape, dtype="f8")
        expected = slope(lambda t: value(x, {**w, name: w[name] + t * direction}))
        scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
        assert abs((gradient * direction).sum() - expected) <= 1e-4 * scale + 1e-7, name
