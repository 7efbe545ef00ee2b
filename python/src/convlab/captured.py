"""Convolutions that a PyTorch model ran, with their times."""

import collections
from collections.abc import Sequence
from typing import NamedTuple

from .table import Table, shown_html

_PASSES = {"fwd": "forward_training", "bwd_d": "backward_data", "bwd_w": "backward_weights"}


class Convolution(NamedTuple):
    """The sizes of a convolution: those of its axes as tuples of one to three numbers."""

    transposed: bool
    groups: int
    batch: int
    channels: int  # of the input
    filters: int  # channels of the output
    image: tuple
    output: tuple
    kernel: tuple
    stride: tuple
    padding: tuple
    dilation: tuple

    def text(self):
        """As the program writes it: width and height are one field if they are equal."""

        def three(values, missing):
            return (missing,) * (3 - len(values)) + tuple(values)

        gaps = [d - 1 for d in self.dilation]
        fields = [three(self.image, 1), three(self.output, 1), three(self.kernel, 1),
                  three(self.stride, 1), three(self.padding, 0), three(gaps, 0)]
        depth, height, width = zip(*fields)
        has_depth = depth != (1, 1, 1, 1, 0, 0)
        square = height == width
        cube = has_depth and square and depth == height

        def put(letter, values):
            text = f"{letter}d{values[0]}" if has_depth else ""
            if not cube:
                text += f"{letter}h{values[1]}"
            if not square or (has_depth and not cube):
                text += f"{letter}w{values[2]}"
            return text

        image, output, kernel, stride, padding, gaps = fields
        text = "deconv:" if self.transposed else ""
        text += f"g{self.groups}" if self.groups != 1 else ""
        text += f"mb{self.batch}ic{self.channels}{put('i', image)}"
        text += f"oc{self.filters}{put('o', output)}{put('k', kernel)}"
        text += put("s", stride) if stride != (1, 1, 1) else ""
        text += put("p", padding)
        return text + (put("d", gaps) if gaps != (0, 0, 0) else "")


class Run(NamedTuple):
    """One run of a pass: ``name`` is the module's, ``ms`` the median of its repetitions."""

    problem: str
    pass_: str
    dtype: str
    bias: bool
    name: str
    ms: float

    def key(self):
        return self.problem, self.pass_, self.dtype, self.bias


def _layer_name(name, count):
    """The name and the count at the end of a problem's text."""
    star = name.rpartition("*")
    ends_in_count = star[1] and star[2].isdigit()
    name += f"*{count}" if count != 1 or ends_in_count else ""
    return f'n"{name}"' if name else ""


def _plain(name):
    return "".join(c if c.isprintable() and c != '"' else "_" for c in name)


class _Rows(Table):
    _SHOWN = ("layer", "problem", "pass", "dtype", "bias", "count", "ms")


class Captured(Sequence):
    """What ``convlab.torch.capture`` saw: a sequence of problems' texts with names and counts.

    rows: a list of dicts, one for each problem, pass, type, and with or without a bias: ``layer`` (the
    first module's name), ``count`` (runs) and ``ms`` (of all runs together).
    ms: the total time by pass, ``{"fwd": …, "bwd_d": …, "bwd_w": …}`` of those that ran.
    skipped: how many runs are left out, by reason.
    backward: whether gradients were computed.
    threads: those of PyTorch. version: PyTorch's.
    """

    def __init__(self, runs, skipped, backward, threads, version):
        self._runs = [run._replace(name=_plain(run.name)) for run in runs]
        self.skipped, self.backward = dict(skipped), backward
        self.threads, self.version = threads, version
        self.ms = {pass_: sum(run.ms for run in self._runs if run.pass_ == pass_)
                   for pass_ in _PASSES if any(run.pass_ == pass_ for run in self._runs)}
        places = {}
        for run in self._runs:
            places.setdefault(run.problem, len(places))
        rows = {}
        passes = list(_PASSES)
        for run in sorted(self._runs, key=lambda r: (places[r.problem], passes.index(r.pass_))):
            row = rows.setdefault(run.key(), {
                "layer": run.name, "problem": run.problem, "pass": run.pass_, "dtype": run.dtype,
                "bias": run.bias, "count": 0, "ms": 0.0})
            row["count"] += 1
            row["ms"] += run.ms
        self.rows = list(rows.values())
        self._table = _Rows({"rows": self.rows})
        # A problem is run as often as its most frequent pass is.
        counts = collections.Counter((run.problem, run.pass_) for run in self._runs)
        self._texts = [
            text + _layer_name(next(run.name for run in self._runs if run.problem == text),
                               max(counts[text, pass_] for pass_ in passes)) for text in places]

    def __len__(self):
        return len(self._texts)

    def __getitem__(self, index):
        return self._texts[index]

    def log(self):
        """The runs in the form of oneDNN's verbose mode, which the program's ``--from`` reads."""
        lines = []
        for run in self._runs:
            primitive = "deconvolution" if run.problem.startswith("deconv:") else "convolution"
            tensors = " ".join(f"{tensor}_{run.dtype}::blocked:any:f0"
                               for tensor in ("src", "wei", *(["bia"] if run.bias else []), "dst"))
            lines.append(f"onednn_verbose,exec,cpu,{primitive},pytorch,{_PASSES[run.pass_]},{tensors},,"
                         f"alg:convolution_direct,{run.problem.removeprefix('deconv:')},{run.ms:.6f}\n")
        return "".join(lines)

    def name_layers(self, document):
        """Gives the rows of ``tune``'s JSON the modules' names."""
        names = {run.key(): run.name for run in reversed(self._runs)}
        for layer in document.get("layers", []):
            key = (layer["problem"], layer["pass"], layer["dtype"], layer.get("epilogue") == "bias")
            name = names.get(key) or names.get((*key[:3], True))
            if name:
                layer["layer"] = name

    def to_pandas(self):
        """A ``pandas.DataFrame`` of the rows. Raises ImportError without pandas."""
        return self._table.to_pandas()

    def _remarks(self):
        times = ", ".join(f"{pass_} {ms:.4g} ms" for pass_, ms in self.ms.items())
        lines = [f"PyTorch {self.version}, threads {self.threads}: {times}"]
        if not self.backward:
            lines.append("forward only")
        return lines + [f"skipped {count}: {reason}" for reason, count in self.skipped.items()]

    def __repr__(self):
        return "\n".join([repr(self._table), *self._remarks()])

    def _repr_html_(self):
        return self._table._repr_html_() + shown_html(self._remarks())
