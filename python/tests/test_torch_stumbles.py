"""What users of convlab.torch.optimize() try first, where PyTorch is installed."""

import copy

import convlab
import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
from torch_lab import close, flow, optimize, quick  # noqa: E402, F401: without PyTorch it skips


class Doubled(torch.autograd.Function):
    """Its backward pass is not that of its operators."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Net(nn.Module):
    """A convolution, a batch norm, and what a test does with them."""

    def __init__(self, between=lambda x: x):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3)
        self.between = between

    def forward(self, x):
        y = self.norm(self.conv(x)).tanh()
        return self.last(self.between(y))


def branch(x):
    return x if x.sum() > 1e9 else 2 * x


def shrink(x):
    while x.abs().max() > 0.1:
        x = x / 2
    return x


def drop_path(x):
    """Stochastic depth, as torchvision writes it."""
    noise = torch.empty(x.shape[0], 1, 1, 1, dtype=x.dtype).bernoulli_(0.5)
    return x * noise.div_(0.5) + x


def all_close(found, expected, limit=1e-4):
    """Beside the largest of them: a bias before a batch norm has the gradient 0."""
    largest = max(float(b.detach().norm()) for b in expected)
    return len(found) == len(expected) and all(
        float((a - b).detach().norm()) <= limit * max(float(b.detach().norm()), 1e-3 * largest)
        for a, b in zip(found, expected))


def image(*shape, dtype=None):
    return torch.randn(*(shape or (2, 3, 9, 9)), dtype=dtype)


# ---- What cannot be traced ----


@pytest.mark.parametrize("between, line", [(branch, "return x if x.sum() > 1e9 else 2 * x"),
                                           (shrink, "while x.abs().max() > 0.1:")])
def test_control_flow_is_named_with_its_line(between, line, capfd):
    with pytest.raises(convlab.EnvironmentError) as caught:
        optimize(Net(between), image())
    message = str(caught.value)
    assert "test_torch_stumbles.py:" in message and f"in {between.__name__}: `{line}`" in message
    assert "depends on a tensor's values; expected" in message and "\n" not in message
    # PyTorch's own hundreds of lines are not shown.
    assert "torch.ops.aten" not in capfd.readouterr().err
    assert caught.value.__suppress_context__ and caught.value.__cause__ is None


@pytest.mark.parametrize("made, match", [
    (lambda: torch.jit.script(nn.Conv2d(3, 4, 3)), "torch.jit's: expected"),
    (lambda: torch.compile(Net()), "is compiled: expected")])
def test_modules_made_by_pytorch_from_others(made, match):
    with pytest.raises(convlab.InputError, match=match):
        optimize(made(), image())


def test_inputs_of_another_library():
    with pytest.raises(convlab.InputError, match="no example input is a tensor of PyTorch's"):
        optimize(Net(), image().numpy())


def test_a_backward_pass_of_ones_own():
    model, x = Net(Doubled.apply), image()
    with pytest.raises(convlab.EnvironmentError, match="torch.autograd.Function with a backward pass"):
        optimize(model, x, training=True)
    ours = optimize(model, x)
    with torch.no_grad():
        assert ours.convlab_report.kept == 1 and close(ours(x), model(x))


# ---- Wrappers and hooks ----


@pytest.mark.parametrize("training", [False, True])
def test_data_parallel(training):
    model, x = Net().train(training), image()
    other = copy.deepcopy(model)
    inner = optimize(nn.DataParallel(model), x, training=training)
    outer = nn.DataParallel(optimize(other, x, training=training)).train(training)
    assert inner.convlab_report.kept == 1
    with torch.set_grad_enabled(training):
        y = copy.deepcopy(model)(x)
        assert close(inner(x), y) and close(outer(x), y)


def test_hooks_of_the_model_run_once():
    model, x = Net().eval(), image()
    handle = model.register_forward_hook(lambda module, inputs, y: 2 * y)
    with pytest.raises(convlab.InputError, match="the model has hooks, which would run twice"):
        optimize(model, x)
    handle.remove()
    ours = optimize(model, x)
    with torch.no_grad():
        y = model(x)
        ours.register_forward_hook(lambda module, inputs, y: 3 * y)
        ours.register_forward_pre_hook(lambda module, inputs: (inputs[0].flip(0),))
        assert close(ours(x.flip(0)), 3 * y)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook",
                                      "register_full_backward_hook", "register_full_backward_pre_hook"])
def test_hooks_of_modules_run(training, register):
    model, x = Net().train(training), image()
    ours = optimize(model, x, training=training)
    called = []
    handle = getattr(ours.conv, register)(lambda *_: called.append(1))
    with torch.set_grad_enabled(training), pytest.warns(UserWarning, match="the module conv has hooks"):
        y = ours(x)
        if training:
            y.sum().backward()
    assert called or (not training and "backward" in register)
    handle.remove()
    with torch.set_grad_enabled(training):
        called.clear()
        assert close(ours(x), copy.deepcopy(model)(x)) and not called


def test_hooks_of_all_modules_run():
    model, x = Net().eval(), image()
    ours, called = optimize(model, x), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: called.append(module))
    try:
        with torch.no_grad(), pytest.warns(UserWarning, match="hooks of all modules"):
            ours(x)
    finally:
        handle.remove()
    assert model.conv in called


def test_full_backward_hooks_of_the_model():
    model, x = Net().train(), image().requires_grad_()
    other, found = copy.deepcopy(model), []
    ours = optimize(model, x, training=True)
    for each in (ours, other):
        each.register_full_backward_hook(lambda module, dx, dy: found.append((dx[0], dy[0])))
        each(x).square().sum().backward()
    assert close(found[0][0], found[1][0]) and close(found[0][1], found[1][1])


# ---- Gradients of gradients ----


def test_gradients_of_gradients():
    model = Net().double().train()
    x = image(dtype=torch.float64).requires_grad_()
    other = copy.deepcopy(model)
    ours = optimize(model, x, training=True)
    assert ours.convlab_report.kept == 1

    def penalised(net):
        y = net(x.tanh()).square().sum()
        (dx,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(y + dx.square().sum(), [x, *net.parameters()])

    assert all_close(penalised(ours), penalised(other), 1e-9)
    # The part was computed twice, and its statistics moved once.
    for a, b in zip(ours.buffers(), other.buffers()):
        assert close(a.double(), b.double(), 1e-9)
    assert torch.autograd.gradgradcheck(lambda a: ours(a).sum((2, 3)), x)


def test_a_graph_of_gradients_takes_any_input():
    """Also one that the net reads from a copy."""
    model, x = Net().double().train(), image(dtype=torch.float64)
    other = copy.deepcopy(model)
    ours = optimize(model, x, training=True)
    view = x.transpose(2, 3).flip(3).transpose(1, 2).contiguous().transpose(1, 2)
    for create_graph in (False, True):
        found, expected = (torch.autograd.grad(net(view).square().sum(), list(net.parameters()),
                                               create_graph=create_graph) for net in (ours, other))
        assert all_close(found, expected, 1e-9)


# ---- Random numbers in training ----


@pytest.mark.parametrize("between", [drop_path, lambda x: F.dropout(x, 0.5), lambda x: F.dropout2d(x, 0.5),
                                     lambda x: F.dropout(drop_path(x), 0.3)])
def test_random_operators_are_pytorchs(between):
    model, x = Net(between).train(), image()
    other = copy.deepcopy(model)
    ours = optimize(model, x, training=True)
    assert ours.convlab_report.kept >= 1
    for seed in (1, 2):
        results = []
        for net in (ours, other):
            torch.manual_seed(seed)
            y = net(x)
            results.append([y, *torch.autograd.grad(y.square().sum(), list(net.parameters()))])
        assert all_close(*results)


# ---- Padding other than with zeros ----


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("layer", [nn.Conv2d(6, 6, 3, padding=1, padding_mode="reflect"),
                                   nn.Conv2d(6, 6, 3, padding=1, padding_mode="circular"),
                                   nn.ReflectionPad2d(1), nn.ReplicationPad2d((1, 2, 0, 1))])
def test_padding_modes(layer, training):
    model, x = Net().train(training), image()
    model.between = copy.deepcopy(layer).train(training)
    other = copy.deepcopy(model)
    ours = optimize(model, x, training=training)
    # PyTorch pads, and the convolutions on both sides are nets.
    assert sum(row["convolutions"] for row in ours.convlab_report.segments if row["kept"]) == sum(
        isinstance(m, nn.Conv2d) for m in model.modules())
    with torch.set_grad_enabled(training):
        y, expected = ours(x), other(x)
        assert close(y, expected)
        if training:
            a, b = (torch.autograd.grad(v.square().sum(), net.conv.weight)[0]
                    for v, net in ((y, ours), (expected, other)))
            assert close(a, b)


# ---- What tuning could not measure ----


def test_predictions_are_reported_with_their_reason(monkeypatch):
    rows = [{"predicted": True, "reason": "other programs disturbed every sample"}, {"predicted": True},
            {"predicted": False, "reason": "fast"}]
    monkeypatch.setattr(flow, "tune_problems", lambda *_, **__: rows)
    report = optimize(Net().eval(), image(), tune=True).convlab_report
    assert "1 choices are predictions: other programs disturbed every sample" in repr(report)
    assert "1 choices are predictions: tuning ended before their turn" in repr(report)
    assert "choices are predictions" not in repr(optimize(Net().eval(), image()).convlab_report)


# ---- Weights ----


def test_weights_that_come_back():
    model, x = Net().eval(), image()
    ours = optimize(model, x)
    kept = model.conv.weight, model.last.weight
    with torch.no_grad():
        expected = model(x)
        assert close(ours(x), expected)
        model.conv.weight = nn.Parameter(2 * kept[0])
        with torch.inference_mode():  # PyTorch does not count its changes, so it is not the net's
            model.last.weight = nn.Parameter(1 * kept[1])
        with pytest.warns(UserWarning, match="made under torch.inference_mode"):
            assert close(ours(x), model(x))
        # The net has read the first of the others meanwhile.
        model.conv.weight, model.last.weight = kept
        assert close(ours(x), expected)
