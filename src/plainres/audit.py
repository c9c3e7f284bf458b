"""The audit: are the two networks of a pair equal in everything but the connection under study?

It compares the signatures of both arms: the draw of every parameter, the sequence of data indices, optimizer,
schedule and budget, and the ordered operations of a forward pass.
"""

import re
from typing import Any

from plainres.data.dataset import Dataset
from plainres.pair import partner_of
from plainres.schema import RunConf
from plainres.signature import Signature, arm_signature, digest, setting_group

# What torch's operations are for a reader; None: moves or converts numbers without computing any.
_WORDS = {
    "add": "addition",
    "mul": "multiplication",
    "div": "division",
    "rsub": "subtraction from a number",
    "mm": "linear map",
    "addmm": "linear map",
    "native_batch_norm": "batch norm",
    "native_layer_norm": "layer norm",
    "native_group_norm": "layer norm",
    "cat": "concatenation",
    "slice": "subsampling",
    "avg_pool2d": "average pooling",
    "constant_pad_nd": "zero padding",
    "rand": "random numbers",
    "lt": "comparison",
    "ge": "comparison",
    **dict.fromkeys(("t", "view", "_unsafe_view", "expand", "empty", "_to_copy", "clone")),
}


def compare(mine: Signature, partner: Signature) -> list[dict[str, Any]]:
    """Every check of a pair: what it compared, on which values, and ``equal``, ``declared`` or ``undeclared``."""
    extra = [sum(s.sizes[n] for n in s.connection_parameters) for s in (mine, partner)]
    shared = [{n: h for n, h in s.draws.items() if n not in s.connection_parameters} for s in (mine, partner)]
    checks = [_check("parameters", mine.num_parameters - extra[0], partner.num_parameters - extra[1])]
    if any(extra):
        here, there = (f"{size:,}" if size else "none" for size in extra)
        why = f"{here} here, {there} in the partner"
        checks.append(_check("connection_parameters", extra[0], extra[1], declared=why))
    differing = [name for name, _, _ in _differing(*shared)]
    why = f"first differing: {differing[0]}" if differing else ""
    draws = [digest(sorted(s.items())) for s in shared]
    checks.append(_check("draws", draws[0], draws[1], why=why))
    checks.append(_check("order", mine.order, partner.order))
    checks.append(_operations(mine.operations, partner.operations))
    if mine.connection_operations != partner.connection_operations:
        ops = [list(s.connection_operations) for s in (mine, partner)]
        why = f"{_in_words(ops[0])} here, {_in_words(ops[1])} in the partner"
        checks.append(_check("connection_operations", ops[0], ops[1], declared=why))
    checks += [_check("connection_rules", words, "", declared=words) for words in mine.declared]
    groups = [setting_group(name) for name in mine.settings | partner.settings]
    for group in dict.fromkeys(groups):
        sides = [{n: v for n, v in s.settings.items() if setting_group(n) == group} for s in (mine, partner)]
        why = "; ".join(f"{n}: {a} here, {b} in the partner" for n, a, b in _differing(sides[0], sides[1]))
        checks.append(_check(group, digest(sides[0]), digest(sides[1]), why=why))
    return checks


def _differing(mine: dict[str, Any], partner: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    names = sorted(mine.keys() | partner.keys())
    return [(n, mine.get(n), partner.get(n)) for n in names if mine.get(n) != partner.get(n)]


def _check(name: str, mine: Any, partner: Any, declared: str = "", why: str = "") -> dict[str, Any]:
    result = "equal" if mine == partner else "declared" if declared else "undeclared"
    return {"check": name, "this": mine, "partner": partner, "result": result, "why": declared or why}


def _in_words(operations: list[str]) -> str:
    """Each kind of operation once, in words; one that has none by torch's name for it."""
    names = [operation.partition("(")[0].partition(".")[0] for operation in operations]
    return ", ".join(dict.fromkeys(word for name in names if (word := _WORDS.get(name, name)))) or "none"


def _operations(mine: tuple[str, ...], partner: tuple[str, ...]) -> dict[str, Any]:
    pairs = zip(mine, partner, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(mine), len(partner)))
    # torch's overload says nothing to a reader: relu.default(float32[2, 3]) is relu(float32[2, 3]).
    here, there = (
        re.sub(r"\.\w+\(", "(", ops[at], count=1) if at < len(ops) else "nothing more" for ops in (mine, partner)
    )
    why = "" if mine == partner else f"operation {at}: {here} here, {there} in the partner"
    return _check("operations", digest(mine), digest(partner), why=why)


def audit(conf: RunConf, data: Dataset) -> dict[str, Any]:
    """The audit of a run against its partner, as run.json keeps it.

    A plain run has no partner of its own: every other arm is audited against it. A difference that is neither
    equal nor declared makes ``clean`` false, and the run must not start.
    """

    mine, partner_conf = arm_signature(conf, data), partner_of(conf)
    report: dict[str, Any] = {"partner": None, "signature": mine.summary(), "partner_signature": None}
    checks: list[dict[str, Any]] = []
    if partner_conf is not None:
        partner = arm_signature(partner_conf, data)
        report |= {"partner": partner_conf.connection.name, "partner_signature": partner.summary()}
        checks = compare(mine, partner)
    declared = [f"{c['check']}: {c['why']}" for c in checks if c["result"] == "declared"]
    undeclared = [f"{c['check']}: {c['why'] or _values(c)}" for c in checks if c["result"] == "undeclared"]
    return report | {"checks": checks, "declared": declared, "undeclared": undeclared, "clean": not undeclared}


def _values(check: dict[str, Any]) -> str:
    return f"{check['this']} here, {check['partner']} in the partner"
