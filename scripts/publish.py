"""python scripts/publish.py STUDY DESTINATION [FIGURE ...]: keep the small part of a study.

That is the report, with those figures only where some are named, and each run's record.
"""

import json
import shutil
import sys
from pathlib import Path

from plainres.store import Study


def main(study_dir: str, destination: str, *figures: str) -> None:
    """Copy report/ and every run.json; a machine's name and its folders are no result and stay behind."""
    study, target = Study.open(study_dir), Path(destination)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(study.report_dir, target)
    for path in (target / "figures").iterdir():
        if figures and path.stem not in figures:
            path.unlink()
    folders: set[str] = set()
    for run in study.runs():
        record = run.read()
        record["environment"].pop("hostname", None)
        data = record["config"]["data"]
        folders |= {data[key] for key in ("root", "cache_dir") if data.get(key)} | {record["config"]["results_dir"]}
        path = target / "runs" / run.name / "run.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
    for path in (p for p in target.rglob("*") if p.suffix in (".json", ".md", ".csv")):
        text = path.read_text()
        for folder in folders:
            text = text.replace(folder, Path(folder).name)
        path.write_text(text)
    print(f"{target}: {sum(p.stat().st_size for p in target.rglob('*') if p.is_file()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
