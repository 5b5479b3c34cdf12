"""Theorem. The exp of the compiled kernels is within EXP_ROUNDOFFS u = 4u of e^x, relatively, for |x| <= REACH.

    k = x log2e + M;  n = k − M;  r = (x − n h) − n l;  p = Taylor's polynomial of degree D without 1 + r;
    e^x ~ 2^n + 2^n ((p r) r + r),                 h + l = ln 2 to 2^-86 (float32: 2^-38), M = 1.5 · 2^52 (1.5 · 2^23)

*Proof*, for either contraction of `a*b + c`.
 1. |x log2e| < 2^11 (2^8), so k lies where doubles (floats) are the integers, and n is an integer. The product is off
    by at most 2^-42 (2^-16), the rounding to n by 1/2: |x − n ln 2| < 0.3467 =: R.
 2. h has 33 (9) leading bits and n at most 11 (8), so n h is exact. x − n h is off by at most u (R + |n l|), n l by
    u |n l|, n (ln 2 − h − l) is below 2^-75 (2^-30), the last subtraction costs u R. |n l| < 2^-21 (0.028). Together
    |r − (x − n ln 2)| < 0.70 u (0.80 u).
 3. Taylor's remainder after degree D is at most R^(D+1)/(D+1)! · 1.1 < 0.05 u (0.10 u).
 4. p = 1/2 + r/6 + ... is off by at most 1.5 u: the last step costs 0.57 u for the sum and 0.07 u for the product, and
    what came before, below 0.5 u likewise, is multiplied by |r|; constants are rounded. |p| < 0.57, and
    g := (p r) r + r has two products and a sum: off by at most (1.5 + 2 · 0.57) u R² + u |g| < 0.32 u + 0.42 u.
 5. 2^n is exact, n being the exponent of a normal number, and so are products with it. The last sum costs u e^x.
 Together, as 0.707 < e^(x − n ln 2): (0.80 + (0.10 + 0.32 + 0.42)/0.707 + 1) u < 3.1 u, and 4u has room for u².   □

`tests/fast/test_exp.py` looks at every float32 in the range (slow), and at doubles chosen near the ends of the cells.
"""

EXP_ROUNDOFFS = 4
REACH = {"float64": 708.0, "float32": 87.0}

LOG2_E = 1.4426950408889634
MAGIC = {"float64": 6755399441055744.0, "float32": 12582912.0}
LN2 = {"float64": (0.6931471803691238, 1.9082149292705877e-10), "float32": (0.693359375, -2.12194440e-4)}
_FACTORIALS = (
    6227020800, 479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2
)  # fmt: skip
TAYLOR = {"float64": tuple(1 / f for f in _FACTORIALS), "float32": tuple(1 / f for f in _FACTORIALS[6:])}
ONE_BITS = {"float64": 0x3FF0000000000000, "float32": 0x3F800000}
