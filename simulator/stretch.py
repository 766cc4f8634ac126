"""The closed forms of a stretch: iterations between two decisions, in which everything is linear.

With b requests running, each iteration writes b more token states, and so takes ``step = kv_token x b`` longer
than the one before. Iteration j = 0, 1, ... of a stretch lasts ``first + step x j`` and holds ``used + b x j``
token states. All of it is integers, so a stretch of any length gives bit for bit what stepping through it gives.
"""

from math import isqrt


def duration_ps(iterations: int, first_ps: int, step_ps: int) -> int:
    """How long ``iterations`` iterations take: an arithmetic series."""
    return iterations * first_ps + step_ps * (iterations * (iterations - 1) // 2)


def boundary(time_ps: int, first_ps: int, step_ps: int) -> int:
    """The fewest iterations that together take at least ``time_ps`` > 0; a stretch must take some time.

    With a step it is the root of a quadratic, found by an integer square root and never off by one.
    """
    if step_ps == 0:
        return -(-time_ps // first_ps)
    # n first + step n (n - 1) / 2 >= time  <=>  n >= (sqrt(slope^2 + 8 step time) - slope) / (2 step)
    slope = 2 * first_ps - step_ps
    count = (isqrt(slope * slope + 8 * step_ps * time_ps) - slope) // (2 * step_ps)
    # Both roundings are downward, so the answer is this or the next.
    return count if duration_ps(count, first_ps, step_ps) >= time_ps else count + 1
