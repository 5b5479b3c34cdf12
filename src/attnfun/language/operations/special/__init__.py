"""Special functions, one file for each family."""

from attnfun.language.operations.special import (
    airy,
    bessel,
    elliptic,
    errors,
    gammas,
    hyperbolic,
    integrals,
    lambert,
    roots,
    zetas,
)

FAMILIES = (hyperbolic, roots, errors, gammas, bessel, airy, integrals, lambert, elliptic, zetas)
