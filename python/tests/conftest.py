import os
import sys

import numpy as np
import pytest

sys.path.insert(0, os.path.dirname(__file__))
# Tests run beside one another and beside others' work: no thread spins while it waits.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ["CONVLAB_IGNORE_DISTURBANCES"] = "1"


@pytest.fixture(scope="session", autouse=True)
def own_store(tmp_path_factory):
    """The tests neither read nor write the user's tuning store."""
    os.environ["CONVLAB_DB"] = str(tmp_path_factory.mktemp("store") / "tune.db")


@pytest.fixture
def random():
    generator = np.random.default_rng(1)
    return lambda *shape, dtype="float32": generator.standard_normal(shape).astype(dtype)
