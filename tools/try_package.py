"""Build wheel and sdist, install the wheel in an empty environment, and try it as a new user would.

Nothing of the checkout is seen there. Prints what the installation takes on the disk and how soon the service answers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.start import ROOT, first_answers, install, pinned, sizes

LARGEST = 350  # MB of ranktrial[serve]
TRIAL = """
from ranktrial import Trial

with Trial.create("shoes.db", k=2) as trial:
    shown = trial.rank("red shoes", a=["sku-1", "sku-2"], b=["sku-2", "sku-3"], unit="user-17")
    print(trial.click(shown.id, shown.ranking[0]).outcome.value)
    print(trial.report().verdict)
"""


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of this tree."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--directory", str(folder)], cwd=ROOT, check=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def compare(wheel: Path, sdist: Path, folder: Path) -> None:
    """Check that the sdist gives the same wheel."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = (one for one in folder.iterdir() if one.is_dir())
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--target", "wheel"], cwd=tree, check=True)
    (again,) = tree.glob("dist/*.whl")
    names = [sorted(zipfile.ZipFile(one).namelist()) for one in (wheel, again)]
    if names[0] != names[1]:
        raise SystemExit(f"the wheel and that of the sdist differ: {set(names[0]) ^ set(names[1])}")


def say(folder: Path, status: int, expected: str, *command: str) -> None:
    """Run a command in a folder of its own, without the checkout, and check what it says and how it ends."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    if done.returncode != status or expected not in said:
        raise SystemExit(
            f"{command} ended with {done.returncode} and said {said!r}; expected {status} and {expected!r}"
        )
    print(f"ok: {Path(command[0]).name} {' '.join(command[1:2])}: {expected}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ranktrial-package-") as text:
        folder = Path(text)
        for name in ("dist", "sdist", "home"):
            (folder / name).mkdir()
        wheel, sdist = build(folder / "dist")
        compare(wheel, sdist, folder / "sdist")
        python = install(str(wheel), folder / "environment")
        command, home = str(python.with_name("ranktrial")), folder / "home"
        say(home, 0, f"ranktrial {wheel.name.split('-')[1]}", command, "--version")
        say(
            home,
            2,
            "ranktrial demo needs fastapi, uvicorn, prometheus_client: pip install 'ranktrial[serve]'",
            command,
            "demo",
        )
        say(home, 0, "compiled", command, "warm")
        say(home, 0, "counted Too early to say after 1 search and 1 click.", str(python), "-c", TRIAL)
        say(home, 0, "Too early to say", command, "report", "shoes.db")
        say(home, 0, "", str(python), "-m", "pip", "install", "--quiet", *pinned(folder), f"{wheel}[serve]")
        say(home, 0, "in truth B - A is", command, "demo", "--impressions", "300")
        found = sizes(python)
        print(
            f"ranktrial[serve] is {sum(found.values()):.0f} MB, "
            + ", ".join(f"{n} {s:.0f}" for n, s in list(found.items())[:4])
        )
        if sum(found.values()) > LARGEST:
            raise SystemExit(f"that is more than {LARGEST} MB: {found}")
        for kind in ("cold", "warm"):
            for what, (clock, processor) in first_answers(python, folder / "cache").items():
                print(f"{kind}: {what} after {clock:.1f} s, {processor:.1f} s of the processor")


if __name__ == "__main__":
    main()
