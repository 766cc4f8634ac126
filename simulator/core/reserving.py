"""What contiguous and buddy share: a request asks once, for all it may ever write, and gets one extent or nothing."""

from numba import njit

MAX, POW2, ORACLE = range(3)
"""Reservation rules: max_model_len; the output rounded up to a power of two; exactly what will be written."""


@njit(_nrt=False, forceinline=True)
def reserved(rule, limit, prompt, output):
    """Slots asked for. ``limit``: max_model_len, 0 for none."""
    if rule == MAX:
        return limit
    asked = prompt + output - 1
    if rule == POW2:
        power = 1
        while power < output:
            power *= 2
        asked = prompt + power - 1
        if limit:
            asked = min(asked, limit)
    return asked
