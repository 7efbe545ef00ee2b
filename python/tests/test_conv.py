import ctypes
import threading
import time

import convlab
import numpy as np
import pytest
import reference

LIMITS = {"float32": 1e-4, "float64": 1e-12}  # of the program's --max-error
TYPES = pytest.mark.parametrize("dtype", LIMITS)

# x, w, arguments
CASES_2D = {
    "plain": ((2, 8, 9, 11), (16, 8, 3, 3), {}),
    "padded": ((2, 8, 9, 11), (16, 8, 3, 3), {"padding": 1}),
    "pairs": ((1, 4, 12, 10), (8, 4, 3, 5), {"stride": (2, 1), "padding": (1, 2)}),
    "lists": ((1, 4, 12, 10), (8, 4, 3, 5), {"stride": [2, 3], "padding": [0, 2]}),
    "asymmetric": ((1, 4, 9, 9), (8, 4, 3, 3), {"padding": ((0, 1), (2, 0)), "stride": 2}),
    "dilated": ((1, 4, 12, 12), (8, 4, 3, 3), {"dilation": (2, 3), "padding": 2}),
    "grouped": ((2, 8, 7, 7), (16, 2, 3, 3), {"groups": 4, "padding": 1}),
    "depthwise": ((1, 8, 9, 9), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
    "pointwise": ((2, 32, 5, 7), (16, 32, 1, 1), {}),
    "odd channels": ((1, 3, 17, 15), (5, 3, 7, 7), {"stride": 2, "padding": 3}),
    "a pixel": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    "rows left over": ((1, 2, 8, 8), (2, 2, 3, 3), {"stride": 3}),
}
CASES_3D = {
    "plain": ((1, 4, 5, 6, 7), (8, 4, 3, 3, 3), {"padding": 1}),
    "triples": ((1, 2, 6, 7, 8), (4, 2, 2, 3, 1), {"stride": (1, 2, 1), "padding": (0, 1, 0)}),
    "grouped": ((2, 4, 4, 5, 5), (4, 2, 3, 1, 3), {"groups": 2, "padding": ((1, 0), (0, 0), (1, 1))}),
}
CASES = [pytest.param(convlab.conv2d, convlab.conv2d_input_grad, convlab.conv2d_weight_grad, *case,
                      id="2-D " + name) for name, case in CASES_2D.items()]
CASES += [pytest.param(convlab.conv3d, convlab.conv3d_input_grad, convlab.conv3d_weight_grad, *case,
                       id="3-D " + name) for name, case in CASES_3D.items()]
cases = pytest.mark.parametrize("conv, input_grad, weight_grad, x_shape, w_shape, arguments", CASES)


def channels_last(x):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


@TYPES
@cases
def test_forward_and_gradients(random, dtype, conv, input_grad, weight_grad, x_shape, w_shape,
                               arguments):
    x, w = random(*x_shape, dtype=dtype), random(*w_shape, dtype=dtype)
    bias = random(w_shape[0], dtype=dtype)
    expected = reference.conv(x, w, bias, **arguments)
    for given in (x, channels_last(x)):
        y = conv(given, w, bias, **arguments)
        assert type(y) is np.ndarray and y.dtype == dtype and y.shape == expected.shape
        assert reference.error(y, expected) < LIMITS[dtype]
    grad = random(*expected.shape, dtype=dtype)
    for given in (grad, channels_last(grad)):
        dx = input_grad(x_shape, w, given, **arguments)
        assert dx.dtype == dtype and dx.shape == x_shape
        assert reference.error(dx, reference.input_grad(x_shape, w, grad, **arguments)) < LIMITS[dtype]
    for given in (x, channels_last(x)):
        dw = weight_grad(given, w_shape, grad, **arguments)
        assert dw.dtype == dtype and dw.shape == w_shape
        assert reference.error(dw, reference.weight_grad(x, w_shape, grad, **arguments)) < LIMITS[dtype]


@cases
def test_gradients_are_adjoint(random, conv, input_grad, weight_grad, x_shape, w_shape, arguments):
    x, w = random(*x_shape, dtype="float64"), random(*w_shape, dtype="float64")
    y = conv(x, w, **arguments)
    grad = random(*y.shape, dtype="float64")
    product = np.vdot(y, grad)
    assert np.vdot(x, input_grad(x_shape, w, grad, **arguments)) == pytest.approx(product)
    assert np.vdot(w, weight_grad(x, w_shape, grad, **arguments)) == pytest.approx(product)


def test_same_padding_is_pytorchs(random):
    x, w = random(1, 2, 7, 7), random(3, 2, 4, 3)
    y = convlab.conv2d(x, w, padding="same", dilation=(1, 2))
    assert y.shape == (1, 3, 7, 7)
    expected = reference.conv(x, w, padding=((1, 2), (2, 2)), dilation=(1, 2))
    assert reference.error(y, expected) < 1e-4
    assert convlab.conv2d(x, w, padding="valid").shape == (1, 3, 4, 5)


ACTIVATIONS = {
    "relu": lambda v: np.maximum(v, 0),
    "tanh": np.tanh,
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "relu6": lambda v: np.clip(v, 0, 6),
    "hardswish": lambda v: v * np.clip(v + 3, 0, 6) / 6,
    "silu": lambda v: v / (1 + np.exp(-v)),
}


# oneDNN's refuse all but relu, which are then applied afterwards.
@pytest.mark.parametrize("algo", [None, "direct_plain", "im2col", "onednn"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activation_follows_the_bias(random, algo, activation):
    x, w, bias = random(2, 8, 6, 6), random(8, 8, 3, 3), random(8)
    try:
        y = convlab.conv2d(x, w, bias, padding=1, activation=activation, algo=algo)
    except convlab.InputError as error:
        if "unknown algorithm 'onednn'" not in str(error):
            raise
        pytest.skip("this build has no oneDNN")
    expected = ACTIVATIONS[activation](reference.conv(x, w, bias, padding=1))
    assert reference.error(y, expected) < 1e-4


def test_layout_is_kept_without_a_copy(random):
    x, w = random(2, 8, 6, 6), random(16, 8, 3, 3)
    assert convlab.conv2d(x, w).flags.c_contiguous
    y = convlab.conv2d(channels_last(x), w)
    assert np.moveaxis(y, 1, -1).flags.c_contiguous
    assert convlab.plans()[0]["layout"] == "nhwc" and convlab.plans()[1]["layout"] == "nchw"


def views(x):
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    return {
        "every second": wide[..., ::2],
        "reversed": x[:, ::-1, :, ::-1].copy()[:, ::-1, :, ::-1],
        "Fortran": np.asfortranarray(x),
        "transposed": x.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2),
        "unaligned": unaligned,
        "read-only": fixed,
    }


@pytest.mark.parametrize("view", views(np.zeros((1, 1, 1, 1))))
@TYPES
def test_views(random, view, dtype):
    x, w = random(2, 4, 6, 7, dtype=dtype), random(8, 4, 3, 3, dtype=dtype)
    expected = convlab.conv2d(x, w)
    assert np.array_equal(convlab.conv2d(views(x)[view], w), expected)
    assert np.array_equal(convlab.conv2d(x, views(w)[view]), expected)
    grad = random(*expected.shape, dtype=dtype)
    assert np.array_equal(convlab.conv2d_weight_grad(x, w.shape, views(grad)[view]),
                          convlab.conv2d_weight_grad(x, w.shape, grad))


def test_broadcast_and_overlapping_views(random):
    w = random(8, 4, 3, 3)
    broadcast = np.broadcast_to(random(1, 4, 1, 6), (2, 4, 5, 6))
    overlapping = np.lib.stride_tricks.as_strided(random(400), (2, 4, 5, 6), (40, 20, 8, 4))
    for x in (broadcast, overlapping):
        assert np.array_equal(convlab.conv2d(x, w), convlab.conv2d(x.copy(), w))
    constant = np.broadcast_to(np.float32(2), w.shape)
    assert np.array_equal(convlab.conv2d(broadcast, constant), convlab.conv2d(broadcast, constant.copy()))


class Exported:
    """An array that speaks DLPack and nothing else, perhaps of another device."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **arguments):
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # Of DLTensor, which begins with the pointer to the data.
        ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = self.device
        return capsule


def test_any_library_with_dlpack(random):
    x, w = random(1, 4, 6, 6), random(8, 4, 3, 3)
    y = convlab.conv2d(Exported(x), Exported(w))
    assert type(y) is np.ndarray and np.array_equal(y, convlab.conv2d(x, w))


def test_result_owns_its_memory(random):
    x, w = random(1, 4, 6, 6), random(8, 4, 3, 3)
    first = convlab.conv2d(x, w)
    kept = first.copy()
    first[0, 0, 0, 0] += 1  # writable
    for _ in range(8):
        convlab.conv2d(2 * x, w)
    first[0, 0, 0, 0] = kept[0, 0, 0, 0]
    assert np.array_equal(first, kept)


def test_a_filter_that_changes_in_place(random):
    x, w = random(1, 16, 8, 8), random(16, 16, 3, 3)
    y = convlab.conv2d(x, w, padding=1)
    w *= 2
    assert reference.error(convlab.conv2d(x, w, padding=1), 2 * y) < 1e-6


def test_algo_is_the_one_asked_for(random):
    x, w = random(1, 16, 12, 12), random(16, 16, 3, 3)
    for algo in ("im2col", "winograd", "implicit_gemm"):
        y = convlab.conv2d(x, w, padding=1, algo=algo)
        assert convlab.plans()[0]["algo"].startswith(algo)
        assert reference.error(y, reference.conv(x, w, padding=1)) < 1e-4


def test_a_repeated_call_uses_its_plan(random):
    x, w = random(3, 5, 8, 8), random(6, 5, 3, 3)
    convlab._core.forget()
    convlab.conv2d(x, w)
    for _ in range(3):
        convlab.conv2d(x, w)
    assert len(convlab.plans()) == 1


def test_threads_at_once(random):
    w = random(16, 8, 3, 3)
    inputs = [random(2, 8, 10 + i % 3, 12) for i in range(12)]
    expected = [convlab.conv2d(x, w, padding=1) for x in inputs]
    results = [None] * len(inputs)

    def work(i):
        for _ in range(5):
            results[i] = convlab.conv2d(inputs[i], w, padding=1)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for y, e in zip(results, expected):
        assert reference.error(y, e) < 1e-6


def test_other_threads_run_during_a_call(random):
    x, w = random(4, 64, 96, 96, dtype="float64"), random(64, 64, 3, 3, dtype="float64")
    span = []

    def work():
        begin = time.perf_counter()
        convlab.conv2d(x, w, algo="direct_plain")
        span.extend((begin, time.perf_counter()))

    convlab.conv2d(x, w, algo="direct_plain")
    thread = threading.Thread(target=work)
    thread.start()
    moments = []
    while thread.is_alive():
        moments.append(time.perf_counter())
    begin, end = span
    # The interpreter changes threads before and after a call anyway.
    tenths = {int(10 * (moment - begin) / (end - begin)) for moment in moments if begin < moment < end}
    assert len(tenths) >= 5


def test_threads_that_plan_at_once(random):
    w = random(4, 3, 3, 3)
    results = {}

    def work(i):
        results[i] = convlab.conv2d(np.ones((1, 3, 20 + i // 2, 21), np.float32), w)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(8):
        expected = reference.conv(np.ones((1, 3, 20 + i // 2, 21)), w)
        assert reference.error(results[i], expected) < 1e-4
