"""`gts bench`: every pair of batch and budget is measured, as text and as JSON."""

import json

from tests.cli.conftest import Gts

FAST = ("bench", "--model", "coconut-tiny", "--repeats", 1, "--questions", "1,2", "--threads", 1)


def test_bench_prints_a_row_for_each_batch_and_budget(gts: Gts) -> None:
    code, out, _ = gts(*FAST, "--budgets", "1,4")
    assert code == 0
    head, columns, *rows = out.splitlines()
    assert head.startswith("coconut-tiny, gts@auto, ")
    assert columns.split() == ["questions", "budget", "seconds", "lanes/s", "of", "peak"]
    assert [row.split()[:2] for row in rows] == [["1", "1"], ["1", "4"], ["2", "1"], ["2", "4"]]


def test_bench_as_json_relates_speed_to_the_peak(gts: Gts) -> None:
    code, out, _ = gts(*FAST, "--budgets", "4", "--sampler", "gaussian:0.5", "--json")
    found = json.loads(out)
    assert (code, found["sampler"], found["device"], found["dtype"]) == (
        0,
        "gaussian:0.5",
        "cpu",
        "float32",
    )
    for row in found["rows"]:
        assert row["lanes_per_second"] == row["questions"] * row["budget"] / row["seconds"]
        assert 0 < row["share_of_peak"] < 1


def test_bench_names_the_option_that_is_no_list_of_numbers(gts: Gts) -> None:
    code, _, err = gts(*FAST, "--budgets", "1,x")
    assert code == 2
    assert err == "gts: --budgets: give whole numbers from 1 on, by commas; got '1,x'\n"
