"""Where torch is missing, training says what to install, and nothing else needs it."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_without_torch_training_is_one_sentence_with_the_install_command() -> None:
    out = run(
        "import sys; sys.modules['torch'] = None\n"
        "import attnfun as af\n"
        "try:\n    af.train(af.Architecture.one_head('x', 3), 'x', 'x=0:1', steps=1)\n"
        "except af.AttnfunError as why:\n    print(why)"
    )
    assert out.endswith("pip install torch\n") and len(out.splitlines()) == 1


def test_networks_on_tokens_say_the_same() -> None:
    out = run(
        "import sys; sys.modules['torch'] = None\n"
        "import attnfun as af\n"
        "try:\n    af.train(af.neighbours(4, 3, eps=0.5), steps=1)\n"
        "except af.AttnfunError as why:\n    print(why)"
    )
    assert out.endswith("pip install torch\n") and len(out.splitlines()) == 1


def test_the_names_of_training_do_not_import_torch() -> None:
    out = run("import sys, attnfun as af; af.train, af.compare, af.Model; print('torch' in sys.modules)")
    assert out.strip() == "False"
