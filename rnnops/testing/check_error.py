"""CheckError: what the checkers of `rnnops.testing` raise."""

from __future__ import annotations

from rnnops.errors import RnnopsError


class CheckError(RnnopsError):
    """A check failed: a wrong gradient, devices that disagree, a lent array that was changed.

    Example:
        >>> net = ro.Net("net")
        >>> x = net.input("x")
        >>> net.outputs(y=ro.with_gradient(ro.exp(x), x, x))  # of exp the slope is exp
        >>> try:
        ...     ro.testing.check_gradient(net, {"x": np.array([1.0])})
        ... except ro.testing.CheckError as error:
        ...     print(error.problem)
        at [0]: the gradient is wrong, off by 1.12 where 3e-06 is allowed
    """
