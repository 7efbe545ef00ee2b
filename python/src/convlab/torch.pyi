from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from .captured import Captured as Captured

def capture(model: Callable[..., Any], *inputs: Any, backward: bool = True,
            kwargs: Mapping[str, Any] | None = None, runs: int = 5) -> Captured: ...
# The result is a torch.nn.Module.
def optimize(model: Any, *example_inputs: Any, training: bool = False,
             kwargs: Mapping[str, Any] | None = None, max_error: float = 1e-4, tune: bool = False,
             budget: str | None = None, swap: str = "faster", report: bool | IO[str] = True) -> Any: ...
