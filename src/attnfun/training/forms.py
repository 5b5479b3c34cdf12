"""`train` for trilinear forms: other coefficients in the shape of a form, judged by the checker of forms."""

from __future__ import annotations

from dataclasses import replace

from attnfun.certify import Certificate, Status
from attnfun.certify.trilinear import prove_trilinear, trilinear_table
from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.learn import Fit
from attnfun.training.request import NOTHING, Asked
from attnfun.trilinear import TrilinearForm


def train_form(given: TrilinearForm, asked: Asked) -> tuple[TrilinearForm, Fit]:
    """The coefficients of a form, trained."""
    from attnfun.learn.torch_trilinear import FormProblem, FormTask

    asked.no_noise()
    task = FormTask(given.target, given.architecture)
    if asked.start == "random":
        origin = task.random(asked.recipe.seed)
    elif isinstance(asked.start, TrilinearForm) and asked.start.architecture == given.architecture:
        origin = asked.start.coefficients
    elif asked.start == "constructed":
        origin = given.coefficients
    else:
        raise InvalidRequest("a form starts at random, from the constructed one, or from another of its shape")
    fit = asked.descended(FormProblem(task, origin))
    request = dict(asked.request)
    return replace(
        given,
        coefficients=fit.network,
        certificate=NOTHING,
        rank_lower=0,  # that of the constructed one is for its eps
        request=request,
        seconds=fit.seconds,
    ), fit


def judged_form(made: TrilinearForm, seen: float) -> Certificate:
    """A bound: the checker takes any coefficients. The error that was seen says how fine a table it needs."""
    try:
        table = trilinear_table(made.graph, made.box, 1e-2 * seen) if seen > 0 else None
    except Undecided:
        table = None  # the checker says why
    found = prove_trilinear(made.graph, made.box, made.coefficients, None, table)
    return replace(found, construction="learned") if found.status is Status.BOUNDED else found
