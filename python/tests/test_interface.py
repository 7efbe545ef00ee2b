"""The stubs say what is there, and everything has a docstring."""

import ast
import inspect
import pathlib

import convlab
import pytest
from convlab import _core

FOLDER = pathlib.Path(convlab.__file__).parent


def declared(stub):
    """Names in a stub, and the methods of its classes."""
    names = set()
    for node in ast.parse((FOLDER / stub).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ImportFrom) and node.level:
            names.update(alias.asname for alias in node.names)
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}.{m.name}" for m in node.body
                         if isinstance(m, ast.FunctionDef) and not m.name.startswith("_"))
    return names


def methods(names, module):
    return {f"{name}.{m}" for name in names if inspect.isclass(getattr(module, name))
            for m in vars(getattr(module, name)) if not m.startswith("_")}


def test_stub_of_the_package():
    public = set(convlab.__all__)
    own = {"Net", "Table"}
    assert declared("__init__.pyi") == public | methods(own, convlab)
    assert (FOLDER / "py.typed").exists()


def test_stub_of_the_module():
    public = {name for name in dir(_core) if not name.startswith("_")}
    assert declared("_core.pyi") == public | methods(public, _core)


@pytest.mark.parametrize("name", ["conv2d", "conv3d", "conv2d_input_grad", "conv3d_input_grad",
                                  "conv2d_weight_grad", "conv3d_weight_grad", "plans", "problems",
                                  "tune", "doctor"])
def test_signatures_are_the_stubs(name):
    stub = ast.parse((FOLDER / "__init__.pyi").read_text(encoding="utf-8"))
    [node] = [n for n in stub.body if isinstance(n, ast.FunctionDef) and n.name == name]
    arguments = [a.arg for a in node.args.args + node.args.kwonlyargs]
    arguments += [node.args.kwarg.arg] if node.args.kwarg else []
    assert arguments == list(inspect.signature(getattr(convlab, name)).parameters)


def test_docstrings():
    for name in convlab.__all__:
        thing = getattr(convlab, name)
        assert inspect.getdoc(thing), name
        for method, value in vars(thing).items() if inspect.isclass(thing) else ():
            if inspect.isfunction(value) and not method.startswith("_"):
                assert inspect.getdoc(value), f"{name}.{method}"
