import convlab
import numpy as np
import pytest
import reference


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
