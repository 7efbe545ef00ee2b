"""convlab.torch.capture(), where PyTorch is installed."""

import collections
import random as python_random
import subprocess
import sys
import time

import convlab
import numpy as np
import pytest
from convlab import captured as captured_module

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


def capture(model, *inputs, **options):
    return convlab.torch.capture(model, *inputs, **{"runs": 1, **options})


def runs(captured):
    """How many runs each pass has."""
    counts = collections.Counter()
    for row in captured.rows:
        counts[row["pass"]] += row["count"]
    return dict(counts)


def small():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.Dropout(0.5),
                         nn.Conv2d(8, 4, 1))


def test_resnet18_is_the_one_of_the_zoo():
    model = pytest.importorskip("torchvision").models.resnet18()
    x = torch.randn(1, 3, 224, 224)
    found = capture(model, x)
    assert list(found) == convlab.problems("resnet18")
    # The image requires no gradient.
    assert runs(found) == {"fwd": 20, "bwd_d": 19, "bwd_w": 20} and found.backward
    assert found.rows[0]["layer"] == "conv1" and not found.skipped
    assert set(found.ms) == {"fwd", "bwd_d", "bwd_w"} and all(ms > 0 for ms in found.ms.values())
    with torch.inference_mode():
        inferred = capture(model.eval(), x.to(memory_format=torch.channels_last))
    assert list(inferred) == list(found) and runs(inferred) == {"fwd": 20} and not inferred.backward


def test_mobilenet_v2_has_depthwise_layers():
    model = pytest.importorskip("torchvision").models.mobilenet_v2()
    found = capture(model, torch.randn(2, 3, 32, 32), backward=False)
    assert runs(found) == {"fwd": 52}
    assert sum(row["count"] for row in found.rows if row["problem"].startswith("g")) == 17
    assert list(found)[1].startswith('g32mb2ic32ih16oc32oh16kh3ph1n"features.1.conv.0.0')


@pytest.mark.parametrize("layer, x, text", [
    (nn.Conv1d(4, 6, 5, padding=2, dilation=2), (2, 4, 20), "mb2ic4ih1iw20oc6oh1ow16kh1kw5ph0pw2dh0dw1"),
    (nn.Conv2d(4, 8, (3, 1), stride=(2, 1), groups=2), (1, 4, 9, 7), None),
    (nn.Conv2d(4, 8, 3, stride=2, dilation=3, padding=1), (1, 4, 17, 17),
     "mb1ic4ih17oc8oh7kh3sh2ph1dh2"),
    (nn.Conv2d(4, 8, 3), (4, 9, 7), None),
    (nn.Conv3d(4, 8, 3, padding=1), (1, 4, 6, 6, 6), "mb1ic4id6oc8od6kd3pd1"),
    (nn.Conv3d(4, 8, (1, 3, 3), stride=(1, 2, 2)), (1, 4, 5, 9, 9), None),
    (nn.Conv3d(4, 8, (3, 3, 2)), (1, 4, 5, 9, 9), None),
    (nn.Conv3d(4, 8, (1, 3, 3)), (1, 4, 1, 9, 8), None),
    (nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), (2, 6, 9), None),
    (nn.ConvTranspose2d(6, 4, 2, stride=2, bias=False), (2, 6, 8, 8), "deconv:mb2ic6ih8oc4oh16kh2sh2ph0"),
    (nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2), (1, 6, 8, 7), None),
    (nn.ConvTranspose3d(6, 4, 3, stride=2, dilation=2), (1, 6, 3, 4, 4), None),
])
def test_texts_are_the_programs(layer, x, text):
    x = torch.randn(*x, requires_grad=True)
    found = capture(layer, x)
    assert runs(found) == {"fwd": 1, "bwd_d": 1, "bwd_w": 1}
    assert convlab.problems(list(found)) == list(found)
    assert text is None or list(found) == [text]
    # The log that tune() hands over says the same.
    table = convlab.tune(found, mode="heuristic", progress=False)
    assert {(row["problem"], row["pass"]) for row in table} == {
        (row["problem"], row["pass"]) for row in found.rows}
    assert [row["torch_ms"] > 0 for row in table] == [True] * 3


@pytest.mark.parametrize("dtype, name", [(torch.float64, "f64"), (torch.bfloat16, "bf16"),
                                         (torch.float16, "f16")])
def test_types(dtype, name):
    found = capture(nn.Conv2d(4, 8, 3, dtype=dtype), torch.randn(1, 4, 8, 8, dtype=dtype))
    assert {row["dtype"] for row in found.rows} == {name}


def test_the_type_of_autocast_and_its_layer():
    model = small()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = capture(model, torch.randn(2, 3, 8, 8))
    assert {row["dtype"] for row in found.rows} == {"bf16"}
    # Its filters are copies, and yet the backward pass has names.
    assert {row["layer"] for row in found.rows} == {"0", "3", "5"}


def test_tune_shows_what_pytorch_took():
    found = convlab.torch.capture(small(), torch.randn(2, 3, 8, 8))
    table = convlab.tune(found, mode="heuristic", progress=False)
    assert len(table) == len(found.rows) == 8
    mine = {(row["layer"], row["pass"]): row["ms"] for row in found.rows}
    assert {(row["layer"], row["pass"]): pytest.approx(row["torch_ms"], abs=1e-5)
            for row in table} == mine
    for row in table:
        assert row["speedup"] == row["torch_ms"] / row["convlab_ms"]
    assert [row.get("epilogue") for row in table if row["pass"] == "fwd"] == ["bias", None, "bias"]
    total = sum(found.ms.values())
    last = repr(table).splitlines()[-1]
    assert last.startswith(f"torch {total:.4g} ms, convlab ") and "×" in last
    assert "torch_ms" in table._repr_html_() and "convlab " in table._repr_html_()
    assert table.json["provenance"]["threads"] == str(torch.get_num_threads())
    assert convlab.problems(found) == list(found)


def test_equal_layers_are_one_row():
    layer = nn.Conv2d(4, 4, 3, padding=1)
    found = capture(nn.Sequential(layer, nn.Identity(), layer, nn.Conv2d(4, 4, 3, padding=1)),
                    torch.randn(1, 4, 6, 6))
    assert list(found) == ['mb1ic4ih6oc4oh6kh3ph1n"0*3"']
    assert {(row["pass"], row["count"]) for row in found.rows} == {("fwd", 3), ("bwd_d", 2), ("bwd_w", 3)}


def test_shown():
    found = capture(small(), torch.randn(2, 3, 8, 8))
    text, page = repr(found), found._repr_html_()
    assert text.count("\n") == 9 and text.splitlines()[0].split() == [
        "layer", "problem", "pass", "dtype", "bias", "count", "ms"]
    assert f"PyTorch {torch.__version__}, threads " in text.splitlines()[-1]
    assert page.count("<tr>") == 9 and "bwd_w" in page
    pytest.importorskip("pandas")
    assert list(found.to_pandas()["ms"]) == [row["ms"] for row in found.rows]


class ManyOutputs(nn.Module):
    """The gradients of what hangs in any of these."""

    Named = collections.namedtuple("Named", "y")

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(2, 2, k) for k in (1, 2, 3, 4))

    def forward(self, x, scale=None):
        a, b, c, d = (layer(x * scale["by"]) for layer in self.layers)
        return {"a": a, "rest": [(b, None, 3), self.Named(c)]}, d.detach()


def test_outputs_of_any_form():
    found = capture(ManyOutputs(), torch.randn(1, 2, 8, 8), kwargs={"scale": {"by": torch.ones(1)}})
    assert runs(found) == {"fwd": 4, "bwd_w": 3}


def test_functions_and_what_they_close_over():
    w = torch.randn(4, 4, 3, 3, requires_grad=True)
    x = torch.randn(1, 4, 6, 6, requires_grad=True)
    found = capture(lambda x: F.conv2d(x, w).relu(), x)
    assert list(found) == ["mb1ic4ih6oc4oh4kh3ph0"]
    assert runs(found) == {"fwd": 1, "bwd_d": 1, "bwd_w": 1}
    assert w.grad is None and x.grad is None


def test_no_grad_and_frozen_models():
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        found = capture(small(), x)
    assert runs(found) == {"fwd": 3} and "forward only" in repr(found)
    assert runs(capture(small().requires_grad_(False), x)) == {"fwd": 3}
    assert runs(capture(small(), x, backward=False)) == {"fwd": 3}


def test_checkpointed_layers_run_twice():
    from torch.utils.checkpoint import checkpoint

    layer = nn.Conv2d(4, 4, 3)
    found = capture(lambda x: checkpoint(lambda x: layer(x).relu(), x, use_reentrant=False),
                    torch.randn(1, 4, 6, 6))
    assert runs(found) == {"fwd": 2, "bwd_w": 1}


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    torch.manual_seed(1)
    model = small().train(training)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    given = model[0].weight.grad
    model[1].num_batches_tracked += 3
    before = {name: value.clone() for name, value in model.state_dict().items()}
    objects = dict(model.named_buffers())
    x, called = torch.randn(2, 3, 8, 8), []
    model[0].weight.register_post_accumulate_grad_hook(called.append)
    image = x.clone()
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), python_random.getstate()

    def forward(module, inputs):
        inputs[0].add_(np.random.rand() + python_random.random())

    handle = model.register_forward_pre_hook(forward)
    capture(model, x)
    handle.remove()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (np.random.get_state()[1].tolist(), python_random.getstate())
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(objects[name] is buffer for name, buffer in model.named_buffers())
    assert model[0].weight.grad is given and bool((given == 1).all())
    assert all(p.grad is None for p in list(model.parameters())[1:]) and x.grad is None
    assert torch.equal(x, image) and not called
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_a_model_that_replaces_its_state():
    class Replaces(nn.Module):

        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(2, 2, 1)
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x):
            self.seen = self.seen + 1
            self.eval()
            self.layer(x).sum().backward()
            return self.layer(x)

    model = Replaces()
    seen = model.seen
    capture(model, torch.randn(1, 2, 4, 4))
    assert model.seen is seen and not seen.any() and model.training and model.layer.training
    assert model.layer.weight.grad is None


def test_errors_of_the_model_come_through():
    class Wrong(Exception):
        pass

    class Fails(nn.Module):

        def __init__(self):
            super().__init__()
            self.layers = small()

        def forward(self, x):
            self.layers(x)
            raise Wrong("mine")

    model = Fails()
    mean = model.layers[1].running_mean.clone()
    with pytest.raises(Wrong, match="^mine$"):
        capture(model, torch.randn(2, 3, 8, 8))
    assert torch.equal(model.layers[1].running_mean, mean)
    assert not torch.nn.modules.module._global_forward_pre_hooks
    with pytest.raises(RuntimeError, match="channels"):
        capture(small(), torch.randn(2, 4, 8, 8))


def test_complex_convolutions_are_three_real_ones():
    found = capture(nn.Conv2d(2, 2, 1, bias=False, dtype=torch.complex64),
                    torch.randn(1, 2, 4, 4, dtype=torch.complex64), backward=False)
    assert runs(found) == {"fwd": 3} and found.rows[0]["dtype"] == "f32"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("also, reason", [
    (lambda: F.conv2d(torch.zeros(1, 2, 4, 4, dtype=torch.int32), torch.ones(2, 2, 1, 1, dtype=torch.int32)),
     "the type torch.int32"),
    (lambda: nn.Conv2d(2, 2, 1, device="meta")(torch.zeros(1, 2, 4, 4, device="meta")), "the device meta"),
    (lambda: nn.Conv2d(2, 2, 1)(torch.zeros(0, 2, 4, 4)), "an empty tensor"),
    (lambda: F.conv2d(torch.zeros(1, 2, 4, 4).to_mkldnn(), torch.zeros(2, 2, 1, 1)), "the layout"),
    (lambda: torch.conv_tbc(torch.zeros(5, 2, 4), torch.zeros(3, 4, 6), torch.zeros(6)),
     "the operator aten::conv_tbc"),
    (lambda: nn.ConvTranspose2d(2, 2, 3, dilation=3, output_padding=2)(torch.zeros(1, 2, 4, 4)),
     "output padding"),
])
def test_what_is_left_out_is_counted(also, reason):
    layer = nn.Conv2d(4, 4, 3)

    def model(x):
        y = layer(x)
        with torch.no_grad():
            also()
        return y

    found = capture(model, torch.randn(1, 4, 6, 6))
    assert runs(found) == {"fwd": 1, "bwd_w": 1}
    assert len(found.skipped) == 1 and sum(found.skipped.values()) >= 1
    assert list(found.skipped)[0].startswith(reason)
    assert "skipped" in repr(found) and reason in found._repr_html_()


def test_fake_tensors_are_left_out():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        layer, x = nn.Conv2d(4, 4, 3), torch.randn(1, 4, 6, 6)
        with pytest.raises(convlab.InputError, match="skipped 1: a tensor of the class FakeTensor"):
            capture(layer, x, backward=False)


def test_refused():
    with pytest.raises(convlab.InputError, match="^the model ran no convolution that convlab takes$"):
        capture(nn.Linear(3, 3), torch.randn(1, 3))
    with pytest.raises(convlab.InputError, match="int is no model"):
        capture(3)
    with pytest.raises(convlab.InputError, match="runs is 0"):
        capture(small(), runs=0)


def test_names_that_a_text_cannot_hold():
    found = capture(nn.ModuleDict({'a"b\n*3': nn.Conv2d(2, 2, 1)})['a"b\n*3'], torch.zeros(1, 2, 4, 4))
    assert list(found) == ["mb1ic2ih4oc2oh4kh1ph0"]
    run = captured_module.Run("mb1ic2ih4oc2oh4kh1ph0", "fwd", "f32", False, 'a"b\n*3', 1.0)
    texts = list(captured_module.Captured([run], {}, False, 1, "2"))
    assert texts == ['mb1ic2ih4oc2oh4kh1ph0n"a_b_*3*1"'] == convlab.problems(texts)


def test_the_median_leaves_the_first_run_out():
    from convlab import dispatch

    watch, calls = dispatch.Watch(1, {}), []

    def slow_at_first():
        time.sleep(0 if calls else 0.5)
        calls.append(0)
        return len(calls)

    result, ms = watch._time(slow_at_first)
    assert result == 1 and len(calls) == 2 and ms < 200


@pytest.mark.parametrize("version, message", [
    ("'2.0.1'", "PyTorch is 2.0.1: expected 2.1 or newer"),
    (None, "PyTorch is not installed: expected 2.1 or newer"),
])
def test_another_pytorch(version, message):
    fake = f"types.SimpleNamespace(__version__={version})" if version else "None"
    code = ("import sys, types, convlab\n"
            "assert 'torch' not in sys.modules\n"
            f"sys.modules['torch'] = {fake}\n"
            "try: convlab.torch.capture(abs)\n"
            "except convlab.EnvironmentError as e: print(e)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == message, done.stderr
