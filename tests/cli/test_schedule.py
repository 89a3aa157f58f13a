"""`warpwright schedule`, as a person runs it."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest


@pytest.fixture
def run(tmp_path):
    def run(*arguments, code=0):
        done = subprocess.run([sys.executable, "-m", "warpwright", "schedule", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr.strip()

    return run


def test_the_figures(run):
    out = run("dualpipe", "--stages", "8", "--microbatches", "20", "--times", "F=1,B=2,W=1,FB=2.5,comm=0")
    assert "dualpipe: 8 stages on 8 ranks, 20 micro-batches: time 59" in out
    assert "bubble of the worst rank      4.5, 7.6% of the time; formula (R/2−1)(F&B+B−3W) = 4.5" in out
    assert "most activations by rank      9 on each" in out


def test_a_small_schedule_is_drawn_in_text(run):
    lines = run("1f1b", "--stages", "2", "--microbatches", "2").splitlines()
    assert lines[:2] == ["rank 0  F0 F1       B0···    B1···", "rank 1     F0 B0··· F1 B1···"]


def test_json(run):
    found = json.loads(run("dualpipe", "--stages", "4", "--microbatches", "8", "--json"))
    assert found["makespan"] == 26 and found["bubble"] == [2] * 4 == [found["formula_bubble"]] * 4 and found["peak_activations"] == [5] * 4
    assert found["placement"] == [[0, 1, 2, 3], [3, 2, 1, 0]]
    first, send = found["actions"][0][:2]
    assert first == {"action": "0F0", "kind": "F", "stage": 0, "microbatch": 0, "start": 0, "end": 1}
    assert send == {"action": "0SEND_F0", "kind": "SEND_F", "stage": 0, "microbatch": 0, "peer": 1}
    pair = next(action for action in found["actions"][3] if "parts" in action)
    assert pair["kind"] == "OVERLAP_F_B" and [part["kind"] for part in pair["parts"]] == ["F", "B"]


def test_files(run, tmp_path):
    run("dualpipev", "--stages", "8", "--microbatches", "10", "--svg", "a.svg", "--html", "a.html", "--trace", "a.json", "--csv", "a.csv")
    picture = ElementTree.parse(tmp_path / "a.svg").getroot()
    names = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert "forward of stage 0, micro-batch 0" in names and any(name.endswith(", overlapped") for name in names)
    assert len(names) >= 10 * 8 * 2
    assert "<svg" in (tmp_path / "a.html").read_text() and "src=" not in (tmp_path / "a.html").read_text()
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f"}
    assert sum(event["ph"] == "s" for event in events) == sum(event["ph"] == "f" for event in events) == 10 * 2 * 6
    assert "zb" not in run("check", "a.csv") and "a.csv: 8 stages on 4 ranks, 10 micro-batches" in run("check", "a.csv")


def test_a_broken_table_is_told(run, tmp_path):
    (tmp_path / "mine.csv").write_text("0F0,0SEND_F0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n")
    assert run("check", "mine.csv", code=2) == "warpwright: error: mine.csv: rank 0 must do 0RECV_B0 once and its table has it not at all"


@pytest.mark.parametrize("arguments, message", [
    (["dualpipe", "--stages", "8", "--microbatches", "12"], "with 8 stages it must be even and at least 16"),
    (["zb1p", "--stages", "4", "--microbatches", "8", "--times", "F=1,X=2"], "--times: 'X=2' is not one of F=…, B=…, W=…, I=…, FB=…, comm=…"),
    (["zb1p", "--stages", "4", "--microbatches", "8", "--times", "F=1:2"], "F has 2 values; give one, or 4, one for each stage"),
    (["zb1p", "--stages", "4", "--microbatches", "8", "--times", "F=fast"], "F is 'fast'; it must be a number, or numbers by stage"),
    (["dualpipe", "--stages", "4", "--microbatches", "8", "--csv", "a.csv"], "one rank for each stage and dualpipe has two"),
    (["zigzag"], "No such command 'zigzag'.; see warpwright schedule --help"),
])
def test_what_is_wrong_is_said_in_one_line(run, arguments, message):
    error = run(*arguments, code=2)
    assert message in error and "\n" not in error


def test_search(run):
    found = json.loads(run("search", "--stages", "4", "--microbatches", "2", "--memory", "4", "--json"))
    assert found["makespan"] == 9 and found["name"] == "found"
    assert {one["name"] for one in found["candidates"]} >= {"gpipe", "1f1b", "zb1p", "zb-v", "dualpipe", "dualpipev", "interleaved-1f1b", "found"}
    assert "microbatches is 2" in next(one["why_not"] for one in found["candidates"] if one["name"] == "dualpipe")
    out = run("search", "--stages", "4", "--microbatches", "8", "--memory", "4", "--tries", "20")
    assert "dualpipe                26        2        5  needs memory 5\n" in out
    assert "no schedule fits in memory 0.5" in run("search", "--stages", "4", "--microbatches", "8", "--memory", "0.5", code=2)
