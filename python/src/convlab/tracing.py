"""A model as a graph of PyTorch's operators, and which parts of it become nets. Imports PyTorch."""

import contextlib
import io
import operator
import os
import sys
import traceback
from typing import NamedTuple

import torch
from torch.utils import _pytree as pytree

from .errors import EnvironmentError
from .layers import Lacking, Value, name_of
from .translate import Translation


class Traced(NamedTuple):
    """graph: every tensor that the model holds is a placeholder, before those of the inputs.

    held: the names of the first placeholders, as in ``weights``: name in the graph -> in the model.
    constants: tensors of the model that are neither parameters nor buffers, by their names.
    inputs: for each input, None for a tensor, or (value,) of another constant.
    """

    graph: torch.fx.Graph
    weights: dict
    constants: dict
    inputs: list
    in_spec: object
    out_spec: object


_LIBRARIES = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, __file__))


def _where(error):
    """The line of the user's code that an error came from: "net.py:12, in forward: `if x.sum() > 0:`"."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__)
           if not frame.filename.startswith(_LIBRARIES) and not frame.filename.startswith("<")]
    if not own:
        return ""
    frame = own[-1]
    line = f": `{frame.line}`" if frame.line else ""
    return f" at {os.path.basename(frame.filename)}:{frame.lineno}, in {frame.name}{line}"


def _why(error):
    if "data-dependent" in str(error):
        return "control flow or a size depends on a tensor's values"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def trace(model, args, kwargs):
    """Raises EnvironmentError if PyTorch cannot trace the model."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            exported = torch.export.export(model, args, kwargs, strict=False)
    except Exception as error:  # whatever the model does
        # PyTorch prints its half of a graph, and its traceback is of its own inside; __context__ has that.
        raise EnvironmentError(
            f"PyTorch cannot trace the model{_where(error)}: {_why(error)}; expected a model that "
            "torch.export takes, a part of it, or "
            'torch.compile(model, backend="convlab"), which takes it in parts') from None
    sys.stderr.write(printed.getvalue())
    signature = exported.graph_signature
    kinds = torch.export.graph_signature.InputKind
    outputs = torch.export.graph_signature.OutputKind
    if any(spec.kind != outputs.USER_OUTPUT for spec in signature.output_specs):
        raise EnvironmentError("the model changes its buffers in a way that cannot be followed")
    if any(node.op == "get_attr" for node in exported.graph.nodes):
        raise EnvironmentError("the model has control flow, or parts under torch.no_grad or autocast: "
                               "expected a graph of operators alone")
    weights, constants, inputs = {}, {}, []
    for spec in signature.input_specs:
        if spec.kind in (kinds.PARAMETER, kinds.BUFFER, kinds.CONSTANT_TENSOR):
            weights[spec.arg.name] = spec.target
            if spec.kind == kinds.CONSTANT_TENSOR:
                constants[spec.target] = exported.constants[spec.target]
        elif spec.kind == kinds.USER_INPUT:
            is_tensor = isinstance(spec.arg, torch.export.graph_signature.TensorArgument)
            inputs.append(None if is_tensor else (getattr(spec.arg, "value", None),))
        else:
            raise EnvironmentError(f"the model has an input that cannot be followed: {spec.kind.name}")
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(exported.graph, {}))
    _keep_metadata(exported.graph, graph)
    spec = exported.call_spec
    return Traced(graph, weights, constants, inputs, spec.in_spec, spec.out_spec)


def _keep_metadata(old, new):
    for a, b in zip(old.nodes, new.nodes):
        b.meta = dict(a.meta)


# ---- Operators in place ----

_VIEWS = {"aten::reshape", "aten::contiguous", "aten::flatten", "aten::to", "aten::dropout",
          "aten::feature_dropout", "aten::chunk", "aten::split", "aten::split_with_sizes"}


def _is_in_place(node):
    schema = getattr(node.target, "_schema", None)
    return bool(schema and node.op == "call_function" and schema.is_mutable)


def _arguments(node, wanted):
    """The nodes among the arguments of an operator of which ``wanted(alias_info)`` holds."""
    schema = node.target._schema
    given = {**dict(zip((a.name for a in schema.arguments), node.args)), **node.kwargs}
    values = [given.get(a.name) for a in schema.arguments
              if a.alias_info is not None and wanted(a.alias_info)]
    return [v for v in pytree.tree_leaves(values, is_leaf=lambda v: isinstance(v, torch.fx.Node))
            if isinstance(v, torch.fx.Node)]


def _written(node):
    return _arguments(node, lambda alias: alias.is_write) if _is_in_place(node) else []


def _shared(node):
    """The arguments whose memory the result may be."""
    if node.target is operator.getitem:
        return node.all_input_nodes[:1]
    schema = getattr(node.target, "_schema", None)
    if not schema:
        return []
    aliases = _arguments(node, lambda alias: True)
    return aliases or (node.all_input_nodes[:1] if schema.name in _VIEWS else [])


def _functional(node):
    """The operator that returns what this one writes, or None."""
    schema = node.target._schema
    name = schema.name.removeprefix("aten::")
    changed = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if not name.endswith("_") or name.endswith("__") or len(changed) != 1:
        return None
    if changed[0].name != schema.arguments[0].name:
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    overload = getattr(packet, schema.overload_name or "default", None) if packet else None
    if overload is None:
        return None
    # The first is "input" in some and "self" in others.
    names = [a.name for a in overload._schema.arguments[1:]]
    return overload if names == [a.name for a in schema.arguments[1:]] else None


def without_writes(graph, weights):
    """Replaces operators in place where nothing else can see it. Returns the nodes that share memory with
    what the others write, and with them those that read it: all these stay PyTorch's."""
    places = {node: i for i, node in enumerate(graph.nodes)}
    sharing = {}  # node -> the nodes that may share its memory, one list for all of them
    written = set()
    for node in list(graph.nodes):
        group = [node]
        for source in _shared(node):
            other = sharing[source]
            if other is not group:
                group.extend(other)
                for member in other:
                    sharing[member] = group
        sharing[node] = group
        if not _is_in_place(node):
            continue
        target = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
        functional = _functional(node)
        if target is not None and target.op != "placeholder" and functional is not None:
            others = [other for other in group if other not in (target, node)]
            # A view of what is read later would have to change too.
            hidden = all(other.op != "placeholder" and
                         all(places[user] < places[node] for user in other.users) for other in others)
            if hidden:
                group.remove(node)
                node.target = functional
                sharing[node] = [node]
                for user in list(target.users):
                    if places[user] > places[node]:
                        user.replace_input_with(target, node)
                continue
        written.update(_written(node))
    groups = {id(sharing[node]) for node in written}
    sharers = {node for node, group in sharing.items() if id(group) in groups}
    # A net runs where its last operator stood: what reads such memory may not move behind a write.
    return sharers, sharers | {user for node in sharers for user in node.users}


# ---- Parts that become nets ----


class Part(NamedTuple):
    """Nodes that follow from ``entry`` alone, and of which only ``exit`` is read by others."""

    entry: torch.fx.Node
    exit: torch.fx.Node
    nodes: list
    layers: list
    input_shape: tuple
    value: Value  # of exit


_CONVOLUTIONS = ("conv", "conv_transpose")


def _ancestors(node, inside):
    found, todo = {node}, [node]
    while todo:
        for source in todo.pop().all_input_nodes:
            if source in inside and source not in found:
                found.add(source)
                todo.append(source)
    return found


def _part_from(entry, order, places, weights, training, writes, taken, lacking):
    sharers, excluded = writes
    if entry in sharers:
        return None
    try:
        translation = Translation(entry, weights, training)
    except Lacking:
        return None
    inside = set()
    for node in order[places[entry] + 1:]:
        if node.op != "call_function" or node in taken:
            continue
        sources = [s for s in node.all_input_nodes if s.name not in weights]
        if not sources or any(s is not entry and s not in inside for s in sources):
            continue
        if node in excluded:
            lacking.setdefault(node, "which shares memory that is written")
            continue
        try:
            translation.translate(node)
        except Lacking as reason:
            lacking.setdefault(node, str(reason))
            continue
        inside.add(node)
    reached = [node for node in order if node in inside]
    for last in reversed(reached):
        value = translation.values[last]
        if not isinstance(value, Value) or value.id == 0:
            continue
        if value.form not in ("plain", "last") or (value.rank == 2 and value.pixels != 1):
            continue
        nodes = _ancestors(last, inside)
        if any(user not in nodes for node in nodes if node is not last for user in node.users):
            continue
        layers = translation.needed(value.id)
        if not any(layer.method in _CONVOLUTIONS for layer in layers):
            continue
        return Part(entry, last, [node for node in reached if node in nodes], layers,
                    translation.input_shape, value)
    return None


def parts_of(graph, weights, training, writes):
    """``writes``: what without_writes returns. Returns the parts, and for each kind of operator outside of
    them how many and why."""
    order = list(graph.nodes)
    places = {node: i for i, node in enumerate(order)}
    taken, parts, lacking = set(), [], {}
    # A part begins before a convolution, or before what leads to one by layers.
    for entry in order:
        value = entry.meta.get("val")
        if entry in taken and not any(part.exit is entry for part in parts):
            continue
        if entry.name in weights or not isinstance(value, torch.Tensor):
            continue
        if value.dtype not in (torch.float32, torch.float64) or value.device.type != "cpu":
            continue
        part = _part_from(entry, order, places, weights, training, writes, taken, lacking)
        if part:
            parts.append(part)
            taken.update(part.nodes)
    left = {}
    for node in order:
        if node.op == "call_function" and node not in taken and node.target is not operator.getitem:
            name = name_of(node).removeprefix("aten::") or str(node.target)
            count, reasons = left.setdefault(name, [0, {}])
            left[name][0] = count + 1
            reason = lacking.get(node, "outside of parts with one input, one result and a convolution")
            reasons[reason] = reasons.get(reason, 0) + 1
    return parts, {name: (count, reasons) for name, (count, reasons) in left.items()}


def subgraph(part, weights):
    """The nodes of a part as a module of (x, *weights), and the weights' placeholders in order."""
    graph, copies = torch.fx.Graph(), {}
    copies[part.entry] = graph.placeholder("x")
    needed = []
    for node in part.nodes:
        for source in node.all_input_nodes:
            if source.name in weights and source not in copies:
                copies[source] = graph.placeholder(source.name)
                needed.append(source)
    for node in part.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[part.exit])
    return torch.fx.GraphModule({}, graph), needed


def with_segments(graph, replaced):
    """A module of the graph in which parts are replaced: ``replaced`` is a list of (part, weights' nodes,
    module)."""
    new, copies, root = torch.fx.Graph(), {}, {}
    inner = {node for part, _, _ in replaced for node in part.nodes}
    exits = {part.exit: (f"segment{i}", part, needed) for i, (part, needed, _) in enumerate(replaced)}
    for i, (_, _, module) in enumerate(replaced):
        root[f"segment{i}"] = module
    for node in graph.nodes:
        if node in exits:
            name, part, needed = exits[node]
            copies[node] = new.call_module(name, (copies[part.entry], *(copies[n] for n in needed)))
        elif node not in inner:
            copies[node] = new.node_copy(node, copies.__getitem__)
    return torch.fx.GraphModule(root, new)


def is_same_input(spec, leaves):
    """Whether flattened inputs have the constants that were traced."""
    return len(spec) == len(leaves) and all(
        isinstance(leaf, torch.Tensor) if constant is None else
        not isinstance(leaf, torch.Tensor) and leaf == constant[0]
        for constant, leaf in zip(spec, leaves))


def flattened(args, kwargs):
    return pytree.tree_flatten((args, kwargs))
