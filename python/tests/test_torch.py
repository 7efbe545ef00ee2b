"""With PyTorch, where it is installed."""

import subprocess
import sys

import convlab
import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional


def close(a, b, limit=1e-4):
    return float((a - b).norm() / b.norm()) < limit


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("arguments", [{}, {"stride": (2, 1), "padding": (1, 2)}, {"padding": "same"},
                                       {"groups": 4, "dilation": 2}])
def test_as_torch(form, arguments):
    torch.manual_seed(1)
    groups = arguments.get("groups", 1)
    x = torch.randn(2, 8, 12, 11).to(memory_format=form)
    w, bias = torch.randn(16, 8 // groups, 3, 3).to(memory_format=form), torch.randn(16)
    y, expected = convlab.conv2d(x, w, bias, **arguments), F.conv2d(x, w, bias, **arguments)
    assert isinstance(y, torch.Tensor) and close(y, expected)
    assert y.is_contiguous(memory_format=form)
    if arguments.get("padding") == "same":
        return
    grad = torch.randn_like(expected)
    assert close(convlab.conv2d_input_grad(x.shape, w, grad, **arguments),
                 torch.nn.grad.conv2d_input(x.shape, w, grad, **arguments))
    assert close(convlab.conv2d_weight_grad(x, w.shape, grad, **arguments),
                 torch.nn.grad.conv2d_weight(x, w.shape, grad, **arguments))


def test_3d():
    x, w = torch.randn(1, 4, 5, 6, 7, dtype=torch.float64), torch.randn(8, 4, 3, 3, 3, dtype=torch.float64)
    assert close(convlab.conv3d(x, w, padding=1), F.conv3d(x, w, padding=1), 1e-12)
    grad = torch.randn(1, 8, 3, 4, 5, dtype=torch.float64)
    assert close(convlab.conv3d_input_grad(x.shape, w, grad), torch.nn.grad.conv3d_input(x.shape, w, grad),
                 1e-12)


def test_gradients_are_not_lost_silently():
    x, w = torch.randn(1, 4, 6, 6), torch.nn.Parameter(torch.randn(8, 4, 3, 3))
    with pytest.raises(convlab.InputError, match=r"w requires grad.*w.detach\(\)"):
        convlab.conv2d(x, w)
    with torch.no_grad():
        assert close(convlab.conv2d(x, w), F.conv2d(x, w))
    assert not convlab.conv2d(x, w.detach()).requires_grad


@pytest.mark.parametrize("x", [torch.zeros(1, 4, 6, 6, dtype=torch.bfloat16),
                               torch.zeros(1, 4, 6, 6, device="meta"),
                               torch.zeros(1, 4, 6, 6, dtype=torch.complex64).conj(),
                               torch.zeros(1, 4, 6, 6).to_sparse()])
def test_refused(x):
    with pytest.raises(convlab.InputError, match="^x is "):
        convlab.conv2d(x, torch.zeros(8, 4, 3, 3))


@pytest.mark.parametrize("first, second", [("torch", "convlab"), ("convlab", "torch")])
def test_one_openmp_runtime(first, second):
    code = (f"import {first}, {second}\n"
            "import torch, convlab\n"
            "x, w = torch.randn(1, 8, 16, 16), torch.randn(8, 8, 3, 3)\n"
            "convlab.conv2d(x, w); torch.conv2d(x, w); convlab.conv2d(x, w)\n"
            "lines = [line.split()[-1] for line in open('/proc/self/maps') if 'omp' in line]\n"
            "print(*sorted({line for line in lines if 'libgomp' in line or 'libomp' in line"
            " or 'libiomp' in line}))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    libraries = done.stdout.split()
    assert len(libraries) == 1 and "libgomp" in libraries[0], libraries


def test_scores_of_a_net(tmp_path):
    torch.manual_seed(1)
    first, second = torch.nn.Linear(20, 16), torch.nn.Linear(16, 3)
    np.savez(tmp_path / "w.npz", **{
        f"{name}.{part}": getattr(layer, part).detach().numpy()
        for name, layer in [("fc1", first), ("fc2", second)] for part in ("weight", "bias")})
    net = convlab.Net("mlp:20-16-3:relu", batch=4).load_weights(tmp_path / "w.npz")
    x = torch.randn(5, *net.input_shape[1:])
    with torch.no_grad():
        assert close(net(x), second(first(x.flatten(1)).relu()))


def test_negated_views():
    x, w = torch.complex(*torch.randn(2, 1, 4, 6, 6)), torch.randn(8, 4, 3, 3)
    negated = x.conj().imag
    assert negated.is_neg() and close(convlab.conv2d(negated, w), F.conv2d(negated, w))


def test_what_would_record_nothing():
    x, w = torch.randn(1, 4, 6, 6), torch.randn(8, 4, 3, 3)
    with pytest.raises(convlab.InputError, match="outside torch.jit.trace"):
        torch.jit.trace(lambda a: convlab.conv2d(a, w), x)
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        with pytest.raises(convlab.InputError, match="w has a tangent"):
            convlab.conv2d(x, forward.make_dual(w, w))
        assert close(convlab.conv2d(x, w), F.conv2d(x, w))


def test_tensors_without_memory():
    w, empty = torch.randn(8, 4, 3, 3), torch.randn(1, 4, 6, 6)
    empty.untyped_storage().resize_(0)
    for x in (empty, torch._efficientzerotensor(1, 4, 6, 6)):
        with pytest.raises(convlab.InputError, match="without memory"):
            convlab.conv2d(x, w)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_repeated_calls(form):
    """The second call of a kind goes another way, and so do what differs and what is refused."""
    torch.manual_seed(1)
    x, bias = torch.randn(2, 8, 6, 5).to(memory_format=form), torch.randn(16)
    w = torch.nn.Parameter(torch.randn(16, 8, 3, 3))
    for use in (None, bias):
        for _ in range(3):
            with torch.no_grad():
                y, expected = convlab.conv2d(x, w, use, padding=1), F.conv2d(x, w, use, padding=1)
            assert close(y, expected) and not y.requires_grad and y.shape == expected.shape
            assert y.is_contiguous(memory_format=form)
            x = torch.randn_like(x)
    for _ in range(2):
        # The same shape, another order in memory.
        turned = torch.randn(2, 8, 5, 6).transpose(2, 3)
        with torch.no_grad():
            assert close(convlab.conv2d(turned, w, padding=1), F.conv2d(turned, w, padding=1))
            negated = torch.complex(x, x).conj().imag
            assert close(convlab.conv2d(negated, w, padding=1), F.conv2d(negated, w, padding=1))
    detached = w.detach()
    for arguments, message in [((x, w), "w requires grad"), ((x.double(), detached), "w is float32"),
                               ((x[:, :4], detached), "w is"), ((x, detached, bias[:3]), "bias is")]:
        with pytest.raises(convlab.InputError, match=message):
            convlab.conv2d(*arguments, padding=1)
    with pytest.raises(convlab.InputError, match="padding is 1.0"):
        convlab.conv2d(x, detached, padding=1.0)
    x.untyped_storage().resize_(0)
    with pytest.raises(convlab.InputError, match="without memory"):
        convlab.conv2d(x, detached, bias, padding=1)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_segment(form, threads):
    """A training step as PyTorch's, on PyTorch's own parameters and buffers."""
    torch.manual_seed(1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8),
                                    torch.nn.ReLU(), torch.nn.Conv2d(8, 5, 3, stride=2))
        ours = [t.detach().clone() for t in model.state_dict().values() if t.dtype == torch.float32]
        g = convlab._core.Graph("model", (2, 3, 9, 8))
        a = g.activation(g.batch_norm(g.conv(0, "0", 8, [3], pad=[1], bias=False), "1"), "2", "relu")
        g.conv(a, "3", 5, [3], stride=[2])
        segment = convlab._core.Segment(g, True, True, channels_last=form is torch.channels_last)
        names = [name for name, _, _ in segment.parameters()]
        assert names == [k for k in model.state_dict() if "num_batches" not in k]
        assert all(segment.use(i, t) for i, t in enumerate(ours))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        velocity = [torch.zeros_like(t) for t in ours]
        kept = []
        for _ in range(3):
            x = torch.randn(2, 3, 9, 8).to(memory_format=form).requires_grad_()
            expected = model(x)
            y = segment.forward(x.detach(), True)
            assert close(y, expected) and y.is_contiguous(memory_format=form)
            dy = torch.randn_like(expected)
            optimizer.zero_grad()
            expected.backward(dy)
            assert close(segment.backward(dy, True), x.grad)
            gradients = segment.gradients(True)
            kept.append((gradients, [g if g is None else g.clone() for g in gradients]))
            for v, t, g in zip(velocity, ours, gradients):
                if g is not None:
                    t.sub_(v.mul_(0.9).add_(g), alpha=0.1)
            optimizer.step()
            for name, t in zip(names, ours):
                assert close(t, model.state_dict()[name]), name
        for gradients, copies in kept:
            assert all(g is c or torch.equal(g, c) for g, c in zip(gradients, copies))
    finally:
        torch.set_num_threads(before)
