"""The fixture ``cellbed`` of pytest: testbeds, runs and links for tests.

pytest imports this module in each of its runs, with or without such tests: it imports the rest of cellbed on demand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cellbed import Run, Scenario, Testbed
    from cellbed.experiments.testbed import Programs


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for machines where no test may be skipped."""
    parser.getgroup("cellbed").addoption(
        "--cellbed-required", action="store_true", help="fail tests that would be skipped: the machine lacks something"
    )


class Cellbed:
    """Testbeds, runs and links of a test. They end with the test, and with pytest, however it ends. What this machine
    lacks skips the test."""

    def __init__(self, out: Path, base: Path, required: bool, held: contextlib.ExitStack) -> None:
        self._out, self._base, self._required, self._held = out, base, required, held

    def testbed(self, scenario: Scenario | Mapping[str, Any] | Path | str, **options: Any) -> Testbed:
        """Return a testbed that is up.

        Args:
            scenario: Scenario, its tables, or the path of its file. Paths in tables are relative to the test's file.
            options: Options of :class:`cellbed.Testbed`.
        """
        from cellbed import Testbed

        with self._skipping():
            return self._held.enter_context(Testbed(self._scenario(scenario), out=self._out, **options))

    def run(self, scenario: Scenario | Mapping[str, Any] | Path | str, **options: Any) -> Run:
        """Return a finished run. Arguments: as of :func:`cellbed.run`."""
        from cellbed import run

        with self._skipping():
            return run(self._scenario(scenario), out=self._out, **options)

    def link(self, **options: object) -> Programs:
        """Return programs of this machine behind a link, with methods ``run`` and ``start``.

        Args:
            options: Options of ``cellbed shell``, such as ``up="5 Mbit/s"``, ``delay="20 ms"`` and ``offline=True``.
        """
        from cellbed import CellbedError
        from cellbed.experiments.testbed import Programs

        words = {f"--{key.replace('_', '-')}": value for key, value in options.items()}
        link = Programs("shell", *(str(each) for word in words.items() for each in word if each is not True))
        self._held.callback(link.close)
        trial = link.run(["true"])
        if trial.returncode == CellbedError.exit_code:
            raise ValueError(trial.stderr.strip())
        if trial.returncode:
            self._skip(trial.stderr.strip())
        return link

    def _scenario(self, scenario: Scenario | Mapping[str, Any] | Path | str) -> Scenario | Path | str:
        from cellbed import Scenario

        return Scenario(scenario, folder=self._base) if isinstance(scenario, Mapping) else scenario

    @contextlib.contextmanager
    def _skipping(self) -> Iterator[None]:
        from cellbed import RunError

        try:
            yield
        except RunError as error:
            if not error.lacking:
                raise
            self._skip(str(error))

    def _skip(self, why: str) -> None:
        (pytest.fail if self._required else pytest.skip)(f"this machine lacks something: {why}")


@pytest.fixture
def cellbed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cellbed]:
    """Testbeds, runs and links for this test: ``cellbed.testbed(FILE)``, ``cellbed.link(up="5 Mbit/s")``."""
    with contextlib.ExitStack() as held:
        yield Cellbed(tmp_path / "cellbed", request.path.parent, request.config.getoption("--cellbed-required"), held)
