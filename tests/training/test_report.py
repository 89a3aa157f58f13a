"""The report: whole, self-contained, true to the records."""

import json
import re
from html.parser import HTMLParser

from warpwright.training import report


def run_folder(tmp_path, kernels=None):
    records = [{"step": step, "loss": 8 / (step + 1), "tokens_per_s": 1000 + step,
                **({"bits_per_byte": 3 - step / 50, "load": {"1": [0.5, 0.3, 0.2], "2": [0.4, 0.3, 0.3]}} if step % 10 == 0 else {})}
               for step in range(50)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, records)) + '\n{"step": 50, "lo')
    (tmp_path / "final.json").write_text(json.dumps({
        "config": {"description": "tiny", "hidden": 256}, "bits_per_byte_first": 3.0, "bits_per_byte_last": 2.2, "seconds": 125.0,
        "step_seconds": 100.0, "sample": "if a < b & c:",
        "kernels": {"rms_norm": [120, 2.0], "matmul": [60, 20.0]} if kernels is None else kernels}))
    return tmp_path


class Checker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing(tmp_path):
    page = report.write(run_folder(tmp_path)).read_text()
    checker = Checker()
    checker.feed(page)
    assert checker.links == [] and "http" not in page and "@import" not in page
    assert page.count("<svg") == 4 and "nan" not in page.lower().replace("nanos", "")


def test_the_page_tells_what_the_records_tell(tmp_path):
    page = report.write(run_folder(tmp_path)).read_text()
    for words in ("3.000 → 2.200", "2 min 05 s", "1,025", "if a &lt; b &amp; c:", "layer 2, expert 0: 1.20 of its fair share"):
        assert words in page
    rows = re.findall(r"<tr><td>(\w+)</td><td>(\d+)</td><td>([\d.]+) s</td><td>([\d.]+)%", page)
    assert rows == [("matmul", "60", "20.00", "20.0"), ("rms_norm", "120", "2.00", "2.0")]


def test_a_run_without_ptx_kernels_says_so(tmp_path):
    assert "no PTX kernel ran" in report.write(run_folder(tmp_path, kernels={})).read_text()


def test_a_step_done_twice_counts_once_and_a_cut_line_is_left_out(tmp_path):
    run = run_folder(tmp_path)
    with (run / "log.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"step": 3, "loss": 99.0, "tokens_per_s": 1}) + "\n")
    log = report.read_log(run)
    assert [record["step"] for record in log] == list(range(50)) and log[3]["loss"] == 99.0


def test_ticks_are_round_and_inside():
    assert report.ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert [round(tick, 9) for tick in report.ticks(2.31, 2.72)] == [2.4, 2.5, 2.6, 2.7]
    assert report.ticks(5, 5) == [5]
