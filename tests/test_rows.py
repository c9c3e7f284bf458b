import numpy as np
import pyarrow.parquet as pq
import pytest

from plainres.errors import UserError
from plainres.rows import (
    RowWriter,
    compact,
    drop_lines,
    layers_table,
    read_last_line,
    read_lines,
    read_rows,
    read_table,
    steps_table,
)

LAYOUT = {"layer": ["stem", "head"], "block": ["blocks.0"]}
STEPS = [
    {
        "step": 0,
        "kind": "eval",
        "values": {"train_error": 0.5, "train_loss": None},
        "reasons": {"train_loss": "not finite (nan)"},
    },
    {"step": 0, "kind": "update", "values": {"lr": 0.1}},
]
LAYERS = [
    {
        "step": 7,
        "values": {"layer": {"grad_norm": np.array([1.5, 2.5], np.float32)}, "block": {"branch_ratio": [None]}},
        "reasons": {"block": {"branch_ratio": {"0": "no shortcut signal"}}},
    },
    {"step": 9, "values": {"layer": {"grad_norm": [None, 0.1], "update_ratio": [3.0, None]}},
     "reasons": {"layer": {"grad_norm": {"0": "a"}, "update_ratio": {"1": "b"}}}},
]  # fmt: skip
STEPS_ROWS = [
    (0, "eval", "train_error", 0.5, None),
    (0, "eval", "train_loss", None, "not finite (nan)"),
    (0, "update", "lr", 0.1, None),
]
LAYERS_ROWS = [
    (7, "layer", 0, "stem", "grad_norm", 1.5, None),
    (7, "layer", 1, "head", "grad_norm", 2.5, None),
    (7, "block", 0, "blocks.0", "branch_ratio", None, "no shortcut signal"),
    (9, "layer", 0, "stem", "grad_norm", None, "a"),
    (9, "layer", 1, "head", "grad_norm", float(np.float32(0.1)), None),
    (9, "layer", 0, "stem", "update_ratio", 3.0, None),
    (9, "layer", 1, "head", "update_ratio", None, "b"),
]


@pytest.fixture
def folder(study):
    found = study.run_folder("a-run")
    found.write({"status": "running"})
    return found


@pytest.fixture
def written(folder):
    writer = RowWriter(folder)
    for row in STEPS:
        writer.write("steps", row)
    for row in LAYERS:
        writer.write("layers", row)
    writer.close()
    return folder


def tuples(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def test_lines_become_tidy_tables(written):
    assert tuples(read_table(written, "steps", LAYOUT)) == STEPS_ROWS
    assert tuples(read_table(written, "layers", LAYOUT)) == LAYERS_ROWS


def test_compaction_keeps_every_value_and_reason(written):
    compact(written, LAYOUT)
    before = [read_table(written, t, LAYOUT) for t in ("steps", "layers")]
    drop_lines(written)
    assert not list(written.path.glob("*.jsonl")) and not list(written.path.glob(".*partial"))
    after = [read_table(written, t, LAYOUT) for t in ("steps", "layers")]
    assert all(a.equals(b) for a, b in zip(before, after, strict=True))
    assert tuples(after[0]) == STEPS_ROWS and tuples(after[1]) == LAYERS_ROWS
    assert pq.read_table(written.path / "layers.parquet").schema == after[1].schema
    drop_lines(written)


def test_lines_win_over_tables(written):
    compact(written, LAYOUT)
    (written.path / "steps.jsonl").write_bytes(b"")
    assert read_table(written, "steps", LAYOUT).num_rows == 0


def test_no_rows_are_empty_tables(folder):
    for table in ("steps", "layers"):
        assert read_table(folder, table, LAYOUT).num_rows == 0
    assert steps_table([]).schema == read_table(folder, "steps", LAYOUT).schema
    assert layers_table([], LAYOUT).schema == read_table(folder, "layers", LAYOUT).schema


def test_not_finite_numbers_are_written_as_null(folder):
    writer = RowWriter(folder)
    writer.write("layers", {"step": 0, "values": {"layer": {"x": np.array([np.nan, np.inf], np.float32)}}})
    writer.write("steps", {"step": 0, "kind": "eval", "values": {"a": float("nan")}})
    writer.close()
    assert read_lines(folder.path / "layers.jsonl")[0]["values"]["layer"]["x"] == [None, None]
    assert read_lines(folder.path / "steps.jsonl")[0]["values"]["a"] is None


def test_float32_values_survive_the_lines_bit_for_bit(folder):
    values = np.random.default_rng(0).standard_normal(200).astype(np.float32) * np.float32(1e-7)
    writer = RowWriter(folder)
    writer.write("layers", {"step": 0, "values": {"layer": {"x": values}}})
    writer.close()
    table = read_table(folder, "layers", {"layer": [str(i) for i in range(200)]})
    assert np.array_equal(table["value"].to_numpy(), values)


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_torn_last_line_is_ignored(written, cut):
    path = written.path / "steps.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(read_lines(path)) == (2 if cut == 1 else 1)
    assert tuples(read_table(written, "steps", LAYOUT))[:2] == STEPS_ROWS[:2]


def test_a_resumed_run_cuts_back_to_its_checkpoint(folder):
    writer = RowWriter(folder)
    writer.write("steps", STEPS[0])
    lengths = writer.sync()
    assert lengths == {"steps": (folder.path / "steps.jsonl").stat().st_size, "layers": 0}
    writer.write("steps", STEPS[1])
    writer.write("layers", LAYERS[0])
    writer.close()
    with (folder.path / "layers.jsonl").open("ab") as file:
        file.write(b'{"torn')
    resumed = RowWriter(folder, lengths)
    resumed.write("steps", STEPS[1] | {"step": 1})
    resumed.close()
    assert [r["step"] for r in read_lines(folder.path / "steps.jsonl")] == [0, 1]
    assert read_lines(folder.path / "layers.jsonl") == []


def test_without_a_checkpoint_rows_begin_anew(written):
    RowWriter(written).close()
    assert read_lines(written.path / "steps.jsonl") == read_lines(written.path / "layers.jsonl") == []


def test_rows_that_a_checkpoint_covers_and_the_disk_lost_are_not_made_up(written):
    size = (written.path / "steps.jsonl").stat().st_size
    with pytest.raises(UserError, match=r"steps\.jsonl.*delete"):
        RowWriter(written, {"steps": size + 10, "layers": 0})
    assert b"\0" not in (written.path / "steps.jsonl").read_bytes()


def test_a_failed_compaction_leaves_the_lines(monkeypatch, written):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("plainres.rows.pq.write_table", full)
    with pytest.raises(OSError, match="No space"):
        compact(written, LAYOUT)
    assert tuples(read_table(written, "layers", LAYOUT)) == LAYERS_ROWS
    assert not list(written.path.glob("*.parquet"))


@pytest.mark.parametrize("width", [1, 3000, 40_000])  # shorter and longer than what is read at first
def test_the_last_whole_line_of_a_file_that_grows(tmp_path, width):
    path = tmp_path / "layers.jsonl"
    assert read_last_line(path) is None
    lines = [b'{"step": %d, "values": [%s]}\n' % (i, b"0.12345, " * width + b"1") for i in range(3)]
    path.write_bytes(b"".join(lines))
    whole = path.read_bytes()
    for size in {1, len(lines[0]) - 1, len(lines[0]), 2 * len(lines[0]) + 7, len(whole) - 1, len(whole)}:
        path.write_bytes(whole[:size])
        found, whole_lines = read_last_line(path), size // len(lines[0])
        assert (found or {}).get("step") == (whole_lines - 1 if whole_lines else None)
        assert found is None or found == read_lines(path)[whole_lines - 1]


@pytest.mark.parametrize("text", [b"", b"\n", b"no json\n", b"[1]\n"])
def test_a_last_line_that_is_no_row_is_none(tmp_path, text):
    (tmp_path / "layers.jsonl").write_bytes(text)
    assert read_last_line(tmp_path / "layers.jsonl") is None


def test_rows_of_tables_are_the_lines_they_were_made_of(written):
    lines = {table: read_lines(written.path / f"{table}.jsonl") for table in ("steps", "layers")}
    assert read_rows(written, LAYOUT) == as_float32(lines)
    compact(written, LAYOUT)
    drop_lines(written)
    assert read_rows(written, LAYOUT) == as_float32(lines)


def as_float32(lines):
    """The lines of layers.jsonl as the table keeps their numbers."""
    for row in lines["layers"]:
        for metrics in row["values"].values():
            for name, values in metrics.items():
                metrics[name] = [None if v is None else float(np.float32(v)) for v in values]
    return lines
