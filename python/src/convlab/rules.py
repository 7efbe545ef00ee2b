"""What each operator of a traced graph is as a layer of a net."""

import math

from .layers import Lacking, Source, Value, name_of, per_axis, planar

# ---- Convolutions and products ----


def _convolution(call, transposed=None):
    if transposed is None:
        transposed = call.get("transposed", False)
    x, weight = call.image(*(() if transposed else ("padded",))), call["weight"]
    axes = x.rank - 2
    kernel = call.size(weight)[2:] if call.is_weight(weight) else None
    parameters = {".weight": call.source(weight, "filter")}
    bias = call.get("bias")
    if bias is not None:
        parameters[".bias"] = call.source(bias, "bias")
    stride, dilation = (per_axis(call.get(name, 1) or 1, axes) for name in ("stride", "dilation"))
    groups = call["groups"]
    padding = call.get("padding", 0)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel)]
        padding, end = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        padding = end = per_axis(padding, axes)
    if x.pad:
        before, behind = zip(*x.pad)
        padding = [p + more for p, more in zip(padding, before)]
        end = [p + more for p, more in zip(end, behind)]
    out = call.size()
    shape = (*out[:2], *planar(out[2:], 1))
    arguments = [out[1], planar(kernel, 1), planar(stride, 1), planar(padding, 0)]
    if transposed:
        arguments.append(planar(per_axis(call.get("output_padding", 0), axes), 0))
    arguments += [planar(dilation, 1), groups, bias is not None]
    if tuple(end) != tuple(padding):
        arguments += [False, planar(end, 0)]
    method = "conv_transpose" if transposed else "conv"
    return Value(call.add(method, [x.id], shape, arguments, parameters), shape, x.rank)


def _transposed_convolution(call):
    return _convolution(call, True)


def _linear(call):
    x = call.value(call.first())
    outputs = call.size(call["weight"])[0]
    bias = call.get("bias")
    parameters = {".weight": call.source(call["weight"], "matrix")}
    if bias is not None:
        parameters[".bias"] = call.source(bias, "bias")
    if x.form == "last" and x.rank > 2:
        # A product of each pixel's channels.
        axes = len(x.shape) - 2
        shape = (x.shape[0], outputs, *x.shape[2:])
        arguments = [outputs, [1] * axes, [1] * axes, [0] * axes, [1] * axes, 1, bias is not None]
        return x._replace(id=call.add("conv", [x.id], shape, arguments, parameters), shape=shape)
    if x.rank != 2 or (x.form != "flat" and x.pixels != 1):
        raise Lacking("over the last axis of an image")
    shape = (x.shape[0], outputs) + (1,) * (len(x.shape) - 2)
    return Value(call.add("linear", [x.id], shape, (outputs, bias is not None), parameters), shape, 2)


# ---- Normalisation, and arithmetic ----


def _batch_norm(call):
    x = call.value(call["input"], "plain")
    if x.rank == 2 and x.pixels != 1:
        raise Lacking("of a tensor in another order")
    if bool(call["training"]) != call.translation.training:
        raise Lacking("with the batch's statistics" if call["training"] else
                      "with fixed statistics in training")
    if not isinstance(call["momentum"], (int, float)) or call["running_mean"] is None:
        raise Lacking("without running averages")
    if call.translation.training:
        if call["running_mean"] in call.translation.statistics:
            raise Lacking("whose statistics another one moves too")
        call.translation.statistics.add(call["running_mean"])
    return call.put_like(x, "batch_norm", (float(call["eps"]), float(call["momentum"])), {
        ".weight": call.optional(call["weight"], "scale", 1.0),
        ".bias": call.optional(call["bias"], "shift", 0.0),
        ".running_mean": call.source(call["running_mean"], "mean"),
        ".running_var": call.source(call["running_var"], "variance")})


def _layer_norm(call):
    x = call.value(call["input"], "last", "plain")
    of_channels = x.form == "last" or (x.rank == 2 and x.pixels == 1)
    if not of_channels or list(call["normalized_shape"]) != [x.shape[1]]:
        raise Lacking("over more than the channels")
    return call.put_like(x, "layer_norm", (float(call.get("eps", 1e-5)),), {
        ".weight": call.optional(call.get("weight"), "scale", 1.0),
        ".bias": call.optional(call.get("bias"), "shift", 0.0)})


def _group_norm(call):
    return _normalised_groups(call, call["num_groups"])


def _instance_norm(call):
    if not call["use_input_stats"] or call["running_mean"] is not None:
        raise Lacking("with running averages")
    return _normalised_groups(call, call.image().shape[1])


def _normalised_groups(call, groups):
    x = call.value(call["input"], "plain")
    if x.rank == 2 and x.pixels != 1:
        raise Lacking("of a tensor in another order")
    return call.put_like(x, "group_norm", (groups, float(call["eps"])), {
        ".weight": call.optional(call.get("weight"), "scale", 1.0),
        ".bias": call.optional(call.get("bias"), "shift", 0.0)})


def _is_one_a_channel(call, x, node):
    """Whether a parameter has a number for each channel of x."""
    size = call.size(node)
    if x.form not in ("plain", "last") or len(size) > x.rank or math.prod(size) != x.shape[1]:
        return False
    dims = (1,) * (x.rank - len(size)) + size
    return dims[1 if x.form == "plain" else x.rank - 1] == x.shape[1]


def _shift(call, x, source):
    """x plus a constant: a batch norm without its statistics, which folds into a convolution."""
    if call.translation.training:
        raise Lacking("of a constant, in training")
    return call.put_like(x, "batch_norm", (0.0, 0.0), {
        ".weight": Source(value=1.0), ".bias": source,
        ".running_mean": Source(value=0.0), ".running_var": Source(value=1.0)})


def _add(call):
    a, b = call.node.args[:2]
    if call.get("alpha", 1) != 1:
        raise Lacking("with a factor")
    if isinstance(a, (int, float)) or call.is_weight(a):
        a, b = b, a
    x = call.value(a)
    if isinstance(b, (int, float)):
        if b == 3:
            return x._replace(form="pending", step=f"x + 3 {x.form}")
        return _shift(call, x, Source(value=float(b)))
    if call.is_weight(b):
        if not _is_one_a_channel(call, x, b):
            raise Lacking("of a parameter that is not one a channel")
        return _shift(call, x, Source(b.name))
    y = call.value(b)
    if x.shape != y.shape or x.form != y.form or x.rank != y.rank:
        raise Lacking("of tensors of several sizes or orders")
    return x._replace(id=call.add("add", [x.id, y.id], x.shape))


def _subtract(call):
    a, b = call.node.args[:2]
    if not isinstance(b, (int, float)) or call.get("alpha", 1) != 1:
        raise Lacking("of anything but a number")
    return _shift(call, call.value(a), Source(value=-float(b)))


def _restored(x):
    """Of a pending value, what the activation is of."""
    return x._replace(form=x.step.split()[-1], step="")


def _scaled(call, x, factor):
    # Written-out activations end with a division by 6.
    if x.form == "pending":
        if abs(factor - 1 / 6) < 1e-9 and x.step.startswith(("relu6", "product")):
            kind = "hardsigmoid" if x.step.startswith("relu6") else "hardswish"
            return call.put_like(_restored(x), "activation", (kind,))
        raise Lacking("of half an activation")
    return call.put_like(x, "channel_scale", (), {"": Source(value=factor)})


def _multiply(call):
    a, b = call.node.args[:2]
    if isinstance(a, (int, float)) or call.is_weight(a):
        a, b = b, a
    if isinstance(b, (int, float)):
        return _scaled(call, call.value(a, "plain", "last", "flat", "pending"), float(b))
    if call.is_weight(b):
        x = call.value(a)
        if not _is_one_a_channel(call, x, b):
            raise Lacking("by a parameter that is not one a channel")
        return call.put_like(x, "channel_scale", (), {"": Source(b.name)})
    forms = ("plain", "last", "flat", "pending")
    x, y = call.value(a, *forms), call.value(b, *forms)
    for one, other, node in ((x, y, b), (y, x, a)):
        if other.form == "pending":
            if other.step.startswith("relu6") and one == _restored(other):
                return other._replace(step=other.step.replace("relu6", "product"))
            continue
        # x * sigmoid(x) and x * hardsigmoid(x)
        last = call.translation.layers[other.id - 1] if other.id else None
        if last and last.method == "activation" and last.inputs == (one.id,) and other.form == one.form:
            kind = {"sigmoid": "silu", "hardsigmoid": "hardswish"}.get(last.arguments[0])
            if kind and one.form != "pending":
                return call.put_like(one, "activation", (kind,))
    if "pending" in (x.form, y.form):
        raise Lacking("of half an activation")
    if y.pixels > 1:
        x, y = y, x
    is_gate = y.shape == (*x.shape[:2], *(1,) * (len(x.shape) - 2)) and x.shape != y.shape
    if not is_gate or x.form != y.form or x.rank != y.rank or x.form == "flat":
        raise Lacking("of two images")
    return x._replace(id=call.add("gate", [x.id, y.id], x.shape))


def _divide(call):
    a, b = call.node.args[:2]
    if not isinstance(b, (int, float)) or b == 0 or call.get("rounding_mode") is not None:
        raise Lacking("by anything but a number")
    return _scaled(call, call.value(a, "plain", "last", "flat", "pending"), 1 / float(b))


# ---- Activations ----


def _activation(kind):
    def rule(call):
        if call.get("approximate", "none") != "none":
            raise Lacking("by its approximation")
        return call.put_like(call.value(call.first()), "activation", (kind,))
    return rule


def _numbered(kind, *names):
    """An activation with numbers."""
    def rule(call):
        numbers = tuple(call[name] for name in names)
        if not all(isinstance(number, (int, float)) for number in numbers):
            raise Lacking("with numbers that the model computes")
        return call.put_like(call.value(call.first()), "activation", (kind, *map(float, numbers)))
    return rule


def _elu(call):
    x = call.value(call.first())
    if call["input_scale"] != 1:
        raise Lacking("with a factor of its input")
    y = call.put_like(x, "activation", ("elu", float(call["alpha"])))
    # Selu's.
    return y if call["scale"] == 1 else _scaled(call, y, float(call["scale"]))


def _selu(call):
    y = call.put_like(call.value(call.first()), "activation", ("elu", 1.6732632423543772))
    return _scaled(call, y, 1.0507009873554805)


def _softplus(call):
    # From PyTorch's threshold on it is x, 2e-9 less.
    if call["beta"] != 1 or call["threshold"] < 20:
        raise Lacking("with another factor or threshold")
    return call.put_like(call.value(call.first()), "activation", ("softplus",))


def _prelu(call):
    x = call.value(call.first(), "plain")
    if x.rank == 2 and x.pixels != 1:
        raise Lacking("of a tensor in another order")
    slope = call.source(call["weight"], "slope")
    if call.size(call["weight"]) != (x.shape[1],):
        slope = slope._replace(repeated=True)
    return call.put_like(x, "prelu", (), {".weight": slope})


def _clamp(call):
    # At its bounds the gradient of a clamp is 1, of a hardtanh 0.
    is_clamp = name_of(call.node).startswith("aten::clamp")
    low = call.get("min_val", call.get("min"))
    high = call.get("max_val", call.get("max"))
    x = call.value(call.first(), "plain", "last", "flat", "pending")
    if name_of(call.node) == "aten::relu6":
        low, high = 0, 6
    if x.form == "pending":
        if (low, high) == (0, 6) and x.step.startswith("x + 3"):
            return x._replace(step=x.step.replace("x + 3", "relu6"))
        raise Lacking("of half an activation")
    training = call.translation.training
    if not (training and is_clamp):
        kind = {(0, 6): "relu6", (0, None): "relu"}.get((low, high))
        if kind:
            return call.put_like(x, "activation", (kind,))
        if training:
            raise Lacking("other than from 0 to 6, in training")
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    if not all(isinstance(bound, (int, float)) for bound in bounds) or not bounds[0] <= bounds[1]:
        raise Lacking("between bounds that the model computes, or that leave nothing")
    return call.put_like(x, "activation", ("clip", *map(float, bounds)))


# ---- Pooling ----


def _pool(method):
    def rule(call):
        x = call.image()
        axes = x.rank - 2
        kernel = planar(per_axis(call["kernel_size"], axes), 1)
        stride = planar(per_axis(call.get("stride") or call["kernel_size"], axes), 1)
        padding = planar(per_axis(call.get("padding", 0), axes), 0)
        if any(d != 1 for d in per_axis(call.get("dilation", 1), axes)):
            raise Lacking("with dilation")
        image, out = x.shape[2:], call.size()
        shape = (*out[:2], *planar(out[2:], 1))
        arguments = [kernel, stride, padding, bool(call.get("ceil_mode", False))]
        if method == "avg_pool":
            if call.get("divisor_override") is not None:
                raise Lacking("with a divisor")
            if tuple(kernel) == tuple(image) and not any(padding):
                return Value(call.add("global_avg_pool", [x.id], shape), shape, x.rank)
            arguments.append(bool(call.get("count_include_pad", True)))
        elif math.prod(kernel) > 256:
            raise Lacking("with a window of more than 256 elements")
        return Value(call.add(method, [x.id], shape, arguments), shape, x.rank)
    return rule


def _adaptive_average(call):
    x = call.image()
    image, out = x.shape[2:], tuple(call.size()[2:])
    if x.rank == 3:
        if out != (1,):
            raise Lacking("of one axis")
        out = (1, 1)
    if out == image:
        return x
    shape = (*x.shape[:2], *out)
    if all(o == 1 for o in out):
        return x._replace(id=call.add("global_avg_pool", [x.id], shape), shape=shape)
    if any(i % o for i, o in zip(image, out)):
        raise Lacking("with windows of several sizes")
    kernel = [i // o for i, o in zip(image, out)]
    arguments = (kernel, kernel, [0] * len(kernel), False)
    return x._replace(id=call.add("avg_pool", [x.id], shape, arguments), shape=shape)


def _mean(call):
    x = call.value(call.first(), "plain", "last")
    axes = call.get("dim")
    channel = 1 if x.form == "plain" else x.rank - 1
    if axes is None or x.rank < 3 or call.get("dtype") is not None:
        raise Lacking("over other axes than those of the image")
    if {a % x.rank for a in axes} != set(range(1, x.rank)) - {channel}:
        raise Lacking("over other axes than those of the image")
    shape = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
    y = x._replace(id=call.add("global_avg_pool", [x.id], shape), shape=shape)
    return y if call.get("keepdim") else y._replace(rank=2, form="plain")


# ---- What moves values ----


def _pad(call):
    """Zeros around an image, which the convolution that follows has as its padding."""
    x, pads = call.image(), call["pad"]
    if call.get("mode", "constant") != "constant" or (call.get("value") or 0) != 0:
        raise Lacking("by anything but zeros")
    if len(pads) > 2 * (x.rank - 2) or not all(isinstance(p, int) and p >= 0 for p in pads):
        raise Lacking("of other axes than those of the image, or by less than nothing")
    # PyTorch's begin with the last axis.
    around = tuple(zip(pads[::2], pads[1::2]))[::-1]
    return x._replace(form="padded", pad=((0, 0),) * (x.rank - 2 - len(around)) + around)


def _same(call):
    return call.value(call.first(), "plain", "last", "flat", "apart", "swapped", "pending")


def _dropout(call):
    # PyTorch's random numbers are those that torch.manual_seed() repeats.
    if call.get("train", call.get("training", False)) and call.get("p", 0.5) != 0:
        raise Lacking("in training, whose random numbers are PyTorch's")
    return _same(call)


def _reshape(call):
    x = _same(call)
    to = call.size()
    if x.dims() == to:
        return x
    candidates = []
    if x.form == "swapped":
        candidates = [x._replace(form="plain", rank=x.rank - 1, groups=0)]
        if candidates[0].dims() == to:
            shuffled = call.add("shuffle", [x.id], x.shape, (x.groups,))
            return candidates[0]._replace(id=shuffled)
    elif x.form in ("plain", "flat") or (x.form == "last" and x.pixels == 1):
        candidates.append(x._replace(form="flat", rank=2) if x.pixels > 1 else
                          x._replace(form="plain", rank=2))
        if x.pixels == 1 or x.form == "flat":
            candidates.append(x._replace(form="plain", rank=len(x.shape)))
        if x.form == "plain" and len(to) == x.rank + 1 and to[1] > 0 and x.shape[1] % to[1] == 0:
            candidates.append(x._replace(form="apart", rank=x.rank + 1, groups=to[1]))
    for y in candidates:
        if y.dims() == to:
            return y
    raise Lacking("other than to flatten or to shuffle channels")


def _permute(call):
    x = _same(call)
    rank = len(call.size())
    if name_of(call.node) == "aten::permute":
        order = [d % rank for d in call["dims"]]
    else:
        order = list(range(rank))
        i, j = call["dim0"] % rank, call["dim1"] % rank
        order[i], order[j] = order[j], order[i]
    same = list(range(rank))
    if order == same:
        return x
    groups = [0, 2, 1, *range(3, rank)]
    if x.form == "plain" and rank > 2 and order == [0, *range(2, rank), 1]:
        return x._replace(form="last")
    if x.form == "last" and order == [0, rank - 1, *range(1, rank - 1)]:
        return x._replace(form="plain")
    if x.form == "apart" and order == groups:
        return x._replace(form="swapped")
    raise Lacking(f"by {order}")


def _channel_shuffle(call):
    x = call.image()
    return call.put_like(x, "shuffle", (call["groups"],))


def _pixel_shuffle(call):
    x, out = call.image(), tuple(call.size())
    if x.rank != 4:
        raise Lacking("of other axes than height and width")
    return x._replace(id=call.add("pixel_shuffle", [x.id], out, (call["upscale_factor"],)), shape=out)


def _channel_axis(call, x, axis):
    if x.form not in ("plain", "last") or axis % x.rank != (1 if x.form == "plain" else x.rank - 1):
        raise Lacking("along other axes than the channels")


def _concat(call):
    parts = [call.value(part, "plain", "last") for part in call.first()]
    one = parts[0]
    _channel_axis(call, one, call.get("dim", 0))
    for part in parts:
        if (part.form, part.rank) != (one.form, one.rank) or part.shape[2:] != one.shape[2:]:
            raise Lacking("of images in different orders")
    shape = (one.shape[0], sum(part.shape[1] for part in parts), *one.shape[2:])
    if len(parts) == 1:
        return one
    return one._replace(id=call.add("concat", [part.id for part in parts], shape), shape=shape)


def _channels(call, x, first, count):
    if (first, count) == (0, x.shape[1]):
        return x
    shape = (x.shape[0], count, *x.shape[2:])
    return x._replace(id=call.add("slice", [x.id], shape, (first, count)), shape=shape)


def _split(call):
    """Values that getitem reads; their layers are made by it."""
    x = call.value(call.first(), "plain", "last")
    _channel_axis(call, x, call.get("dim", 0))
    parts, first = [], 0
    for part in call.node.meta["val"]:
        count = part.shape[1 if x.form == "plain" else x.rank - 1]
        parts.append((x, first, count))
        first += count
    return parts


def getitem(call):
    parts = call.translation.values.get(call.first())
    if not isinstance(parts, list):
        raise Lacking("of what no layer computes")
    return _channels(call, *parts[call.node.args[1]])


def _slice(call):
    x = call.value(call.first(), "plain", "last")
    axis = call.get("dim", 0) % x.rank
    size = call.size(call.first())[axis]
    first, end, step = call.get("start") or 0, call.get("end"), call.get("step", 1)
    end = size if end is None else end
    if not all(isinstance(v, int) for v in (first, end, step)) or step != 1:
        raise Lacking("with steps")
    first, end = (min(max(v + size if v < 0 else v, 0), size) for v in (first, end))
    if (first, end) == (0, size):
        return x
    _channel_axis(call, x, axis)
    if end <= first:
        raise Lacking("of nothing")
    return _channels(call, x, first, end - first)


def _resize(kind):
    def rule(call):
        x = call.image()
        if x.rank != 4:
            raise Lacking("of other axes than height and width")
        if call.get("align_corners"):
            raise Lacking("with align_corners")
        out = tuple(call.size())
        # A factor moves pixels if it is not that of the sizes.
        factors = call.get("scale_factors") or (call.get("scales_h"), call.get("scales_w"))
        for factor, i, o in zip(factors, x.shape[2:], out[2:]):
            if factor is not None and i * factor != o:
                raise Lacking("by a factor that does not give whole pixels")
        return x._replace(id=call.add("resize", [x.id], out, (kind, out[2], out[3])), shape=out)
    return rule


RULES = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
                    _transposed_convolution),
    **{name: _activation(name) for name in ("relu", "sigmoid", "tanh", "silu", "hardswish",
                                            "hardsigmoid", "gelu")},
    "leaky_relu": _numbered("leaky_relu", "negative_slope"), "mish": _numbered("mish"),
    "elu": _elu, "selu": _selu, "softplus": _softplus, "prelu": _prelu,
    **dict.fromkeys(("hardtanh", "clamp", "clamp_min", "relu6"), _clamp),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _pool("max_pool")),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _pool("avg_pool")),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
                    _adaptive_average),
    # Strides in memory are no part of a value.
    **dict.fromkeys(("alias", "contiguous", "clone"), _same),
    **dict.fromkeys(("dropout", "feature_dropout"), _dropout),
    **dict.fromkeys(("flatten", "view", "reshape", "_unsafe_view", "squeeze", "unsqueeze"), _reshape),
    **dict.fromkeys(("permute", "transpose"), _permute),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split),
    "upsample_nearest2d": _resize("nearest"), "upsample_bilinear2d": _resize("bilinear"),
    "linear": _linear, "batch_norm": _batch_norm, "layer_norm": _layer_norm,
    "group_norm": _group_norm, "instance_norm": _instance_norm, "add": _add,
    "sub": _subtract, "mul": _multiply, "div": _divide, "mean": _mean, "cat": _concat, "concat": _concat,
    "slice": _slice, "pad": _pad, "constant_pad_nd": _pad, "channel_shuffle": _channel_shuffle, "native_channel_shuffle": _channel_shuffle,
    "pixel_shuffle": _pixel_shuffle,
}
