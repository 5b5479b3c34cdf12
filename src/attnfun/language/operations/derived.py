"""Functions that are formulas in others; nothing is lost by writing them out, neither digits nor points."""

from attnfun.language.operations.entry import Derived

OPERATIONS = (
    Derived("log2", ("x",), "log(x)/log(2)", ufuncs=("log2",)),
    Derived("log10", ("x",), "log(x)/log(10)", ufuncs=("log10",)),
    Derived("exp2", ("x",), "2**x", ufuncs=("exp2",)),
    Derived("hypot", ("x", "y"), "sqrt(x**2 + y**2)", ufuncs=("hypot",)),
    Derived("sinc", ("x",), "sin(pi*x)/(pi*x)"),
    Derived("logaddexp", ("x", "y"), "x + softplus(y - x)", ufuncs=("logaddexp",)),
)
