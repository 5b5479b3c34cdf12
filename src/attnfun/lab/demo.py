"""`make demo`: one function from formula to proof to picture, told as a short story."""

import argparse
import time
from pathlib import Path

import numpy as np

import attnfun as af

TARGET = "sin(3*x)+cos(2*y)*exp(x*y)"
DOMAIN = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
EPS = 1e-6


def main(folder: str | Path = ".", eps: float = EPS) -> None:
    """Compile TARGET, save it, prove it again from the file, evaluate it three ways, draw it; print what happened."""
    from rich.console import Console

    say = Console(highlight=False, soft_wrap=True).print
    weights, picture = Path(folder) / "demo.safetensors", Path(folder) / "demo.png"

    say(f"\n[bold]1. Asked[/]  a softmax-attention network within {eps:g} of [bold]{TARGET}[/], anywhere on [-1, 1]².")
    start = time.perf_counter()
    net = af.compile(TARGET, domain=DOMAIN, eps=eps, method="bernstein")
    cost, certificate = net.cost, net.certificate
    say(
        f"[bold]2. Built[/]  {cost.layers} layer, {cost.heads} head, {cost.keys} keys, rank {cost.rank}, "
        f"{cost.parameters:,} parameters. The linear layer copies (x, y) into the query and appends "
        f"{cost.keys} constant memory tokens; everything nonlinear is one softmax over them."
    )
    low, high = certificate.error
    at_least, at_most = af.parts.at_least, af.parts.at_most
    say(
        f"[bold]3. Proved[/] |f − network| ≤ [bold green]{at_most(high)}[/] at every point, rounding included, "
        f"and ≥ {at_least(low)} at one of them ({time.perf_counter() - start:.2f} s with the construction)."
    )
    net.save(weights)

    start = time.perf_counter()
    again = af.verify(weights)
    say(
        f"[bold]4. Verified[/] from the file alone, weights and target, no number of the stored certificate read: "
        f"[bold green]{again.status}[/], ≤ {at_most(again.error[1])} "
        f"({time.perf_counter() - start:.2f} s, {again.method})."
    )
    for hypothesis in again.hypotheses:
        say(f"   It rests on: {hypothesis}.", style="dim", markup=False)

    X = np.random.default_rng(0).uniform(-1, 1, (100_000, 2))
    truth = np.sin(3 * X[:, 0]) + np.cos(2 * X[:, 1]) * np.exp(X[:, 0] * X[:, 1])
    say(
        f"[bold]5. Tried[/]  {len(X):,} random points: NumPy is off by at most {np.abs(net(X) - truth).max():.3e}",
        end="",
    )
    try:
        import torch
    except ModuleNotFoundError:
        say("; torch is not installed, so it was not asked.")
    else:
        module = net.to_torch(torch.float64)
        with torch.no_grad():
            seen = module(torch.from_numpy(X[:20_000])).numpy()
        off = np.abs(seen - truth[:20_000]).max()
        say(f", torch's scaled_dot_product_attention with the same weights by {off:.3e}.")
    try:
        af.plots.draw(net, picture)
    except af.InvalidRequest:  # no matplotlib
        say("[bold]6.[/] matplotlib is not installed: no picture.")
    else:
        say(f"[bold]6. Drew[/]   {picture}: its keys, its attention, target and network, the error under its bound.")
    say(f"\nThe weights are in {weights}. Next: [bold]attnfun show {weights}[/] or [bold]attnfun --help[/]\n")


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m attnfun.lab.demo", description=__doc__)
    options.add_argument("--folder", default=".", help="where demo.safetensors and demo.png go")
    main(options.parse_args().folder)
