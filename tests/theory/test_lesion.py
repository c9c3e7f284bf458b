"""Lesions against forward passes by hand; what cannot be deleted; files, refusals and the figure."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from plainres.analysis.lesion import over_seeds, summarise
from plainres.cli import main
from plainres.data import load
from plainres.errors import UserError
from plainres.figures.gallery import draw
from plainres.job import execute as execute_job
from plainres.models.networks import Network
from plainres.pair import make_spec
from plainres.schema import DataConf, RunConf, StartConf, plain_values
from plainres.store import RunFolder, Status, Study
from plainres.theory.lesion import block_shapes, damaged, deletions, lesions, swaps
from plainres.theory.together import arm_labels, check_cells
from plainres.theory.trained import Trained, load_trained, restored

LONG = {"depth": 8, "trainer.steps": 30, "schedule.warmup_steps": 2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, make_conf: Callable[..., RunConf]) -> dict[str, Path]:
    """A trained plain and residual net of 3 blocks."""
    study = Study.create(tmp_path_factory.mktemp("results"), "lesions")
    found = {}
    for connection in ("plain", "residual"):
        spec = make_spec(make_conf(connection, LONG), "cpu")
        execute_job(spec, study, lambda: False)
        found[connection] = study.run_folder(spec.name).path
    return found


@pytest.fixture(scope="module")
def trained(folders: dict[str, Path]) -> dict[str, Trained]:
    return {name: load_trained(path) for name, path in folders.items()}


def by_hand(network: Network, x: torch.Tensor, y: torch.Tensor, order: list[int]) -> tuple[float, float]:
    """Error and loss of the network with these blocks, in this order."""
    with torch.no_grad():
        h = network.stem(network.prepare(x))
        for index in order:
            h = network.blocks[index](h)
        logits = network.head(network.pool(network.final(h)))
    return (logits.argmax(1) != y).double().mean().item(), F.cross_entropy(logits, y).item()


@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_the_network_is_the_one_that_was_trained(trained: dict[str, Trained], connection: str) -> None:
    run = trained[connection]
    assert run.intact["train_error"] == run.recorded == run.folder.read()["final"]["train_error"]
    assert run.intact["train_loss"] == run.folder.read()["final"]["train_loss"]
    assert 0 < run.recorded < 0.9 and not any(m.training for m in run.network.modules())


@pytest.mark.parametrize("connection", ["plain", "residual"])
def test_a_deletion_is_the_forward_pass_without_the_block(trained: dict[str, Trained], connection: str) -> None:
    run = trained[connection]
    rows = list(lesions(run, swap=False))
    assert [row["block"] for row in rows] == [0, 1, 2] and {row["kept"] for row in rows} == {"identity"}
    for row, order in zip(rows, ([1, 2], [0, 2], [0, 1]), strict=True):
        for split, name in ((run.data.train, "train"), (run.data.val, "val")):
            error, loss = by_hand(run.network, *split.clean(slice(None)), order)
            assert row[f"{name}_error"] == pytest.approx(error) and row[f"{name}_loss"] == pytest.approx(loss, rel=1e-5)
    assert by_hand(run.network, *run.data.train.clean(slice(None)), [0, 1, 2])[0] == run.recorded, "whole again"


def test_a_swap_is_the_forward_pass_in_another_order(trained: dict[str, Trained]) -> None:
    run = trained["residual"]
    rows = list(lesions(run, swap=True))
    assert [(row["block"], row["other"], row["distance"]) for row in rows] == [(0, 1, 1), (1, 2, 1), (0, 2, 2)]
    for row, order in zip(rows, ([1, 0, 2], [0, 2, 1], [2, 1, 0]), strict=True):
        error, _ = by_hand(run.network, *run.data.train.clean(slice(None)), order)
        assert row["train_error"] == pytest.approx(error)


def staged(make_preset: Callable[..., RunConf], make_network: Callable[..., Network], connection: str) -> Network:
    return make_network(make_preset(connection, "cifar_resnet", {"depth": 14}), (1, 8, 8), 10).eval()


def test_a_block_that_changes_the_shape_keeps_its_shortcut(make_preset, make_network) -> None:
    split = load(DataConf()).train
    network = staged(make_preset, make_network, "residual")
    found = deletions(network, block_shapes(network, split))
    assert [item.kept for item in found] == ["identity", "identity", "shortcut", "identity", "shortcut", "identity"]
    x = torch.rand(2, 6, 8, 8)
    boundary = network.blocks[2]
    with damaged(network, found[2].parts):
        y = network.blocks[2](x)
    # Option A by hand: every second pixel, and as many channels of zeros.
    assert torch.equal(y, torch.cat([x[:, :, ::2, ::2], torch.zeros(2, 6, 4, 4)], 1).relu())
    assert network.blocks[2] is boundary


def test_a_gated_boundary_keeps_what_it_carries(make_preset, make_network) -> None:
    network = staged(make_preset, make_network, "highway")
    lesion = deletions(network, block_shapes(network, load(DataConf()).train))[2]
    x, block = torch.rand(2, 6, 8, 8), network.blocks[2]
    carried = (1 - block.gate(x)) * block.shortcut(x)
    assert torch.equal(lesion.parts[2](x), carried if block.post is None else block.post(carried))


@pytest.mark.parametrize(("connection", "why"), [("plain", "nothing is added"), ("concat", "is concatenated")])
def test_what_cannot_be_deleted_is_left_out_with_its_reason(
    make_preset, make_network, connection: str, why: str
) -> None:
    network = staged(make_preset, make_network, connection)
    found = deletions(network, block_shapes(network, load(DataConf()).train))
    assert [bool(item.parts) for item in found] == [True, True, False, True, False, True]
    assert why in found[2].reason and not found[0].reason


def test_only_blocks_of_one_shape_change_places(make_preset, make_network) -> None:
    network = staged(make_preset, make_network, "residual")
    assert [(s.block, s.other) for s in swaps(network, block_shapes(network, load(DataConf()).train))] == [(0, 1)]


def test_many_pairs_are_drawn_with_a_fixed_seed(make_conf, make_network) -> None:
    network = make_network(make_conf("residual", {"depth": 34}), (1, 8, 8), 10)
    shapes = block_shapes(network, load(DataConf()).train)
    pairs = [(s.block, s.other) for s in swaps(network, shapes)]
    assert pairs == [(s.block, s.other) for s in swaps(network, shapes)] and len(set(pairs)) == 15 + 40
    assert pairs[:15] == [(i, i + 1) for i in range(15)] and all(j - i > 1 for i, j in pairs[15:])


def test_settings_come_back_from_the_record(make_preset) -> None:
    for connection in ("highway", "stochastic_depth", "fixup", "layerscale"):
        conf = make_preset(connection, "cifar_resnet", {"optimizer.clip_norm": 1.0})
        assert restored(RunConf(), plain_values(conf)) == conf


def test_groups_younger_than_the_run_have_their_defaults(make_preset) -> None:
    conf = make_preset("highway", "cifar_resnet", {"optimizer.clip_norm": 1.0})
    values = plain_values(conf)
    for name in ("start", "tracker"):
        del values[name]
    del values["optimizer"]["clip_norm"]
    as_before = replace(conf, optimizer=replace(conf.optimizer, clip_norm=RunConf().optimizer.clip_norm))
    assert restored(RunConf(), values) == as_before


def test_a_run_older_than_the_start_group(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = folders["plain"].parents[1] / "runs" / "older"
    shutil.copytree(folders["plain"], path)
    record = RunFolder(path).read()
    del record["config"]["start"]
    RunFolder(path).write(record)
    assert load_trained(path).conf.start == StartConf()
    main(["shattering", str(path)])
    assert "before training" in capsys.readouterr().out


def test_a_built_network_is_an_arm_of_its_own(make_conf: Callable[..., RunConf]) -> None:
    built = {"depth": 8, "start.depth": 4}
    values: list[dict[str, object]] = [{"depth": 4}, {"depth": 8}, built, built | {"start.noise": 0.1}]
    confs = [make_conf("plain", v) for v in values]
    confs += [make_conf("residual", v) for v in ({"depth": 8}, built)]
    names = ["plain", "plain", "plain(start=4)", "plain(start=4, noise=0.1)", "residual", "residual(start=4)"]
    assert arm_labels(confs) == names
    check_cells(confs)
    with pytest.raises(UserError, match=r"two runs have connection=plain\(start=4\) depth=8 seed=0"):
        check_cells([confs[0], confs[2], confs[2]])


def test_scratch_and_built_stand_side_by_side(
    tmp_path: Path, make_conf: Callable[..., RunConf], capsys: pytest.CaptureFixture[str]
) -> None:
    study, paths = Study.create(tmp_path, "sides"), []
    short = {"trainer.steps": 6, "schedule.warmup_steps": 1}
    for values in ({"depth": 4}, {"depth": 8}, {"depth": 8, "start.depth": 4}):
        spec = make_spec(make_conf("plain", short | values), "cpu")
        assert execute_job(spec, study, lambda: False).status is Status.COMPLETE
        paths.append(str(study.run_folder(spec.name).path))
    main(["lesion", *paths])
    table = pd.read_csv(study.path / "report" / "lesion" / "delete.csv")
    cells = table.groupby(["connection", "depth"]).size().to_dict()
    assert cells == {("plain", 4): 1, ("plain", 8): 3, ("plain(start=4)", 8): 3}
    main(["shattering", *paths[1:]])
    assert "built from depth 4, so measured only after training" in capsys.readouterr().err
    summary = pd.read_csv(study.path / "report" / "shattering" / "summary.csv")
    found = list(zip(summary["connection"], summary["moment"], strict=True))
    assert found == [("plain", "start"), ("plain", "end"), ("plain(start=4)", "end")]


def test_table_figure_and_summary(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    main(["lesion", *map(str, folders.values())])
    out, err = capsys.readouterr()
    assert err.count("as recorded") == 2 and "plain" in out and "residual" in out
    report = folders["plain"].parents[1] / "report" / "lesion"
    assert {p.name for p in report.iterdir()} == {"delete.csv", "delete.png", "delete.pdf"}
    table = pd.read_csv(report / "delete.csv")
    assert len(table) == 6 and set(table["connection"]) == {"plain", "residual"}
    main(["lesion", str(folders["residual"]), "--swap"])
    table = pd.read_csv(report / "swap.csv")
    worst = table.loc[table["train_error"].idxmax()]
    out = capsys.readouterr().out
    assert len(table) == 3 and f"{worst['block']} and {worst['other']}\n" in out and "of blocks" in out


def test_statistics_by_hand() -> None:
    same = {"depth": 8, "connection": "plain", "intact_train_error": 0.1, "intact_val_error": 0.2, "val_error": 0.5}
    rows = [
        same | {"seed": seed, "block": block, "other": None, "train_error": error}
        for seed, errors in enumerate(([0.5, 0.3, 0.2], [0.7, None, 0.4]))
        for block, error in enumerate(errors)
    ]
    table = pd.DataFrame(rows)
    found = summarise(table)
    assert found["median_rise"].tolist() == pytest.approx([0.2, 0.45])
    assert found["largest_rise"].tolist() == pytest.approx([0.4, 0.6]) and found["worst_block"].tolist() == [0, 0]
    assert found["worst_other"].tolist() == [None, None]
    swapped = summarise(table.assign(other=table["block"] + 2))
    assert swapped["worst_other"].tolist() == [2, 2], "of the pair with the largest rise"
    assert found["n"].tolist() == [3, 2] and found["n_left_out"].tolist() == [0, 1]
    means = over_seeds(table, "block")
    train = means[means["split"] == "train"]
    assert train["mean"].tolist() == pytest.approx([0.6, 0.3, 0.3]) and train["n"].tolist() == [2, 1, 2]
    figure = draw("lesion_delete", table.assign(chance_error=0.9))
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert lines[0].get_ydata() == pytest.approx([60, 30, 30])


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["lesion", *arguments])
    err = capsys.readouterr().err
    assert stopped.value.code == 1 and err.count("\n") == 1, err
    return err


def test_refusals_are_one_line(execute, make_conf, study, capsys) -> None:
    conf = make_conf("residual", {"trainer.steps": 4, "trainer.checkpoint_every": 2, "schedule.warmup_steps": 1})
    _, folder = execute(conf)
    path = str(folder.path)
    assert "no run" in refusal([str(study.path)], capsys)
    record = folder.read()
    for status, why in ((Status.INTERRUPTED, "train it to its end"), (Status.DIVERGED, "no final weights")):
        folder.update(status=status)
        assert why in refusal([path], capsys)
    folder.write(record | {"final": record["final"] | {"train_error": 0.0}})
    assert "where its record says 0.00%" in refusal([path], capsys)
    folder.write(record | {"data": record["data"] | {"sha256": "other"}})
    assert "its data are not those" in refusal([path], capsys)
    folder.write(record | {"config": record["config"] | {"depth": 8}})
    assert "is of another network" in refusal([path], capsys)
    folder.write(record)
    assert "two runs have connection=residual depth=6 seed=0" in refusal([path, path], capsys)
    folder.checkpoint.write_bytes(b"torn")
    assert "missing or unreadable" in refusal([path], capsys)
    assert not (study.path / "report").exists(), "nothing half-written"


def test_a_checkpoint_on_the_way_is_no_final_one(execute, make_conf) -> None:
    conf = make_conf("residual", {"trainer.steps": 4, "trainer.checkpoint_every": 2, "schedule.warmup_steps": 1})
    _, folder = execute(conf, stop_at=2)
    folder.update(status=Status.COMPLETE)
    with pytest.raises(UserError, match="not of the final weights"):
        load_trained(folder.path)
