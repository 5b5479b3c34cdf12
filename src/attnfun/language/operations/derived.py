"""Functions that are formulas in others; nothing is lost by writing them out, neither digits nor points."""

from attnfun.language.operations.entry import Derived

OPERATIONS = (
    Derived("log2", ("x",), "log(x)/log(2)", ufuncs=("log2",)),
    Derived("log10", ("x",), "log(x)/log(10)", ufuncs=("log10",)),
    Derived("exp2", ("x",), "2**x", ufuncs=("exp2",)),
    Derived("hypot", ("x", "y"), "sqrt(x**2 + y**2)", ufuncs=("hypot",)),
    Derived("sinc", ("x",), "sin(pi*x)/(pi*x)"),
    Derived("logaddexp", ("x", "y"), "x + softplus(y - x)", ufuncs=("logaddexp",)),
    Derived(
        "atan2", ("y", "x"), "2*atan(y/(sqrt(x**2 + y**2) + x))", aliases=("arctan2",), ufuncs=("arctan2", "atan2")
    ),
    Derived("digamma", ("x",), "polygamma(0, x)", aliases=("psi",), ufuncs=("psi",)),
    Derived("beta", ("a", "b"), "exp(gammaln(a) + gammaln(b) - gammaln(a + b))", ufuncs=("beta",)),
    Derived("ndtr", ("x",), "erfc(-x/sqrt(2))/2", ufuncs=("ndtr",)),
    Derived("ndtri", ("p",), "-sqrt(2)*erfcinv(2*p)", ufuncs=("ndtri",)),
    *(
        Derived(f"{letter}{n}", ("x",), f"{letter}v({n}, x)", ufuncs=(f"{letter}{n}",))
        for letter in "jyik"
        for n in (0, 1)
    ),
)
