"""Figures drawn in processes beside this one: the same bytes, and the same words when it does not go well."""

import os
import signal

import pandas as pd
import pytest

from plainres.figures.drawing import Drawing
from plainres.figures.save import read_csv, save

SPOT = "results/published/depth-digits-mlp/figures/degradation.csv"


@pytest.fixture(scope="module")
def table(request):
    return read_csv((request.config.rootpath / SPOT).read_bytes())


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_figures_have_the_same_bytes_wherever_they_are_drawn(table, tmp_path):
    save("degradation", table, tmp_path / "here", "a")
    said = []
    with Drawing(2) as drawing:
        drawing.save("degradation", table, tmp_path / "there", "a", said.append)
        drawing.save("jacobian", pd.DataFrame({"value": []}), tmp_path / "there", "b", said.append)
        assert said == []  # in this thread, and in the order of the calls
        drawing.finish()
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert said == ["", "no finished run has this probe (probe=jacobian)"]
    assert all(drawer.returncode == 0 for drawer in drawing._drawers)


def test_what_goes_wrong_in_a_drawer_is_said_here(table, tmp_path):
    (tmp_path / "file").touch()
    with Drawing(2) as drawing:
        drawing.save("degradation", table, tmp_path / "file", "a", print)
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            drawing.finish()
    with Drawing(2) as drawing:
        drawing.save("degradation", table.drop(columns="depth"), tmp_path, "a", print)
        with pytest.raises(RuntimeError, match=r"(?s)a could not be drawn: .*KeyError: 'depth'"):
            drawing.finish()
    assert not list(tmp_path.glob("a.*"))


def test_a_killed_drawer_is_no_figure_missed_in_silence(table, tmp_path, monkeypatch):
    start = Drawing._start

    def killed(self):
        drawer = start(self)
        os.kill(drawer.pid, signal.SIGKILL)
        drawer.wait()
        return drawer

    monkeypatch.setattr(Drawing, "_start", killed)
    with Drawing(2) as drawing:
        drawing.save("degradation", table, tmp_path, "a", print)
        with pytest.raises(RuntimeError, match="the process that drew a has been killed"):
            drawing.finish()


def test_without_processes_a_figure_is_there_at_once(table, tmp_path):
    said = []
    with Drawing() as drawing:
        drawing.save("degradation", table, tmp_path, "a", said.append)
        assert said == [""] and (tmp_path / "a.pdf").exists()


def test_leaving_with_an_error_leaves_no_process(table, tmp_path):
    with pytest.raises(KeyboardInterrupt), Drawing(2) as drawing:
        drawing.save("degradation", table, tmp_path, "a", print)
        raise KeyboardInterrupt
    assert all(drawer.returncode is not None for drawer in drawing._drawers)
