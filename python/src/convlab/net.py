"""Nets from the zoo and from ONNX files."""

import os

from . import _core
from .errors import InputError
from .functions import _integer, _is_torch, _plain


class Net:
    """A net for inference: ``Net("resnet18", batch=16)`` of the zoo, or ``Net("model.onnx")``.

    name: as ``convlab list`` shows them, or the file of an ONNX model whose operators all have a layer.
    Its weights come from the file, and a softmax at its end is left out.
    batch: images at a time; any number is taken. None: 1, or what the model says.
    dtype: "float32" or "float64".
    dims: symbolic sizes of the model, ``{"height": 224}``.

    Raises InputError for a net that does not exist, a model that is none, and one where the build reads no
    ONNX.
    """

    def __init__(self, name, batch=None, dtype="float32", dims=None):
        if not isinstance(name, (str, os.PathLike)):
            raise InputError(f"{type(name).__name__} is no net: expected a name, as 'resnet18', or a "
                             "file, as 'model.onnx'")
        sizes = {str(key): _integer(value, f"dims[{key!r}]", 1) for key, value in dict(dims or {}).items()}
        self._net = _core.Net(os.fspath(name), None if batch is None else _integer(batch, "batch", 1),
                              str(dtype), sizes)

    @property
    def name(self):
        """With the number of classes if it is not the net's own: "resnet18:7". Of a model, its file's."""
        return self._net.name()

    @property
    def batch(self):
        return self._net.batch()

    @property
    def input_shape(self):
        """N C H W, or N C D H W of a net of three dimensions; N is the batch. A net of one has H = 1."""
        return tuple(self._net.input_shape())

    @property
    def notes(self):
        """What was assumed or left out of an ONNX model, a list of lines."""
        return self._net.notes()

    def load_weights(self, path):
        """Reads a .safetensors or .npz with torchvision's names, and plans the net. Returns the net.

        The file decides the number of classes. Algorithms come from the tuning store, and where it has
        none from predictions. Raises InputError for a file that does not fit, which changes nothing, and for
        an ONNX model, which has its own weights.
        """
        self._net.load_weights(os.fspath(path))
        return self

    def predict(self, images):
        """The scores, before the softmax, of images that are scaled and normalised.

        images: N C H W in the net's type, any N, of NumPy, PyTorch or any library with DLPack.
        Returns N classes (or N classes H W of a net that scores pixels), of PyTorch if images are, else of
        NumPy. Raises InputError for other shapes, and before ``load_weights``.
        """
        return self._net.scores(_plain(images, "images"), _is_torch(images))

    __call__ = predict

    def __repr__(self):
        return f"<convlab.Net {self.name}, batch {self.batch}>"
