#!/usr/bin/env python3
"""Writes what PyTorch computes for small versions of the zoo's nets: NET.safetensors beside this.

  tests/nets/pytorch/generate.py [NET...]

Each net keeps its layers, their order and their names; filters and the hidden outputs of fully
connected layers are divided by a number, and the image is small. Where torchvision has the net, it
is torchvision's own code that runs; the others are written here from their papers. Dropout is off.

PyTorch computes in double, from values that float16 holds exactly, and what it gives is stored as
float32: the one rounding in these files. Seeds are searched for data where no input of a ReLU is
near zero and no maximum is near another, since there the gradient jumps, and rounding in another
order would show as a large difference. The metadata's f32_error is the largest relative difference of
any tensor when PyTorch itself computes in float32, also with F32_NOISE in the input. If the first seed
found has more than F32_GOAL, the best of CANDIDATES is taken.

Keys of a file, <name> as in state_dict():
  input, labels or targets
  value/<name>                      parameters and running statistics
  inference/output                  with these running statistics
  training/output, training/loss
  gradient/<name>, gradient/input   of the mean loss
  after/<name>                      running statistics after that training step
  updated/<name>                    parameters after two training steps, where the file's metadata
                                    has an update rule
"""

import math
import pathlib
import sys

import safetensors
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

MARGIN = 5e-5  # of a tensor's root mean square
F32_NOISE = 1e-6  # about what a Winograd or FFT convolution rounds
F32_GOAL, CANDIDATES = 1e-3, 12

# ---- Nets that torchvision does not have ----


def named(*layers):
    """A Sequential of (name, layer) pairs."""
    net = nn.Sequential()
    for name, layer in layers:
        net.add_module(name, layer)
    return net


# torch divides alpha by the size, the papers do not.
def response_norm():
    return nn.LocalResponseNorm(5, alpha=5 * 1e-4, beta=0.75, k=2)


def alexnet2012():
    return named(
        ("conv1", nn.Conv2d(3, 96, 11, stride=4, padding=2)),
        ("relu1", nn.ReLU()),
        ("norm1", response_norm()),
        ("pool1", nn.MaxPool2d(3, 2)),
        ("conv2", nn.Conv2d(96, 256, 5, padding=2, groups=2)),
        ("relu2", nn.ReLU()),
        ("norm2", response_norm()),
        ("pool2", nn.MaxPool2d(3, 2)),
        ("conv3", nn.Conv2d(256, 384, 3, padding=1)),
        ("relu3", nn.ReLU()),
        ("conv4", nn.Conv2d(384, 384, 3, padding=1, groups=2)),
        ("relu4", nn.ReLU()),
        ("conv5", nn.Conv2d(384, 256, 3, padding=1, groups=2)),
        ("relu5", nn.ReLU()),
        ("pool5", nn.MaxPool2d(3, 2)),
        ("flatten", nn.Flatten()),
        ("fc6", nn.Linear(256 * 6 * 6, 4096)),
        ("relu6", nn.ReLU()),
        ("fc7", nn.Linear(4096, 4096)),
        ("relu7", nn.ReLU()),
        ("fc8", nn.Linear(4096, 1000)),
    )


def overfeat():
    return named(
        ("conv1", nn.Conv2d(3, 96, 11, stride=4)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(2)),
        ("conv2", nn.Conv2d(96, 256, 5)),
        ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(2)),
        ("conv3", nn.Conv2d(256, 512, 3, padding=1)),
        ("relu3", nn.ReLU()),
        ("conv4", nn.Conv2d(512, 1024, 3, padding=1)),
        ("relu4", nn.ReLU()),
        ("conv5", nn.Conv2d(1024, 1024, 3, padding=1)),
        ("relu5", nn.ReLU()),
        ("pool5", nn.MaxPool2d(2)),
        ("flatten", nn.Flatten()),
        ("fc6", nn.Linear(1024 * 6 * 6, 3072)),
        ("relu6", nn.ReLU()),
        ("fc7", nn.Linear(3072, 4096)),
        ("relu7", nn.ReLU()),
        ("fc8", nn.Linear(4096, 1000)),
    )


def lenet(classes=10):
    return named(
        ("c1", nn.Conv2d(1, 6, 5, padding=2)),
        ("tanh1", nn.Tanh()),
        ("s2", nn.AvgPool2d(2)),
        ("c3", nn.Conv2d(6, 16, 5)),
        ("tanh3", nn.Tanh()),
        ("s4", nn.AvgPool2d(2)),
        ("c5", nn.Conv2d(16, 120, 5)),
        ("tanh5", nn.Tanh()),
        ("flatten", nn.Flatten()),
        ("f6", nn.Linear(120, 84)),
        ("tanh6", nn.Tanh()),
        ("output", nn.Linear(84, classes)),
    )


def mlp(widths, activation):
    layers = []
    for i in range(1, len(widths)):
        layers.append((f"fc{i}", nn.Linear(widths[i - 1], widths[i])))
        if i + 1 < len(widths):
            layers.append((f"act{i}", activation()))
    return named(*layers)


class Recurrent(nn.Module):
    """The rows of N 1 STEPS INPUTS, and a linear layer on each direction's last state."""

    def __init__(self, kind, inputs, hidden, outputs, **options):
        super().__init__()
        self.rnn = kind(inputs, hidden, batch_first=True, **options)
        self.fc = nn.Linear(hidden * (2 if self.rnn.bidirectional else 1), outputs)

    def forward(self, x):
        last = self.rnn(x.squeeze(1))[1]
        last = last[0] if isinstance(last, tuple) else last
        directions = 2 if self.rnn.bidirectional else 1
        return self.fc(last[-directions:].transpose(0, 1).flatten(1))


class CifarBlock(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        x = x[:, :, :: self.stride, :: self.stride]
        return F.relu(y + F.pad(x, (0, 0, 0, 0, 0, y.shape[1] - x.shape[1])))


class CifarResNet(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        before = 16
        for stage, channels in enumerate((16, 32, 64), 1):
            blocks = nn.Sequential()
            for i in range((depth - 2) // 6):
                blocks.append(CifarBlock(before, channels, 2 if stage > 1 and i == 0 else 1))
                before = channels
            self.add_module(f"layer{stage}", blocks)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class Inception2014(nn.ModuleDict):
    def __init__(self, before, c1, c3_reduce, c3, c5_reduce, c5, pool_proj):
        super().__init__()
        self["1x1"] = nn.Conv2d(before, c1, 1)
        self["3x3_reduce"] = nn.Conv2d(before, c3_reduce, 1)
        self["3x3"] = nn.Conv2d(c3_reduce, c3, 3, padding=1)
        self["5x5_reduce"] = nn.Conv2d(before, c5_reduce, 1)
        self["5x5"] = nn.Conv2d(c5_reduce, c5, 5, padding=2)
        self["pool_proj"] = nn.Conv2d(before, pool_proj, 1)

    def forward(self, x):
        return torch.cat(
            (
                F.relu(self["1x1"](x)),
                F.relu(self["3x3"](F.relu(self["3x3_reduce"](x)))),
                F.relu(self["5x5"](F.relu(self["5x5_reduce"](x)))),
                F.relu(self["pool_proj"](F.max_pool2d(x, 3, 1, 1))),
            ),
            1,
        )


class GoogLeNet2014(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.ModuleDict({"7x7": nn.Conv2d(3, 64, 7, stride=2, padding=3)})
        self.conv2 = nn.ModuleDict(
            {"3x3_reduce": nn.Conv2d(64, 64, 1), "3x3": nn.Conv2d(64, 192, 3, padding=1)}
        )
        self.norm = response_norm()
        self.inception3a = Inception2014(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = Inception2014(256, 128, 128, 192, 32, 96, 64)
        self.inception4a = Inception2014(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = Inception2014(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = Inception2014(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = Inception2014(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = Inception2014(528, 256, 160, 320, 32, 128, 128)
        self.inception5a = Inception2014(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = Inception2014(832, 384, 192, 384, 48, 128, 128)
        self.fc = nn.Linear(1024, 1000)

    def forward(self, x):
        def pool(x):
            return F.max_pool2d(x, 3, 2, ceil_mode=True)

        x = self.norm(pool(F.relu(self.conv1["7x7"](x))))
        x = F.relu(self.conv2["3x3"](F.relu(self.conv2["3x3_reduce"](x))))
        x = pool(self.norm(x))
        x = pool(self.inception3b(self.inception3a(x)))
        x = self.inception4c(self.inception4b(self.inception4a(x)))
        x = pool(self.inception4e(self.inception4d(x)))
        x = self.inception5b(self.inception5a(x))
        return self.fc(x.mean((2, 3)))


# As github.com/milesial/Pytorch-UNet names its modules.
class DoubleConv(nn.Module):
    def __init__(self, before, channels):
        super().__init__()
        layers = []
        for c in (before, channels):
            layers += [nn.Conv2d(c, channels, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        self.double_conv = nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, before, channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(before, channels, 2, stride=2)
        self.conv = DoubleConv(before, channels)

    def forward(self, x, skipped):
        return self.conv(torch.cat((skipped, self.up(x)), 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(3, 64)
        for i in range(1, 5):
            down = nn.Module()
            down.maxpool_conv = nn.Sequential(
                nn.MaxPool2d(2), DoubleConv(32 << i, 64 << i)
            )
            self.add_module(f"down{i}", down)
        for i in range(1, 5):
            self.add_module(f"up{i}", Up(2048 >> i, 1024 >> i))
        self.outc = nn.ModuleDict({"conv": nn.Conv2d(64, 2, 1)})

    def forward(self, x):
        kept = [self.inc(x)]
        for down in (self.down1, self.down2, self.down3, self.down4):
            kept.append(down.maxpool_conv(kept[-1]))
        x = kept.pop()
        for up in (self.up1, self.up2, self.up3, self.up4):
            x = up(x, kept.pop())
        return self.outc["conv"](x)


class ConvNormRelu2(nn.Module):
    def __init__(self, inputs, middle, outputs):
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, middle, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm3d(middle)
        self.conv2 = nn.Conv3d(middle, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm3d(outputs)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)))


class UNet3d(nn.Module):
    """Cicek et al. 2016, figure 2, with padded convolutions."""

    def __init__(self):
        super().__init__()
        inputs = 3
        for level in range(1, 5):
            self.add_module(f"analysis{level}", ConvNormRelu2(inputs, 16 << level, 32 << level))
            inputs = 32 << level
        for level in (3, 2, 1):
            outputs = 32 << level
            synthesis = ConvNormRelu2(inputs + outputs, outputs, outputs)
            synthesis.up = nn.ConvTranspose3d(inputs, inputs, 2, stride=2, bias=False)
            self.add_module(f"synthesis{level}", synthesis)
            inputs = outputs
        self.scores = nn.Conv3d(inputs, 3, 1)

    def forward(self, x):
        kept = []
        for level in (1, 2, 3, 4):
            x = self.get_submodule(f"analysis{level}")(F.max_pool3d(x, 2) if kept else x)
            kept.append(x)
        kept.pop()
        for level in (3, 2, 1):
            synthesis = self.get_submodule(f"synthesis{level}")
            x = synthesis(torch.cat((kept.pop(), synthesis.up(x)), dim=1))
        return self.scores(x)


class DeepLab(torchvision.models.segmentation.DeepLabV3):
    def forward(self, x):
        return super().forward(x)["out"]


def deeplabv3_resnet50():
    net = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)
    net.__class__ = DeepLab
    return net


# ---- Smaller ----

CONVOLUTIONS = {nn.Conv2d: nn.LazyConv2d, nn.Conv3d: nn.LazyConv3d}
TRANSPOSED = {
    nn.ConvTranspose2d: nn.LazyConvTranspose2d,
    nn.ConvTranspose3d: nn.LazyConvTranspose3d,
}
BATCH_NORMS = {nn.BatchNorm2d: nn.LazyBatchNorm2d, nn.BatchNorm3d: nn.LazyBatchNorm3d}


def lazy(m, classes):
    """The class that finds the number of its inputs by running."""
    return next(lazy for kind, lazy in classes.items() if isinstance(m, kind))


def head_of(net):
    """The layer of the scores."""
    return [m for m in net.modules() if isinstance(m, (*CONVOLUTIONS, nn.Linear))][-1]


def shrink(net, divisor, classes):
    """Divides filters and hidden outputs, rounding up. Numbers of inputs are found by running."""
    head = head_of(net)

    def divided(number):
        return -(-number // divisor)

    # As tests/nets/scaled.cpp does.
    def groups_of(whole, before, after):
        groups = min(whole, max(2, divided(whole)))
        while before % groups or after % groups:
            groups -= 1
        return groups

    for parent in list(net.modules()):
        if hasattr(parent, "layer_scale"):
            channels = divided(parent.layer_scale.shape[0])
            parent.layer_scale = nn.Parameter(torch.ones(channels, 1, 1))
        for name, m in list(parent.named_children()):
            if isinstance(m, tuple(CONVOLUTIONS)):
                filters = classes if m is head else divided(m.out_channels)
                m = lazy(m, CONVOLUTIONS)(
                    filters,
                    m.kernel_size,
                    stride=m.stride,
                    padding=m.padding,
                    dilation=m.dilation,
                    groups=groups_of(m.groups, divided(m.in_channels), filters),
                    bias=m.bias is not None,
                )
            elif isinstance(m, tuple(TRANSPOSED)):
                m = lazy(m, TRANSPOSED)(
                    divided(m.out_channels),
                    m.kernel_size,
                    stride=m.stride,
                    bias=m.bias is not None,
                )
            elif isinstance(m, nn.LayerNorm):
                m = type(m)(divided(m.normalized_shape[0]), eps=m.eps)
            elif isinstance(m, tuple(BATCH_NORMS)):
                m = lazy(m, BATCH_NORMS)(eps=m.eps, momentum=m.momentum)
            elif isinstance(m, nn.Linear):
                m = nn.LazyLinear(classes if m is head else divided(m.out_features))
            elif isinstance(m, (nn.Dropout, torchvision.ops.StochasticDepth)):
                m.p = 0.0
            # Does nothing at the size of image that the net is made for.
            elif isinstance(m, nn.AdaptiveAvgPool2d) and m.output_size not in (1, (1, 1)):
                m = nn.Identity()
            setattr(parent, name, m)


# ---- Data ----


# Where these functions' slopes jump.
KINKS = {
    torch.ops.aten.relu: (0,),
    torch.ops.aten.relu_: (0,),
    torch.ops.aten.hardtanh: (0, 6),  # relu6
    torch.ops.aten.hardtanh_: (0, 6),
    torch.ops.aten.hardswish: (-3, 3),
    torch.ops.aten.hardswish_: (-3, 3),
    torch.ops.aten.hardsigmoid: (-3, 3),
    torch.ops.aten.hardsigmoid_: (-3, 3),
}


class Margins(TorchDispatchMode):
    """The least distance, in root mean squares of the tensor, of anything that is compared."""

    def __init__(self):
        super().__init__()
        self.least = math.inf

    def see(self, gaps, x):
        if gaps.numel():
            self.least = min(self.least, (gaps.min() / x.square().mean().sqrt()).item())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for kink in KINKS.get(func._overloadpacket, ()):
            gaps = (args[0] - kink).abs()
            self.see(gaps[gaps > 0], args[0])
        if func._overloadpacket is torch.ops.aten.max_pool2d_with_indices and args[1][0] > 1:
            x, (k, _), (stride, _) = args[:3]
            pad = args[3][0] if len(args) > 3 else 0
            far = pad + stride  # for windows that rounding up adds
            padded = F.pad(x.flatten(0, 1)[:, None], (pad, far, pad, far), value=-math.inf)
            first, second = F.unfold(padded, k, stride=stride).topk(2, dim=1).values.unbind(1)
            # Equal ones (zeros behind a ReLU) stay equal however one rounds.
            self.see((first - second)[second.isfinite() & (first > second)], x)
        if func._overloadpacket is torch.ops.aten.max_pool3d_with_indices:
            x, (k, _, _) = args[:2]  # of the stride's size, without padding
            windows = x.unfold(2, k, k).unfold(3, k, k).unfold(4, k, k).flatten(5)
            first, second = windows.topk(2).values.unbind(-1)
            self.see((first - second)[first > second], x)
        return func(*args, **(kwargs or {}))


def rounded(t):
    return t.to(torch.float16).double()


@torch.no_grad()
def randomise(net, scale):
    """Weights that keep the scale of what they read, up to the last layer's, which take it away."""
    head = head_of(net)
    for m in net.modules():
        if isinstance(m, (*CONVOLUTIONS, nn.Linear)):
            gain = math.sqrt(2 / m.weight[0].numel()) / (scale if m is head else 1)
            m.weight.copy_(rounded(torch.randn(m.weight.shape) * gain))
            if m.bias is not None:
                m.bias.copy_(rounded(0.1 * torch.randn(m.bias.shape)))
        elif isinstance(m, nn.RNNBase):
            for value in m.parameters():
                value.copy_(rounded(torch.randn(value.shape) / math.sqrt(m.hidden_size)))
        elif isinstance(m, tuple(TRANSPOSED)):
            taps = math.prod(m.kernel_size) / math.prod(m.stride)
            gain = math.sqrt(1 / (m.in_channels * taps))
            m.weight.copy_(rounded(torch.randn(m.weight.shape) * gain))
            if m.bias is not None:
                m.bias.copy_(rounded(0.1 * torch.randn(m.bias.shape)))
        elif isinstance(m, nn.LayerNorm):
            m.weight.copy_(rounded(0.5 + 0.1 * torch.randn(m.weight.shape)))
            m.bias.copy_(rounded(0.2 * torch.randn(m.bias.shape)))
        elif isinstance(m, tuple(BATCH_NORMS)):
            m.weight.copy_(rounded(0.5 + 0.1 * torch.randn(m.weight.shape)))
            m.bias.copy_(rounded(0.2 * torch.randn(m.bias.shape)))
            m.running_mean.copy_(rounded(0.2 * torch.randn(m.bias.shape)))
            m.running_var.copy_(rounded(0.5 + torch.rand(m.bias.shape)))


        if hasattr(m, "layer_scale"):
            m.layer_scale.copy_(rounded(0.5 + 0.1 * torch.randn(m.layer_scale.shape)))


def statistics(net):
    return {name: b for name, b in net.named_buffers() if "running_" in name}


def draw(net, shape, outputs, scale, regression, seed):
    """What a net is given, as the file's tensors."""
    torch.manual_seed(seed)
    randomise(net, scale)
    tensors = {"input": rounded(scale * torch.randn(shape))}
    if regression:
        with torch.no_grad():
            scores = net.eval()(tensors["input"]).shape
        tensors["targets"] = rounded(torch.randn(scores))
    else:
        tensors["labels"] = torch.randint(outputs, (shape[0],), dtype=torch.int32)
    for name, value in [*net.named_parameters(), *statistics(net).items()]:
        tensors["value/" + name] = value.detach().clone()
    return tensors


def compute(net, given, update, dtype):
    """What it computes, likewise, and the least margin."""
    net.to(dtype).load_state_dict(
        {key[6:]: t for key, t in given.items() if key.startswith("value/")}, strict=False
    )
    net.zero_grad()
    given = {key: t.to(dtype) for key, t in given.items() if key != "labels"} | {
        "labels": given.get("labels")
    }

    def loss_of(output):
        if "targets" in given:
            return F.mse_loss(output, given["targets"])
        return F.cross_entropy(output, given["labels"].long())

    # Copies throughout: buffers change in training, parameters in updates.
    tensors = {}
    with torch.no_grad():
        tensors["inference/output"] = net.eval()(given["input"])

    x = given["input"].clone().requires_grad_()
    with Margins() as margins:
        output = net.train()(x)
    loss = loss_of(output)
    loss.backward()
    tensors["training/output"] = output.detach()
    tensors["training/loss"] = loss.detach().reshape(1)
    tensors["gradient/input"] = x.grad
    for name, value in net.named_parameters():
        tensors["gradient/" + name] = value.grad.clone()
    for name, value in statistics(net).items():
        tensors["after/" + name] = value.clone()

    # What batch norm takes away again has no gradient, but for rounding.
    largest = max(t.norm() for key, t in tensors.items() if key.startswith("gradient/"))
    for key, t in tensors.items():
        if key.startswith("gradient/") and t.norm() < 1e-12 * largest:
            t.zero_()

    if update:
        rule = update(net.parameters())
        rule.step()
        rule.zero_grad()
        loss_of(net(given["input"])).backward()
        rule.step()
        for name, value in net.named_parameters():
            tensors["updated/" + name] = value.detach().clone()
    return tensors, margins.least


def stored(key, tensor):
    if key == "labels":
        return tensor
    half = key in ("input", "targets") or key.startswith("value/")
    return tensor.detach().to(torch.float16 if half else torch.float32).contiguous()


# ---- The files ----

models = torchvision.models


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01, weight_decay=0.01)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


# What makes the net, what its numbers are divided by, the input, the outputs. `scale` is the
# input's deviation: pixels, where response normalisation has to matter.
NETS = {
    "alexnet": dict(make=models.alexnet, divisor=60, shape=(2, 3, 63, 63), outputs=10),
    "alexnet2012": dict(
        make=alexnet2012, divisor=64, shape=(2, 3, 63, 63), outputs=10, scale=64.0
    ),
    "overfeat": dict(make=overfeat, divisor=64, shape=(2, 3, 71, 71), outputs=10),
    "vgg11": dict(make=models.vgg11, divisor=48, shape=(2, 3, 32, 32), outputs=10),
    "vgg11_bn": dict(make=models.vgg11_bn, divisor=48, shape=(3, 3, 32, 32), outputs=10),
    "googlenet": dict(
        make=lambda: models.googlenet(aux_logits=False, init_weights=False),
        divisor=20,
        shape=(4, 3, 48, 48),
        outputs=10,
    ),
    "googlenet2014": dict(
        make=GoogLeNet2014, divisor=20, shape=(2, 3, 48, 48), outputs=10, scale=64.0
    ),
    "resnet18": dict(make=models.resnet18, divisor=20, shape=(2, 3, 48, 48), outputs=10),
    "resnet50": dict(make=models.resnet50, divisor=32, shape=(4, 3, 48, 48), outputs=10),
    "resnext50_32x4d": dict(
        make=models.resnext50_32x4d, divisor=32, shape=(4, 3, 40, 40), outputs=10
    ),
    "squeezenet1_1": dict(
        make=models.squeezenet1_1, divisor=8, shape=(2, 3, 40, 40), outputs=10
    ),
    "mobilenet_v2": dict(make=models.mobilenet_v2, divisor=12, shape=(4, 3, 40, 40), outputs=10),
    "mobilenet_v3_large": dict(
        make=models.mobilenet_v3_large, divisor=16, shape=(4, 3, 40, 40), outputs=10
    ),
    "densenet121": dict(make=models.densenet121, divisor=16, shape=(3, 3, 32, 32), outputs=10),
    "efficientnet_b0": dict(
        make=models.efficientnet_b0, divisor=12, shape=(4, 3, 40, 40), outputs=10
    ),
    "regnet_y_400mf": dict(
        make=models.regnet_y_400mf, divisor=14, shape=(3, 3, 40, 40), outputs=10
    ),
    "inception_v3": dict(
        make=lambda: models.inception_v3(aux_logits=False, init_weights=False),
        divisor=32,
        shape=(4, 3, 75, 75),
        outputs=10,
    ),
    "shufflenet_v2_x1_0": dict(
        make=models.shufflenet_v2_x1_0, divisor=10, shape=(4, 3, 40, 40), outputs=10
    ),
    "convnext_tiny": dict(
        make=models.convnext_tiny, divisor=32, shape=(2, 3, 64, 64), outputs=10
    ),
    "deeplabv3_resnet50": dict(
        make=deeplabv3_resnet50, divisor=64, shape=(3, 3, 33, 33), outputs=4, regression=True
    ),
    "unet": dict(make=UNet, divisor=32, shape=(2, 3, 32, 32), outputs=2, regression=True),
    "r3d_18": dict(make=models.video.r3d_18, divisor=24, shape=(3, 3, 6, 24, 24), outputs=10),
    "unet3d": dict(
        make=UNet3d, divisor=16, shape=(2, 3, 8, 16, 16), outputs=3, regression=True
    ),
    "resnet8": dict(make=lambda: CifarResNet(8), divisor=2, shape=(2, 3, 16, 16), outputs=10),
    "lenet": dict(make=lenet, divisor=3, shape=(3, 1, 28, 28), outputs=10, update=sgd),
    "mlp:7-13x3-3": dict(
        make=lambda: mlp((7, 13, 13, 13, 3), nn.Tanh),
        shape=(5, 7),
        outputs=3,
        regression=True,
        update=sgd,
    ),
    "mlp:20-33-9-10:relu": dict(
        make=lambda: mlp((20, 33, 9, 10), nn.ReLU), shape=(4, 20), outputs=10, update=adam
    ),
    "mlp:20-17-10:sigmoid": dict(
        make=lambda: mlp((20, 17, 10), nn.Sigmoid), shape=(3, 20), outputs=10, update=adamw
    ),
    "rnn:7-13x2-10": dict(
        make=lambda: Recurrent(nn.RNN, 7, 13, 10, num_layers=2),
        shape=(4, 1, 7, 7),
        outputs=10,
        update=sgd,
    ),
    "rnn:9x5-11-10:relu:bi": dict(
        make=lambda: Recurrent(nn.RNN, 9, 11, 10, nonlinearity="relu", bidirectional=True),
        shape=(3, 1, 5, 9),
        outputs=10,
        update=adam,
    ),
    "rnn:5x8-12x2-10:gru": dict(
        make=lambda: Recurrent(nn.GRU, 5, 12, 10, num_layers=2),
        shape=(4, 1, 8, 5),
        outputs=10,
        update=adam,
    ),
    "rnn:5x8-12x2-10:lstm:bi": dict(
        make=lambda: Recurrent(nn.LSTM, 5, 12, 10, num_layers=2, bidirectional=True),
        shape=(4, 1, 8, 5),
        outputs=10,
        update=sgd,
    ),
}


def f32_error(net, given, update, expected, noise):
    x = given["input"]
    noise = 1 + noise * torch.randn(x.shape, dtype=x.dtype, generator=torch.manual_seed(1))
    got, _ = compute(net, given | {"input": x * noise}, update, torch.float32)
    return max(((got[k] - t).norm() / t.norm()).item() for k, t in expected.items() if t.any())


def write(name, folder, make, shape, outputs, divisor=1, scale=1.0, regression=False, update=None):
    torch.manual_seed(0)
    net = make()
    if divisor > 1:
        shrink(net, divisor, outputs)
        net.eval()(torch.zeros(shape))
    found = []
    for seed in range(1, 200):
        given = draw(net.double(), shape, outputs, scale, regression, seed)
        tensors, margin = compute(net, given, update, torch.float64)
        if margin < MARGIN:
            continue
        noises = (0, F32_NOISE, -F32_NOISE)
        error = max(f32_error(net, given, update, tensors, noise) for noise in noises)
        found.append((error, seed, margin, given, tensors))
        if error <= F32_GOAL or len(found) == CANDIDATES:
            break
    if not found:
        sys.exit(f"{name}: no seed keeps clear of the kinks by {MARGIN}")
    error, seed, margin, given, tensors = min(found, key=lambda candidate: candidate[:2])
    tensors = {key: stored(key, t) for key, t in (given | tensors).items()}
    metadata = {
        "net": name,
        "divisor": str(divisor),
        "seed": str(seed),
        "margin": f"{margin:.2g}",
        "f32_error": f"{error:.2g}",
        "update": update.__name__ if update else "",
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "safetensors": safetensors.__version__,
    }
    path = folder / (name.replace(":", "_") + ".safetensors")
    save_file(tensors, path, metadata)
    print(f"{path.name}: {path.stat().st_size} bytes, seed {seed}, margin {margin:.2g}, f32 {error:.2g}")


def main():
    names = sys.argv[1:] or list(NETS)
    for name in names:
        if name not in NETS:
            sys.exit(f"unknown net '{name}': choose from {' '.join(NETS)}")
        write(name, pathlib.Path(__file__).parent, **NETS[name])


if __name__ == "__main__":
    main()
