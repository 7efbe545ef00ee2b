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


def test_parameters_without_copies(random):
    g = small_net()
    for training in (False, True):
        segment = _core.Segment(g, training, False, "float32")
        w = values(segment, random)
        names = [name for name, _, _ in segment.parameters()]
        arrays = [segment.get(i) for i in range(len(names))]
        used = [segment.use(i, a) for i, a in enumerate(arrays)]
        assert any(used)
        x = random(2, 3, 12, 10)
        for factor in (1, 3):
            for i, name in enumerate(names):
                if name.endswith("weight"):
                    arrays[i] *= factor
                    w[name] = w[name] * factor
                    if not used[i]:
                        segment.set(i, arrays[i])
            segment.changed()
            expected = Reference(w, training)
            assert reference.error(segment.forward(x, False), expected(x.astype("f8"))) < 1e-4
            for name, value in expected.statistics.items():
                i = names.index(name)
                assert reference.error(arrays[i] if used[i] else segment.get(i), value) < 1e-5
            w.update(expected.statistics)
        # A copy again: the array is no longer read or written.
        i = names.index("conv.weight")
        before = arrays[i].copy()
        segment.set(i, np.zeros_like(before))
        segment.forward(x, False)
        assert np.array_equal(arrays[i], before) and not segment.get(i).any()
        assert not segment.use(i, np.zeros((8, 3, 6, 3), "f4")[:, :, ::2])


def test_parameters_of_any_strides(random):
    g = _core.Graph("g", (1, 4, 3, 6, 5))
    g.conv(0, "c", 40, [3, 3, 2], bias=False)
    segment = _core.Segment(g, False, False)
    w = random(40, 4, 3, 3, 2)
    for form in (np.asarray, channels_last, lambda w: w[::-1], lambda w: np.swapaxes(w, 2, 3)):
        segment.set(0, form(w))
        assert np.array_equal(segment.get(0), form(w))


def test_arrays_outlive_the_segment(random):
    segment = _core.Segment(small_net(), True, True, "float32")
    values(segment, random)
    x, dy = random(2, 3, 12, 10), random(2, 5)
    y = segment.forward(x, False)
    dx = segment.backward(dy, False)
    first = segment.gradients(False)
    copies = [None if a is None else a.copy() for a in [y, dx, *first]]
    segment.forward(2 * x, False)
    segment.backward(3 * dy, False)
    second = segment.gradients(False)
    assert not np.array_equal(first[0], second[0])
    del segment
    for a, b in zip([y, dx, *first], copies):
        assert a is None or np.array_equal(a, b)


def activated(kind, x):
    from math import erf
    sigmoid = 1 / (1 + np.exp(-x))
    hard = np.clip(x + 3, 0, 6) / 6
    return {"relu": np.maximum(x, 0), "tanh": np.tanh(x), "sigmoid": sigmoid,
            "relu6": np.clip(x, 0, 6), "hardsigmoid": hard, "hardswish": x * hard,
            "silu": x * sigmoid, "gelu": x * (1 + np.vectorize(erf)(x / 2**0.5)) / 2}[kind]


def windows(x, kernel, stride, pad, value):
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=value)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))
    return view[:, :, ::stride, ::stride]


def layer_norm(x, w):
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
    return y * per_channel(w["l.weight"]) + per_channel(w["l.bias"])


def lrn(x):
    padded = np.pad(x**2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    total = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return x / (2 + 1e-2 * total)**0.75


# What it adds to the graph behind node 0, N C H W = 2 8 6 6, and its value.
LAYERS = {
    "max_pool": (lambda g, x: g.max_pool(x, "l", [3], [2], [1], False),
                 lambda x, w: windows(x, 3, 2, 1, -np.inf).max((-2, -1))),
    "avg_pool": (lambda g, x: g.avg_pool(x, "l", [2, 2], [2, 2], [0, 0]),
                 lambda x, w: windows(x, 2, 2, 0, 0).mean((-2, -1))),
    "global_avg_pool": (lambda g, x: g.global_avg_pool(x, "l"),
                        lambda x, w: x.mean((2, 3), keepdims=True)),
    "linear": (lambda g, x: g.activation(g.linear(x, "l", 7, False), "r", "relu"),
               lambda x, w: np.maximum(x.reshape(2, -1) @ w["l.weight"].T, 0)),
    "matrix": (lambda g, x: g.conv(x, "l", 7, [1], matrix=True),
               lambda x, w: np.einsum("nchw,kc->nkhw", x, w["l.weight"]) + per_channel(w["l.bias"])),
    "grouped": (lambda g, x: g.conv(x, "l", 12, [3, 1], [1, 2], [1, 0], [2, 1], 4, False),
                lambda x, w: reference.conv(x, w["l.weight"], None, (1, 2), (1, 0), (2, 1), 4)),
    "transposed": (lambda g, x: g.conv_transpose(x, "l", 4, [3], [2], [1], [1], [1], 2, True),
                   lambda x, w: reference.input_grad((2, 4, 12, 12), w["l.weight"], x, 2, 1, 1, 2) +
                   per_channel(w["l.bias"])),
    "layer_norm": (lambda g, x: g.layer_norm(x, "l", 1e-6), layer_norm),
    "channel_scale": (lambda g, x: g.channel_scale(x, "l"), lambda x, w: x * w["l"]),
    "add": (lambda g, x: g.add("l", [x, x, x]), lambda x, w: 3 * x),
    "add_others": (lambda g, x: g.add("l", [x, x, g.activation(x, "r", "tanh")]),
                   lambda x, w: 2 * x + np.tanh(x)),
    "concat": (lambda g, x: g.concat("l", [x, g.activation(x, "r", "relu")]),
               lambda x, w: np.concatenate([x, np.maximum(x, 0)], 1)),
    "gate": (lambda g, x: g.gate("l", x, g.global_avg_pool(x, "p")),
             lambda x, w: x * x.mean((2, 3), keepdims=True)),
    "slice": (lambda g, x: g.slice(x, "l", 2, 5), lambda x, w: x[:, 2:7]),
    "shuffle": (lambda g, x: g.shuffle(x, "l", 2),
                lambda x, w: x.reshape(2, 2, 4, 6, 6).swapaxes(1, 2).reshape(2, 8, 6, 6)),
    "pad_channels": (lambda g, x: g.pad_channels(x, "l", 11),
                     lambda x, w: np.pad(x, [(0, 0), (0, 3), (0, 0), (0, 0)])),
    "resize": (lambda g, x: g.resize(x, "l", "nearest", 12, 18),
               lambda x, w: x.repeat(2, 2).repeat(3, 3)),
    "lrn": (lambda g, x: g.lrn(x, "l", 3, 1e-2, 0.75, 2.0), lambda x, w: lrn(x)),
    **{kind: (lambda g, x, kind=kind: g.activation(x, "l", kind),
              lambda x, w, kind=kind: activated(kind, x))
       for kind in ("relu", "tanh", "sigmoid", "relu6", "hardsigmoid", "hardswish", "silu", "gelu")},
}


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer(random, layer):
    add, expected = LAYERS[layer]
    g = _core.Graph("one", (2, 8, 6, 6))
    last = add(g, 0)
    for last_axis in (False, True):
        for training in (False, True):
            segment = _core.Segment(g, training, training, "float64", None, 2, last_axis)
            w = values(segment, random)
            x = random(2, 8, 6, 6, dtype="f8")
            y = segment.forward(channels_last(x) if last_axis else x, False)
            assert y.shape == g.shape(last)
            assert reference.error(y, expected(x, w)) < 1e-11
        # In training, the last one: <dy, f(x + t d) - f(x - t d)> / 2t = <dx, d>
        dy, d, t = random(*y.shape, dtype="f8"), random(*x.shape, dtype="f8"), 1e-6
        dx = segment.backward(dy, False)
        slope = ((expected(x + t * d, w) - expected(x - t * d, w)) * dy).sum() / (2 * t)
        assert abs((dx * d).sum() - slope) < 1e-6 * np.linalg.norm(dx) * np.linalg.norm(d)


def test_three_dimensions(random):
    g = _core.Graph("3d", (1, 4, 1, 6, 5))
    x = g.conv(0, "a", 6, [1, 3, 3], [1, 1, 1], [0, 1, 1], [1, 1, 1], 1, True)
    x = g.conv_transpose(x, "b", 3, [2], [2], [0], [0], [1], 1, False)
    x = g.max_pool(x, "p", [2, 2, 2], [2], [0])
    assert g.shape(x) == (1, 3, 1, 6, 5)
    for last in (False, True):
        segment = _core.Segment(g, False, False, "float64", None, 2, last)
        w = values(segment, random)
        a = random(1, 4, 1, 6, 5, dtype="f8")
        y = reference.conv(a, w["a.weight"], w["a.bias"], padding=(0, 1, 1))
        y = reference.input_grad((1, 3, 2, 12, 10), w["b.weight"], y, 2)
        y = y.reshape(1, 3, 1, 2, 6, 2, 5, 2).max((3, 5, 7))
        got = segment.forward(channels_last(a) if last else a, False)
        assert got.shape == y.shape and reference.error(got, y) < 1e-12


def test_dropout(random):
    g = _core.Graph("d", (2, 4, 6, 6))
    g.dropout(g.conv(0, "a", 8, [1], bias=False), "drop", 0.25)
    x = random(2, 4, 6, 6)
    plain, training = (_core.Segment(g, mode, False, "float32") for mode in (False, True))
    w = random(8, 4, 1, 1)
    for segment in (plain, training):
        segment.set(0, w)
    y = plain.forward(x, False)
    assert reference.error(y, reference.conv(x, w)) < 1e-4
    first, second = training.forward(x, False), training.forward(x, False)
    again, other = (_core.Segment(g, True, False, seed=seed) for seed in (0, 1))
    for segment in (again, other):
        segment.set(0, w)
    assert np.array_equal(again.forward(x, False), first)
    assert not np.array_equal(other.forward(x, False), first)
    assert training.forwards() == 2 and not np.array_equal(first, second)
    for drawn in (first, second):
        assert 0.05 < (drawn == 0).mean() < 0.5
        assert reference.error(drawn[drawn != 0], (y / 0.75)[drawn != 0]) < 1e-4


def test_what_it_does():
    g = small_net()
    segment = _core.Segment(g, True, False, "float32")
    plan = segment.plan()
    assert {(layer, which) for layer, which, *_ in plan} == {
        (layer, which) for layer in ("conv", "block.conv1", "block.conv2", "block.short")
        for which in ("fwd", "bwd_d", "bwd_w") if (layer, which) != ("conv", "bwd_d")}
    assert all(ms > 0 and not measured for *_, ms, measured in plan)
    problems = segment.problems()
    assert len(problems) == 4
    assert problems[0][1] == ["fwd", "bwd_w"] and problems[1][1] == ["fwd", "bwd_d", "bwd_w"]
    assert "block.conv1" in problems[1][0] and problems[0][0].startswith("mb2ic3ih12")
    g = _core.Graph("up", (1, 4, 6, 6))
    g.conv_transpose(0, "up", 2, [2], [2])
    [(text, passes)] = _core.Segment(g, False, False).problems()
    assert text.startswith("deconv:mb1ic4ih6oc2") and "up" in text and passes == ["fwd"]


def test_threads(random):
    """Several at once take turns, and each gets its own result."""
    segment = _core.Segment(small_net(), False, False, "float32")
    values(segment, random)
    inputs = [random(2, 3, 12, 10) for _ in range(4)]
    expected = [segment.forward(x, False) for x in inputs]
    wrong = []

    def use(x, y):
        for _ in range(50):
            if not np.array_equal(segment.forward(x, False), y):
                wrong.append(x)

    threads = [threading.Thread(target=use, args=pair) for pair in zip(inputs, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_refused(random):
    g = small_net()
    for make, message in [
        (lambda: _core.Graph("g", (1, 2, 3)), r"shape is \(1, 2, 3\)"),
        (lambda: _core.Graph("g", (1, 2, 0, 4)), "sizes from 1"),
        (lambda: g.conv(0, "conv", 8, [3]), "conv"),
        (lambda: g.conv(99, "c", 8, [3]), "layer c: reads node 99: expected 0 to"),
        (lambda: g.conv(-1, "c", 8, [3]), "reads node -1"),
        (lambda: g.conv(0, "c", 8, [3, 3, 3]), r"layer c: kernel is \(3, 3, 3\)"),
        (lambda: g.conv(0, "c", 8, [3], pad=[-1]), r"pad is \(-1,\)"),
        (lambda: g.conv(0, "c", 8, [30]), "c"),
        (lambda: g.activation(0, "a", "maxout"), "activation 'maxout': expected one of relu.*mish"),
        (lambda: g.activation(0, "a", "relu", 0.5), "'relu' has no numbers"),
        (lambda: g.activation(0, "a", "clip", 2.0, 1.0), "a"),
        (lambda: g.group_norm(0, "n", 2), "n"),
        (lambda: g.pixel_shuffle(0, "p", 2), "3 channels over 2x2"),
        (lambda: g.resize(0, "r", "bicubic", 2, 2), "'bicubic': expected nearest or bilinear"),
        (lambda: g.max_pool(0, "p", [20, 3], [1]), "p"),
        (lambda: g.shape(99), "node 99"),
        (lambda: _core.Segment(g, False, False, "float16"), "dtype is 'float16'"),
        (lambda: _core.Segment(g, False, False, threads=-1), "threads is -1"),
        (lambda: _core.Segment(g, False, False, max_error=-1.0), "error"),
    ]:
        with pytest.raises(InputError, match=message) as raised:
            make()
        assert "\n" not in str(raised.value)
    segment = _core.Segment(g, True, True, "float32")
    x, dy = random(2, 3, 12, 10), random(2, 5)
    for call, message in [
        (lambda: segment.forward(x[:1], False), r"x is \(1, 3, 12, 10\): expected \(2, 3, 12, 10\)"),
        (lambda: segment.forward(x.astype("f8"), False), "x is float64: expected float32"),
        (lambda: segment.forward(None, False), "x is a NoneType"),
        (lambda: segment.backward(dy, False), "backward needs forward"),
        (lambda: segment.gradients(False), "no gradients"),
        (lambda: segment.set(99, x), "no parameter 99"),
        (lambda: segment.set(0, x), "conv.weight is"),
        (lambda: segment.use(0, random(8, 3, 3, 4)), "conv.weight is"),
        (lambda: segment.get(-1), "no parameter -1"),
    ]:
        with pytest.raises(InputError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)
    segment.forward(x, False)
    with pytest.raises(InputError, match=r"dy is \(5, 2\)"):
        segment.backward(dy.T, False)
    statistics = np.zeros(16, "f4")
    statistics.setflags(write=False)
    index = [name for name, _, _ in segment.parameters()].index("block.bn1.running_mean")
    with pytest.raises(InputError, match="running_mean"):
        segment.use(index, statistics)
    plain = _core.Segment(g, False, False)
    plain.forward(x, False)
    with pytest.raises(InputError, match="training"):
        plain.backward(dy, False)
