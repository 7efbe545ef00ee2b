"""OpenBLAS chooses its kernels when it is loaded, and may not know a newer CPU."""

import contextlib
import os
import warnings

_VARIABLE = "OPENBLAS_CORETYPE"


def _is_amd_with_avx512():
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read(16384)
    except OSError:
        return False
    return "AuthenticAMD" in text and " avx512vl" in text and " avx512dq" in text


@contextlib.contextmanager
def suitable_kernels():
    """While the module is loaded, names the AVX-512 kernels where Debian 12's OpenBLAS (0.3.21) would
    take those for AVX2. The program starts itself again for this, which an interpreter cannot."""
    chosen = _VARIABLE not in os.environ and _is_amd_with_avx512()
    if chosen:
        os.environ[_VARIABLE] = "SkylakeX"
    try:
        yield
    finally:
        if chosen:
            del os.environ[_VARIABLE]


def warn_of(core):
    """``core`` is the kernels' name that would suit this CPU better than those loaded; empty: none."""
    if core and _VARIABLE not in os.environ:
        warnings.warn(f"OpenBLAS takes kernels for an older CPU: set {_VARIABLE}={core} before Python "
                      "starts", RuntimeWarning, stacklevel=3)
