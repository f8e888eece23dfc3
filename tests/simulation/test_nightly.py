"""`make sim`: what it says of lives that break a promise, and how it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import nightly
from tests.simulation.drawn import buddy_life, deaf_life, drawn_life, rare_life
from tests.simulation.lives import Life


def broken(life: Life) -> str:
    """Two of the lives break a promise, one raises."""
    bad = {drawn_life(6): "at 3.00 s: a promise", drawn_life(7): "損" * 5000}
    if life == drawn_life(8):
        raise ValueError("a pass raised")
    return bad.get(life, "")


@pytest.mark.slow
def test_a_life_that_breaks_a_promise_is_named_with_the_command_that_lives_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nightly, "mistake_in", broken)
    assert nightly.main(["--first", "4", "--lives", "6", "--jobs", "2"]) == 1
    told = capsys.readouterr().out
    assert "life 6: at 3.00 s: a promise\nlive it again: make sim FIRST=6 LIVES=1\n" in told
    assert f"{'損' * 1500} [...]\nlive it again: make sim FIRST=7 LIVES=1" in told
    assert "ValueError: a pass raised" in told
    assert "6 of 6 lives, 3 broke a promise" in told
    assert told.endswith("broke a promise: 6, 7, 8\n")


def test_a_sweep_that_breaks_a_promise_counts_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lived(number: int) -> None:
        assert number != 5, "told twice"

    monkeypatch.setattr(nightly, "mistake_in", lambda _life: "")
    monkeypatch.setattr(nightly, "live", lived)
    assert nightly.main(["--first", "4", "--lives", "3", "--jobs", "1"]) == 1
    assert "life 5: in its sweep: told twice" in capsys.readouterr().out


def test_special_lives_that_break_a_promise_count_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, counted = {deaf_life(1): "not saved", rare_life(3): "not told"}, drawn_life(2)
    monkeypatch.setattr(nightly, "mistake_in", lambda life: bad.get(life, ""))
    monkeypatch.setattr(
        nightly, "mistake_in_goodput", lambda life: "9.00 s" if life == counted else ""
    )
    monkeypatch.setattr(nightly, "cut_mistake", lambda _number: "")
    monkeypatch.setattr(nightly, "folder_mistake", lambda _number: "")
    monkeypatch.setattr(nightly, "live", lambda _number: None)
    assert nightly.main(["--lives", "40", "--jobs", "2"]) == 1
    told = capsys.readouterr().out
    assert "life 13: in that of a script that never asks: not saved\nlive it again: make" in told
    assert "life 26: in its goodput: 9.00 s\nlive it again: make sim FIRST=26 LIVES=1\n" in told
    assert "life 39: in that with rare causes: not told\nlive it again: make sim FIRST=39" in told
    assert told.endswith("broke a promise: 13, 26, 39\n")


@pytest.mark.slow
def test_a_life_in_a_cut_network_that_loses_a_worker_counts_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(number: int) -> None:
        assert number != 1, "a healthy worker was replaced"

    monkeypatch.setattr(nightly, "mistake_in", lambda _life: "")
    monkeypatch.setattr(nightly, "drawn", lambda number: number)
    monkeypatch.setattr(nightly, "nothing_happened", lost)
    monkeypatch.setattr(nightly, "live", lambda _number: None)
    told = {number: told for number in range(40) if (told := nightly.lived(number)[1])}
    assert list(told) == [11]
    assert told[11].startswith("in that in a cut network: a healthy worker was replaced")


def test_one_in_ten_lives_has_each_of_the_special_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lived: dict[str, list[Life]] = {"held": [], "counted": []}

    def noting(kind: str) -> Callable[[Life], str]:
        def note(life: Life) -> str:
            lived[kind].append(life)
            return ""

        return note

    monkeypatch.setattr(nightly, "mistake_in", noting("held"))
    monkeypatch.setattr(nightly, "mistake_in_goodput", noting("counted"))
    assert not any(map(nightly.special_mistake, range(600)))
    expected = [
        life
        for number in range(60)
        for life in (
            deaf_life(number),
            *([buddy_life(number // 4)] if number % 4 == 1 else []),
            rare_life(number),
        )
    ]
    assert lived["held"] == expected
    assert lived["counted"] == [drawn_life(number) for number in range(60)]


@pytest.mark.slow
def test_lives_that_keep_the_promises_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly.main(["--lives", "2", "--jobs", "1"]) == 0
    assert "2 of 2 lives, 0 broke a promise" in capsys.readouterr().out


def test_an_interruption_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(tally: nightly.Tally, *_: object, **__: object) -> None:
        tally.done = 3
        raise KeyboardInterrupt

    monkeypatch.setattr(nightly, "_follow", interrupted)
    assert nightly.main(["--first", "10", "--lives", "8", "--jobs", "1"]) == 130
    assert "interrupted; go on with: make sim FIRST=13 LIVES=5" in capsys.readouterr().out


@pytest.mark.parametrize("lives", ["0", "many", "-3"])
def test_a_number_of_lives_that_is_none_is_refused(
    lives: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        nightly.main(["--lives", lives])
    assert refused.value.code == 2
    assert "--lives" in capsys.readouterr().err
