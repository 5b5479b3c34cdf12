"""The laboratory: train, diagnose, reproduce, report."""

from pathlib import Path
from typing import Any

from attnfun.cli.derive import Answer
from attnfun.cli.render import Grid, Part, Whole, literal, number
from attnfun.cli.views import viewed
from attnfun.errors import InvalidRequest

_COLOURS = {"serious": "bold red", "warning": "yellow", "note": "dim", "healthy": "green"}
_COLUMNS = ("keys", "effective", "c = R·h²", "needed", "key norm", "max |V|", "max |f|", "error", "allowed", "rounding")
_MOST = 40  # rows of a table
_VERDICTS = {"holds": "bold green", "holds with limits": "bold yellow", "refuted": "bold red", "failed": "bold red"}


def trained(
    file: str,
    steps: int = 2000,
    seed: int = 0,
    start: str = "random",
    checkpoint: str | None = None,
    out: str | None = None,
    progress: Any = None,
    **rest: Any,
) -> Answer:
    """The architecture of a file with trained weights, beside the constructed ones."""
    if checkpoint is not None and checkpoint in (out, file):
        raise InvalidRequest(f"--checkpoint {checkpoint!r} is the file of a network: name another one")
    from attnfun import verbs
    from attnfun.learn import Progress
    from attnfun.learn.compare import compare
    from attnfun.learn.train import train

    net = verbs.load(file)

    def news(at: Progress) -> None:
        progress(str(at), at.row.step / at.total)

    learned = train(net, steps=steps, seed=seed, start=start, checkpoint=checkpoint, progress=news, **rest)
    table, fit = compare(net, learned), learned.fit
    record: dict[str, Any] = {"status": learned.certificate.status.value, **table.to_json()}
    record |= {"stopped": fit.stopped, "best_step": fit.best_step, "seed": seed, "start": start}
    record |= {"history": [row.to_json() for row in learned.history]}
    if out:
        learned.save(out)
        record["file"] = out
    return Answer(record, draw=table.plot, said={"table": table, "learned": learned}, code=0)


def trained_page(record: dict[str, Any]) -> list[Part]:
    """Both networks on one table, and how the training went."""
    from attnfun.learn.compare import bound_text

    table, learned = record["table"], record["learned"]
    names = ("network", "keys", "sup", "L2", "bound", "key norm", "seconds")
    body = [
        (
            *(literal(one.name), one.keys, one.sup, one.l2, bound_text(one, number), one.key_norm_max),
            None if one.seconds is None else round(one.seconds, 1),
        )
        for one in table.entries
    ]
    parts: list[Part] = [literal(f"{table.target}  on  {table.domain}"), Grid(names, body)]
    if any(one.status == "stored" for one in table.entries):
        parts.append("stored: as the file says, not verified")
    fit, first, last, certificate = learned.fit, learned.history[0], learned.history[-1], learned.certificate
    why = {"steps": "", "patience": ", its first part ended by patience", "diverged": ", then it diverged"}[fit.stopped]
    parts.append(("steps", f"{fit.steps:,}{why}; least sup error on the probe at step {fit.best_step:,}"))
    if first.key_norm_max is not None:
        norms = f"largest {number(first.key_norm_max)} at the start, {number(last.key_norm_max)} at the end"
        parts.append(("key norms", norms))
    parts.append((certificate.status.value, literal(certificate.reason or certificate.status.meaning)))
    return [*parts, *viewed(record, [["saved", "{file}"], ["drawn", "{png}"]])]


def diagnosed(file: str, strict: bool = False, progress: Any = None, **rest: Any) -> Answer:
    """What is wrong with the heads of a file; only with `strict` does it decide the exit code."""
    from attnfun.diagnosis.verb import diagnose

    found = diagnose(file, progress=progress, **rest)
    record = {"status": "diagnosed", "file": file, **found.to_json()}
    return Answer(record, found, said={"found": found}, code=1 if strict and found.serious else 0)


def diagnosis_page(record: dict[str, Any]) -> list[Part]:
    """The figures of every head, the findings in words, and how to fix them."""
    found = record["found"]
    parts: list[Part] = [literal(found.about)]
    if found.heads:
        parts.append(Grid(["head", *_COLUMNS], [_figures(head.figures) for head in found.heads[:_MOST]]))
        if len(found.heads) > _MOST:
            parts.append(f"and {len(found.heads) - _MOST} more heads (--json has them all)")
    shown = [one for one in found.findings if one.severity != "healthy"] or list(found.findings[:1])
    for one in shown[:_MOST]:
        colour = _COLOURS[one.severity]
        parts.append(f"[{colour}]{literal(f'{one.kind} ({one.severity}), {one.head}')}[/]")
        parts += [literal(f"  {words[0].upper()}{words[1:]}.") for words in [one.words]]
        parts += [literal(f"  Fix: {mend.words}.") for mend in one.mends]
    well = sum(head.findings[0].severity == "healthy" for head in found.heads)
    if well and shown[0].severity != "healthy":
        parts.append(f"[{_COLOURS['healthy']}]{well} of {len(found.heads)} heads healthy[/]")
    parts += map(literal, found.remarks)
    if found.heads:
        parts.append(("measured", f"{found.dtype}, at {found.points:,} sampled inputs; no figure is a bound"))
    seen = "error {error} at these inputs"
    return [*parts, *viewed(record, [["network", seen + ", eps {eps}", seen], ["drawn", "{png}"]])]


def _figures(f: Any) -> list[Any]:
    allowed = None if f.tolerance == float("inf") else f.tolerance
    needed = f.sharpness_needed if f.sharpness is not None else None
    first = [literal(f"{f.layer + 1} {f.name}"), f.keys, f.effective_mean, f.sharpness, needed, f.key_norm_max]
    return [*first, f.value_max, f.size, f.error, allowed, f.rounding]


def reproduced(
    names: list[str] | None = None,
    quick: bool = False,
    full: bool = False,
    out: str = "attnfun-studies",
    resume: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    skip_missing: bool = False,
    show: bool = False,
    progress: Any = None,
) -> Answer:
    """Studies, run and judged; or the list of them."""
    if show:
        return _list(names)
    if quick and full:
        raise InvalidRequest("--quick and --full: write one of them")
    if not names:
        raise InvalidRequest("no study is named: write a name, several, or all (attnfun reproduce --list shows them)")
    if "all" in names and len(names) > 1:
        raise InvalidRequest(f"all, and {' '.join(name for name in names if name != 'all')}: write one or the other")
    if jobs is not None and cluster is not None:
        raise InvalidRequest("--jobs counts processes of this machine: leave it out with --cluster")
    from attnfun.lab.studies import runner

    def news(at: runner.Progress) -> None:
        progress(str(at), at.done / max(at.total, 1))

    asked: str | list[str] = "all" if names == ["all"] else names
    size, where = "full" if full else "quick", {"jobs": jobs, "cluster": cluster, "skip_missing": skip_missing}
    outcomes = runner.reproduce(asked, size, out, resume=resume, progress=news, **where)  # type: ignore[arg-type]
    ran = [outcome.name for outcome in outcomes]
    skipped = [study.name for study in runner.chosen(asked) if study.name not in ran]
    failed = any(outcome.verdict is None for outcome in outcomes)
    record: dict[str, Any] = {"status": "error" if failed else "done", "out": out, "skipped": skipped}
    record |= {"studies": [outcome.to_json() for outcome in outcomes]}
    return Answer(record, parts=_outcomes(outcomes, skipped))


def _outcomes(outcomes: list[Any], skipped: list[str]) -> list[Part]:
    parts: list[Part] = []
    for one in outcomes:
        parts.append(f"[bold]{one.name}[/]  [{_VERDICTS[one.status]}]{one.status}[/]")
        parts += [literal(one.verdict.words)] if one.verdict else []
        parts += [f"[dim]{literal(failure)}[/]" for failure in one.failures[:5]]
        parts += [f"[dim]and {len(one.failures) - 5} more units[/]"] if len(one.failures) > 5 else []
        kept = f", {one.kept} of them from an earlier run" if one.kept else ""
        done = f"{one.rows:,} rows of {one.units:,} units{kept}; {one.cpu_seconds:,.1f} s of CPU"
        parts += [f"[dim]{one.size}: {done}[/]", Whole(f"[dim]{literal(f'{one.folder}/')}[/]\n")]
    if len(outcomes) > 1:
        kinds = [outcome.status for outcome in outcomes]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in _VERDICTS if kind in kinds)
        parts.append(f"{len(outcomes)} studies: {counts}")
    return parts + ([f"left out, for want of packages: {', '.join(skipped)}"] if skipped else [])


def _list(names: list[str] | None) -> Answer:
    from attnfun.lab.studies import runner

    studies, parts = runner.chosen(names or "all"), list[Part]()
    columns = ("study", "units: quick", "full", "needs", "a full run")
    for group in dict.fromkeys(study.group for study in studies):
        here = [study for study in studies if study.group == group]
        counts = [[len(one.units(one.parameters(size))) for size in ("quick", "full")] for one in here]
        needs = [(", ".join(one.needs) or "–", literal(one.full_time or "–")) for one in here]
        parts.append(Grid(columns, [(one.name, *n, *m) for one, n, m in zip(here, counts, needs, strict=True)], group))
        parts += [f"[dim]{literal(f'{study.name}: {study.claim}')}[/]" for study in here]
    shown = ("name", "group", "title", "claim", "source", "needs", "full_time")
    return Answer({"studies": [{key: getattr(study, key) for key in shown} for study in studies]}, parts=parts)


def reported(folder: str, out: str | None = None, markdown: str | None = None) -> Answer:
    """One HTML page of the studies in a folder."""
    from attnfun.lab.studies.report import read, report

    found = read(folder)
    files = {"html": str(report(folder, out, markdown=markdown)), **({"markdown": markdown} if markdown else {})}
    verdicts = {one.name: one.badge for one in found.found}
    sizes = [Whole(literal(path) + f"  ({Path(path).stat().st_size / 1e6:.1f} MB)") for path in files.values()]
    record = {"status": "done", **files, "studies": verdicts, "missing": list(found.missing)}
    return Answer(record, parts=[literal(found.sentence()), *sizes])
