"""What ``convlab.torch.optimize`` returns. Imports PyTorch."""

import operator
import warnings

import torch
from torch.utils import _pytree as pytree

from .tracing import flattened, is_same_input

hooks_of = operator.attrgetter("_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
                               "_backward_pre_hooks")
_training_of = operator.attrgetter("training")
_functorch = torch._C._functorch
_is_tracing = torch._C._is_tracing
_hashooks_of_all_modules = torch.nn.modules.module._has_any_global_hook


def _owner(model, name):
    path, _, key = name.rpartition(".")
    return model.get_submodule(path), key


class _Places:
    """Where tensors and modules are found: dictionaries and keys, and for modules also what was there.

    Not a tuple or list of the module's: torch.export copies those, with the dictionaries in them.
    """

    __slots__ = ("held", "parents", "keys", "modules", "modes")

    def __init__(self, held, parents, keys, modules, modes):
        self.held, self.parents, self.keys, self.modules, self.modes = held, parents, keys, modules, modes

    def are_as_traced(self):
        """Every call asks this of all modules, so the loops are the interpreter's own."""
        found = map(dict.get, self.parents, self.keys)
        return all(map(operator.is_, found, self.modules)) and (
            list(map(_training_of, self.modules)) == self.modes) and not (
                any(map(any, map(hooks_of, self.modules))))

    def what_changed(self):
        for parent, key, module, training in zip(self.parents, self.keys, self.modules, self.modes):
            if parent.get(key) is not module:
                return f"the module {key} was replaced"
            if module.training is not training:
                return f"the module {key} was optimized for " + ("training" if training else "inference")
            if any(hooks_of(module)):
                return f"the module {key} has hooks"


class Optimized(torch.nn.Module):
    """The model with parts of it replaced by nets.

    Parameters, buffers, submodules and hooks are the model's own, with its names. Inputs of other sizes,
    types or devices than the examples', changed modes, replaced submodules and hooks on them run the
    model as it was, which is said once for each reason.

    convlab_report: what was replaced, a :class:`convlab.optimize.Report`.
    """

    def __init__(self, model, traced, program, inputs, report):
        super().__init__()
        # The same dictionaries: what one gains or loses, the other does.
        for name, value in model.__dict__.items():
            if name in self.__dict__:
                self.__dict__[name] = value
        self.__dict__["_original"] = model
        self.__dict__["_program"] = program
        self.__dict__["convlab_report"] = report
        self._names, self._constants = list(traced.weights.values()), traced.constants
        self._constant_inputs = traced.inputs
        self._in_spec, self._out_spec = traced.in_spec, traced.out_spec
        self._is_one = traced.out_spec.is_leaf()
        self._expected = [(leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else None
                          for leaf in inputs]
        self._is_plain = self._in_spec == flattened((inputs[0],) * len(inputs), {})[1] and all(
            c is None for c in traced.inputs)
        self._modes = [(name, module.training) for name, module in model.named_modules(
            remove_duplicate=False)]
        self._resolve()

    def _resolve(self):
        model, held = self._original, []
        for name in self._names:
            if name in self._constants:
                held.append((self._constants, name))
                continue
            module, key = _owner(model, name)
            held.append((module._parameters if key in module._parameters else module._buffers, key))
        self._root = self._modes[0][1]
        parents, keys, modules = [], [], []
        for name, _ in self._modes[1:]:
            parent, key = _owner(model, name)
            parents.append(parent._modules)
            keys.append(key)
            modules.append(parent._modules[key])
        self._places = _Places(held, parents, keys, modules, [training for _, training in self._modes[1:]])
        self._warned = set()
        if self._program is not None:
            # Module's own look-up of submodules is a function in Python.
            self._program.__dict__.update(self._program._modules)

    def __getstate__(self):
        state = self.__dict__.copy()
        for name in ("_places", "_warned"):
            del state[name]
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        self._resolve()

    def __getattr__(self, name):
        original = self.__dict__.get("_original")
        if original is None:
            raise AttributeError(name)
        return getattr(original, name)

    # Of containers. Python looks these up in the class.
    def __getitem__(self, key):
        return self._original[key]

    def __iter__(self):
        return iter(self._original)

    def __len__(self):
        return len(self._original)

    def __bool__(self):
        return True

    def train(self, mode=True):
        self._original.train(mode)
        self.training = self._original.training
        return self

    def state_dict(self, *args, **kwargs):
        return self._original.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        result = self._original.load_state_dict(*args, **kwargs)
        self.convlab_refresh()
        return result

    def convlab_refresh(self):
        """Reads all weights anew. Only writes through ``.data`` need it: PyTorch does not count them."""
        for segment in self.convlab_segments():
            segment.forget_weights()

    def convlab_segments(self):
        return list(self._program.children()) if self._program is not None else []

    def _unsuited(self, leaves):
        """Why the model runs as it was, or None."""
        for leaf, expected in zip(leaves, self._expected):
            if expected is None:
                continue
            if type(leaf) is not torch.Tensor and type(leaf) is not torch.nn.Parameter:
                return f"an input is a {type(leaf).__name__}"
            if leaf.shape != expected[0]:
                return f"an input of {tuple(leaf.shape)}: optimized for {tuple(expected[0])}"
            if leaf.dtype != expected[1]:
                return f"an input of {leaf.dtype}: optimized for {expected[1]}"
            if not leaf.is_cpu or leaf.layout != torch.strided:
                return f"an input on {leaf.device.type}, {leaf.layout}"
            if leaf.is_neg():
                return "an input that is a negated view"
        if self.training is not self._root or self._original.training is not self._root:
            return "the model was optimized for " + ("training" if self._root else "inference")
        if not self._places.are_as_traced():
            return self._places.what_changed()
        if _hashooks_of_all_modules():
            return "hooks of all modules are registered"
        if torch.is_autocast_enabled("cpu"):
            return "autocast is on"
        if _functorch.peek_interpreter_stack() is not None:
            return "a transform of torch.func runs"
        if torch.autograd.forward_ad._current_level >= 0:
            return "forward-mode differentiation is on"
        if _is_tracing():
            return "torch.jit.trace runs"
        return None

    def _warn(self, reason):
        kind = reason.partition(":")[0].partition(" of ")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(f"convlab: PyTorch runs the model: {reason}", stacklevel=4)

    def forward(self, *args, **kwargs):
        if self._program is None:
            return self._original.forward(*args, **kwargs)
        if self._is_plain and not kwargs and len(args) == len(self._expected):
            leaves = args
        else:
            leaves, spec = flattened(args, kwargs)
            if spec != self._in_spec or not is_same_input(self._constant_inputs, leaves):
                self._warn("inputs of another structure")
                return self._original.forward(*args, **kwargs)
        if torch.compiler.is_compiling() or torch.compiler.is_exporting():
            # A compiled graph that may be asked for gradients gets PyTorch's operators, which have them.
            with_gradients = torch.is_grad_enabled() and not torch.compiler.is_exporting()
            if self._root or self.training or with_gradients or any(
                    leaf.shape != e[0] for leaf, e in zip(leaves, self._expected) if e):
                return self._original.forward(*args, **kwargs)
        else:
            reason = self._unsuited(leaves)
            if reason:
                self._warn(reason)
                return self._original.forward(*args, **kwargs)
        try:
            held = [tensors[key] for tensors, key in self._places.held]
        except KeyError as key:
            self._warn(f"the parameter {key} was removed")
            return self._original.forward(*args, **kwargs)
        found = self._program.forward(*held, *leaves)
        return found[0] if self._is_one else pytree.tree_unflatten(found, self._out_spec)

    def __repr__(self):
        return f"Optimized({self._original!r})"
