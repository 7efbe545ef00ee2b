"""Nets from the zoo."""

import os

from . import _core
from .errors import InputError
from .functions import _integer, _is_torch, _plain


class Net:
    """A net that classifies: ``Net("resnet18", batch=16)``.

    name: as ``convlab list`` shows them. batch: images at a time; any number is taken.
    dtype: "float32" or "float64". Raises InputError for a net that does not exist.
    """

    def __init__(self, name, batch=1, dtype="float32"):
        if not isinstance(name, str):
            raise InputError(f"{type(name).__name__} is no net: expected a name, as 'resnet18'")
        self._net = _core.Net(name, _integer(batch, "batch", 1), str(dtype))

    @property
    def name(self):
        """With the number of classes if it is not the net's own: "resnet18:7"."""
        return self._net.name()

    @property
    def batch(self):
        return self._net.batch()

    @property
    def input_shape(self):
        """N C H W, or N C D H W of a net of three dimensions; N is the batch."""
        return tuple(self._net.input_shape())

    def load_weights(self, path):
        """Reads a .safetensors or .npz with torchvision's names, and plans the net. Returns the net.

        The file decides the number of classes. Algorithms come from the tuning store, and where it has
        none from predictions. Raises InputError for a file that does not fit, which changes nothing.
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
