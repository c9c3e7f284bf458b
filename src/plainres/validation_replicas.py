"""Checks of ``trainer.replicas``: what can be stacked, in one line each."""

from plainres.errors import require
from plainres.options import Compile, Drop, Family, Precision, Shortcut
from plainres.schema import RunConf


def validate_replicas(conf: RunConf) -> None:
    """
    Raises:
        UserError: a network or a way of training that one batched network cannot be.
    """
    trainer, connection = conf.trainer, conf.connection
    require(trainer.replicas >= 1, "trainer.replicas", trainer.replicas, "a whole number of at least 1")
    if trainer.replicas == 1:
        return
    ours = isinstance(connection.shortcut, Shortcut) and connection.shortcut is not Shortcut.dropout
    needs: dict[str, tuple[bool, object, str]] = {
        "model": (conf.model.name is Family.mlp, conf.model.name, "mlp"),
        "model.branch": (conf.model.branch is None, conf.model.branch, "null"),
        "connection.shortcut": (ours, connection.shortcut, "neither dropout nor a class of your own"),
        "connection.drop": (connection.drop is Drop.none, connection.drop, "none"),
        "connection.alpha_warmup": (connection.alpha_warmup == 0, connection.alpha_warmup, "0"),
        "start.depth": (conf.start.depth is None, conf.start.depth, "null"),
        "trainer.precision": (trainer.precision is Precision.float32, trainer.precision, "float32"),
        "trainer.accumulate": (trainer.accumulate == 1, trainer.accumulate, "1"),
        "trainer.checkpoint_blocks": (trainer.checkpoint_blocks == 0, trainer.checkpoint_blocks, "0"),
        "trainer.compile": (trainer.compile is Compile.off, trainer.compile, "off"),
        "trainer.cuda_graph": (not trainer.cuda_graph, trainer.cuda_graph, "false"),
        "trainer.threads": (trainer.threads == 1, trainer.threads, "1"),  # else bits depend on who else trains
        "trainer.devices": (trainer.devices == 1, trainer.devices, "1"),
    }
    for name, (fits, value, allowed) in needs.items():
        where = f"{allowed} with trainer.replicas={trainer.replicas}"
        require(fits, name, value, where, "trainer.replicas=1 trains it")
