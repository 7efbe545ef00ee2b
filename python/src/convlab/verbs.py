"""problems(), tune() and doctor(): the program's verbs of these names."""

import contextlib
import json
import os
import re
import tempfile

from . import _core
from .captured import Captured
from .errors import EnvironmentError, InputError
from .program import run
from .table import Table

# What a line of a log has, of the libraries that the program reads.
_LOG = re.compile(r"(dnnl|onednn)_verbose|MIOpenDriver|[Cc][Uu][Dd][Nn][Nn]")


def _is_log(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return any(_LOG.search(line) for line, _ in zip(file, range(1000)))


def _target(target):
    """The program's arguments for a net, a problem, or a file."""
    if not isinstance(target, (str, os.PathLike)):
        raise InputError(
            f"{type(target).__name__} is no target: expected a net, a problem's text, or a file")
    text = os.fspath(target)
    if not isinstance(text, str):
        raise InputError("a target is bytes: expected a str")
    if text.startswith("-") or not text:
        raise InputError(f"'{text}' is no target: expected a net, a problem's text, or a file")
    # A bare word is a net or a problem, whatever files there are.
    is_bare = isinstance(target, str) and os.sep not in text and "." not in text
    if is_bare or not os.path.isfile(text) or text.startswith("@"):
        if isinstance(target, os.PathLike):
            raise InputError(f"{text}: no such file")
        return [text]
    if text.lower().endswith(".onnx"):
        return [text]
    return ["--from", text] if _is_log(text) else ["@" + text]


def _options(options):
    arguments = []
    for name, value in options.items():
        flag = "--" + name.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(flag)
            continue
        if isinstance(value, (list, tuple)):
            value = ",".join(str(v) for v in value)
        arguments.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return arguments


def _with_format(options, form):
    for name in ("format", "output", "help"):
        if name in map(lambda option: option.strip("_"), options):
            raise InputError(f"{name} is no option here: the result is returned")
    return {**options, "format": form}


def _run_verb(verb, targets, options, progress, parse):
    if isinstance(targets, (str, os.PathLike)):
        return run([verb, *_target(targets), *_options(options)], progress, parse)
    try:
        texts = list(targets)
    except TypeError:
        raise InputError(f"{verb}: {targets!r} is no target: expected a net, a problem's text, a file, or "
                         "a list of texts") from None
    if not texts:
        raise InputError(f"{verb}: no problems: expected at least one")
    if any(not isinstance(text, str) or "\n" in text for text in texts):
        raise InputError(f"{verb}: expected problems' texts, one line each")
    # A file has room for any number of them.
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(texts) + "\n")
        file.flush()
        return run([verb, "@" + file.name, *_options(options)], progress, parse)


def problems(source, **options):
    """The convolutions of a net, an ONNX model, a log, an ``@FILE`` or a problem's text.

    source: ``"resnet18"``, ``"model.onnx"``, ``"net.log"`` (what oneDNN, MIOpen or cuDNN logged),
    ``"layers.txt"`` (one problem a line), or a text as ``"mb1ic64ih56oc64oh56kh3ph1"``; or a list of
    such texts. A file is recognised by what is in it; one without a suffix is ``"./layers"``.
    options: flags of ``convlab list``, as ``batch=16`` or ``dim="batch=1"``.

    Returns a list of texts, sizes with names and counts, which ``tune`` takes. (``tune`` of a log itself also
    knows the passes and types that were run, and their times.) Raises InputError.
    """

    def lines(text):
        # Behind a problem a comment says which passes occur.
        return [line.rsplit("  # ", 1)[0] for line in text.splitlines()
                if line and not line.startswith("#")]

    return _run_verb("list", source, _with_format(options, "problems"), False, lines)


def _tune_captured(captured, progress, options):

    def table(text):
        document = json.loads(text)
        captured.name_layers(document)
        return Table(document, log="torch")

    options = _with_format({"threads": captured.threads, **options}, "json")
    with tempfile.TemporaryDirectory() as folder:
        # The program's messages show the name.
        path = os.path.join(folder, "captured.log")
        with open(path, "w", encoding="utf-8") as file:
            file.write(captured.log())
        return run(["tune", "--from", path, *_options(options)], progress, table)


def tune(problems, *, progress=True, **options):
    """Races every algorithm on each problem and pass on this machine: ``convlab tune``.

    problems: as ``problems()`` takes or returns them, or what ``convlab.torch.capture`` returns: then only the
    passes that ran are tuned, with as many threads as PyTorch had unless ``threads`` says otherwise, and
    the table has PyTorch's times beside convlab's.
    progress: whether messages go to ``sys.stderr``.
    options: the flags of ``convlab tune``, with _ for -: ``batch=[1, 16]``, ``pass_="fwd"``,
    ``max_error=1e-6``, ``budget="60s"``, ``exclude="vendor"``, ``fresh=True``, ``mode="heuristic"``.

    Returns a Table. The results are in the tuning store, which conv2d and Net choose by.
    Raises InputError, EnvironmentError, Failed if no row has an algorithm, and on Ctrl-C Interrupted, a
    KeyboardInterrupt: what was measured is in the store, and in its ``table``.
    """
    try:
        if isinstance(problems, Captured):
            return _tune_captured(problems, progress, options)
        return _run_verb("tune", problems, _with_format(options, "json"), progress, Table.parse)
    finally:
        with contextlib.suppress(EnvironmentError):  # a forked process has nothing to forget
            _core.forget()


def doctor(**options):
    """Is this machine fit for measuring? ``convlab doctor`` as a Table: what, found, verdict, remedy."""
    return run(["doctor", *_options(_with_format(options, "json"))], False, Table.parse)
