"""convlab.torch.optimize(), where PyTorch is installed."""

import copy
import gc
import io
import pathlib
import pickle
import subprocess
import sys
import threading
import warnings

import convlab
import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
from torch_lab import close, flow, optimize, quick  # noqa: E402, F401: without PyTorch it skips


class Block(nn.Module):
    """Of a ResNet, with an operator in the middle that has no layer."""

    def __init__(self, channels, lacking=False):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.lacking = lacking

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        if self.lacking:
            y = torch.cumsum(y, 2) * 0.1
        y = self.bn2(self.conv2(y))
        y += x
        return F.relu(y, inplace=True)


class Small(nn.Module):

    def __init__(self, lacking=False, dropout=0.0):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                                  nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(8), Block(8, lacking), Block(8))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.pool(self.blocks(self.stem(x)))
        return self.fc(self.dropout(torch.flatten(x, 1)))


def ready(model):
    """Statistics that are not those of the start."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return model.eval()


def image(*shape):
    return torch.randn(*(shape or (2, 3, 33, 31)))


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(1)
    model, x = ready(Small()), image()
    rounds, flow._ROUNDS = flow._ROUNDS, 1
    ours = optimize(model, x)
    flow._ROUNDS = rounds
    return model, x, ours


# ---- Inference ----


def test_a_whole_net_is_one_segment(small):
    model, x, ours = small
    report = ours.convlab_report
    assert report.kept == len(report.segments) == 1 and not report.left
    row = report.segments[0]
    assert row["from"] == "stem.0" and row["to"] == "fc" and row["convolutions"] == 7
    assert {entry["layer"] for entry in report.layers} >= {"stem.0", "blocks.1.conv2"}
    assert report.error < 1e-4 and "1 of 1 segments" in report.summary()
    for form in (torch.contiguous_format, torch.channels_last):
        image_ = x.to(memory_format=form)
        with torch.no_grad():
            assert close(ours(image_), model(image_))
    with torch.inference_mode():
        assert close(ours(x[:, :, :, :]), model(x))
    # No dense order of axes.
    with torch.no_grad():
        assert close(ours(x.flip(2).transpose(2, 3).contiguous().transpose(2, 3)), model(x.flip(2)))


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_an_operator_without_a_layer_stays_pytorchs(form):
    model, x = ready(Small(lacking=True)), image().to(memory_format=form)
    ours = optimize(model, x)
    report = ours.convlab_report
    # Up to cumsum; from there to the sum with what skips it; the sum and the rest.
    assert report.kept == len(report.segments) == 3 or report.kept == 4, report
    assert sum(row["convolutions"] for row in report.segments) == 7
    assert report.left["cumsum"][0] == 1
    with torch.no_grad():
        assert close(ours(x), model(x)) and close(ours(2 * x), model(2 * x))


class Written(nn.Module):
    """Squeeze-and-excitation, a shuffle, and activations written out."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.last = nn.Conv2d(8, 8, 3, groups=4)
        self.norm, self.wide, self.scale = nn.LayerNorm(8), nn.Linear(8, 8), nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x):
        x = self.conv(x)
        x = x * torch.sigmoid(x)
        gate = torch.sigmoid(self.fc2(F.silu(self.fc1(x.mean((2, 3), keepdim=True)))))
        x = gate * x
        x = x * F.relu6(x + 3) / 6
        n, c, h, w = x.shape
        x = x.view(n, 4, c // 4, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        a, b = x.chunk(2, 1)
        x = self.last(torch.cat([b, a], 1)).clamp(0, 6)
        y = self.wide(self.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return F.interpolate(x + self.scale * y, scale_factor=2), F.avg_pool2d(x, 3, 1, 1)


def test_written_out_patterns():
    model, x = Written().eval(), image(2, 3, 12, 12)
    ours = optimize(model, x)
    for a, b in zip(ours(x.clone()), model(x)):
        assert close(a.detach(), b.detach())
    # Two outputs: all but the last operators of each are nets.
    assert sum(row["convolutions"] for row in ours.convlab_report.segments if row["kept"]) >= 4


@pytest.mark.parametrize("layer, x", [
    (nn.Conv1d(4, 6, 5, padding=2, dilation=2), (2, 4, 20)), (nn.Conv3d(4, 6, 3, stride=2), (1, 4, 7, 8, 9)),
    (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2), (2, 4, 7, 8)),
    (nn.Conv2d(4, 8, (3, 1), padding="same"), (2, 4, 9, 8)),
    (nn.Sequential(nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(8 * 49, 6, bias=False), nn.Tanh()), (2, 4, 9, 9))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers(layer, x, dtype):
    layer, x = copy.deepcopy(layer).to(dtype), torch.randn(*x, dtype=dtype)
    ours = optimize(layer, x)
    assert ours.convlab_report.kept == 1
    with torch.no_grad():
        y = layer(x)
        assert close(ours(x), y) and ours(x).shape == y.shape and ours(x).dtype == dtype


class Written2(nn.Module):
    """Writes that others see."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        y = self.conv(x)
        early = torch.tanh(y)
        half = y[:, :2]
        half.mul_(2)
        y.relu_()
        return self.last(y) + half.sum(), self.last(early), x.relu_()


def test_writes_through_views_are_seen():
    model, x = Written2().eval(), image(1, 3, 9, 9)
    ours = optimize(model, x.clone())
    a, b = x.clone(), x.clone()
    with torch.no_grad():
        for found, expected in zip(ours(a), model(b)):
            assert close(found, expected)
    assert torch.equal(a, b) and not torch.equal(a, x)


def test_changed_inputs_run_in_pytorch_with_one_warning(small):
    model, x, ours = small
    ours = copy.deepcopy(ours)
    with torch.no_grad():
        with pytest.warns(UserWarning, match=r"an input of \(1, 3, 33, 31\): optimized for \(2, 3, 33, 31\)"):
            assert torch.equal(ours(x[:1]), model(x[:1]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours(x[:1])
            assert close(ours(x), model(x))
    with pytest.warns(UserWarning, match="optimized for inference"):
        ours.train()(x)
    assert ours.training and ours.fc.training


@pytest.mark.parametrize("change, match", [
    (lambda m: m.blocks[0].register_forward_hook(lambda *_: None), "has hooks"),
    (lambda m: setattr(m.blocks, "1", nn.Identity()), "was replaced"),
    (lambda m: nn.utils.parametrizations.weight_norm(m.fc), "was removed|has hooks"),
    (lambda m: m.blocks[0].bn1.train(), "optimized for inference")])
def test_changed_models_run_in_pytorch(small, change, match):
    ours, x = copy.deepcopy(small[2]), small[1]
    change(ours)
    with torch.no_grad(), pytest.warns(UserWarning, match=match):
        y = ours(x)
        assert torch.equal(y, ours._original(x))


def test_surroundings_run_in_pytorch(small):
    model, x, ours = small
    ours = copy.deepcopy(ours)
    with torch.no_grad():
        with pytest.warns(UserWarning, match="autocast"), torch.autocast("cpu", dtype=torch.bfloat16):
            assert ours(x).dtype == torch.bfloat16
        with pytest.warns(UserWarning, match="torch.func"):
            assert close(torch.func.vmap(ours)(x[None])[0], model(x))
    expected = torch.func.grad(lambda a: model(a).sum())(x)
    assert close(torch.func.grad(lambda a: ours(a).sum())(x), expected)


def test_inference_has_no_gradient(small):
    model, x, ours = small
    y = ours(x)
    assert y.requires_grad
    with pytest.raises(convlab.InputError, match="optimized for inference.*training=True"):
        y.sum().backward()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(small, copied):
    model, x, ours = small
    other = copied(ours)
    assert list(other.state_dict()) == list(model.state_dict())
    with torch.no_grad():
        assert close(other(x), model(x))
        other.stem[0].weight.zero_()
        assert not close(other(x), model(x)) and close(ours(x), model(x))


def test_torch_save(small):
    model, x, ours = small
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    other = torch.load(file, weights_only=False)
    with torch.no_grad():
        assert close(other(x), model(x))
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    model2 = Small()
    model2.load_state_dict(torch.load(file))
    assert torch.equal(model2.fc.weight, model.fc.weight)


@pytest.mark.parametrize("assign", [False, True])
def test_loaded_weights_take_effect(small, assign):
    ours, x = copy.deepcopy(small[2]), small[1]
    torch.manual_seed(5)
    other = ready(Small())
    with torch.no_grad():
        before = ours(x)
        ours.load_state_dict(copy.deepcopy(other.state_dict()), assign=assign)
        assert close(ours(x), other(x)) and not close(ours(x), before)
        ours.fc.weight.data = 2 * ours.fc.weight.data
        ours.fc.bias.mul_(2)
        assert close(ours(x), 2 * other(x))
        ours.fc.weight.data.mul_(0)  # uncounted by PyTorch
        ours.convlab_refresh()
        assert close(ours(x), (2 * other.fc.bias).expand(2, 5))


def test_parameters_are_the_models(small):
    model, _, ours = small
    assert [(n, id(p)) for n, p in ours.named_parameters()] == [
        (n, id(p)) for n, p in model.named_parameters()]
    assert ours.fc is model.fc and [n for n, _ in ours.named_buffers()] == [
        n for n, _ in model.named_buffers()]
    outer = nn.Sequential(ours)
    assert list(outer.state_dict())[0] == "0.stem.0.weight"


def test_threads(small):
    model, x, ours = small
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            with torch.no_grad():
                assert close(ours(x), model(x))
            assert ours.convlab_segments()[0]._threads == threads
    finally:
        torch.set_num_threads(before)


def test_slower_segments_are_not_kept(monkeypatch):
    monkeypatch.setattr(flow, "_race", lambda ours, theirs: [2.0, 1.0])
    model, x = ready(Small()), image()
    ours = optimize(model, x, swap="faster")
    assert ours.convlab_report.kept == 0 and "no part of the model gains" in repr(ours.convlab_report)
    with torch.no_grad():
        assert torch.equal(ours(x), model(x))


def test_tune_and_report(capsys):
    model, x = nn.Conv2d(3, 4, 3).eval(), image(1, 3, 8, 8)
    ours = optimize(model, x, budget="2s", report=True)
    shown = capsys.readouterr().out
    assert "1 of 1 segments with 1 convolutions" in shown and shown.strip() == repr(ours.convlab_report)
    assert "<table>" in ours.convlab_report._repr_html_()


class Branches(nn.Module):

    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_errors():
    x = image()
    with pytest.raises(convlab.InputError, match="no torch.nn.Module"):
        optimize(lambda a: a, x)
    with pytest.raises(convlab.InputError, match="no example inputs"):
        optimize(Small())
    with pytest.raises(convlab.EnvironmentError, match="cannot trace the model"):
        optimize(Branches(), x)
    with pytest.raises(convlab.InputError, match="swap is 'some'"):
        optimize(Small(), x, swap="some")
    with pytest.raises(convlab.InputError, match="max_error is 0"):
        optimize(Small(), x, max_error=0)
    with torch.inference_mode():
        model = ready(Small())
    with pytest.raises(convlab.InputError, match="made under torch.inference_mode"):
        optimize(model, x)
    model = ready(Small())
    model.fc.register_forward_hook(lambda *_: None)
    with pytest.raises(convlab.InputError, match="the module fc has hooks"):
        optimize(model, x)


def test_a_model_without_convolutions_stays(small):
    model = nn.Linear(4, 4).eval()
    ours = optimize(model, image(2, 4))
    assert ours.convlab_report.kept == 0 and torch.equal(ours(torch.ones(2, 4)), model(torch.ones(2, 4)))
    with pytest.raises(convlab.InputError, match="optimized already"):
        optimize(ours, image(2, 4))


def test_wrong_outputs_are_refused(monkeypatch):
    model, x = ready(Small()), image()
    state = copy.deepcopy(model.state_dict())
    run = flow.Segment.run
    monkeypatch.setattr(flow, "_measured", lambda *_: {"kept": True, "error": 0.0})
    monkeypatch.setattr(flow.Segment, "run", lambda *a: (1.01 * run(*a)[0], a[1]))
    with pytest.raises(convlab.Failed, match="differ from the model's by 1.0e-02"):
        optimize(model, x)
    assert not model.training and all(torch.equal(a, state[n]) for n, a in model.state_dict().items())


# ---- Training ----


def steps(model, x, count=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), torch.tensor([1, 3]))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("lacking", [False, True])
def test_three_steps_are_pytorchs(lacking):
    model, x = ready(Small(lacking, dropout=0.5)).train(), image()
    other = copy.deepcopy(model)
    state = copy.deepcopy(model.state_dict())
    ours = optimize(model, x, training=True)
    assert ours.convlab_report.kept >= 1 and ours.training
    # What was tried out left nothing behind.
    assert all(torch.equal(a, state[n]) for n, a in ours.state_dict().items())
    torch.manual_seed(2)
    expected = steps(other, x)
    torch.manual_seed(2)
    assert close(steps(ours, x), expected)
    for (name, a), b in zip(ours.state_dict().items(), other.state_dict().values()):
        assert close(a.double(), b.double(), 1e-3), name
    # Evaluation is PyTorch's, with the trained weights.
    with torch.no_grad(), pytest.warns(UserWarning, match="optimized for training"):
        assert close(ours.eval()(x), other.eval()(x), 1e-3)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).train()
    x = image(2, 3, 9, 9).requires_grad_()
    rounds, flow._ROUNDS = flow._ROUNDS, 1
    ours = optimize(copy.deepcopy(model), x, training=True)
    flow._ROUNDS = rounds
    return model, x, ours


def gradients(model, x):
    return torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])


def all_close(found, expected):
    largest = max(float(b.norm()) for b in expected)
    return all(float((a - b).norm()) <= 1e-4 * max(float(b.norm()), 1e-3 * largest)
               for a, b in zip(found, expected))


def test_gradients_of_the_input_and_of_all_parameters(trained):
    model, x, ours = trained
    assert all_close(gradients(ours, x), gradients(model, x))
    ours[0].weight.requires_grad_(False)
    y = ours(x).sum()
    y.backward()
    assert ours[0].weight.grad is None and ours[3].weight.grad is not None
    ours[0].weight.requires_grad_(True)
    ours.zero_grad()


def test_two_forwards_before_a_backward(trained):
    model, x, ours = trained
    other = torch.randn_like(x).requires_grad_()
    first, second = ours(x), ours(other)
    expected = gradients(model, x), gradients(model, other)
    with torch.no_grad():
        ours(torch.randn_like(x))  # would be remembered instead
    leaves = [x, *ours.parameters()]
    assert all_close(torch.autograd.grad(first.square().sum(), leaves), expected[0])
    assert all_close(torch.autograd.grad(second.square().sum(), [other, *ours.parameters()]), expected[1])
    # A forward whose backward can come no more does not count.
    first = ours(x)
    del first
    gc.collect()
    assert not ours.convlab_segments()[0]._is_waiting()


def test_threads_in_training(trained):
    model, x, ours = trained
    expected, wrong = gradients(model, x), []

    def work():
        for _ in range(10):
            try:
                if not all_close(gradients(ours, x.detach().requires_grad_()), expected):
                    wrong.append("a gradient")
            except convlab.InputError as error:  # another forward was first
                wrong.extend([] if "another forward" in str(error) else [str(error)])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_has_no_second_backward(trained):
    _, x, ours = trained
    loss = ours(x).square().sum()
    loss.backward(retain_graph=True)
    with pytest.raises(convlab.InputError, match="backward ran already"):
        loss.backward()
    ours.zero_grad()


def test_a_changed_input_is_noticed(trained):
    _, _, ours = trained
    x = image(2, 3, 9, 9)
    y = ours(x).sum()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    y = ours(image(2, 3, 9, 9)).sum()
    with torch.no_grad():
        ours[3].weight.mul_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_gradients_add_up(trained):
    model, x, ours = trained
    ours.zero_grad()
    ours(x).sum().backward()
    kept, before = ours[0].weight.grad, ours[0].weight.grad.clone()
    ours(2 * x).sum().backward()
    second = gradients(model, x)[1]
    assert ours[0].weight.grad is kept and second.shape == kept.shape
    model.zero_grad()
    model(x).sum().backward()
    assert close(before, model[0].weight.grad)
    model(2 * x).sum().backward()
    assert close(ours[0].weight.grad, model[0].weight.grad)
    ours.zero_grad()


def test_frozen_statistics_stay_pytorchs():
    model = ready(Small()).train()
    model.blocks[0].bn1.eval()
    x = image()
    ours = optimize(model, x, training=True)
    assert not model.blocks[0].bn1.training
    before = model.blocks[0].bn1.running_mean.clone()
    ours(x).sum().backward()
    assert torch.equal(before, model.blocks[0].bn1.running_mean)


# ---- torch.compile and torch.export ----


def test_export_and_compile_see_one_operator(small):
    model, x, ours = small
    with torch.no_grad():
        exported = torch.export.export(ours, (x,), strict=False)
        assert any("convlab.segment" in str(node.target) for node in exported.graph.nodes)
        assert close(exported.module()(x), model(x))
        torch._dynamo.reset()
        assert close(torch.compile(ours, backend="eager", fullgraph=True)(x), model(x))


def compiled(model, **options):
    torch._dynamo.reset()
    made = []

    def backend(module, inputs):
        made.append(convlab_backend(module, inputs, options={"swap": "all", **options}))
        return made[-1]

    from convlab.compiled import backend as convlab_backend
    return torch.compile(model, backend=backend), made


@pytest.mark.parametrize("lacking", [False, True])
def test_the_backend_in_inference(lacking):
    model, x = ready(Small(lacking)), image()
    ours, made = compiled(model)
    with torch.no_grad():
        assert close(ours(x), model(x)) and close(ours(-x), model(-x))
        assert made[0].report.kept >= 1
        assert made[0].report.segments[0]["from"] == "stem.0", made[0].report
        model.fc.bias.add_(1)
        assert close(ours(x), model(x))


def test_the_backend_in_training():
    model, x = ready(Small(dropout=0.5)).train(), image()
    other = copy.deepcopy(model)
    ours, made = compiled(model)
    torch.manual_seed(2)
    expected = steps(other, x)
    torch.manual_seed(2)
    assert close(steps(ours, x), expected)
    assert made[0].report.kept >= 1 and made[0].report.training
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values()):
        assert close(a.double(), b.double(), 1e-3), name


def test_the_backend_by_its_name(small):
    model, x, _ = small
    torch._dynamo.reset()
    assert "convlab" in torch._dynamo.list_backends()
    with torch.no_grad():
        assert close(torch.compile(model, backend="convlab", options={"swap": "all"})(x), model(x))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="option sawp"), torch.no_grad():
        torch.compile(model, backend="convlab", options={"sawp": "all"})(x)


# ---- The example ----


@pytest.mark.parametrize("arguments, shown", [(["--small"], "the outputs differ by"),
                                              (["--small", "--train"], "loss ")])
def test_the_example(arguments, shown):
    example = pathlib.Path(__file__).parent.parent / "examples" / "optimize.py"
    done = subprocess.run([sys.executable, example, *arguments], capture_output=True, text=True, check=True)
    assert shown in done.stdout and "convlab: " in done.stdout
