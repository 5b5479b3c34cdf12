"""The order in which graphs are walked: arguments first, each node once, without recursion.

Graphs share nodes and may be thousands of operations deep; a walk that called itself would end at Python's stack, and
one that kept no record would take a node as often as there are ways to it.
"""

from collections.abc import Callable, Container, Iterable, Iterator


def arguments_first(root: int, needs: Callable[[int], Iterable[int]], done: Container[int]) -> Iterator[int]:
    """The nodes from which `root` is made, `needs` by `needs`, each after all that it needs; those in `done` are left
    out. The caller enters a node into `done` before it asks for the next.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [] if node in done else [n for n in needs(node) if n not in done]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if node not in done:
            yield node


def reached(roots: Iterable[int], needs: Callable[[int], Iterable[int]]) -> set[int]:
    """The roots and all nodes from which they are made, `needs` by `needs`."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        fresh = [n for n in needs(stack.pop()) if n not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return seen
