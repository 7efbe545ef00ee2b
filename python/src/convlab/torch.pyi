from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .captured import Captured as Captured

def capture(model: Callable[..., Any], *inputs: Any, backward: bool = True,
            kwargs: Mapping[str, Any] | None = None, runs: int = 5) -> Captured: ...
