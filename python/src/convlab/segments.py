"""A part of a model that runs as a net. Imports PyTorch."""

import itertools
import math
import operator
import threading
import warnings
import weakref

import torch

from . import _core
from .errors import InputError
from .layers import build, name_of

_TYPES = {torch.float32: "float32", torch.float64: "float64"}
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_registered = weakref.WeakValueDictionary()  # of convlab::segment
_numbers = itertools.count()
_version_of = operator.attrgetter("_version")
_requires_grad = operator.attrgetter("requires_grad")


_hooks_of_saved_tensors = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def _are_saved_tensors_hooked():
    """As in checkpoints: what is saved is computed anew, or lies elsewhere meanwhile."""
    return _hooks_of_saved_tensors is not None and _hooks_of_saved_tensors(False) is not None


class _Forward:
    """What backward belongs to: the net remembers its last forward only."""

    __slots__ = ("done", "__weakref__")

    def __init__(self):
        self.done = False


class Segment(torch.nn.Module):
    """Called with a tensor and the weights, which stay the model's.

    reference: the same operators in PyTorch, which run instead where the net cannot: while another
    forward waits for its backward, and when a weight has changed its type or size.
    """

    def __init__(self, name, part, reference, weights, dtype, training, input_gradient, max_error,
                 channels_last):
        super().__init__()
        self.name, self.layers, self.input_shape = name, part.layers, part.input_shape
        self.value, self.input_rank = part.value, part.entry.meta["val"].dim()
        self.dtype, self.net_training, self.input_gradient = dtype, training, input_gradient
        self.max_error, self.channels_last = max_error, channels_last
        self.weights = weights  # their names in the model
        n, c, *image = self.value.shape
        self._sizes = (n, c, *image[len(image) + 2 - self.value.rank:])  # of the result
        places = {node: i for i, node in enumerate(weights)}
        # What follows may view it by its strides.
        self.is_dense = any(name_of(node) in ("aten::contiguous", "aten::clone") for node in part.nodes)
        self._sources = {layer.name + suffix: places.get(source.placeholder, source.value)
                         if source.placeholder else float(source.value)
                         for layer in part.layers for suffix, source in layer.parameters.items()}
        self._repeated = {layer.name + suffix for layer in part.layers
                          for suffix, source in layer.parameters.items() if source.repeated}
        self.__dict__["reference"] = reference
        self._forget()

    def _forget(self):
        # Neither copied nor pickled: made again by the next call.
        self._net, self._threads, self._seen, self._slots, self._all_seen = None, 0, [], [], None
        self._statistics, self._waiting, self._warned, self._is_stale = [], None, False, True
        self._lock = threading.RLock()
        self.handle = next(_numbers)
        _registered[self.handle] = self

    def __getstate__(self):
        state = self.__dict__.copy()
        for name in ("_net", "_threads", "_seen", "_slots", "_all_seen", "_statistics", "_waiting", "_warned",
                     "_is_stale", "_lock", "handle"):
            del state[name]
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        self._forget()

    # ---- The net ----

    def plan(self, threads):
        """Makes the net for a number of threads. Raises InputError, EnvironmentError."""
        graph = _core.Graph(self.name, list(self.input_shape))
        build(graph, self.layers)
        net = _core.Segment(graph, self.net_training, self.input_gradient, _TYPES[self.dtype],
                            self.max_error, threads, self.channels_last)
        slots, statistics = [], []
        for index, (name, shape, trained) in enumerate(net.parameters()):
            source = self._sources[name]
            if isinstance(source, float):
                net.set(index, torch.full(shape, source, dtype=self.dtype))
                continue
            slots.append((index, tuple(shape), source, trained, name in self._repeated))
            if self.net_training and not trained:
                statistics.append((index, source, len(slots) - 1))
        self._slots, self._statistics = slots, statistics
        self._net, self._threads = net, threads
        self.forget_weights()
        return net

    @property
    def net(self):
        return self._net or self.plan(torch.get_num_threads())

    def forget_weights(self):
        """The next call reads all weights again."""
        self._seen, self._all_seen = [(None, 0, 0, False)] * len(self._slots), None

    def _are_seen(self, weights):
        """Whether the net has all of these. Every call asks this, so the loops are the interpreter's own."""
        if self._all_seen is None or torch.get_num_threads() != self._threads:
            return False
        tensors, versions, places = self._all_seen
        return all(map(operator.is_, weights, tensors)) and list(map(_version_of, weights)) == versions and (
            list(map(torch.Tensor.data_ptr, weights)) == places)

    def _prepared(self, weights):
        """The net with these weights, or None if they are not those of the trace any more."""
        threads = torch.get_num_threads()
        net = self._net
        if net is None or threads != self._threads:
            net = self.plan(threads)
        seen, self._all_seen = self._seen, None
        for i, (index, shape, source, trained, is_repeated) in enumerate(self._slots):
            w = weights[source]
            tensor, version, place, is_shared = seen[i]
            # PyTorch does not count its changes of statistics. Where it shares them, the net looks itself.
            if w is tensor and w._version == version and w.data_ptr() == place and (trained or is_shared):
                continue
            if w.dtype != self.dtype or w.device.type != "cpu" or w.is_inference() or (
                    w.numel() != (1 if is_repeated else math.prod(shape))):
                return None
            self._is_stale = True  # also where this call ends early
            if not (is_shared and w is tensor and w.data_ptr() == place):
                dense = w.detach().repeat(shape) if is_repeated else w.detach().reshape(shape)
                # The net reads PyTorch's memory, unless it is in another order.
                is_shared = dense.data_ptr() == w.data_ptr() and net.use(index, dense)
                if not is_shared:
                    net.set(index, dense)
            seen[i] = (w, w._version, w.data_ptr(), is_shared)
        if self._is_stale:
            net.changed()
            self._is_stale = False
        if all(trained or seen[i][3] for i, (_, _, _, trained, _) in enumerate(self._slots)):
            self._all_seen = (tuple(weights), list(map(_version_of, weights)),
                              list(map(torch.Tensor.data_ptr, weights)))
        return net

    def result_for(self, x, last):
        """An empty result of PyTorch's sizes, or N C H W of one that is permuted afterwards. ``last``: its
        memory is in channels_last. No view: PyTorch may write it in place."""
        if not last or self.value.rank < 4:
            return x.new_empty(self._sizes)
        n, c, *image = self._sizes
        if self.value.form == "last":
            return x.new_empty((n, *image, c))
        return torch.empty((n, c, *image), dtype=x.dtype, device=x.device,
                           memory_format=_LAST[len(image) + 2])

    def _as_image(self, x):
        return x.unsqueeze(2) if self.input_rank == 3 else x

    def _as_traced(self, y, last):
        if self.value.form == "last" and y.dim() > 2 and not last:
            y = y.permute(0, *range(2, y.dim()), 1).contiguous()
        return y

    def _order(self, x):
        """The input as the net reads it, and whether that is channels_last."""
        if self.input_rank == 3:
            x = self._as_image(x)
        if x.is_contiguous():
            return x, False
        if self.input_rank > 3 and (self.value.form == "last" or not self.is_dense) and x.is_contiguous(
                memory_format=_LAST[x.dim()]):
            return x, True
        return x.contiguous(), False

    def run(self, x, weights):
        """Without a gradient. Returns (y, the input that the net reads), or None."""
        with self._lock:
            net = self._net if self._are_seen(weights) else self._prepared(weights)
            if net is None:
                return None
            if self._waiting is not None:  # Module's way to set attributes takes microseconds
                self._waiting = None
            x, last = self._order(x)
            y = self.result_for(x, last)
            net.run(x.data_ptr(), y.data_ptr(), last)
            for index, source, slot in self._statistics:
                if not self._seen[slot][3]:  # else the net has written it
                    weights[source].copy_(net.get(index, True).view(weights[source].shape))
        return self._as_traced(y, last), x

    def gradients(self, dy, x, wanted):
        """(dx, [the gradient of each weight])."""
        dy = dy.permute(0, dy.dim() - 1, *range(1, dy.dim() - 1)) if (
            self.value.form == "last" and dy.dim() > 2) else dy
        dy = dy.reshape(self.value.shape) if dy.dim() != len(self.value.shape) else dy
        last = False
        if not dy.is_contiguous():
            last = dy.is_contiguous(memory_format=_LAST[dy.dim()])
            dy = dy if last else dy.contiguous()
        dx = torch.empty_like(x) if self.input_gradient else None
        self._net.run_backward(dy.data_ptr(), dx.data_ptr() if dx is not None else 0, last)
        found = self._net.gradients(True)
        grads = [None] * len(wanted)
        for index, _, source, _, is_repeated in self._slots:
            if found[index] is None or not wanted[source]:
                continue
            one = found[index].sum().view(1) if is_repeated else found[index]
            grads[source] = one if grads[source] is None else grads[source] + one.view_as(grads[source])
        if dx is not None and self.input_rank == 3:
            dx = dx.squeeze(2)
        return dx, grads

    # ---- As PyTorch calls it ----

    def forward(self, x, *weights):
        if torch.compiler.is_compiling():
            return torch.ops.convlab.segment(x, list(weights), self.handle)
        if self.net_training and (self._is_waiting() or _are_saved_tensors_hooked()):
            # The net remembers one forward, and reads its input where it is. This one, and its backward,
            # are PyTorch's.
            return self.reference(x, *weights)
        # A second thread's forward in between makes the first's backward an error.
        if torch.is_grad_enabled() and (x.requires_grad or any(map(_requires_grad, weights))):
            return self._recorded(x, weights)
        # Past the dispatcher, which costs more than all else here.
        found = self.run(x, weights)
        return self._in_pytorch(x, weights) if found is None else found[0]

    def __call__(self, x, *weights):
        # Module's call takes a microsecond. A graph that is unpickled is traced anew, with proxies.
        if isinstance(x, torch.Tensor):
            return self.forward(x, *weights)
        return super().__call__(x, *weights)

    def _is_waiting(self):
        """Whether a backward of the last forward may still come."""
        waiting = self._waiting and self._waiting()
        return waiting is not None and not waiting.done

    def _recorded(self, x, weights):
        if not self.net_training:
            return _Inference.apply(self, x, *weights)
        if x.requires_grad and not self.input_gradient:
            return self.reference(x, *weights)
        return _Training.apply(self, x, *weights)

    def _in_pytorch(self, x, weights):
        if not self._warned:
            self._warned = True
            warnings.warn(f"{self.name} runs in PyTorch: a weight has another type, device or size than "
                          "when the model was optimized, or was made under torch.inference_mode",
                          stacklevel=2)
        return self.reference(x, *weights)

    def extra_repr(self):
        return f"{len(self.layers)} layers, {tuple(self.input_shape)}"


def _has_no_gradient(ctx, *_):
    raise InputError("the model was optimized for inference, so it has no gradients: expected "
                     "convlab.torch.optimize(model, ..., training=True)")


class _Inference(torch.autograd.Function):
    """A result whose gradient nobody has."""

    @staticmethod
    def forward(ctx, segment, x, *weights):
        found = segment.run(x, weights)
        return segment._in_pytorch(x, weights) if found is None else found[0]

    @staticmethod
    def backward(ctx, *_):
        _has_no_gradient(ctx)


class _Training(torch.autograd.Function):

    @staticmethod
    def forward(ctx, segment, x, *weights):
        with segment._lock:
            found = segment.run(x, weights)
            if found is None:
                raise InputError(f"{segment.name}: a weight has another type, device or size than when "
                                 "the model was optimized")
            y, read = found
            ctx.segment, ctx.token = segment, _Forward()
            ctx.shapes = [w.shape for w in weights]
            segment._waiting = weakref.ref(ctx.token)
        # The net reads them again in backward; PyTorch sees if they were changed meanwhile. Statistics it
        # does not read.
        moved = {source for _, source, _ in segment._statistics}
        ctx.kept = [i not in moved for i in range(len(weights))]
        ctx.read = None if read.data_ptr() == x.data_ptr() else read
        ctx.save_for_backward(x, *itertools.compress(weights, ctx.kept))
        ctx.set_materialize_grads(True)
        return y

    @staticmethod
    def backward(ctx, dy):
        segment = ctx.segment
        x, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable_gradients(ctx, dy, x, weights)
        x = segment._as_image(x) if ctx.read is None else ctx.read
        with segment._lock:
            waiting = segment._waiting and segment._waiting()
            if ctx.token.done:
                raise InputError(f"{segment.name}: backward ran already: the net computes it once after "
                                 "each forward")
            if waiting is not ctx.token:
                raise InputError(f"{segment.name}: another forward ran since, in another thread: expected a "
                                 "model for each thread")
            ctx.token.done = True
            dx, grads = segment.gradients(dy, x, ctx.needs_input_grad[2:])
        return (None, dx if ctx.needs_input_grad[1] else None,
                *(None if g is None else g.reshape(shape) for g, shape in zip(grads, ctx.shapes)))


def _differentiable_gradients(ctx, dy, x, kept):
    """With create_graph=True: PyTorch computes the part again, since a net's gradients have no graph."""
    kept = iter(kept)
    # Statistics do not enter what is computed in training, and moved once already.
    given = [x, *(next(kept) if is_kept else x.new_zeros(shape)
                  for is_kept, shape in zip(ctx.kept, ctx.shapes))]
    y = ctx.segment.reference(*given)
    needed = ctx.needs_input_grad[1:]
    found = iter(torch.autograd.grad(y, list(itertools.compress(given, needed)), dy, create_graph=True,
                                     allow_unused=True))
    return (None, *(next(found) if is_needed else None for is_needed in needed))


# ---- For torch.compile and torch.export ----


def _operator(x, weights, segment):
    found = _registered[segment]
    result = found.run(x, weights)
    y = found._in_pytorch(x, weights) if result is None else result[0]
    return y.clone() if y.data_ptr() == x.data_ptr() else y


def _fake(x, weights, segment):
    found = _registered[segment]
    read, last = found._order(x)
    return found._as_traced(found.result_for(read, last), last)


torch.library.define("convlab::segment", "(Tensor x, Tensor[] weights, int segment) -> Tensor")
torch.library.impl("convlab::segment", "CPU", _operator)
torch.library.register_fake("convlab::segment", _fake)
torch.library.register_autograd("convlab::segment", _has_no_gradient)
