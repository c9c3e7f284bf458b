"""What ``plainres describe`` and docs/connections.md say is what the networks are."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from plainres import cli
from plainres.config import compose
from plainres.data import load
from plainres.describe.network import depth_rule, describe, index_text
from plainres.describe.page import connections_page, presets
from plainres.describe.words import draw, formula, part_words
from plainres.models.families import build
from plainres.models.parts import ConnectionPart
from plainres.schema import DataConf, RunConf

PAGE = Path(__file__).parents[1] / "docs" / "connections.md"
Describe = Callable[..., str]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Describe:
    """What the command prints for these overrides."""

    def tell(*overrides: str) -> str:
        cli.main(["describe", *overrides])
        return capsys.readouterr().out

    return tell


def blocks(*overrides: str) -> list[str]:
    conf = compose(overrides)
    network = build(conf.model, conf.connection, conf.depth, (1, 8, 8), 10)
    return [formula(block) for block in network.blocks]  # type: ignore[arg-type]


def test_a_residual_network_as_a_table(told: Describe) -> None:
    text = told("model=mlp", "connection=residual", "depth=50")
    assert "0–23 (24)" in text and "y = relu(x + F(x))" in text
    assert "207,626 = 207,626 of the model + 0 of the connection" in text
    assert "m = 2 layers a branch, B = 24 blocks, depth 50" in text
    assert "audit against plain, all else equal: clean" in text
    assert re.search(r"^draws\s+equal", text, re.M) and re.search(r"^connection_operations\s+declared", text, re.M)
    assert max(map(len, text.splitlines())) <= 100


def test_a_recipe_is_labelled_with_every_differing_field(told: Describe) -> None:
    text = told("model=vit", "model.placement=post_norm", "connection=deepnorm", "depth=6")
    assert "recipe deepnorm" in text and "shortcut=identity, recipe=deepnorm" in text
    assert "y = LN(1.861·x + F(x))" in text  # (2N)^(1/4) of N = 6 layers
    assert "draws × 0.3799" in text  # (8N)^(−1/4)


def test_formulas_at_a_boundary_are_whole(told: Describe) -> None:
    text = told("model=cifar_resnet", "connection=highway", "depth=8")
    assert text.count("y = relu((1−g(x))⊙zero_pad(x) +") == 2 and "…" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_notes_say_which_blocks_they_are_about(told: Describe) -> None:
    text = told("model=cifar_resnet", "connection=projected", "depth=14")
    notes = [f"block {at}: P: conv1x1 {shape}, BN" for at, shape in
             (("0, 1", "16→16"), ("2", "16→32 /2"), ("3", "32→32"), ("4", "32→64 /2"), ("5", "64→64"))]  # fmt: skip
    first = f"where         {notes[0]}"
    assert text[text.index(first) :].splitlines()[:5] == [first, *(f"{'':14}{note}" for note in notes[1:])]
    many = told("connection=stochastic_depth", "depth=50")
    assert "where         block 0: keep: in training with chance p = 0.9792" in many
    assert "              block 23: keep: in training with chance p = 0.5" in many and "block 1:" not in many
    alike = told("connection=gated", "depth=10")
    assert "where         g(x) = " in alike


def test_fixups_scalars_are_counted_where_they_are(told: Describe) -> None:
    text = told("connection=fixup", "model.norm=none")
    assert re.search(r"^stem +64 → 64 +4,096 +1 +linear 64→64, \+b, relu *$", text, re.M)
    assert re.search(r"^head +64 → 10 +650 +1 +\+b, linear 64→10 *$", text, re.M)
    assert "37,536 = 37,514 of the model + 22 of the connection" in text


def test_a_control_is_never_called_residual(told: Describe) -> None:
    text = told("connection=concat")
    assert text.count("not a residual connection") >= 2


def test_plain_has_no_partner_and_no_branches(told: Describe) -> None:
    text = told("connection=plain")
    assert "y = relu(F(x))" in text and "nothing is joined" in text and "audit" not in text


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["depth=11"], "the nearest is depth=10 or depth=12"),
        (["connection=fixup"], "none with fixup"),
        (["connection=residul"], "did you mean connection=residual?"),
        (["connection=he2016/orginal"], "did you mean connection=he2016/original?"),
        (["connection=he2016"], "must be one of he2016/conv"),
        (["connection=foo"], "plain, projected, residual"),
        (["connection=foo"], "zero_init, he2016/conv"),
        (["connection=foo"], "vit/rezero_shared, vit/zero_init_weight, zero/depth_scaled"),
        (["modle=cnn"], "modle: no such setting"),
        (["model=imagenet_resnet", "depth=18"], "halves the resolution"),
    ],
)
def test_a_mistake_is_one_line(overrides: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["describe", *overrides])
    out, err = capsys.readouterr()
    assert stopped.value.code == 1 and out == ""
    assert words in err and err.count("\n") == 1


def test_formulas_come_from_the_parts() -> None:
    assert set(blocks("connection=highway", "depth=6")) == {"y = relu((1−g(x))⊙x + g(x)⊙F(x))"}
    assert set(blocks("connection=scaled", "connection.alpha=0.25")) == {"y = relu(x + 0.25·F(x))"}
    ls = ["connection=layernorm_scaling", "model.placement=pre_norm", "model.norm=layer", "depth=10"]
    assert blocks(*ls) == [f"y = x + F({1 / l**0.5:.4g}·LN(x))" for l in range(1, 5)]  # noqa: E741
    staged = blocks("model=cifar_resnet", "depth=8", "connection=constant_scaling")
    assert staged == ["y = relu(0.5·x + 0.5·F(x))"] + 2 * ["y = relu(0.5·zero_pad(x) + 0.5·F(x))"]
    assert blocks("connection=residual", "model.placement=sandwich", "depth=4") == ["y = x + BN(F(BN(x)))"]


def test_a_drawing_has_both_paths_of_equal_length() -> None:
    conf = compose(["connection=highway", "depth=4"])
    (block,) = build(conf.model, conf.connection, conf.depth, (1, 8, 8), 10).blocks
    above, below = draw(block).splitlines()  # type: ignore[arg-type]
    assert above.index("┐") == below.index("+") and "× (1−g)" in below


def test_a_part_of_ones_own_is_named_by_its_class() -> None:
    class Wobble(ConnectionPart):
        pass

    assert part_words(Wobble()).formula("x") == "Wobble(x)"


def test_a_shared_scale_counts_once() -> None:
    found = describe(compose(["model=vit", "depth=2", "connection=vit/rezero_shared"]), load(DataConf()))
    assert found.parameters[1] == 2
    assert [row.connection_parameters for row in found.rows[1:3]] == [1, 0]


def test_rows_and_totals_agree() -> None:
    found = describe(compose(["model=cifar_resnet", "depth=20", "connection=residual"]), load(DataConf()))
    indices = [row.where for row in found.rows]
    assert indices == ["stem", "0–2 (3)", "3", "4, 5", "6", "7, 8", "pool", "head"]
    sizes = dict(zip(indices, [row.model_parameters for row in found.rows], strict=True))
    times = {"0–2 (3)": 3, "4, 5": 2, "7, 8": 2}
    assert sum(size * times.get(name, 1) for name, size in sizes.items()) == found.parameters[0]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model=cifar_resnet", "depth=20"], "n = 3 blocks in each of three stages"),
        (["model=cifar_resnet", "model.stages=even", "depth=12"], "B = 5 blocks (2 + 2 + 1 in three stages)"),
        (["model=imagenet_resnet", "depth=34"], "B = 3 + 4 + 6 + 3 = 16"),
        (["model=transformer", "depth=3"], "3 layers, 6 branches"),
    ],
)
def test_depth_rules(overrides: list[str], words: str) -> None:
    conf: RunConf = compose(overrides)
    assert words in depth_rule(conf.model, conf.depth)


def test_indices_are_short() -> None:
    assert [index_text(i) for i in ([4], [4, 5], [0, 1, 2], [0, 2, 4], [0, 1, 4])] == [
        "4", "4, 5", "0–2 (3)", "0, 2 … 4 (3)", "0 … 4 (3)",
    ]  # fmt: skip


def test_the_page_is_what_the_code_says() -> None:
    text = connections_page()
    assert text == PAGE.read_text(), "run python scripts/connections_page.py"
    titles = re.findall(r"^## ([a-z_]+)$", text, re.M)
    assert titles == [p.choice for p in presets() if "/" not in p.choice] and len(titles) == 19
    sections = re.split(r"^## ", text, flags=re.M)
    (concat,) = [s for s in sections if s.startswith("concat\n")]
    assert "not a residual connection" in concat
    (gated,) = re.findall(r"connection=highway`\): the carry is \(1−g\) times.*?```text\n(.*?)\n", text, re.S)
    assert gated == "y = relu((1−g(x))⊙zero_pad(x) + g(x)⊙F(x))"
    (none,) = re.findall(r"^\*\*none\*\*: .*?^(stem: .*?)$", text, re.M | re.S)
    assert none == "stem: linear 64→64, LN, relu"
    (fixup,) = [s for s in sections if s.startswith("fixup\n")]
    assert "plain with `model.norm=none`" in fixup and "Recipe: yes" in fixup
