"""What PyTorch may change around the nets of convlab.torch.optimize(): memory, weights, statistics."""

import copy
import gc

import convlab
import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
from torch_lab import close as close_within, optimize, quick  # noqa: E402, F401: without PyTorch it skips


def close(a, b, limit=1e-5):
    return close_within(a, b, limit)


def conv():
    return nn.Conv2d(4, 4, 3, padding=1)


def image():
    return torch.randn(2, 4, 10, 10)


class Of(nn.Module):
    """A module of functions: ``Of(f, c=conv())`` calls ``f(self, *inputs)``."""

    def __init__(self, f, **members):
        super().__init__()
        self.f = f
        for name, member in members.items():
            if isinstance(member, torch.Tensor) and not isinstance(member, nn.Parameter):
                self.register_buffer(name, member)
            else:
                setattr(self, name, member)

    def forward(self, *inputs):
        return self.f(self, *inputs)


def same(f, *others, **members):
    """An inference net's results, for x and other inputs, beside those of the model."""
    model = Of(f, **members).eval().requires_grad_(False)
    x, others = image(), [o() if callable(o) else o for o in others]
    ours = optimize(copy.deepcopy(model), x, *(torch.ones_like(o) for o in others))
    with torch.no_grad():
        return ours, close(ours(x.clone(), *others), model(x.clone(), *others))


# ---- Writes that a net must not move behind, or before ----


def multiply_in_place(m, x, g):
    y = m.c(x)
    y.mul_(g)
    return F.relu(m.d(y))


def write_input(m, x, g):
    y = m.c(x)
    x.mul_(g)
    return F.relu(y)


def write_by_out(m, x, g):
    y = m.c(x)
    z = m.d(y)
    torch.mul(y, g, out=y)
    return F.relu(z) + y


def write_by_list(m, x, g):
    y = m.c(x)
    z = m.d(y)
    torch._foreach_mul_([y], [g])
    return F.relu(z) + y


def write_buffer(m, x, g):
    y = m.c(x) * m.s
    m.s.mul_(g[0, :, :1, :1])
    return F.relu(y)


# Each net is made with a factor of 1, by which a misplaced write changes nothing.
@pytest.mark.parametrize("f", [multiply_in_place, write_input, write_by_out, write_by_list, write_buffer])
def test_writes_stay_where_they_are(f):
    members = {"c": conv(), "d": conv()}
    if f is write_buffer:
        members["s"] = torch.ones(4, 1, 1)
    _, is_same = same(f, lambda: torch.full((2, 4, 10, 10), 3.0), **members)
    assert is_same


def test_example_inputs_are_not_written():
    x = image()
    before = x.clone()
    optimize(nn.Sequential(nn.ReLU(inplace=True), conv()).eval(), x)
    assert torch.equal(x, before)


def test_a_model_that_counts_in_a_buffer():
    def f(m, x):
        m.n += 1
        return m.c(x) * m.n
    ours = optimize(Of(f, c=conv(), n=torch.zeros(())).eval(), x := image())
    with torch.no_grad():
        first, second = ours(x), ours(x)
    assert close(second, 2 * first)


# ---- Weights ----


def test_two_parameters_of_a_module_of_no_layer():
    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(4, 1, 1)), nn.Parameter(torch.zeros(4, 1, 1))

        def forward(self, x):
            return x * self.weight + self.bias

    model = nn.Sequential(conv(), Affine(), nn.ReLU()).eval()
    ours = optimize(copy.deepcopy(model), x := image())
    with torch.no_grad():
        for of in (model, ours):
            of[1].weight.fill_(3)
            of[1].bias.fill_(0.5)
        assert close(ours(x), model(x))


def test_weights_that_changed_while_pytorch_ran():
    model = nn.Sequential(conv(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(400, 5)).eval()
    ours = optimize(copy.deepcopy(model), x := image())
    with torch.no_grad():
        ours(x)
        for of in (model, ours):
            of[0].weight.mul_(2)
        weight, bias = ours[3].weight, ours[3].bias
        ours[3].weight, ours[3].bias = nn.Parameter(torch.zeros(7, 400)), nn.Parameter(torch.zeros(7))
        with pytest.warns(UserWarning):
            assert ours(x).shape == (2, 7)
        ours[3].weight, ours[3].bias = weight, bias
        assert close(ours(x), model(x))


@pytest.mark.parametrize("aligned", [True, False])
def test_statistics_that_pytorch_moved(aligned):
    model = nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU()).eval()
    if not aligned:
        model[1].running_mean = torch.zeros(5)[1:]
        model[1].running_var = torch.ones(5)[1:]
    ours = optimize(model, x := image())
    with torch.no_grad():
        ours(x)
        model.train()
        model(3 * image() + 1)
        model.eval()
        assert close(ours(x), model(x))


def test_one_batch_norm_twice_in_training():
    model = nn.Sequential(conv(), bn := nn.BatchNorm2d(4), conv(), bn, nn.ReLU())
    bn.running_mean, bn.running_var = torch.zeros(5)[1:], torch.ones(5)[1:]
    twin = copy.deepcopy(model)
    ours = optimize(model, x := image(), training=True)
    ours(x)
    twin(x)
    assert close(ours[1].running_mean, twin[1].running_mean)
    assert close(ours[1].running_var, twin[1].running_var)


def test_weights_made_under_inference_mode():
    ours = optimize(model := nn.Sequential(conv(), nn.ReLU()).eval(), x := image())
    with torch.inference_mode():
        other = copy.deepcopy(ours)
    with torch.no_grad(), pytest.warns(UserWarning, match="inference_mode"):
        assert close(other(x), model(x))


# ---- Order in memory ----


@pytest.mark.parametrize("channels_last", [False, True])
def test_views_of_what_a_model_made_contiguous(channels_last):
    model = Of(lambda m, x: m.c(x).permute(0, 2, 3, 1).contiguous().view(2, -1, 2), c=conv()).eval()
    x = image()
    ours = optimize(copy.deepcopy(model), x)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        assert close(ours(x), model(x))
        assert ours(x).is_contiguous()


def test_models_that_view_what_only_contiguous_tensors_have():
    _, is_same = same(lambda m, x: m.c(x).view(2, -1) * 2, c=conv())
    assert is_same


def test_writes_to_results_of_one_axis():
    model = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.ReLU())
    ours = optimize(copy.deepcopy(model), x := torch.randn(2, 3, 9), training=True)
    assert close(ours(x).mul_(2), model(x) * 2)


# ---- Gradients ----


def gradients(model, x, loss=lambda y: y.square().sum()):
    model.zero_grad()
    loss(model(x)).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def all_close(a, b):
    return len(a) == len(b) and all(close(u, v, 1e-4) for u, v in zip(a, b))


def test_saved_tensors_may_be_moved():
    model = nn.Sequential(conv(), nn.ReLU(), conv())
    ours = optimize(copy.deepcopy(model), x := image(), training=True)

    def pack(t):
        return t.detach().numpy().copy()

    with torch.autograd.graph.saved_tensors_hooks(pack, torch.from_numpy):
        y = ours(x * 1)
    gc.collect()
    torch.randn(2, 4, 10, 10)  # takes freed memory
    y.square().sum().backward()
    assert all_close([p.grad for p in ours.parameters()], gradients(model, x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    from torch.utils.checkpoint import checkpoint
    model = nn.Sequential(conv(), nn.ReLU(), conv())
    ours = optimize(copy.deepcopy(model), image(), training=True)
    x = image().requires_grad_()
    checkpoint(ours, x, use_reentrant=reentrant).square().sum().backward()
    assert all_close([p.grad for p in ours.parameters()], gradients(model, x))


def test_a_frozen_weight_that_changed_before_backward():
    model = nn.Sequential(conv(), nn.ReLU(), conv())
    model[2].weight.requires_grad_(False)
    ours = optimize(model, x := image(), training=True)
    y = ours(x).square().sum()
    with torch.no_grad():
        ours[2].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_dropout_of_images_draws_as_pytorch():
    model = nn.Sequential(conv(), nn.Dropout(0.5), conv(), nn.ReLU())
    ours = optimize(copy.deepcopy(model), x := image(), training=True)
    results = []
    for of in (ours, model):
        torch.manual_seed(7)
        results.append(of(x))
    assert close(*results)


def test_parts_without_gradients_are_refused_in_one_line():
    def f(m, x):
        with torch.no_grad():
            y = m.c(x)
        return m.d(y)
    with pytest.raises(convlab.EnvironmentError, match="torch.no_grad"):
        optimize(Of(f, c=conv(), d=conv()), image(), training=True)


# ---- Compiled ----


def test_a_compiled_result_has_its_gradients():
    model = nn.Sequential(conv(), nn.ReLU(), conv()).eval()
    ours = torch.compile(optimize(copy.deepcopy(model), x := image()), backend="aot_eager")
    assert all_close(gradients(ours, x), gradients(model, x))
    with torch.no_grad():
        assert close(ours(x), model(x))


def test_the_operator_has_no_gradient_in_silence():
    ours = optimize(nn.Sequential(conv(), nn.ReLU()).eval(), x := image())
    segment = ours.convlab_segments()[0]
    weights = [p.detach().requires_grad_() for p in ours.parameters()]
    y = torch.ops.convlab.segment(x, weights, segment.handle)
    with pytest.raises(convlab.InputError, match="training=True"):
        y.sum().backward()


def test_graphs_of_sizes_that_vary_are_named():
    torch.compiler.reset()
    ours = torch.compile(nn.Sequential(conv(), nn.ReLU()).eval(), backend="convlab", dynamic=True)
    with torch.no_grad(), pytest.warns(UserWarning, match="dynamic=False"):
        ours(image())


# ---- What is refused ----


def test_other_types_are_refused():
    with pytest.raises(convlab.InputError, match="bfloat16: expected float32"):
        optimize(nn.Sequential(conv()).bfloat16().eval(), image().bfloat16())


def test_what_stays_with_pytorch_has_a_reason():
    def f(m, x):
        return F.relu(m.d(torch.cumsum(m.c(x), 2))) + x.mean()
    left = optimize(Of(f, c=conv(), d=conv()).eval(), image()).convlab_report.left
    assert list(left["cumsum"][1]) == ["which has no layer"]
    assert left.keys() == {"cumsum", "mean", "add"} and all(reasons for _, reasons in left.values())


def test_errors_of_the_model_are_its_own():
    with pytest.raises(RuntimeError, match="channels"):
        optimize(nn.Sequential(conv()).eval(), torch.randn(1, 3, 8, 8))
