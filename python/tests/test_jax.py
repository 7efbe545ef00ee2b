"""Arrays of jax, where it is installed."""

import convlab
import numpy as np
import pytest
import reference

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu():
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def convolved(x, w):
    return jax.lax.conv_general_dilated(x, w, (2, 1), [(1, 1), (1, 1)])


@jax.custom_vjp
def ours(x, w):
    """A convolution in jax's transformations, as python/README.md has it."""
    size = jax.eval_shape(convolved, x, w)
    return jax.pure_callback(lambda x, w: convlab.conv2d(x, w, stride=(2, 1), padding=1), size, x, w)


def ours_forward(x, w):
    return ours(x, w), (x, w)


def ours_backward(saved, dy):
    x, w = saved
    options = {"stride": (2, 1), "padding": 1}
    dx = jax.pure_callback(lambda w, dy: convlab.conv2d_input_grad(x.shape, w, dy, **options), x, w, dy)
    dw = jax.pure_callback(lambda x, dy: convlab.conv2d_weight_grad(x, w.shape, dy, **options), w, x, dy)
    return dx, dw


ours.defvjp(ours_forward, ours_backward)


@pytest.fixture
def arrays(random):
    return jnp.asarray(random(2, 4, 9, 8)), jnp.asarray(random(6, 4, 3, 3))


def test_a_convolution_and_its_gradients(arrays, random):
    x, w = arrays
    y = convlab.conv2d(x, w, jnp.ones(6), stride=(2, 1), padding=1)
    assert isinstance(y, np.ndarray) and reference.error(y, np.asarray(convolved(x, w)) + 1) < 1e-5
    _, gradients = jax.vjp(convolved, x, w)
    dy = jnp.asarray(random(*y.shape))
    dx = convlab.conv2d_input_grad(x.shape, w, dy, stride=(2, 1), padding=1)
    dw = convlab.conv2d_weight_grad(x, w.shape, dy, stride=(2, 1), padding=1)
    for found, expected in zip((dx, dw), gradients(dy)):
        assert reference.error(found, np.asarray(expected)) < 1e-5
    # And back.
    assert reference.error(np.asarray(jnp.asarray(dx) + 0), np.asarray(gradients(dy)[0])) < 1e-5


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_in_transformations(arrays, wrap):
    x, w = arrays
    assert reference.error(np.asarray(wrap(ours)(x, w)), np.asarray(convolved(x, w))) < 1e-5
    found, expected = (wrap(jax.grad(lambda x, w: (f(x, w)**2).sum(), (0, 1)))(x, w)
                       for f in (ours, convolved))
    for a, b in zip(found, expected):
        assert reference.error(np.asarray(a), np.asarray(b)) < 1e-5


def test_refused(arrays):
    x, w = arrays
    for transformed in (jax.jit, jax.vmap, lambda f: jax.grad(lambda a: f(a).sum())):
        with pytest.raises(convlab.InputError, match="Tracer, which has no elements.*pure_callback"):
            transformed(lambda a: convlab.conv2d(a, w))(x)
    with pytest.raises(convlab.InputError, match="bfloat16: expected float32 or float64"):
        convlab.conv2d(x.astype(jnp.bfloat16), w)
