"""A stand-in for W&B's backend on loopback: enough of it to see what an online run, or a sync, sends.

It knows runs (settings, history by step, summary, exit code) and says that every artifact is there already, so that no
file is uploaded. W&B's own server is never contacted.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")


@dataclass
class ServerRun:
    """What the server was sent of a run; ``resumed`` counts how often it was asked what it has."""

    settings: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    resumed: int = 0


class Stub:
    """The server's memory, and how it behaves."""

    def __init__(self) -> None:
        self.url = ""
        self.views: list[dict[str, Any]] = []
        self.runs: dict[str, ServerRun] = {}
        self.delay = 0.0  # seconds before each answer
        self.operations: list[str] = []
        self.lock = threading.Lock()

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        entity = {"id": "e", "name": "tester"}
        if operation in ("Viewer", "GetDefaultEntity"):
            viewer = {"id": "u", "entity": "tester", "username": "tester", "email": "", "flags": "{}"}
            return {"viewer": viewer | {"teams": {"edges": []}}}
        if operation == "ServerFeaturesQuery":
            return {"serverInfo": {"features": []}}
        if operation == "UpsertBucket":
            run = self.runs.setdefault(given["name"], ServerRun())
            run.settings |= {name: value for name, value in given.items() if value is not None}
            project = {"id": "p", "name": given.get("project") or "plainres", "entity": entity}
            bucket = {"id": given["name"], "name": given["name"], "displayName": given.get("displayName")}
            bucket |= {"description": "", "config": given.get("config"), "sweepName": "", "project": project}
            return {
                "upsertBucket": {"bucket": bucket | {"historyLineCount": len(run.lines)}, "inserted": not run.lines}
            }
        if operation == "RunResumeStatus":
            return {
                "model": {"id": "p", "name": given["project"], "entity": entity, "bucket": self._bucket(given["name"])}
            }
        if operation == "CreateArtifact":
            artifact = {"id": "a", "state": "COMMITTED", "artifactSequence": {"id": "s", "latestArtifact": None}}
            return {"createArtifact": {"artifact": artifact}}
        if operation.startswith("UpsertView"):
            self.views.append(given)
            return {"upsertView": {"view": {"id": "v", "name": "view"}, "inserted": True}}
        if operation == "ArtifactType":
            return {"project": {"artifact": None}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/upload"} for name in given["files"]]
            return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
        return {}

    def _bucket(self, name: str) -> dict[str, Any] | None:
        run = self.runs.get(name)
        if run is None:
            return None
        run.resumed += 1
        tail = [json.dumps(line) for line in run.lines[-1:]]
        known = {"config": run.settings.get("config") or "{}", "summaryMetrics": json.dumps(run.summary)}
        known |= {"historyLineCount": len(run.lines), "eventsLineCount": 0, "logLineCount": 0}
        known |= {
            "historyTail": json.dumps(tail),
            "eventsTail": "[]",
            "tags": run.settings.get("tags", []),
            "notes": "",
        }
        return known | {
            "id": name,
            "name": name,
            "displayName": run.settings.get("displayName"),
            "wandbConfig": '{"t": 1}',
        }

    def stream(self, name: str, sent: dict[str, Any]) -> None:
        """One request of a run's file stream."""
        run = self.runs.setdefault(name, ServerRun())
        for file, chunk in (sent.get("files") or {}).items():
            content = [json.loads(line) for line in chunk["content"] if line.strip()]
            if file.endswith("history.jsonl"):
                run.lines[chunk["offset"] :] = content
            elif file.endswith("summary.json"):
                run.summary = content[-1]
        if sent.get("complete"):
            run.exit_code = sent.get("exitcode")


@contextmanager
def stub_server() -> Iterator[Stub]:
    """A server that ends with the block; ``stub.url`` is where it listens."""
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def do_POST(self) -> None:
            time.sleep(stub.delay)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            with stub.lock:
                if self.path.endswith("/graphql"):
                    found = OPERATION.search(body["query"])
                    operation = found.group(1) if found else ""
                    stub.operations.append(operation)
                    answer = {"data": stub.answer(operation, body.get("variables") or {})}
                else:
                    stub.stream(self.path.split("/")[-2], body)
                    answer = {"limits": {}}
            self._reply(json.dumps(answer).encode())

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._reply(b"")

        def _reply(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()


def online(stub: Stub) -> dict[str, str]:
    """Environment variables with which wandb is logged in there, and nowhere else."""
    return {"WANDB_BASE_URL": stub.url, "WANDB_API_KEY": "a" * 40, "WANDB_MODE": "", "WANDB_ERROR_REPORTING": "false"}
