"""The sink that docs/tracking.md shows does what it says."""

import re
from pathlib import Path

from plainres.rows import read_table
from plainres.store import Status
from plainres.tracking import client

PAGE = Path(__file__).parents[2] / "docs" / "tracking.md"
SHOWN = re.compile(r"^`my_sinks\.py`:\n\n```python\n(.*?)^```", re.M | re.S)


def test_the_documented_sink_writes_every_evaluation(own_module, make_conf, execute, study, helpers):
    (text,) = SHOWN.findall(PAGE.read_text())
    own_module("my_sinks", text)
    outcome, folder = execute(make_conf("plain", {"tracker.own": ["my_sinks:Lines"]}))
    assert outcome.status is Status.COMPLETE
    assert client.await_sinks(study.path, [folder.path], ["my_sinks:Lines"]) == []
    table = read_table(folder, "steps", folder.read()["layout"]).to_pylist()
    expected = [f"{folder.name}\t{r['step']}\t{r['value']}" for r in table if r["metric"] == "train_error"]
    assert (study.path / "errors.tsv").read_text().splitlines() == expected
