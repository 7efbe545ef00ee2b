"""What the tests of convlab.torch.optimize() share. Imports PyTorch, if it is installed."""

import convlab
import pytest

torch = pytest.importorskip("torch")
flow = pytest.importorskip("convlab.optimize")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No test asserts a time."""
    monkeypatch.setattr(flow, "_ROUNDS", 1)
    torch.manual_seed(1)


def optimize(model, *inputs, **options):
    return convlab.torch.optimize(model, *inputs, **{"swap": "all", "report": False, **options})


def close(a, b, limit=1e-4):
    return float((a - b).detach().norm()) <= limit * float(b.detach().norm())
