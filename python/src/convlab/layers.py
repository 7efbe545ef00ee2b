"""Tensors of a traced graph as outputs of a net's layers. Imports PyTorch."""

import math
from typing import NamedTuple

import torch


class Lacking(Exception):
    """Why an operator is no layer."""


class Value(NamedTuple):
    """A tensor of the graph as the output of a layer.

    shape: the layer's, N C H W or N C D H W. rank: the dimensions of PyTorch's tensor. An image of one
    axis has H = 1. form: how PyTorch's dimensions follow from the layer's:
      plain    as they are; without H and W where the rank is 2
      last     N H W C
      flat     N C*H*W
      apart    N G C/G H W, swapped: N C/G G H W
      pending  part of a written-out activation of the layer ``id``, which ``step`` names
      padded   N C H W with zeros around, which a convolution takes as its padding: ``pad`` has the
               number before and behind each axis of the image
    """

    id: int
    shape: tuple
    rank: int
    form: str = "plain"
    groups: int = 0
    step: str = ""
    pad: tuple = ()

    @property
    def pixels(self):
        return math.prod(self.shape[2:])

    def dims(self):
        """PyTorch's sizes, or None of a pending value."""
        n, c, *image = self.shape
        image = image[-(self.rank - 2):] if self.rank > 2 else []
        if self.form == "padded":
            return (n, c, *(size + sum(around) for size, around in zip(image, self.pad)))
        if self.form in ("plain", "last"):
            return (n, c, *image) if self.form == "plain" else (n, *image, c)
        if self.form == "flat":
            return (n, c * self.pixels)
        image = self.shape[2:][-(self.rank - 3):]
        if self.form == "apart":
            return (n, self.groups, c // self.groups, *image)
        return (n, c // self.groups, self.groups, *image) if self.form == "swapped" else None


class Source(NamedTuple):
    """Where a layer's parameter comes from: a placeholder of the graph, or a number everywhere. repeated: the
    placeholder is one number, and the parameter has it everywhere."""

    placeholder: str = ""
    value: float = 0.0
    repeated: bool = False


class Layer(NamedTuple):
    """A call of ``_core.Graph``: its method, the layer's name, its inputs and the other arguments."""

    method: str
    name: str
    inputs: tuple
    arguments: tuple
    parameters: dict  # the parameter's name without the layer's -> Source
    node: str


_MANY = ("add", "concat", "gate")


def build(graph, layers):
    """Adds layers to a ``_core.Graph``. Layer i of them is node i + 1."""
    for layer in layers:
        if layer.method == "gate":
            graph.gate(layer.name, *layer.inputs)
        elif layer.method in _MANY:
            getattr(graph, layer.method)(layer.name, list(layer.inputs))
        else:
            getattr(graph, layer.method)(layer.inputs[0], layer.name, *layer.arguments)


def name_of(node):
    """``aten::conv2d`` for a node that calls it, else an empty text."""
    schema = getattr(node.target, "_schema", None)
    return schema.name if schema and node.op == "call_function" else ""


class Call:
    """A node whose operator is translated."""

    def __init__(self, translation, node):
        self.translation, self.node = translation, node
        schema = getattr(node.target, "_schema", None)
        self.arguments = {}
        if schema:
            self.arguments = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
            self.arguments.update(zip((a.name for a in schema.arguments), node.args))
        self.arguments.update(node.kwargs)

    def __getitem__(self, name):
        return self.arguments[name]

    def get(self, name, otherwise=None):
        return self.arguments.get(name, otherwise)

    def first(self):
        return self.node.args[0]

    def is_weight(self, node):
        return isinstance(node, torch.fx.Node) and node.name in self.translation.weights

    def value(self, node, *forms):
        """The value of a node. Its form is one of these, if any are given."""
        found = self.translation.values.get(node) if isinstance(node, torch.fx.Node) else None
        if not isinstance(found, Value):
            raise Lacking("of what no layer computes")
        for form, what in (("pending", "half an activation"), ("padded", "a padded image")):
            if found.form == form and form not in forms:
                raise Lacking(f"of {what}")
        if forms and found.form not in forms:
            raise Lacking("of a tensor in another order")
        return found

    def image(self, *forms):
        x = self.value(self.first(), "plain", *forms)
        if x.rank < 3:
            raise Lacking("of a tensor without an image")
        return x

    def size(self, node=None):
        return tuple((self.node if node is None else node).meta["val"].shape)

    def source(self, node, what):
        if not self.is_weight(node):
            raise Lacking(f"whose {what} is computed")
        return Source(node.name)

    def optional(self, node, what, otherwise):
        return Source(value=otherwise) if node is None else self.source(node, what)

    def add(self, method, inputs, shape, arguments=(), parameters=None):
        """Appends a layer and returns its id."""
        t = self.translation
        parameters = parameters or {}
        t.layers.append(Layer(method, t.unique_name(self.node, parameters), tuple(inputs),
                              tuple(arguments), parameters, self.node.name))
        return len(t.layers)

    def put_like(self, x, method, arguments=(), parameters=None):
        """A layer that keeps sizes and order."""
        return x._replace(id=self.add(method, [x.id], x.shape, arguments, parameters))


def per_axis(value, axes):
    value = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(v, int) for v in value):
        raise Lacking("with sizes that the model computes")
    return value * axes if len(value) == 1 else value


def planar(values, missing):
    """At least height and width."""
    return [missing] * (2 - len(values)) + list(values)
