"""Which folders are a run's: W&B adds a number where the time and the id are taken."""

from pathlib import Path

from plainres.tracking.wandb_file import run_folders


def test_the_folders_of_a_run_are_found_oldest_first(tmp_path: Path) -> None:
    stamp, later = "20261130_071513", "20261130_071514"
    mine = [f"offline-run-{stamp}-ab12", f"offline-run-{stamp}-ab12-2", f"offline-run-{stamp}-ab12-10"]
    mine += [f"run-{later}-ab12"]
    others = [f"offline-run-{stamp}-cab12", f"offline-run-{stamp}-ab123", f"offline-run-{stamp}-ab12-x", "run-ab12"]
    for name in [*mine[::-1], *others]:
        (tmp_path / name).mkdir()
    (tmp_path / f"offline-run-{stamp}-ab12-3").symlink_to(tmp_path / mine[0])
    assert [path.name for path in run_folders(tmp_path, "ab12")] == mine
    assert [path.name for path in run_folders(tmp_path, "ab12", "offline-run")] == mine[:3]
    assert [path.name for path in run_folders(tmp_path, "ab12", "run")] == mine[3:]
    assert not run_folders(tmp_path / "none", "ab12")
