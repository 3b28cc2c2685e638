"""The command line answers a verb that does not exist by the one that was meant."""

import pytest

from in_process import cellbed


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["doc"], "unknown command 'doc'. Did you mean doctor?"),
        (["Shell", "--up", "x"], "unknown command 'Shell'. Did you mean shell?"),
        (["re"], "Did you mean report or record?"),
        (["r", "--help"], "Did you mean run or report or record?"),
        (["xyzzy"], "unknown command 'xyzzy'. Commands: run, report, compare"),
    ],
)
def test_a_verb_that_does_not_exist_is_answered_by_the_nearest(words: list[str], answer: str) -> None:
    done = cellbed(*words)
    assert done.returncode == 2
    assert answer in done.stderr
