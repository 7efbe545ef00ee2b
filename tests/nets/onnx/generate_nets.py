"""Writes the whole nets that onnx_net_test.cpp reads, NAME.onnx, and what ONNX Runtime computes with
them, NAME.npz: x and y. Wants the packages onnx and onnxruntime."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = __file__.rsplit("/", 1)[0]
RANDOM = np.random.default_rng(1)


class Builder:
    """A graph whose nodes are named after their outputs, with random weights."""

    def __init__(self):
        self.nodes, self.tensors = [], []

    def const(self, values, dtype=np.float32):
        name = f"const{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def ints(self, *values):
        return self.const(values, np.int64)

    def weight(self, *shape, dtype=np.float32):
        fan_in = np.prod(shape[1:]) if len(shape) > 1 else 4
        return self.const(RANDOM.normal(0, fan_in**-0.5, shape), dtype)

    def positive(self, *shape):
        return self.const(RANDOM.uniform(0.5, 1.5, shape))

    def add(self, op, inputs, name, outputs=None, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs or [name], name=name, **attributes))
        return (outputs or [name])[0]

    def norm(self, x, channels, name):
        parameters = [self.positive(channels), self.weight(channels), self.weight(channels),
                      self.positive(channels)]
        return self.add("BatchNormalization", [x, *parameters], name, epsilon=1e-3)

    def linear(self, x, inputs, outputs, name):
        x = self.add("MatMul", [x, self.weight(inputs, outputs)], name)
        return self.add("Add", [x, self.weight(outputs)], name + ".bias")

    def save(self, file, shape, output, opset=17, open_batch=True):
        x = RANDOM.normal(0, 1, shape).astype(np.float32)
        sizes = ["N", *shape[1:]] if open_batch else shape
        graph = helper.make_graph(
            self.nodes, "test", [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                  ir_version=8)
        session = onnxruntime.InferenceSession(model.SerializeToString(),
                                               providers=["CPUExecutionProvider"])
        y = session.run(None, {"x": x})[0]
        np.savez_compressed(f"{HERE}/{file}.npz", x=x, y=y)
        return model


def residual():
    """ResNet's, with a softmax at the end."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(8, 3, 3, 3)], "stem", strides=[2, 2], pads=[1, 1, 1, 1])
    x = b.add("Relu", [b.norm(x, 8, "stem.norm")], "stem.relu")
    x = b.add("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    y = b.add("Conv", [x, b.weight(12, 4, 3, 3), b.weight(12)], "conv1", group=2, pads=[1, 1, 1, 1],
              strides=[2, 2])
    y = b.add("Relu", [y], "relu1")
    y = b.norm(b.add("Conv", [y, b.weight(12, 12, 1, 1)], "conv2"), 12, "norm2")
    x = b.norm(b.add("Conv", [x, b.weight(12, 8, 1, 1)], "down", strides=[2, 2]), 12, "down.norm")
    x = b.add("Relu", [b.add("Add", [y, x], "sum")], "relu")
    x = b.add("Dropout", [b.add("GlobalAveragePool", [x], "mean")], "dropout")
    x = b.add("Flatten", [x], "flat")
    x = b.add("Gemm", [x, b.weight(5, 12), b.weight(5)], "fc", transB=1, alpha=0.5, beta=2.0)
    onnx.save(b.save("residual", (2, 3, 32, 32), b.add("Softmax", [x], "softmax")),
              f"{HERE}/residual.onnx")


def mobile():
    """Depthwise and gated, with activations of several nodes."""
    b = Builder()
    x = b.add("Sub", ["x", b.const([[[0.1]], [[0.2]], [[0.3]]])], "less")
    x = b.add("Div", [x, b.const(0.25)], "deviation")
    x = b.add("Pad", [x, b.ints(0, 0, 1, 1, 0, 0, 1, 1)], "pad")
    x = b.add("Conv", [x, b.weight(8, 3, 3, 3), b.weight(8)], "stem")
    x = b.add("Clip", [x, b.const(0.0), b.const(6.0)], "relu6")
    x = b.add("Conv", [x, b.weight(8, 1, 5, 5)], "depthwise", group=8, pads=[2, 2, 2, 2])
    x = b.add("HardSwish", [b.norm(x, 8, "norm")], "hardswish")
    gate = b.add("ReduceMean", [x], "squeeze", axes=[2, 3])
    gate = b.add("Conv", [gate, b.weight(4, 8, 1, 1), b.weight(4)], "fc1")
    gate = b.add("Mul", [b.add("Sigmoid", [gate], "silu.sigmoid"), gate], "silu")
    gate = b.add("Conv", [gate, b.weight(8, 4, 1, 1), b.weight(8)], "fc2")
    gate = b.add("HardSigmoid", [gate], "gate", alpha=1 / 6, beta=0.5)
    x = b.add("Mul", [gate, x], "gated")
    x = b.add("Conv", [x, b.weight(6, 8, 1, 1)], "project")
    # Hard swish as exporters of old opsets write it.
    y = b.add("Clip", [b.add("Add", [x, b.const(3.0)], "plus3"), b.const(0.0), b.const(6.0)], "clip")
    x = b.add("Mul", [x, b.add("Div", [y, b.const(6.0)], "sixth")], "old_hardswish")
    x = b.add("Mul", [x, b.add("HardSigmoid", [x], "hard", alpha=1 / 6, beta=0.5)], "hardswish2")
    x = b.add("Tanh", [b.add("Add", [x, b.weight(6, 1, 1)], "shift")], "tanh")
    x = b.add("ReduceMean", [x], "mean", axes=[-2, -1], keepdims=0)
    x = b.add("Gemm", [x, b.weight(6, 4), b.const(0.5)], "fc")
    onnx.save(b.save("mobile", (2, 3, 12, 12), b.add("Sigmoid", [x], "sigmoid")),
              f"{HERE}/mobile.onnx")


def next_block():
    """ConvNeXt's: products over the channels of each pixel, GELU in three forms."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(6, 3, 4, 4), b.weight(6)], "stem", strides=[4, 4])
    for i in range(3):
        y = b.add("Conv", [x, b.weight(6, 1, 7, 7), b.weight(6)], f"depthwise{i}", group=6,
                  pads=[3, 3, 3, 3])
        y = b.add("Transpose", [y], f"to_last{i}", perm=[0, 2, 3, 1])
        y = b.add("LayerNormalization", [y, b.positive(6), b.weight(6)], f"norm{i}", axis=-1,
                  epsilon=1e-6)
        y = b.linear(y, 6, 24, f"up{i}")
        if i == 0:
            e = b.add("Erf", [b.add("Div", [y, b.const(2**0.5)], "scaled0")], "erf0")
            e = b.add("Mul", [y, b.add("Add", [e, b.const(1.0)], "one0")], "product0")
            y = b.add("Mul", [e, b.const(0.5)], "gelu0")
        elif i == 1:
            half = b.add("Mul", [b.const(0.5), y], "half1")
            e = b.add("Erf", [b.add("Mul", [y, b.const(0.5**0.5)], "scaled1")], "erf1")
            y = b.add("Mul", [half, b.add("Add", [b.const(1.0), e], "one1")], "gelu1")
        else:
            e = b.add("Erf", [b.add("Div", [y, b.const(2**0.5)], "scaled2")], "erf2")
            e = b.add("Div", [b.add("Add", [e, b.const(1.0)], "one2"), b.const(2.0)], "half2")
            y = b.add("Mul", [e, y], "gelu2")
        y = b.linear(y, 24, 6, f"down{i}")
        y = b.add("Transpose", [y], f"to_front{i}", perm=[0, 3, 1, 2])
        x = b.add("Add", [b.add("Mul", [y, b.positive(6, 1, 1)], f"scale{i}"), x], f"sum{i}")
    x = b.add("GlobalAveragePool", [x], "mean")
    x = b.add("Reshape", [x, b.ints(0, -1)], "flat")
    x = b.add("LayerNormalization", [x, b.positive(6), b.weight(6)], "norm")
    onnx.save(b.save("next", (2, 3, 24, 24), b.linear(x, 6, 5, "fc")), f"{HERE}/next.onnx")


def shuffle():
    """Channels moved, images resized, and windows of every kind."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(12, 3, 3, 3)], "stem", pads=[1, 1, 1, 1])
    x = b.add("LRN", [x], "lrn", size=3, alpha=0.3, beta=0.75, bias=1.5)
    b.add("Split", [x, b.ints(8, 4)], "split", outputs=["many", "few"], axis=1)
    y = b.add("Slice", ["many", b.ints(2), b.ints(-1), b.ints(1)], "slice")
    x = b.add("Concat", ["few", y, "many"], "concat", axis=1)  # of 17
    x = b.add("Slice", [x, b.ints(0), b.ints(16), b.ints(1), b.ints(1)], "even")
    x = b.add("Reshape", [x, b.ints(-1, 4, 4, 14, 14)], "apart")
    x = b.add("Transpose", [x], "turned", perm=[0, 2, 1, 3, 4])
    x = b.add("Reshape", [x, b.ints(-1, 16, 14, 14)], "together")
    x = b.add("AveragePool", [x], "average", kernel_shape=[3, 3], strides=[2, 2],
              pads=[1, 1, 1, 1], count_include_pad=1)
    x = b.add("ConvTranspose", [x, b.weight(16, 3, 4, 3), b.weight(6)], "up", strides=[3, 2],
              pads=[1, 1, 1, 1], output_padding=[2, 1], group=2)
    x = b.add("Resize", [x, "", "", b.ints(2, 6, 30, 21)], "bilinear", mode="linear",
              coordinate_transformation_mode="pytorch_half_pixel")
    x = b.add("Resize", [x, "", b.const([1, 1, 2, 3])], "nearest", mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = b.add("MaxPool", [x], "ceil", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    x = b.add("Conv", [x, b.weight(4, 6, 3, 1)], "wide", dilations=[2, 1], strides=[3, 2],
              pads=[2, 0, 1, 0])
    x = b.add("Squeeze", [b.add("GlobalAveragePool", [x], "mean"), b.ints(2, 3)], "flat")
    x = b.add("Unsqueeze", [x, b.ints(2, 3)], "image")
    x = b.add("Sum", [x, x], "twice")
    onnx.save(b.save("shuffle", (2, 3, 14, 14), b.add("Conv", [x, b.weight(3, 4, 1, 1)], "fc")),
              f"{HERE}/shuffle.onnx")


def cube():
    """Three dimensions, and a fully connected layer of all voxels."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(4, 2, 3, 3, 3)], "conv", pads=[1, 1, 1, 1, 1, 1],
              strides=[1, 2, 2])
    x = b.add("MaxPool", [x], "pool", kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    x = b.add("ConvTranspose", [x, b.weight(4, 3, 2, 2, 2)], "up", strides=[2, 2, 2])
    x = b.add("Gemm", [b.add("Flatten", [x], "flat"), b.weight(5, 384), b.weight(5)], "fc", transB=1)
    onnx.save(b.save("cube", (1, 2, 8, 10, 9), x, open_batch=False), f"{HERE}/cube.onnx")


def row():
    """One dimension, of an image with its channels last."""
    b = Builder()
    x = b.add("Transpose", ["x"], "to_front", perm=[0, 3, 1, 2])
    x = b.add("Conv", [x, b.weight(5, 2, 3, 3)], "conv", pads=[1, 1, 1, 1])
    x = b.add("ReduceMean", [x], "rows", axes=[2, 3], keepdims=0)
    x = b.add("Unsqueeze", [x, b.ints(2)], "more")
    x = b.add("Conv", [x, b.weight(4, 5, 3)], "long", pads=[1, 1])
    x = b.add("Flatten", [x], "flat")
    onnx.save(b.save("row", (3, 6, 7, 2), b.linear(x, 4, 2, "fc")), f"{HERE}/row.onnx")


def types():
    """Weights of other types, in nodes, in fields, and in a file beside the model."""
    b = Builder()
    half = b.add("Cast", [b.weight(4, 3, 3, 3, dtype=np.float16)], "half", to=TensorProto.FLOAT)
    x = b.add("Conv", ["x", half], "conv1")
    fields = helper.make_tensor("fields", TensorProto.FLOAT, [4, 4, 1, 1],
                                RANDOM.normal(0, 0.5, 16).astype(np.float32))
    b.nodes.append(helper.make_node("Constant", [], ["filter"], name="filter", value=fields))
    x = b.add("Conv", [x, "filter", "outside"], "conv2")
    double = b.add("Cast", [b.weight(4, 5, dtype=np.float64)], "double", to=TensorProto.FLOAT)
    turned = b.add("Transpose", [double], "turned", perm=[1, 0])
    x = b.add("Flatten", [b.add("GlobalAveragePool", [x], "mean")], "flat")
    x = b.add("Gemm", [x, turned, b.weight(5)], "fc", transB=1)
    values = RANDOM.normal(0, 1, 4).astype(np.float32)
    b.tensors.append(numpy_helper.from_array(values, "outside"))
    model = b.save("types", (2, 3, 6, 6), x)
    with open(f"{HERE}/types.data", "wb") as file:
        file.write(b"1234" + values.tobytes())
    tensor = model.graph.initializer[-1]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "types.data"), ("offset", "4"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    onnx.save(model, f"{HERE}/types.onnx")


def same():
    """Padding and windows as TensorFlow's exporter writes them, and means that leave padding out."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(6, 3, 3, 3), b.weight(6)], "stem", auto_pad="SAME_UPPER",
              strides=[2, 2])
    x = b.add("Clip", [x, b.const(0.0), b.const(6.0)], "relu6")
    x = b.add("Pad", [x, b.ints(0, 0, 0, 0, 0, 0, 1, 1)], "pad")
    x = b.add("MaxPool", [x], "maximum", kernel_shape=[3, 3], strides=[2, 2])
    x = b.add("AveragePool", [x], "upper", kernel_shape=[3, 2], strides=[2, 1],
              auto_pad="SAME_UPPER")
    x = b.add("Conv", [x, b.weight(6, 1, 3, 4)], "lower", auto_pad="SAME_LOWER", group=6)
    x = b.add("ConvTranspose", [x, b.weight(6, 4, 3, 3)], "up", auto_pad="SAME_UPPER",
              strides=[2, 2])
    x = b.add("ConvTranspose", [x, b.weight(4, 4, 2, 4), b.weight(4)], "sides", strides=[2, 3],
              pads=[1, 2, 0, 3], output_padding=[0, 1])
    x = b.add("AveragePool", [x], "ceil", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 0],
              ceil_mode=1)
    x = b.add("Pad", [x, b.ints(0, 0, 1, 2, 0, 0, 0, 1)], "pad2")
    x = b.add("AveragePool", [x], "padded", kernel_shape=[2, 3], strides=[1, 2])
    x = b.add("MaxPool", [x], "tall", kernel_shape=[4, 1], strides=[1, 2], pads=[3, 0, 1, 0])
    x = b.add("Conv", [x, b.weight(5, 4, 2, 3)], "causal", pads=[1, 4, 0, 0], dilations=[1, 2])
    y = b.add("ReduceMax", [x], "global", axes=[2, 3])
    x = b.add("Concat", [b.add("GlobalMaxPool", [x], "most"), y], "both", axis=1)
    onnx.save(b.save("same", (2, 3, 23, 16), b.add("Conv", [x, b.weight(3, 10, 1, 1)], "fc")),
              f"{HERE}/same.onnx")


def slopes():
    """Activations with numbers."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(6, 3, 3, 3), b.weight(6)], "stem")
    x = b.add("LeakyRelu", [x], "leaky")
    x = b.add("LeakyRelu", [b.add("Conv", [x, b.weight(6, 6, 1, 1)], "conv1")], "steep", alpha=0.3)
    x = b.add("PRelu", [b.norm(x, 6, "norm"), b.positive(6, 1, 1)], "prelu")
    x = b.add("PRelu", [b.add("Conv", [x, b.weight(6, 6, 1, 1)], "conv2"), b.const([0.4])], "one")
    x = b.add("Elu", [b.add("Conv", [x, b.weight(6, 6, 1, 1)], "conv3")], "elu", alpha=1.5)
    x = b.add("Selu", [b.add("Conv", [x, b.weight(6, 6, 1, 1)], "conv4")], "selu")
    x = b.add("Clip", [x, b.const(-0.5), b.const(2.0)], "clip")
    x = b.add("Clip", [b.add("Conv", [x, b.weight(6, 6, 1, 1)], "conv5"), b.const(0.1)], "least")
    x = b.add("HardSigmoid", [b.add("Conv", [x, b.weight(6, 6, 1, 1)], "conv6")], "hard")
    x = b.add("Softplus", [b.add("Conv", [x, b.weight(6, 6, 1, 1)], "conv7")], "softplus")
    x = b.add("Conv", [x, b.weight(6, 6, 1, 1)], "conv8")
    x = b.add("Mul", [x, b.add("Tanh", [b.add("Softplus", [x], "inner")], "tanh")], "mish")
    x = b.add("Flatten", [b.add("GlobalAveragePool", [x], "mean")], "flat")
    x = b.add("PRelu", [b.linear(x, 6, 5, "fc1"), b.positive(5)], "last")
    onnx.save(b.save("slopes", (2, 3, 8, 8), b.linear(x, 5, 4, "fc2")), f"{HERE}/slopes.onnx")


def groups():
    """Norms of groups and of instances, and channels spread over pixels."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(12, 3, 3, 3), b.weight(12)], "stem")
    x = b.add("InstanceNormalization", [x, b.positive(12), b.weight(12)], "instance", epsilon=1e-2)
    x = b.add("DepthToSpace", [b.add("Relu", [x], "relu")], "depth", blocksize=2)
    x = b.add("Conv", [x, b.weight(8, 3, 3, 3)], "conv", strides=[2, 2])
    y = b.add("Reshape", [x, b.ints(0, 4, -1)], "grouped")
    y = b.add("InstanceNormalization", [y, b.const([1, 1, 1, 1]), b.const([0, 0, 0, 0])], "norm")
    y = b.add("Reshape", [y, b.add("Shape", [x], "shape")], "back")
    y = b.add("Mul", [y, b.positive(8, 1, 1)], "scale")
    x = b.add("Add", [y, b.weight(8, 1, 1)], "shift")
    x = b.add("DepthToSpace", [x], "spread", blocksize=2, mode="CRD")
    x = b.add("Flatten", [b.add("GlobalMaxPool", [x], "most")], "flat")
    onnx.save(b.save("groups", (2, 3, 8, 9), b.linear(x, 2, 3, "fc")), f"{HERE}/groups.onnx")


def deep():
    """Windows of three dimensions, padded differently in front and behind."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(4, 2, 2, 3, 3)], "conv", auto_pad="SAME_UPPER",
              strides=[1, 2, 2])
    x = b.add("AveragePool", [x], "mean", kernel_shape=[2, 3, 2], strides=[1, 2, 1],
              pads=[1, 1, 0, 0, 1, 1])
    x = b.add("MaxPool", [x], "max", kernel_shape=[2, 2, 2], strides=[2, 1, 2],
              auto_pad="SAME_LOWER")
    x = b.add("ReduceMean", [x], "rows", axes=[2, 3, 4], keepdims=0)
    onnx.save(b.save("deep", (2, 2, 4, 9, 8), b.linear(x, 4, 3, "fc")), f"{HERE}/deep.onnx")


def line():
    """One dimension, causal."""
    b = Builder()
    x = b.add("Conv", ["x", b.weight(5, 3, 3), b.weight(5)], "conv", pads=[4, 0], dilations=[2])
    x = b.add("AveragePool", [x], "pairs", kernel_shape=[2], strides=[2], pads=[0, 1])
    x = b.add("MaxPool", [x], "three", kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1)
    x = b.add("ConvTranspose", [x, b.weight(5, 4, 4)], "up", pads=[0, 3], strides=[2])
    x = b.add("Flatten", [b.add("GlobalMaxPool", [x], "most")], "flat")
    onnx.save(b.save("line", (2, 3, 17), b.linear(x, 4, 3, "fc")), f"{HERE}/line.onnx")


if __name__ == "__main__":
    residual()
    mobile()
    next_block()
    shuffle()
    cube()
    row()
    types()
    same()
    slopes()
    deep()
    line()
    groups()
