"""The laboratory: train, diagnose, reproduce, report."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnfun.cli.derive import Answer
from attnfun.cli.render import Part, Whole, literal
from attnfun.errors import InvalidRequest, require

_COLOURS = {"serious": "bold red", "warning": "yellow", "note": "dim", "healthy": "green"}
_MOST = 40  # rows of a table
_STOPPED = {"steps": "", "patience": ", its first part ended by patience", "diverged": ", then it diverged"}
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
    from attnfun.learn.compare import bound_text, compare
    from attnfun.learn.train import train

    net = verbs.load(file)

    def news(at: Progress) -> None:
        progress(str(at), at.step / at.total)

    learned = train(net, steps=steps, seed=seed, start=start, checkpoint=checkpoint, progress=news, **rest)
    table, fit, certificate = compare(net, learned), learned.fit, learned.certificate
    record: dict[str, Any] = {"status": certificate.status.value, **table.to_json()}
    record |= {"stopped": fit.stopped, "best_step": fit.best_step, "seed": seed, "start": start}
    record |= {"history": [row.to_json() for row in learned.history]}
    if out:
        learned.save(out)
        record["file"] = out
    rows = [asdict(one) | {"bound": bound_text(one)} for one in table.entries]
    said = {"rows": rows, "made": fit.steps, "why": _STOPPED[fit.stopped]}
    said |= {name: learned.history[at].key_norm_max for name, at in (("first", 0), ("last", -1))}
    said |= {"reason": certificate.reason or certificate.status.meaning}
    said |= {"stored": "as the file says, not verified"} if "stored" in (one["status"] for one in rows) else {}
    return Answer(record, draw=table.plot, said=said, code=0)


def diagnosed(file: str, strict: bool = False, progress: Any = None, **rest: Any) -> Answer:
    """What is wrong with the heads of a file; only with `strict` does it decide the exit code."""
    from attnfun.diagnosis.verb import diagnose

    found = diagnose(file, progress=progress, **rest)
    record = {"status": "diagnosed", "file": file, **found.to_json()}
    shown = [one for one in found.findings if one.severity != "healthy"] or list(found.findings[:1])
    well = sum(head.findings[0].severity == "healthy" for head in found.heads)
    said: dict[str, Any] = {"figures": [_figures(head.figures) for head in found.heads[:_MOST]]}
    said |= {"more": max(0, len(found.heads) - _MOST), "count": len(found.heads)}
    said |= {"findings": [_finding(one) for one in shown[:_MOST]]}
    said |= {"well": well if shown and shown[0].severity != "healthy" else 0}
    return Answer(record, found, said=said, code=1 if strict and found.serious else 0)


def _figures(f: Any) -> dict[str, Any]:
    allowed = None if f.tolerance == float("inf") else f.tolerance
    needed = f.sharpness_needed if f.sharpness is not None else None
    return {**f.to_json(), "head": f"{f.layer + 1} {f.name}", "tolerance": allowed, "sharpness_needed": needed}


def _finding(one: Any) -> dict[str, Any]:
    lines = [f"{one.words[0].upper()}{one.words[1:]}.", *(f"Fix: {fix.words}." for fix in one.fixes)]
    return {**one.to_json(), "colour": _COLOURS[one.severity], "lines": "\n".join(f"  {line}" for line in lines)}


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
        return listed(names)
    require(not (quick and full), "--quick and --full: write one of them")
    if not names:
        raise InvalidRequest("no study is named: write a name, several, or all (attnfun reproduce --list shows them)")
    if "all" in names and len(names) > 1:
        raise InvalidRequest(f"all, and {' '.join(name for name in names if name != 'all')}: write one or the other")
    require(jobs is None or cluster is None, "--jobs counts processes of this machine: leave it out with --cluster")
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


def listed(names: list[str] | None) -> Answer:
    """What studies there are; nothing is run."""
    from attnfun.lab.studies import runner

    shown = ("name", "group", "title", "claim", "source", "needs", "full_time")
    studies: list[dict[str, Any]] = []
    for one in runner.chosen(names or "all"):
        sizes = {size: len(one.units(one.parameters(size))) for size in ("quick", "full")}
        studies.append({key: getattr(one, key) for key in shown} | sizes)
    return Answer({"studies": studies})


def reported(folder: str, out: str | None = None, markdown: str | None = None) -> Answer:
    """One HTML page of the studies in a folder."""
    from attnfun.lab.studies.report import read, report

    found = read(folder)
    files = {"html": str(report(folder, out, markdown=markdown)), **({"markdown": markdown} if markdown else {})}
    verdicts = {one.name: one.badge for one in found.found}
    sizes = [Whole(literal(path) + f"  ({Path(path).stat().st_size / 1e6:.1f} MB)") for path in files.values()]
    record = {"status": "done", **files, "studies": verdicts, "missing": list(found.missing)}
    return Answer(record, parts=[literal(found.sentence()), *sizes])
