"""Findings in words: every sentence is made of a rule's text and of the findings' numbers, and of nothing else."""

import math
from collections.abc import Sequence

from plainres.analysis.diagnosis import Diagnosis, Finding
from plainres.analysis.diagnosis_rules import RULES, Measure
from plainres.analysis.inside_values import CUT
from plainres.analysis.settings import ONLY_SETTING

WEIGHT = ".op.weight"  # a layer is named without it
LN_C = "× ln C"  # the unit of a rule on the loss


def headline(group: Sequence[Finding], diagnosis: Diagnosis) -> str:
    """``plain, depth 100 (5 of 5 runs): the training loss stays at chance level: 2.25 to 2.30 nats = …``."""
    seen = RULES[group[0].rule].seen
    return f"{about(group, diagnosis)}: {seen[0].lower()}{seen[1:]}: {beside_limit(numbers(group), group[0].rule)}"


def about(group: Sequence[Finding], diagnosis: Diagnosis) -> str:
    """``plain, depth 100 (5 of 5 runs)``."""
    count = diagnosis.cells[group[0].cell]
    return f"{network_text(group[0])} ({len(group)} of {count} run{'s' if count > 1 else ''})"


def network_text(one: Finding) -> str:
    """``plain, depth 100``, with the setting where there are several."""
    setting = "" if one.setting == ONLY_SETTING else f", {one.setting}"
    return f"{one.connection}, depth {one.depth}{setting}"


def sentence(group: Sequence[Finding]) -> str:
    """What was measured, where and when; of several seeds their range, all their layers and all their steps."""
    one = group[0]
    parts = [f"{RULES[one.rule].quantity} is {beside_limit(numbers(group), one.rule)}"]
    if layers := layer_text(group):
        parts.append(layers)
    parts.append(step_text(group))
    errors = [f.train_error for f in group if f.train_error is not None]
    final = f" Final training error {span([100 * e for e in errors], '{:.2f}')} %." if errors else ""
    return f"{'; '.join(parts)}.{final}"


def numbers(group: Sequence[Finding]) -> str:
    """``2.25 to 2.30 nats = 0.979 to 0.998 × ln 10``, ``0.001 or less to 0.0337``, ``14.4 percentage points``."""
    one, values = group[0], sorted(f.number for f in group)
    texts = [number_text(value, one.rule) for value in (values[0], values[-1])]
    text = f"{texts[0] if texts[0] == texts[1] else ' to '.join(texts)} {unit_text(one)}".rstrip()
    if RULES[one.rule].unit != LN_C or one.log_classes is None:
        return text
    return f"{span([v * one.log_classes for v in values], '{:.2f}')} nats = {text}"


def unit_text(one: Finding) -> str:
    """The rule's unit, with ln C as ``ln 10``."""
    unit = RULES[one.rule].unit
    return unit if one.log_classes is None else unit.replace("ln C", f"ln {math.exp(one.log_classes):.0f}")


def number_text(value: float, rule_id: str) -> str:
    """A number with three digits (a step with all of them); a ratio that was cut says so."""
    profile = RULES[rule_id].profile
    if profile and profile.measure is Measure.EARLY_TO_LATE and abs(math.log10(value)) > CUT - 1e-9:
        return f"{10**CUT:,.0f} or more" if value > 1 else f"{10**-CUT:g} or less"
    return f"{value:,.0f}" if value >= 100 or rule_id == "diverged" else f"{value:#.3g}"


def limit_text(rule_id: str) -> str:
    """``above 0.97 × ln C``; empty for a rule that compares nothing."""
    rule = RULES[rule_id]
    if rule.limit is None:
        return ""
    return f"{'above' if rule.above else 'below'} {rule.limit:g} {rule.unit}".rstrip()


def beside_limit(text: str, rule_id: str) -> str:
    """A number with its rule's limit: ``0.004 (limit: below 0.05)``."""
    limit = limit_text(rule_id)
    return f"{text} (limit: {limit})" if limit else text


def step_text(group: Sequence[Finding]) -> str:
    """``step 8``, ``steps 100 to 450``: the first and the last of all seeds."""
    first, last = min(f.first_step for f in group), max(f.last_step for f in group)
    return f"step {first}" if first == last else f"steps {first} to {last}"


def layer_text(group: Sequence[Finding]) -> str:
    """``12 blocks, blocks.0 to blocks.11``: those of all seeds; empty for a finding on whole runs."""
    found = {name: index for f in group for index, name in f.layers}
    names = [layer_name(name) for name in sorted(found, key=lambda name: (found[name] or 0, name))]
    if len(names) <= 2:
        return ", ".join(names)
    return f"{len(names)} {group[0].scope}s, {names[0]} to {names[-1]}"


def layer_name(name: str) -> str:
    """``blocks.3.branch.0`` of the parameter ``blocks.3.branch.0.op.weight``."""
    return name.removesuffix(WEIGHT)


def span(values: Sequence[float], form: str) -> str:
    """``2.25 to 2.30``, or one number where both ends read the same."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"
