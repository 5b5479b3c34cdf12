"""The Airy functions Ai and Bi and their derivatives; f'' = x f."""

from typing import Any

from attnfun.language.operations.analytic import Row, analytic, anywhere, by_arb
from attnfun.language.operations.entry import Operation
from attnfun.language.operations.shapes import Ball, by_field


def _pair(name: str, arb_name: str, place: int) -> tuple[Operation, ...]:
    """The function and its derivative; `place` is where SciPy's tuple has it."""

    def coefficients(z: Ball, n: int) -> Row:
        f = [getattr(z, arb_name)(), getattr(z, arb_name)(derivative=1), getattr(z, arb_name)() * z / 2]
        for k in range(1, n):  # (k+2)(k+1) f_{k+2} = z f_k + f_{k-1}
            f.append((z * f[k] + f[k - 1]) / ((k + 2) * (k + 1)))
        return f[: n + 1]

    def floats(at: int, derivative: int) -> Any:
        def real(x: Any) -> Any:
            import scipy.special

            return scipy.special.airy(x.astype("float64"))[at].astype(x.dtype)

        return by_field(real, by_arb(lambda z: getattr(z, arb_name)(derivative=derivative)))

    prime = f"{name}prime"
    return (
        *analytic(
            name,
            lambda z: getattr(z, arb_name)(),
            lambda z, n: coefficients(z, n)[:n],
            anywhere,
            lambda b, x, value: getattr(b, prime)(x),
            floats=floats(place, 0),
        ),
        *analytic(
            prime,
            lambda z: getattr(z, arb_name)(derivative=1),
            lambda z, n: [(k + 1) * c for k, c in enumerate(coefficients(z, n)[1:])],
            anywhere,
            lambda b, x, value: b.mul(x, getattr(b, name)(x)),
            floats=floats(place + 1, 1),
        ),
    )


OPERATIONS = (*_pair("airyai", "airy_ai", 0), *_pair("airybi", "airy_bi", 2))
