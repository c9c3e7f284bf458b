"""A run that starts from a trained shallower network: the weights, and how exactly they compute the same.

The record in run.json, ``construction`` (errors are fractions of the clean training set, outputs are logits):

    source, source_name                     run_id and folder of the trained network
    num_inserted_blocks                     between its last block and the head
    max_output                              the largest |output| of the source
    max_output_difference                   the largest |output − the source's|, in evaluation mode
    tolerance                               what of that is rounding; beyond it the run is refused
    train_error, source_train_error         in evaluation mode
    max_output_difference_batchstats        as above with batch statistics in the norm layers of both networks
    train_error_batchstats, source_train_error_batchstats
    perturbed_train_error                   in evaluation mode after ``start.noise``; null without noise
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from plainres import checkpoint, environment
from plainres.data.split import Split
from plainres.errors import UserError
from plainres.evaluate import batch_statistics, chunks, error_and_loss, evaluation_mode, shuffled_batches
from plainres.flat import FlatParameters
from plainres.models.construct import Moments, insert_identity_blocks, perturb
from plainres.models.families import build
from plainres.models.networks import Network
from plainres.models.rules import rules_of, undecayed
from plainres.pair import RunSpec, source_of
from plainres.store import RunFolder

ROUNDINGS = 8  # of float32, relative to the largest output, that each weighted layer may add


@dataclass(frozen=True)
class Agreement:
    """Two networks on the same examples: the largest output of the first, difference of outputs, errors of both."""

    max_output: float
    max_difference: float
    error: float
    other_error: float


def start_from_source(
    spec: RunSpec, network: Network, train: Split, source: RunFolder, place: dict[str, str]
) -> dict[str, Any]:
    """Give ``network`` the function of a trained shallower one.

    Args:
        spec: the run, with a source.
        network: on its device, with its initial draws.
        train: the training examples, on the device.
        source: the finished run that it starts from.
        place: where this run trains; the source must have been trained in the same one.

    Returns:
        The record described at the top of this file.

    Raises:
        UserError: the source's weights cannot be read or were made elsewhere, or the outputs are not the same.
    """
    shallow = _trained(spec, train, network.head.out_features, source, place)
    inserted = insert_identity_blocks(network, shallow, trunk_moments(shallow, train))
    batch, num_layers = spec.conf.trainer.micro_batch, len(inserted) * spec.conf.model.branch_layers
    with evaluation_mode(network), evaluation_mode(shallow), torch.no_grad():
        plainly = agreement(shallow, network, chunks(train))
        with batch_statistics(network), batch_statistics(shallow):
            by_batch = agreement(shallow, network, shuffled_batches(train, batch))
    tolerance = ROUNDINGS * torch.finfo(torch.float32).eps * (1 + num_layers) * plainly.max_output
    if not plainly.max_difference <= tolerance:
        raise UserError(
            f"{spec.name}: built from {source.name} its outputs differ by {plainly.max_difference:.3g}, and rounding "
            f"explains {tolerance:.3g} for outputs up to {plainly.max_output:.3g}; please report it"
        )
    noise, perturbed = spec.conf.start.noise, None
    if noise:
        perturb(network, inserted, noise, spec.conf.seed)
        perturbed = error_and_loss(network, train)[0]
    return {
        "source": source.read()["run_id"],
        "source_name": source.name,
        "num_inserted_blocks": len(inserted),
        "max_output": plainly.max_output,
        "max_output_difference": plainly.max_difference,
        "tolerance": tolerance,
        "train_error": plainly.other_error,
        "source_train_error": plainly.error,
        "max_output_difference_batchstats": by_batch.max_difference,
        "train_error_batchstats": by_batch.other_error,
        "source_train_error_batchstats": by_batch.error,
        "perturbed_train_error": perturbed,
    }


def _trained(spec: RunSpec, train: Split, num_classes: int, source: RunFolder, place: dict[str, str]) -> Network:
    """The source with its final weights, on the device."""
    conf = source_of(spec.conf)
    content = checkpoint.read(source.checkpoint)
    assert conf is not None
    if content is None or content["position"]["step"] <= conf.trainer.steps:
        raise UserError(f"{source.name}: its final weights cannot be read; delete {source.path} and run again")
    differing = environment.differences(place, content["place"])
    if differing and not conf.trainer.allow_mixed_environment:
        raise UserError(
            f"{source.name}: was trained elsewhere ({'; '.join(differing)}) and this run starts from it; begin a new "
            "study=NAME, delete that run, or accept it with trainer.allow_mixed_environment=true"
        )
    network = build(conf.model, conf.connection, conf.depth, train.shape, num_classes).to_empty(device=spec.device)
    flat = FlatParameters(network, conf.optimizer.decay, undecayed(network), rules_of(conf).lr_factor)
    checkpoint.restore_weights(content, network, flat)
    return network


def trunk_moments(network: Network, train: Split) -> Moments:
    """Mean and variance of what the blocks put out, over all training examples in evaluation mode, in float64."""
    sums: list[torch.Tensor] = []

    def add(module: torch.nn.Module, args: tuple[torch.Tensor]) -> None:
        x = args[0].double()
        over = [0, *range(2, x.dim())]
        sums.append(torch.stack([torch.full_like(x.sum(over), x.numel() / x.shape[1]), x.sum(over), (x * x).sum(over)]))

    handle = network.final.register_forward_pre_hook(add)
    try:
        with evaluation_mode(network), torch.no_grad():
            for x_NCHW, _ in chunks(train):
                network(x_NCHW)
    finally:
        handle.remove()
    count, first, second = torch.stack(sums).sum(0)
    mean_C = first / count
    return Moments(mean_C, (second / count - mean_C**2).clamp(min=0))


def agreement(one: Network, other: Network, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Agreement:
    """Both networks, in the mode they are in, on the same batches of examples and labels."""
    largest, difference, wrong, other_wrong, count = 0.0, 0.0, 0, 0, 0
    for x_NCHW, y_N in batches:
        a, b = one(x_NCHW), other(x_NCHW)
        # max over a tensor, not over floats: a nan must stay one, and be refused
        largest = torch.tensor([largest, a.abs().max().item()]).max().item()
        difference = torch.tensor([difference, (a - b).abs().max().item()]).max().item()
        wrong += int((a.argmax(1) != y_N).sum())
        other_wrong += int((b.argmax(1) != y_N).sum())
        count += len(y_N)
    return Agreement(largest, difference, wrong / count, other_wrong / count)
