"""How a function's network is trained: all weights of its shape, from random ones or from those given."""

from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.language.definedness import require_defined
from attnfun.language.function import Function
from attnfun.learn.lesson import Ask, Lesson
from attnfun.learn.weights import random_network
from attnfun.network import Architecture, Network


def lesson(given: Any, ask: Ask) -> Lesson:
    """The shape of `given` (a model, a network or an architecture) towards the asked function."""
    from attnfun.learn.torch_function import FunctionProblem

    ask.no_towers()
    function = ask.target
    assert isinstance(function, Function)
    architecture = given if isinstance(given, Architecture) else given.architecture
    if not isinstance(architecture, Architecture):
        raise InvalidRequest(f"a {type(given).__name__} has no architecture that computes a function")
    if function.graph is not None:
        require_defined(function.graph, function.box, continuous=False)
    elif function.call is None:
        raise InvalidRequest("the target is a Python function that is not in the file; pass it as target")
    if architecture.inputs != function.box.names or len(architecture.outputs) != len(function.outputs):
        network = f"a network from {', '.join(architecture.inputs)} to {len(architecture.outputs)} output(s)"
        raise InvalidRequest(f"{network} cannot learn {function.text[:80]} on {function.box.text}")
    if ask.start == "random":
        begun = random_network(architecture, function, ask.recipe.seed)
    elif isinstance(ask.start, Network):
        begun = ask.start
    else:
        raise ask.other_start()
    if not architecture.holds(begun.architecture):
        raise InvalidRequest("the start is not a network of the architecture that is to be trained")
    return Lesson(function, FunctionProblem(architecture, function, begun))
