"""The rules by which convlab.torch.optimize() makes operators layers, one model an operator."""

import copy

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
from torch_lab import close, optimize, quick  # noqa: E402, F401: without PyTorch it skips


class Calls(nn.Module):
    """A function of an image, as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def slopes(channels):
    prelu = nn.PReLU(channels)
    nn.init.uniform_(prelu.weight, -0.5, 0.5)
    return prelu


def affine(norm):
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.uniform_(norm.bias, -0.5, 0.5)
    return norm


# What follows a convolution to 8 channels.
PLANAR = {
    "leaky_relu": nn.LeakyReLU(0.2), "leaky_relu in place": nn.LeakyReLU(0.1, inplace=True),
    "elu": nn.ELU(0.7), "selu": nn.SELU(), "softplus": nn.Softplus(), "mish": nn.Mish(),
    "prelu": slopes(8), "prelu with one slope": nn.PReLU(),
    "padded": nn.Sequential(nn.ZeroPad2d((0, 1, 2, 1)), nn.Conv2d(8, 4, 3, 2)),
    "padded along one axis": nn.Sequential(nn.ConstantPad2d((3, 0), 0.0), nn.Conv2d(8, 8, (1, 4), groups=8)),
    "padded twice, widely": nn.Sequential(nn.ZeroPad2d(5), nn.Conv2d(8, 4, 3, padding=1)),
    "group_norm": affine(nn.GroupNorm(4, 8)),
    "group_norm without weights": nn.GroupNorm(2, 8, affine=False, eps=1e-3),
    "instance_norm": nn.InstanceNorm2d(8),
    "instance_norm with weights": affine(nn.InstanceNorm2d(8, affine=True)),
    "pixel_shuffle": nn.PixelShuffle(2), "clamp": Calls(lambda x: x.clamp(-0.3, 0.4)),
    "clamp from below": Calls(lambda x: x.clamp(min=0.1)),
    "clamp from above": Calls(lambda x: x.clamp(max=0.2)),
    "clamp of zeros": Calls(lambda x: F.relu(x).clamp(min=0)),
    "clamp as relu6": Calls(lambda x: F.relu(x).clamp(0, 6)),
    "max_pool of a row": nn.MaxPool2d((1, 3), (1, 2), (0, 1)),
    "max_pool of a column": nn.MaxPool2d((3, 2), (2, 1), (1, 0), ceil_mode=True),
    "avg_pool of a row": nn.AvgPool2d((1, 3), (2, 1), (0, 1)),
    "avg_pool of the image alone": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "avg_pool beyond the image": nn.AvgPool2d(3, 2, ceil_mode=True),
    "avg_pool beyond the padding": nn.AvgPool2d(2, 2, 1, ceil_mode=True),
    "avg_pool beyond, of the image alone":
        nn.AvgPool2d((3, 2), 2, 1, ceil_mode=True, count_include_pad=False),
    "adaptive averages": nn.AdaptiveAvgPool2d((3, 5)),
    "same with an even window": nn.Conv2d(8, 8, (2, 4), padding="same"),
    "same with an even, dilated window": nn.Conv2d(8, 8, 4, padding="same", dilation=(1, 3)),
}


def is_whole(ours):
    return ours.convlab_report.kept == 1 and not ours.convlab_report.left


def agree(model, x, training):
    """Outputs, and in training the gradients of the input and of all parameters."""
    reference, trained = copy.deepcopy(model), x.detach().clone().requires_grad_(training)
    ours = optimize(model, x, training=training)
    assert is_whole(ours), ours.convlab_report
    if not training:
        with torch.no_grad():
            y, expected = ours(x), reference(x)
        assert y.shape == expected.shape and close(y, expected)
        return
    other = x.detach().clone().requires_grad_()
    y, expected = ours(trained), reference(other)
    assert y.shape == expected.shape and close(y, expected)
    dy = torch.randn_like(expected)
    y.backward(dy)
    expected.backward(dy)
    assert close(trained.grad, other.grad)
    for (name, a), (_, b) in zip(ours.named_parameters(), reference.named_parameters()):
        assert close(a.grad, b.grad), name


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", PLANAR)
def test_planar(name, training):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), copy.deepcopy(PLANAR[name])).train(training)
    agree(model, torch.randn(2, 3, 9, 10), training)


@pytest.mark.parametrize("name, layer", [
    ("max_pool", nn.MaxPool1d(3, 2, 1)), ("avg_pool", nn.AvgPool1d(4, 2, 1)), ("norm", nn.InstanceNorm1d(8)),
    ("groups", affine(nn.GroupNorm(2, 8))), ("slopes", slopes(8)),
    ("same", nn.Conv1d(8, 4, 4, padding="same")), ("slope", nn.PReLU()),
    ("causal", nn.Sequential(nn.ConstantPad1d((4, 0), 0.0), nn.Conv1d(8, 4, 3, dilation=2)))])
def test_rows(name, layer):
    agree(nn.Sequential(nn.Conv1d(3, 8, 3), copy.deepcopy(layer)).eval(), torch.randn(2, 3, 21), False)


@pytest.mark.parametrize("name, layer", [
    ("avg_pool", nn.AvgPool3d((2, 3, 2), 2, (1, 1, 0), ceil_mode=True, count_include_pad=False)),
    ("max_pool", nn.MaxPool3d((1, 2, 3), (1, 2, 1))), ("norm", nn.InstanceNorm3d(8)), ("slopes", slopes(8)),
    ("groups", affine(nn.GroupNorm(2, 8))), ("same", nn.Conv3d(8, 4, (2, 3, 4), padding="same")),
    ("causal", nn.Sequential(nn.ConstantPad3d((1, 1, 0, 1, 2, 0), 0.0), nn.Conv3d(8, 4, 3)))])
def test_volumes(name, layer):
    agree(nn.Sequential(nn.Conv3d(3, 8, 3, padding=1), copy.deepcopy(layer)).eval(),
          torch.randn(1, 3, 5, 8, 7), False)


@pytest.mark.parametrize("layer, reason", [
    (nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(3)), "padded image"), (nn.ReflectionPad2d(1), "but zeros"),
    (nn.ConstantPad2d(1, 0.5), "but zeros"), (nn.ZeroPad2d((-1, 0, 0, 0)), "less than nothing"),
    (nn.MaxPool2d(17), "256 elements"), (nn.Softplus(beta=2), "another factor"),
    (nn.InstanceNorm2d(8, track_running_stats=True), "running averages"),
    (nn.MaxPool2d(2, dilation=2), "dilation")])
def test_what_has_no_layer_says_why(layer, reason):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), copy.deepcopy(layer)).eval()
    x = torch.randn(1, 3, 20, 20)
    ours = optimize(model, x)
    assert any(reason in str(why) for why in ours.convlab_report.left.values()), ours.convlab_report.left
    with torch.no_grad():
        assert close(ours(x), model(x))


def test_hardtanh_in_training_stays():
    """Its gradient is 0 at its bounds, where a clip's is 1."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardtanh(-0.5, 0.5)).train()
    ours = optimize(model, torch.randn(2, 3, 8, 8), training=True)
    assert "hardtanh" in ours.convlab_report.left
