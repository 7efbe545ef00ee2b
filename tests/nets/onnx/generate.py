"""Writes the models that onnx_test.cpp reads, and the shapes that their convolutions have in ONNX
Runtime. Wants the packages onnx and onnxruntime."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = __file__.rsplit("/", 1)[0]


class Builder:
    """A graph whose nodes are named after their outputs."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def const(self, values, dtype=np.int64):
        name = f"const{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def filter(self, *shape):
        return self.const(np.zeros(shape), np.float32)

    def add(self, op, inputs, name, outputs=None, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs or [name], name=name, **attributes))
        return (outputs or [name])[0]

    def save(self, file, inputs, opset=17, outputs=("y",)):
        def info(name, shape):
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self.nodes, "test", [info(n, s) for n, s in inputs.items()],
            [info(o, None) for o in outputs], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.save(model, f"{HERE}/{file}.onnx")
        return model


def every_operator():
    b = Builder()
    x = b.add("Conv", ["x", b.filter(16, 3, 3, 3)], "strided", strides=[2, 2], auto_pad="SAME_UPPER")
    x = b.add("Relu", [x], "relu")
    x = b.add("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    x = b.add("Conv", [x, b.filter(32, 4, 3, 5)], "grouped", group=4, pads=[1, 2, 1, 2],
              dilations=[1, 1])
    left = b.add("Conv", [x, b.filter(8, 32, 3, 3)], "dilated", dilations=[2, 3], pads=[2, 3, 2, 3])
    right = b.add("Conv", [x, b.filter(24, 32, 1, 1)], "pointwise")
    x = b.add("Concat", [left, right], "concat", axis=1)
    x = b.add("Clip", [x], "clip")
    x = b.add("ConvTranspose", [x, b.filter(32, 6, 4, 4)], "up", strides=[2, 2], pads=[1, 1, 1, 1],
              output_padding=[1, 0], group=2)
    x = b.add("Conv", [x, b.filter(20, 12, 2, 2)], "even", auto_pad="SAME_LOWER")
    x = b.add("Resize", [x, "", b.const([1, 1, 2, 1.5], np.float32)], "resize", mode="nearest")
    x = b.add("Pad", [x, b.const([0, 0, 1, 2, 0, 0, 3, 4])], "pad")
    x = b.add("Conv", [x, b.filter(16, 20, 3, 3)], "after_pad")
    b.add("Split", [x, b.const([6, 10])], "split", outputs=["few", "many"], axis=1)
    x = b.add("Slice", ["many", b.const([1]), b.const([-1]), b.const([2])], "slice")
    x = b.add("Conv", [x, b.filter(8, 10, 3, 3)], "after_slice")
    x = b.add("AveragePool", [x], "average", kernel_shape=[2, 2], strides=[2, 2])
    # Channels shuffled as PyTorch exports it, by the shape that the graph computes.
    shape = b.add("Shape", [x], "shape")
    n = b.add("Gather", [shape, b.const(0)], "n", axis=0)
    h = b.add("Gather", [shape, b.const(2)], "h", axis=0)
    parts = [b.add("Unsqueeze", [v, b.const([0])], f"u{i}") for i, v in enumerate((n, h))]
    half = b.add("Div", [b.const([8]), b.const([2])], "half")
    size = b.add("Concat", [parts[0], b.const([2]), half, parts[1], b.const([-1])], "size", axis=0)
    x = b.add("Reshape", [x, size], "apart")
    x = b.add("Transpose", [x], "turned", perm=[0, 2, 1, 3, 4])
    x = b.add("Reshape", [x, b.const([0, 8, -1, 4])], "together")
    x = b.add("Conv", [x, b.filter(8, 8, 1, 3)], "after_reshape", pads=[0, 1, 0, 1])
    x = b.add("DepthToSpace", [x], "to_space", blocksize=2)
    x = b.add("Conv", [x, b.filter(4, 2, 1, 1)], "after_to_space")
    gate = b.add("GlobalAveragePool", [x], "gate")
    gate = b.add("Conv", [gate, b.filter(4, 4, 1, 1)], "squeeze")
    x = b.add("Mul", [x, b.add("HardSigmoid", [gate], "sigmoid")], "scaled")
    x = b.add("ReduceMean", [x], "mean", axes=[2], keepdims=0)
    b.add("Conv", [x, b.filter(5, 4, 3)], "row", pads=[2, 0])
    return b.save("operators", {"x": ["N", 3, "height", "width"]}, outputs=["row"])


def volume():
    b = Builder()
    x = b.add("Conv", ["x", b.filter(8, 3, 3, 3, 3)], "volume", strides=[1, 2, 2],
              pads=[1, 1, 1, 1, 1, 1])
    b.add("ConvTranspose", [x, b.filter(8, 4, 2, 2, 2)], "up_volume", strides=[2, 2, 2])
    return b.save("volume", {"x": [2, 3, 5, 12, 14]}, opset=11, outputs=["up_volume"])


def old():
    """Of opset 7: attributes where inputs are today, a weight among the inputs without a value."""
    b = Builder()
    x = b.add("Conv", ["x", "w"], "first", pads=[1, 1, 1, 1])
    x = b.add("Pad", [x], "pad", pads=[0, 0, 1, 1, 0, 0, 1, 1])
    x = b.add("Squeeze", [b.add("Unsqueeze", [x], "more", axes=[0])], "less", axes=[0])
    x = b.add("Upsample", [x], "upsample", scales=[1.0, 1.0, 2.0, 2.0])
    b.add("Conv", [x, b.filter(6, 4, 3, 3)], "last")
    return b.save("old", {"x": [1, 3, 10, 10], "w": [4, 3, 3, 3]}, opset=7, outputs=["last"])


def unknown():
    """An operator without a rule, and one in a loop's body."""
    b = Builder()
    x = b.add("Conv", ["x", b.filter(4, 3, 3, 3)], "known")
    x = b.add("MaxUnpool", [x, "indices"], "unpool", kernel_shape=[2, 2])
    b.add("Conv", [x, b.filter(4, 4, 1, 1)], "lost")
    body = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["inner"])], "body", [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)])
    b.add("If", ["which"], "either", then_branch=body, else_branch=body)
    return b.save("unknown", {"x": [1, 3, 8, 8], "indices": [1, 4, 3, 3], "which": []},
                  outputs=["lost", "either"])


def problems(model, dims):
    """What a run of the model on zeros sees."""
    inputs = {}
    for value in model.graph.input:
        shape = [d.dim_value or dims[d.dim_param] for d in value.type.tensor_type.shape.dim]
        inputs[value.name] = np.zeros(shape, np.float32)
    del model.graph.output[:]
    for node in model.graph.node:
        model.graph.output.extend(helper.make_empty_tensor_value_info(o) for o in node.output)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [o.name for o in session.get_outputs()]
    shapes = {name: v.shape for name, v in zip(names, session.run(names, inputs))}
    shapes |= {name: v.shape for name, v in inputs.items()}
    shapes |= {w.name: tuple(w.dims) for w in model.graph.initializer}
    lines = []
    for node in model.graph.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            both = (shapes[v] for v in (node.input[0], node.input[1], node.output[0]))
            lines.append(" ".join([node.name, *("x".join(map(str, s)) for s in both)]))
    return lines


if __name__ == "__main__":
    expected = {"operators": problems(every_operator(), {"N": 2, "height": 43, "width": 38}),
                "volume": problems(volume(), {}), "old": problems(old(), {})}
    unknown()
    with open(f"{HERE}/expected.txt", "w", encoding="utf-8") as file:
        file.write("# model, convolution, and the shapes of its input, filter and output\n")
        for name, lines in expected.items():
            file.writelines(f"{name} {line}\n" for line in lines)
