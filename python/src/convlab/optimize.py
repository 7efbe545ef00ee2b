"""Replaces parts of a model by nets where they win. Imports PyTorch."""

import collections
import contextlib
import statistics
import sys
import time

import torch
from torch.utils import _pytree as pytree

from .dispatch import _random_numbers_kept, _state_kept, _tensors
from .errors import EnvironmentError, Error, Failed, InputError
from .optimized import Optimized, hooks_of
from .segments import Segment
from .table import Table, shown_html
from .tracing import parts_of, subgraph, trace, with_segments, without_writes
from .verbs import tune as tune_problems

_ROUNDS, _LONGEST = 9, 1.0  # of one race; seconds
_GAIN = 1.02  # less is noise


class _Segments(Table):
    _SHOWN = ("segment", "from", "to", "layers", "convolutions", "torch_ms", "convlab_ms", "speedup", "error",
              "kept", "reason")


class Report:
    """What ``optimize`` did. ``print`` it.

    segments: a list of dicts, a row each: its first and last operator, how many layers, the times of
    PyTorch in channels_last and of the net in ms, the error beside PyTorch, and whether it was kept.
    layers: a list of dicts: the algorithm of each convolution and pass.
    left: the operators that PyTorch runs: name -> (count, {reason: count}).
    predicted: how many choices of ``tune`` are predictions, by reason.
    before_ms, after_ms: of the whole model, in channels_last and as it is now. error: of its outputs, and
    in training of the gradients.
    """

    def __init__(self, training, threads):
        self.training, self.threads = training, threads
        self.segments, self.layers, self.left, self.predicted = [], [], {}, {}
        self.before_ms = self.after_ms = self.error = None

    @property
    def kept(self):
        return sum(row["kept"] for row in self.segments)

    def _lines(self):
        lines = []
        for name, (count, reasons) in sorted(self.left.items(), key=lambda item: -item[1][0]):
            why = ", ".join(reason for reason in reasons)
            lines.append(f"PyTorch runs {count} × {name}" + (f" {why}" if why else ""))
        lines += [f"{count} choices are predictions: {why}" for why, count in self.predicted.items()]
        return lines

    def summary(self):
        what = "a training step" if self.training else "inference"
        if not self.kept:
            return (f"convlab: {what} in {self.before_ms:.4g} ms by PyTorch: "
                    "no part of the model gains by a net")
        count = sum(row["convolutions"] for row in self.segments if row["kept"])
        return (f"convlab: {what} {self.before_ms:.4g} -> {self.after_ms:.4g} ms, "
                f"{self.before_ms / self.after_ms:.2f}×: {self.kept} of {len(self.segments)} "
                f"segments with {count} convolutions; error {self.error:.1e}, {self.threads} threads")

    def __repr__(self):
        table = [repr(_Segments({"rows": self.segments}))] if self.segments else []
        return "\n".join([*table, *self._lines(), self.summary()])

    def _repr_html_(self):
        return _Segments({"rows": self.segments})._repr_html_() + shown_html(
            [*self._lines(), self.summary()])


# ---- Times ----


def _race(ours, theirs):
    """Medians in ms of calls that take turns."""
    times = ([], [])
    for call in (ours, theirs):
        call()
    begin = time.perf_counter()
    while len(times[0]) < _ROUNDS and (len(times[0]) < 3 or time.perf_counter() - begin < _LONGEST):
        for call, own in zip((ours, theirs), times):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [1e3 * statistics.median(own) for own in times]


def _baseline(in_channels_last, otherwise):
    """PyTorch in channels_last, but for models with views that such memory does not have."""
    try:
        in_channels_last()
    except RuntimeError:
        return otherwise
    return in_channels_last


def _in_channels_last(tensor):
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return tensor.detach().to(memory_format=order) if order else tensor.detach()


def _trained_copies(tensors, like):
    return [copy.requires_grad_(t.requires_grad) if copy.is_floating_point() else copy
            for copy, t in zip(tensors, like)]


def _step(call, tensors):
    """The outputs of a call, and the gradients of the sum of them by tensors, or Nones."""
    outputs = [t for t in _tensors(call()) if t.is_floating_point()]
    roots = [t for t in outputs if t.requires_grad]
    leaves = [t for t in tensors if t.requires_grad]
    if not roots or not leaves:
        return outputs, []
    # Different weights for different elements: a sum of a batch norm's outputs does not depend on its input.
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) for t in roots]
    return outputs, torch.autograd.grad(roots, leaves, weights, allow_unused=True)


# ---- Errors ----


def _distance(found, expected, floor):
    """By the 2-norm. Tensors that are nearly zero beside the others are compared with these."""
    norm = max(float(expected.detach().double().norm()), floor)
    difference = float((found.detach().double() - expected.detach().double()).norm())
    if difference != difference:
        return float("inf")
    return difference / norm if norm > 0 else difference


def _floor(tensors):
    return 1e-3 * max((float(t.detach().double().norm()) for t in tensors), default=0.0)


def _error(ours, theirs, moved, limit):
    """The largest error of outputs and gradients beside PyTorch's, and whether it is small enough.

    A ReLU passes a gradient or not by the sign of a number that may be near zero. So gradients of deep nets
    are far less exact than what they are computed from, PyTorch's too. A tensor that differs by more than
    the limit may do so by up to 3 times what ``moved`` changes it by: PyTorch's result where a tenth of the
    limit was added to each weight, which is less than the limit admits in each convolution.
    """
    wanted = [i for i, g in enumerate(theirs[1]) if g is not None]
    if len(ours[1]) != len(theirs[1]) or any(ours[1][i] is None for i in wanted):
        return float("inf"), False

    def both(of):
        return [*of[0], *(of[1][i] for i in wanted)]

    outputs = len(theirs[0])
    floors = [_floor(theirs[0])] * outputs + [_floor([theirs[1][i] for i in wanted])] * len(wanted)
    expected = both(theirs)
    errors = [_distance(*three) for three in zip(both(ours), expected, floors)]
    worst = max(errors, default=0.0)
    if worst <= limit or not wanted:
        return worst, worst <= limit
    admitted = [_distance(*three) for three in zip(both(moved()), expected, floors)]
    return worst, all(e <= max(limit, 3 * a) for e, a in zip(errors, admitted))


def _moved(tensors, limit):
    """Copies of tensors, to the trained ones of which a tenth of the limit was added."""
    generator, copies = torch.Generator().manual_seed(2), []
    for t in tensors:
        copy = t.detach().clone()
        if t.requires_grad:
            noise = torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype)
            copy += noise * (0.1 * limit * copy.square().mean().sqrt())
        copies.append(copy.requires_grad_(t.requires_grad))
    return copies


# ---- Choosing ----


class _Recorder(torch.fx.Interpreter):
    """Runs a graph and keeps the values of some nodes."""

    def __init__(self, module, wanted):
        super().__init__(module)
        self.wanted, self.found = wanted, {}

    def run_node(self, node):
        value = super().run_node(node)
        if node.name in self.wanted:
            # A copy: what follows may write it.
            self.found[node.name] = value.detach().clone(memory_format=torch.preserve_format)
        return value


def _candidate(index, part, graph_weights, held, entry, settings):
    """A segment and the weights' nodes. Raises InputError or EnvironmentError if no net is possible."""
    reference, needed = subgraph(part, graph_weights)
    names = [graph_weights[node.name] for node in needed]
    training = settings.training
    last = not entry.is_contiguous() and entry.is_contiguous(memory_format=(
        torch.channels_last_3d if entry.dim() == 5 else torch.channels_last)) if entry.dim() > 3 else False
    gradient = training and (part.entry.op != "placeholder" or entry.requires_grad)
    segment = Segment(f"segment {index}", part, reference, [node.name for node in needed], entry.dtype,
                      training, gradient, settings.max_error, last)
    segment.weights = names
    if any(held[node.name].dtype != entry.dtype for node in needed):
        raise InputError("weights of several types")
    return segment, needed


def _measured(segment, x, weights, settings):
    """A row of the report."""
    training = settings.training
    copies = [w.detach().clone() for w in weights]
    ours_w = _trained_copies(copies, weights) if training else copies
    theirs_w = _trained_copies([_in_channels_last(w).clone(memory_format=torch.preserve_format)
                                for w in weights], weights) if training else list(
                                    map(_in_channels_last, weights))
    x_grad = training and segment.input_gradient
    ours_x = x.detach().clone().requires_grad_(x_grad)
    theirs_x = _in_channels_last(x).clone().requires_grad_(x_grad)
    plain_w = _trained_copies([w.detach().clone() for w in weights], weights)

    def ours():
        return _step(lambda: segment(ours_x, *ours_w), [ours_x, *ours_w])

    def reference(given, held):
        return _step(lambda: segment.reference(given, *held), [given, *held])

    def moved():
        return reference(ours_x, _moved(weights, settings.max_error))

    with torch.set_grad_enabled(training):
        error, is_close = _error(ours(), reference(ours_x, plain_w), moved, settings.max_error)
        theirs = _baseline(lambda: reference(theirs_x, theirs_w), lambda: reference(ours_x, plain_w))
        convlab_ms, torch_ms = _race(ours, theirs)
    row = {"torch_ms": torch_ms, "convlab_ms": convlab_ms, "speedup": torch_ms / convlab_ms, "error": error}
    if not is_close:
        return {**row, "kept": False, "reason": f"its error is above {settings.max_error:g}"}
    won = torch_ms >= _GAIN * convlab_ms or settings.all
    as_exact = "" if error <= settings.max_error else "PyTorch's own gradients move as much"
    return {**row, "kept": won, "reason": as_exact if won else "PyTorch is as fast"}


class Settings:

    def __init__(self, training, max_error, tune, budget, swap, report):
        self.training, self.max_error, self.tune = training, max_error, tune or budget is not None
        self.budget, self.all, self.report = budget, swap == "all", report


def _tuned(segments, settings, progress):
    """Returns how many choices are predictions, by reason."""
    texts, passes = {}, set()
    for segment in segments:
        for text, of in segment.net.problems():
            texts[text] = None
            passes.update(of)
    options = {"threads": torch.get_num_threads(), "max_error": settings.max_error}
    if settings.budget is not None:
        options["budget"] = settings.budget
    if passes and len(passes) < 3:
        options["pass_"] = sorted({"forward": "fwd", "backward_data": "bwd_d",
                                   "backward_filter": "bwd_w"}.get(p, p) for p in passes)
    try:
        table = tune_problems(list(texts), progress=progress, **options)
    except Failed as error:
        table = error.table
    for segment in segments:
        segment.plan(torch.get_num_threads())
    return collections.Counter(row.get("reason") or "tuning ended before their turn" for row in table or ()
                               if row.get("predicted"))


def build_program(traced, held, inputs, settings):
    """Returns (module of (*held, *inputs) or None, Report)."""
    report = Report(settings.training, torch.get_num_threads())
    graph = traced.graph
    by_name = dict(zip((node.name for node in graph.nodes if node.op == "placeholder"), [*held, *inputs]))
    writes = without_writes(graph, traced.weights)
    whole = torch.fx.GraphModule({}, graph)
    parts, report.left = parts_of(graph, traced.weights, settings.training, writes)
    if not any(any(node in part.nodes for part in parts) for node in graph.nodes):
        return None, report, whole
    with torch.no_grad():
        recorder = _Recorder(whole, {part.entry.name for part in parts})
        recorder.run(*[t.detach().clone(memory_format=torch.preserve_format)
                       if isinstance(t, torch.Tensor) else t for t in (*held, *inputs)])
    made, rows = [], []
    for index, part in enumerate(parts):
        x = recorder.found[part.entry.name]
        if part.entry.op == "placeholder":
            x = x.requires_grad_(by_name[part.entry.name].requires_grad)
        row = {"segment": index, "from": part.layers[0].name, "to": part.layers[-1].name,
               "layers": len(part.layers),
               "convolutions": sum(layer.method.startswith("conv") for layer in part.layers)}
        try:
            segment, needed = _candidate(index, part, traced.weights, by_name, x, settings)
            segment.plan(torch.get_num_threads())
        except Error as error:
            row.update(kept=False, reason=str(error))
        else:
            made.append((part, needed, segment, row, x))
        rows.append(row)
    report.segments = rows
    if settings.tune and made:
        report.predicted = _tuned([segment for _, _, segment, _, _ in made], settings, bool(settings.report))
    kept = []
    for part, needed, segment, row, x in made:
        weights = [by_name[node.name] for node in needed]
        try:
            row.update(_measured(segment, x, weights, settings))
        except Error as error:
            row.update(kept=False, reason=str(error))
        if row["kept"]:
            kept.append((part, needed, segment))
            segment.name = f"segment {row['from']} to {row['to']}"
            names = ("layer", "pass", "problem", "algo", "config", "ms", "measured")
            report.layers += [dict(zip(names, entry), segment=row["segment"]) for entry in segment.net.plan()]
    return with_segments(graph, kept) if kept else None, report, whole


def _require_followed(model, traced, held, inputs, kwargs, settings):
    """Raises EnvironmentError if the trace does not compute what the model does. A trace does not see the
    backward pass that a model writes itself (torch.autograd.Function), nor what Python's own code decides."""
    given = pytree.tree_leaves((inputs, kwargs))

    def step(call):
        leaves = [_copied(leaf).requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf
                  for leaf in given]
        tensors = [t for t in (*held, *leaves) if isinstance(t, torch.Tensor)]
        with _random_numbers_kept(), _state_kept(model):
            torch.manual_seed(1)
            return _step(lambda: call(leaves), tensors)

    def original(leaves):
        args, named = pytree.tree_unflatten(leaves, pytree.tree_structure((inputs, kwargs)))
        return pytree.tree_leaves(model(*args, **named))

    followed = torch.fx.GraphModule({}, traced.graph)
    with torch.set_grad_enabled(settings.training):
        theirs = step(original)
        ours = step(lambda leaves: followed(*held, *leaves))
    error, is_close = _error(ours, theirs, lambda: theirs, settings.max_error)
    if not is_close:
        raise EnvironmentError(
            f"the trace of the model differs from it by {error:.1e}: expected a model of PyTorch's operators "
            "alone, without a torch.autograd.Function with a backward pass of its own")


def _held_tensors(model, traced):
    tensors = []
    for name in traced.weights.values():
        if name in traced.constants:
            tensors.append(traced.constants[name])
        else:
            path, _, key = name.rpartition(".")
            tensors.append(getattr(model.get_submodule(path), key))
    return tensors


def race_whole(program, whole, held, leaves, settings):
    """(ms of the model in channels_last, ms now, error, whether it is close)."""
    training = settings.training
    # Buffers are written, so each way has its own.
    def copies():
        return _trained_copies([t.detach().clone() for t in held], held)

    def given():
        return [leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(
            leaf, torch.Tensor) else leaf for leaf in leaves]

    ours, plain, inputs = copies(), copies(), given()
    theirs = _trained_copies([_in_channels_last(t).clone(memory_format=torch.preserve_format)
                              for t in held], held)
    last = [_in_channels_last(leaf).clone(memory_format=torch.preserve_format).requires_grad_(
        leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def step(module, weights, given):
        tensors = [t for t in (*weights, *given) if isinstance(t, torch.Tensor)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)  # dropout is the same in both
            return _step(lambda: module(*weights, *given), tensors)

    def moved():
        return step(whole, _moved(held, settings.max_error), _moved(leaves, settings.max_error) if not held
                    else given())

    with torch.set_grad_enabled(training):
        if program is not None:
            # In the same order of memory, in which random numbers are drawn.
            error, is_close = _error(step(program, ours, given()), step(whole, plain, given()), moved,
                                     settings.max_error)
        baseline = _baseline(lambda: step(whole, theirs, last), lambda: step(whole, plain, inputs))
        if program is None:
            ms = _race(baseline, lambda: None)[0]
            return ms, ms, 0.0, True
        after, before = _race(lambda: step(program, ours, inputs), baseline)
    return before, after, error, is_close


def _copied(value):
    return value.detach().clone(memory_format=torch.preserve_format) if isinstance(
        value, torch.Tensor) else value


def optimized(model, inputs, kwargs, settings):
    """Returns an Optimized."""
    with _random_numbers_kept(), _state_kept(model):
        if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((inputs, kwargs))):
            raise InputError("no example input is a tensor of PyTorch's: expected those of the model's call")
        if model.training is not settings.training:  # else its modules may differ on purpose
            model.train(settings.training)
        with torch.no_grad():  # what the model itself refuses, it says itself
            model(*pytree.tree_map(_copied, inputs), **pytree.tree_map(_copied, kwargs))
        tensors = [*model.parameters(), *model.buffers()]
        if any(t.is_inference() for t in tensors):
            raise InputError("the model's tensors were made under torch.inference_mode, which does not count "
                             "their changes: expected a model made outside of it")
        types = {t.dtype for t in tensors if t.is_floating_point()}
        if types and types.isdisjoint((torch.float32, torch.float64)):
            raise InputError(f"the model is in {', '.join(map(str, types))}: expected float32 or float64")
        for name, module in model.named_modules():
            if any(hooks_of(module)):
                raise InputError(
                    f"the module {name} has hooks, which a net would not run: remove them" if name else
                    "the model has hooks, which would run twice: expected them on the result")
        traced = trace(model, inputs, kwargs)
        leaves, _ = pytree.tree_flatten((inputs, kwargs))
        held = _held_tensors(model, traced)
        _require_followed(model, traced, held, inputs, kwargs, settings)
        program, report, whole = build_program(traced, held, leaves, settings)
        report.before_ms, report.after_ms, report.error, is_close = race_whole(
            program, whole, held, leaves, settings)
        if not is_close:
            raise Failed(f"the outputs differ from the model's by {report.error:.1e}: expected at most "
                         f"{settings.max_error:g}; the model is left as it was")
        if program is not None and report.after_ms > report.before_ms and not settings.all:
            program = None
            report.after_ms = report.before_ms
            for row in report.segments:
                if row["kept"]:
                    row.update(kept=False, reason="the whole model is as fast in PyTorch")
    if model.training is not settings.training:
        model.train(settings.training)
    result = Optimized(model, traced, program, leaves, report)
    for segment in result.convlab_segments():
        segment.forget_weights()
    if settings.report:
        print(report, file=sys.stdout if settings.report is True else settings.report)
    return result
