"""Translates a traced graph into layers of a net. Imports PyTorch."""

import operator
from typing import Any

from .layers import Call, Lacking, Value, name_of, planar
from .rules import RULES, getitem


class Translation:
    """Translates nodes that follow from one value.

    entry: the node whose value is the net's input. weights: the names of placeholders that are
    parameters, buffers or constants, with their names in the model.
    """

    def __init__(self, entry, weights, training):
        self.weights, self.training = weights, training
        self.layers, self._names = [], set()
        self.statistics = set()  # that batch norms move in training
        size = tuple(entry.meta["val"].shape)
        if not 3 <= len(size) <= 5 or 0 in size:
            raise Lacking(f"of a tensor of {len(size)} dimensions")
        shape = (*size[:2], *planar(size[2:], 1))
        self.input_shape = shape
        self.values: dict[Any, Any] = {entry: Value(0, shape, len(size))}

    def unique_name(self, node, parameters):
        """That of the module whose parameters the layer has, or the node's."""
        name = node.name
        for suffix, source in parameters.items():
            full = self.weights.get(source.placeholder)
            if full:
                name = full.rpartition(".")[0] if suffix else full
                break
        name = name or node.name
        unique, i = name, 2
        # A layer's parameter may have the name of another layer, as "affine.weight".
        while not self._names.isdisjoint(names := {unique, *(unique + suffix for suffix in parameters)}):
            unique, i = f"{name}.{i}", i + 1
        self._names |= names
        return unique

    def translate(self, node):
        """Appends the node's layers. Raises Lacking; what it appended then, nothing reads."""
        if node.target is operator.getitem:
            rule = getitem
        else:
            name = name_of(node)
            rule = RULES.get(name[len("aten::"):]) if name.startswith("aten::") else None
        if rule is None:
            raise Lacking("which has no layer")
        result = rule(Call(self, node))
        if isinstance(result, Value) and result.form != "pending":
            expected = result.dims()
            if expected != tuple(node.meta["val"].shape):
                raise Lacking(f"into {tuple(node.meta['val'].shape)}")
        self.values[node] = result

    def needed(self, exit_id):
        """The layers that one follows from, in order and numbered anew: it is the last."""
        wanted, todo = {exit_id}, [exit_id]
        while todo:
            for i in self.layers[todo.pop() - 1].inputs:
                if i and i not in wanted:
                    wanted.add(i)
                    todo.append(i)
        order = sorted(wanted)
        places = {0: 0, **{old: new + 1 for new, old in enumerate(order)}}
        return [self.layers[old - 1]._replace(
            inputs=tuple(places[i] for i in self.layers[old - 1].inputs)) for old in order]
