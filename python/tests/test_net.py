import pathlib
import shutil

import convlab
import numpy as np
import pytest
import reference

ONNX = pathlib.Path(__file__).parent.parent.parent / "tests" / "nets" / "onnx"  # what ONNX Runtime computes


@pytest.fixture
def perceptron(tmp_path, random):
    """Weights of mlp:20-16-3:relu, and its scores in double."""
    weights = {"fc1.weight": random(16, 20), "fc1.bias": random(16), "fc2.weight": random(3, 16),
               "fc2.bias": random(3)}
    np.savez(tmp_path / "weights.npz", **weights)
    w = {name: value.astype("f8") for name, value in weights.items()}

    def scores(x):
        x = x.reshape(len(x), 20).astype("f8")
        hidden = np.maximum(x @ w["fc1.weight"].T + w["fc1.bias"], 0)
        return hidden @ w["fc2.weight"].T + w["fc2.bias"]

    return tmp_path / "weights.npz", scores


@pytest.mark.parametrize("images", [1, 4, 7, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_number_of_images(perceptron, random, images, dtype):
    path, scores = perceptron
    net = convlab.Net("mlp:20-16-3:relu", batch=4, dtype=dtype).load_weights(path)
    assert net.batch == 4 and net.input_shape[0] == 4
    x = random(images, *net.input_shape[1:], dtype=dtype)
    y = net.predict(x)
    assert y.shape == (images, 3) and y.dtype == dtype
    assert reference.error(y, scores(x)) < 1e-5
    assert np.array_equal(net(x), y)


def test_a_missing_array_is_named(tmp_path, random):
    weights = {"fc1.weight": random(16, 20), "fc1.bias": random(16), "fc2.weight": random(3, 16)}
    np.savez(tmp_path / "w.npz", **weights)
    net = convlab.Net("mlp:20-16-3:relu")
    with pytest.raises(convlab.InputError, match="fc2.bias"):
        net.load_weights(tmp_path / "w.npz")


def test_refused(perceptron, tmp_path, random):
    path, _ = perceptron
    for arguments, message in [(("resnet19",), "resnet18"), ((3,), "int is no net"),
                               (("lenet", 0), "batch is 0"), (("lenet", 1, "int8"), "dtype is 'int8'")]:
        with pytest.raises(convlab.InputError, match=message):
            convlab.Net(*arguments)
    net = convlab.Net("mlp:20-16-3:relu", batch=2)
    x = random(*net.input_shape)
    with pytest.raises(convlab.InputError, match="has no weights: expected load_weights"):
        net.predict(x)
    with pytest.raises(convlab.InputError, match="missing.npz"):
        net.load_weights(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(convlab.InputError, match="text.npz"):
        net.load_weights(tmp_path / "text.npz")
    with pytest.raises(convlab.InputError, match="w.npz|weights.npz"):
        convlab.Net("lenet").load_weights(path)
    net.load_weights(path)
    with pytest.raises(convlab.InputError, match="images is float64: expected float32"):
        net.predict(x.astype("f8"))
    with pytest.raises(convlab.InputError, match="images is .*: expected .*, images of mlp"):
        net.predict(x[:, :-1])
    with pytest.raises(convlab.InputError, match="expected sizes from 1"):
        net.predict(x[:0])
    # A file that does not fit leaves the net as it was.
    before = net.predict(x)
    with pytest.raises(convlab.InputError):
        net.load_weights(tmp_path / "text.npz")
    assert np.array_equal(net.predict(x), before)


# ---- ONNX models ----


@pytest.fixture(scope="module")
def reads_onnx():
    try:
        convlab.Net(ONNX / "residual.onnx")
    except convlab.InputError as error:
        if "reads no ONNX" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("model", ["residual", "mobile", "next", "cube"])
@pytest.mark.parametrize("dtype, limit", [("float32", 1e-4), ("float64", 1e-5)])
def test_an_onnx_model_computes_what_onnx_runtime_does(reads_onnx, model, dtype, limit):
    stored = np.load(ONNX / f"{model}.npz")
    net = convlab.Net(ONNX / f"{model}.onnx", batch=3, dtype=dtype)
    assert net.name == f"{model}.onnx" and net.batch == 3 and net.input_shape[1:] == stored["x"].shape[1:]
    y = net(stored["x"].astype(dtype))
    if any("softmax" in note.lower() for note in net.notes):
        y = np.exp(y - y.max(1, keepdims=True))
        y /= y.sum(1, keepdims=True)
    assert y.dtype == dtype and reference.error(y, stored["y"].reshape(y.shape)) < limit


def test_sizes_of_an_onnx_model(reads_onnx):
    path = str(ONNX / "residual.onnx")
    net = convlab.Net(path)
    assert net.batch == 1 and any("dimension N is 1" in note for note in net.notes)
    assert convlab.Net(path, dims={"N": 5}).batch == 5


def test_refused_onnx_models(reads_onnx, tmp_path):
    net = convlab.Net(ONNX / "residual.onnx")
    with pytest.raises(convlab.InputError, match="has weights of its own"):
        net.load_weights(tmp_path / "weights.npz")
    (tmp_path / "text.onnx").write_text("no model")
    shutil.copy(ONNX / "residual.onnx", tmp_path / "cut.onnx")
    with open(tmp_path / "cut.onnx", "r+b") as file:
        file.truncate(200)
    for path in (*(tmp_path / f"{name}.onnx" for name in ("missing", "text", "cut")), ONNX / "unknown.onnx"):
        with pytest.raises(convlab.InputError, match=path.name):
            convlab.Net(path)
    for name, dims, message in [(ONNX / "residual.onnx", {"M": 2}, "unknown dimension"),
                                (ONNX / "residual.onnx", {"N": 0}, "'N'.* is 0: expected"),
                                ("lenet", {"N": 2}, "dims: lenet")]:
        with pytest.raises(convlab.InputError, match=message):
            convlab.Net(name, dims=dims)
