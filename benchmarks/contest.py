"""The contest of `make bench-rivals`: one function, one way to compute it; what that takes, and how far it is off.

Ways are of three sorts. Those in SAMPLES are given random points and values there: `fit(X, y)`, X in [−1, 1]^d. Those
in ASKING ask for values where they like. Those in READING are given the formula and the box. All return what they have
Made: `predict`, and how many numbers it stores. Errors are parts of the function's range. Times are of the processor,
of one thread, so that other work on the machine does not count; training has a stated number of steps.
"""

import contextlib
import io
import resource
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

import attnfun as af
from attnfun.lab.studies.study import HOLDS, REFUTED, Row, Rows, Size, Study, Unit, Verdict
from attnfun.language.function import Function

Array = Any
Predict = Callable[[Array], Array]
FRESH = 10_000  # random points, none of which was given to any way
ADAM, BATCH, LBFGS, KAN_STEPS = 2_000, 256, 300, 30
MANY, FEW = 10_000, 2_000  # samples; FEW: for what solves a system of all of them
MOST = 100_000  # numbers of a Chebyshev tensor


class Made(NamedTuple):
    predict: Predict
    numbers: int
    proved: float | None = None
    seconds: float | None = None  # to build, where not all counts


def spent() -> float:
    """Seconds of the processor, of this process and of those that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


# ---------------------------------------------------------------- fitted to samples


def mlp(X: Array, y: Array) -> Made:
    """Three layers of 64 tanh units: Adam on batches, its rate falling to 0, then LBFGS on FEW samples, float64."""
    import torch

    torch.manual_seed(0)
    sizes = [X.shape[1], 64, 64, 64, 1]
    layers = [torch.nn.Linear(a, b, dtype=torch.float64) for a, b in pairwise(sizes)]
    net = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.Tanh())))[:-1]
    inputs, wanted = torch.tensor(X), torch.tensor(y)[:, None]

    def loss(at: Any) -> Any:
        return ((net(inputs[at]) - wanted[at]) ** 2).mean()

    adam = torch.optim.Adam(net.parameters(), lr=3e-3)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, ADAM)
    for _ in range(ADAM):
        adam.zero_grad()
        loss(torch.randint(len(X), (BATCH,))).backward()
        adam.step()
        falling.step()
    polish = torch.optim.LBFGS(net.parameters(), max_iter=LBFGS, line_search_fn="strong_wolfe", tolerance_change=0)

    def closure() -> Any:
        polish.zero_grad()
        value = loss(slice(FEW))
        value.backward()
        return value

    polish.step(closure)
    return Made(in_torch(net), sum(p.numel() for p in net.parameters()))


def kan(X: Array, y: Array) -> Made:
    """pykan: six inner nodes, splines on ten intervals, LBFGS on a thousand samples, float64."""
    import torch
    from kan import KAN

    torch.set_default_dtype(torch.float64)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        net = KAN(width=[X.shape[1], 6, 1], grid=10, k=3, seed=0, auto_save=False, device="cpu").speed()
        given = {"input": torch.tensor(X[: FEW // 2]), "label": torch.tensor(y[: FEW // 2])[:, None]}
        data = {f"{part}_{name}": value for name, value in given.items() for part in ("train", "test")}
        net.fit(data, opt="LBFGS", steps=KAN_STEPS)
    return Made(in_torch(net), sum(p.numel() for p in net.parameters()))


def kernel_ridge(X: Array, y: Array) -> Made:
    """Gaussian kernels on FEW samples; of five widths the best on samples that were left out."""
    from sklearn.kernel_ridge import KernelRidge

    X, y, held, there = X[:FEW], y[:FEW], X[FEW : FEW + 500], y[FEW : FEW + 500]
    made = [KernelRidge(kernel="rbf", gamma=g, alpha=1e-11).fit(X, y) for g in (0.03, 0.1, 0.3, 1.0, 3.0)]
    best = min(made, key=lambda one: float(np.abs(one.predict(held) - there).max()))
    return Made(best.predict, len(X) * (X.shape[1] + 1))


def random_forest(X: Array, y: Array) -> Made:
    """Fifty trees."""
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(50, random_state=0).fit(X, y)
    return Made(forest.predict, 5 * sum(tree.tree_.node_count for tree in forest.estimators_))  # five numbers a node


def rbf(X: Array, y: Array) -> Made:
    """SciPy's RBFInterpolator, cubic, through the fifty samples nearest to each point."""
    from scipy.interpolate import RBFInterpolator

    return Made(RBFInterpolator(X, y, neighbors=50, kernel="cubic"), X.size + y.size)


def in_torch(net: Any) -> Predict:
    import torch

    def predict(X: Array) -> Array:
        with torch.no_grad():
            return net(torch.tensor(X)).numpy().reshape(len(X))

    return predict


SAMPLES: dict[str, Callable[[Array, Array], Made]] = {
    "MLP": mlp,
    "KAN": kan,
    "KernelRidge": kernel_ridge,
    "RandomForest": random_forest,
    "RBFInterpolator": rbf,
}

# ---------------------------------------------------------------- asking for values where they like


def chebyshev(values: Predict, dim: int) -> Made:
    """Interpolation in n^d Chebyshev points of [−1, 1]^d: n grows until the error is rounding, or MOST is reached."""
    from numpy.polynomial import chebyshev as basis
    from scipy.fft import dctn

    check = np.random.default_rng(5).uniform(-1, 1, (500, dim))
    there, best = values(check), None
    for n in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096):
        if n**dim > MOST:
            break
        nodes = np.cos((np.arange(n) + 0.5) * np.pi / n)
        grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), -1).reshape(-1, dim)
        tensor = dctn(values(grid).reshape([n] * dim), type=2) / n**dim
        for axis in range(dim):
            np.moveaxis(tensor, axis, 0)[0] /= 2

        def predict(X: Array, n: int = n, tensor: Array = tensor) -> Array:
            out, block = np.empty(len(X)), max(1, 2**22 // tensor.size)
            for k in range(0, len(X), block):
                sums = np.tensordot(basis.chebvander(X[k : k + block, 0], n - 1), tensor, 1)
                for axis in range(1, dim):
                    sums = np.einsum("qi,qi...->q...", basis.chebvander(X[k : k + block, axis], n - 1), sums)
                out[k : k + block] = sums
            return out

        error = float(np.abs(predict(check) - there).max())
        if best is None or error < best[0] / 2:
            best = (error, Made(predict, tensor.size))
        if error <= 1e-13 * np.abs(there).max():
            break
    assert best is not None
    return best[1]


ASKING = {"Chebyshev": chebyshev}

# ---------------------------------------------------------------- given the formula


def compiled(target: Function, eps: float) -> Any:
    return af.compile(target.text, domain=target.box, eps=eps, relative=True)


def attnfun(target: Function, eps: float) -> Made:
    net = compiled(target, eps)
    return Made(net, net.cost.parameters, net.certificate.error[1])


def formula(target: Function) -> Made:
    """NumPy's operations in the formula's order."""
    return Made(lambda X: target.values(X)[:, 0], 0)


def sdpa(target: Function, compiling: bool = False) -> Made:
    """The weights of attnfun at 1e-6 as a torch module, eager or compiled by torch; their making is not counted."""
    import torch

    weights = compiled(target, 1e-6)
    start, module = spent(), weights.to_torch()
    ready = in_blocks(in_torch(torch.compile(module, dynamic=False))) if compiling else in_torch(module)
    ready(np.repeat(target.box.low_array[None], 2, axis=0))
    return Made(ready, sum(part.numel() for part in module.state_dict().values()), seconds=spent() - start)


def in_blocks(predict: Predict) -> Predict:
    """Always as many points at once: torch compiles anew for every other number."""

    def whole(X: Array) -> Array:
        blocks = [X[k : k + FRESH] for k in range(0, len(X), FRESH)]
        return np.concatenate([predict(np.resize(block, (FRESH, X.shape[1])))[: len(block)] for block in blocks])

    return whole


READING: dict[str, Callable[[Function], Made]] = {
    "attnfun 1e-6": lambda target: attnfun(target, 1e-6),
    "attnfun 1e-3": lambda target: attnfun(target, 1e-3),
    "NumPy": formula,
    "torch SDPA": sdpa,
    "torch.compile": lambda target: sdpa(target, compiling=True),
}
SEES = dict.fromkeys(READING, "formula") | dict.fromkeys(ASKING, "any values") | dict.fromkeys(SAMPLES, "samples")

# ---------------------------------------------------------------- one contest


def searched(target: Function, predict: Predict, X: Array, error: Array, rng: Any) -> float:
    """The largest error at corners and wherever a search leads from the worst points known: steps ever smaller."""
    low, high = target.box.low_array, target.box.high_array
    corners = np.array(list(product(*zip(low, high)))) if target.box.dim <= 10 else X[:0]
    X, error = np.concatenate([X, corners]), np.concatenate([error, errors(target, predict, corners)])
    for size in np.geomspace(0.2, 1e-4, 16):
        worst = np.argsort(error)[-16:]
        step = rng.normal(size=(24, 16, len(low))) * rng.integers(0, 2, (24, 16, len(low))) * size * (high - low)
        X = np.concatenate([X[worst], np.clip(X[worst] + step, low, high).reshape(-1, len(low))])
        error = np.concatenate([error[worst], errors(target, predict, X[16:])])
    return float(error.max())


def errors(target: Function, predict: Predict, X: Array) -> Array:
    """Where one of them is no number, the error is infinite."""
    return np.nan_to_num(np.abs(np.asarray(predict(X)).reshape(len(X)) - target.values(X)[:, 0]), nan=np.inf)


def timed(predict: Predict, X: Array) -> float:
    """Nanoseconds a point: the best of three runs, or the first if it is slow."""
    best, runs = np.inf, 3
    while runs > 0:
        start = spent()
        predict(X)
        best, runs = min(best, spent() - start), runs - 1
        runs = 0 if best > 2 else runs
    return float(best / len(X) * 1e9)


@cache
def warmed_up() -> None:
    """What is imported on the way to a first result is no part of its time."""
    af.compile("exp(x)*y", domain="x=0:1;y=0:1", eps=0.1).to_torch()
    for name in ("sklearn.kernel_ridge", "sklearn.ensemble", "scipy.interpolate", "kan"):
        with contextlib.suppress(ImportError):
            import_module(name)


def run(unit: Unit) -> Row:
    """One target, one way."""
    target, way = Function.on(unit["formula"], unit["domain"]), unit["way"]
    low, high = target.box.low_array, target.box.high_array
    rng = np.random.default_rng(1)
    X = rng.uniform(low, high, (FRESH, len(low)))
    values = target.values(X)[:, 0]
    width, spread = target.absolute(1.0, "float64")[0], float(np.ptp(values))  # of the function; of what samples show
    row: Row = {"variables": len(low), "sees": SEES[way]}

    def scaled(X: Array) -> Array:
        return (X - low) / (high - low) * 2 - 1

    def unscaled(fit: Predict) -> Predict:
        return lambda X: fit(scaled(X)) * spread + middle

    warmed_up()
    start, middle = spent(), float(values.mean())
    if way in SAMPLES:
        given = np.random.default_rng(2).uniform(low, high, (MANY, len(low)))
        y = (target.values(given)[:, 0] - middle) / spread
        start = spent()
        made = SAMPLES[way](scaled(given), y)
        predict = unscaled(made.predict)
    elif way in ASKING:
        made = ASKING[way](
            lambda X: (target.values((X + 1) / 2 * (high - low) + low)[:, 0] - middle) / spread, len(low)
        )
        predict = unscaled(made.predict)
    else:
        try:
            made = READING[way](target)
        except af.AttnfunError as error:
            return row | {"note": str(error)}
        predict = made.predict
    row["build"] = spent() - start if made.seconds is None else made.seconds
    row |= {"numbers": made.numbers, "proved": None if made.proved is None else made.proved / width}
    error = errors(target, predict, X)
    worst = searched(target, predict, X, error, rng)
    return row | {"fresh": float(error.max()) / width, "worst": worst / width, "time": timed(predict, X)}


def units(size: Size) -> list[Unit]:
    few = [case for case in cases(size["each"]) if not size["only"] or case["target"] in size["only"]]
    chosen = [name for name in SEES if name not in size["without"]]
    made = [{**case, "way": way} for case in few for way in chosen]
    return [unit for unit in made if unit["way"] != "torch.compile" or unit["target"] in COMPILED]


COMPILED = ("sum2", "sin3x", "I.9.18", "I.32.17")
"""torch compiles for half a minute each: the README's targets and those of many variables."""


def cases(each: int) -> Iterator[dict[str, str]]:
    """The README's targets, two of many variables, and as many of each shipped suite, spread evenly."""
    from attnfun.cli.suite import read_suite, select

    yield {"target": "sum2", "suite": "README", "formula": "sin(3*x)+cos(2*y)*exp(x*y)", "domain": "x=-1:1;y=-1:1"}
    yield {"target": "sin3x", "suite": "README", "formula": "sin(3*x)", "domain": "x=-1:1"}
    named = {case["name"]: case for case in read_suite("feynman")}
    found = [("6+ variables", named[name]) for name in ("I.9.18", "I.32.17")]
    found += [(name, case) for name in ("classic", "feynman", "genz") for case in select(read_suite(name), str(each))]
    for suite, case in found:
        yield {"target": case["name"], "suite": suite, "formula": case["formula"], "domain": case["domain"]}


def judge(table: Rows) -> Verdict:
    """Refuted where a network was seen to err more than proved."""
    broken = Rows(table).above("worst", "proved").say("{target}, {way}: {worst:.3g} of the range above {proved:.3g}")
    return Verdict(REFUTED, "; ".join(broken)) if broken else Verdict(HOLDS, "No error is above its bound.")


def study(draw: Callable[[Any], Any]) -> Study:
    full: Size = {"each": 10, "only": (), "without": ()}
    quick: Size = {"each": 1, "only": ("sum2", "sin3x", "I.9.18"), "without": ()}
    tiny: Size = {"each": 1, "only": ("sin3x",), "without": ("MLP", "KAN", "torch.compile")}
    return Study(
        name="rivals",
        title="attnfun and what one would take instead",
        claim="Where attnfun is better, and where it is not.",
        source="This project.",
        columns={
            **{"target": "the function", "suite": "where it is from", "variables": "how many", "way": "how computed"},
            **{"sees": "what the way is given", "build": "seconds to build", "numbers": "that are stored"},
            **{"proved": "bound of the error", "fresh": "largest error at random points"},
            **{
                "worst": "largest error that a search finds",
                "time": "nanoseconds a point",
                "note": "why there is none",
            },
        },
        sizes={"tiny": tiny, "quick": quick, "full": full},
        units=units,
        run=run,
        judge=lambda table: judge(Rows(table)),
        draw=draw,
        needs=("sklearn", "torch"),
    )
