"""What is refused: the exception's class, and what its one line says."""

import re

import convlab
import numpy as np
import pytest
from test_conv import Exported

X, W = np.zeros((2, 4, 6, 6), np.float32), np.zeros((8, 4, 3, 3), np.float32)
HUGE = np.broadcast_to(np.float32(1), (2**20, 2**20, 2**10, 2**10))

REFUSED = {
    "a list": (([[1]], W), {}, "x is a list: expected an array of float32 or float64"),
    "a mask": ((np.ma.masked_array(X, X > 0), W), {}, "x is a MaskedArray: expected an array without a mask"),
    "padding of an array": ((X, W), {"padding": np.array([1, 1])}, "padding"),
    "integers": ((X.astype(int), W), {}, "x is a ndarray of int64: expected float32 or float64"),
    "f16": ((X.astype("f2"), W), {}, "x is a ndarray of float16"),
    "complex": ((X.astype("c8"), W), {}, "x is a ndarray of complex64"),
    "objects": ((X.astype(object), W), {}, "x is a ndarray of object"),
    "byte order": ((X.astype(">f4"), W), {}, "x is a ndarray of >f4"),
    "device": ((Exported(X, 2), W), {}, "x is on another device (DLPack's type 2): expected the CPU"),
    "mixed types": ((X, W.astype("f8")), {}, "w is float64: expected float32, as x"),
    "3 dimensions": ((X[0], W), {}, r"x is (4, 6, 6): expected 4 dimensions, N C H W"),
    "5 dimensions": ((X[None], W), {}, r"expected 4 dimensions"),
    "w of 2 dimensions": ((X, W[:, :, 0, 0]), {}, "w is (8, 4): expected 4 dimensions, K C/groups R S"),
    "empty batch": ((X[:0], W), {}, "x is (0, 4, 6, 6): expected sizes from 1"),
    "empty image": ((X[:, :, :0], W), {}, "x is (2, 4, 0, 6): expected sizes from 1"),
    "no filters": ((X, W[:0]), {}, "w is (0, 4, 3, 3): expected sizes from 1"),
    "channels": ((X, W[:, :3]), {}, "w is (8, 3, 3, 3): expected 4 channels, x's 4 in 1 group"),
    "groups": ((X, W), {"groups": 3}, "groups is 3: expected a divisor of x's 4 channels"),
    "no groups": ((X, W), {"groups": 0}, "groups is 0: expected 1 to"),
    "filter too large": ((X[:, :, :2], W), {}, "w spans 3 of axis 2, but x has 2 with its padding"),
    "dilated too far": ((X, W), {"dilation": 3}, "w spans 7 of axis 2, but x has 6"),
    "bias": ((X, W, np.zeros(7, np.float32)), {}, "bias is (7,): expected (8,), a value for each"),
    "bias of 2 dimensions": ((X, W, np.zeros((8, 1), np.float32)), {}, "bias is (8, 1): expected 1 dimension, K"),
    "bias's type": ((X, W, np.zeros(8)), {}, "bias is float64: expected float32, as x"),
    "stride 0": ((X, W), {"stride": 0}, "stride is 0: expected 1 to 2147483647"),
    "a float stride": ((X, W), {"stride": 1.5}, "stride is 1.5: expected an integer"),
    "three strides": ((X, W), {"stride": (1, 1, 1)}, "stride is (1, 1, 1): expected one number, or 2"),
    "huge stride": ((X, W), {"stride": 2**70}, "stride is 1180591620717411303424"),
    "negative padding": ((X, W), {"padding": -1}, "padding is -1: expected 0 to"),
    "padding's name": ((X, W), {"padding": "full"}, "padding is 'full': expected 'same', 'valid'"),
    "strided same": ((X, W), {"padding": "same", "stride": 2}, "padding is 'same' with stride"),
    "a dict": ((X, W), {"stride": {}}, "expected"),
    "unknown algorithm": ((X, W), {"algo": "fast"}, "fast"),
    "algorithm that refuses": ((X, W), {"algo": "winograd", "stride": 5}, "no algorithm takes"),
    "algo's type": ((X, W), {"algo": 1}, "algo is 1: expected a name or None"),
    "activation": ((X, W), {"activation": "rule"}, "activation is 'rule': expected one of relu, tanh"),
    "huge": ((HUGE, np.broadcast_to(np.float32(1), (1, 2**20, 1, 1))), {}, "2^"),
    "huge padding": ((X, W), {"padding": 2**31 - 1}, "2^"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_forward(name):
    arguments, options, message = REFUSED[name]
    with pytest.raises(convlab.InputError, match=re.escape(message)) as raised:
        convlab.conv2d(*arguments, **options)
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, convlab.Error)
    assert "\n" not in str(raised.value)


def test_no_memory():
    x = np.broadcast_to(np.float32(1), (1, 1, 2**21, 2**21))
    with pytest.raises(convlab.OutOfMemory, match="^mb1ic1ih2097152oc1oh2097152kh1ph0 needs") as raised:
        convlab.conv2d(x, np.ones((1, 1, 1, 1), np.float32))
    assert isinstance(raised.value, MemoryError) and isinstance(raised.value, convlab.EnvironmentError)


def test_gradients():
    y = np.zeros((2, 8, 4, 4), np.float32)
    for call, message in {
        lambda: convlab.conv2d_input_grad((2, 4, 6), W, y): "input_size is (2, 4, 6): expected 4 sizes",
        lambda: convlab.conv2d_input_grad(6, W, y): "input_size is 6: expected a sequence of sizes",
        lambda: convlab.conv2d_input_grad((2, 4, 7, 6), W, y): "grad_output is (2, 8, 4, 4): expected (2, 8, 5, 4)",
        lambda: convlab.conv2d_input_grad((0, 4, 6, 6), W, y): "input_size is 0: expected 1 to",
        lambda: convlab.conv2d_weight_grad(X, (8, 4, 2, 3), y): "grad_output is (2, 8, 4, 4): expected (2, 8, 5, 4)",
        lambda: convlab.conv2d_weight_grad(X, (8, 4), y): "weight_size is (8, 4): expected 4 sizes",
        lambda: convlab.conv2d_weight_grad(X, W.shape, y.astype("f8")): "grad_output is float64: expected float32, as x",
        lambda: convlab.conv3d(X, W): "x is (2, 4, 6, 6): expected 5 dimensions, N C D H W",
    }.items():
        with pytest.raises(convlab.InputError, match=re.escape(message)):
            call()
