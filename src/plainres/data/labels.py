"""Fewer examples, noisy labels, random labels: changes of a training set that optimisation is studied on.

Each is a function of the labels and ``data.seed`` alone, so both arms, all depths and all seeds of a study see the
same. Validation labels are never touched. Shape suffix: N examples.
"""

import torch

from plainres.errors import UserError
from plainres.seeding import generator


def stratified_subset(y_N: torch.Tensor, count: int, num_classes: int, seed: int) -> torch.Tensor:
    """Rows of ``count`` examples with the shares of the classes kept to within one example, in stored order.

    A class's examples are taken in one shuffled order, so smaller subsets lie within larger ones but for the rounding.

    Raises:
        UserError: fewer than one example a class, or more than there are.
    """
    if not num_classes <= count <= len(y_N):
        raise UserError(
            f"data.subset={count}: must be from {num_classes} (one example a class) to {len(y_N)} (all); choose another"
        )
    sizes = torch.bincount(y_N, minlength=num_classes).double()
    exact = sizes * count / len(y_N)
    wanted = exact.floor().long().clamp(min=1).minimum(sizes.long())
    while (left := count - int(wanted.sum())) != 0:  # the largest remainder first; too many after clamping: the reverse
        order = torch.argsort(exact - wanted, descending=left > 0, stable=True)
        movable = order if left > 0 else order[wanted[order] > 1]
        wanted[movable[: abs(left)]] += 1 if left > 0 else -1
    rows = []
    for label in range(num_classes):
        of_class = torch.nonzero(y_N == label).flatten()
        shuffled = of_class[torch.randperm(len(of_class), generator=generator(seed, "subset", label))]
        rows.append(shuffled[: int(wanted[label])])
    return torch.cat(rows).sort().values


def noisy_labels(y_N: torch.Tensor, share: float, num_classes: int, seed: int) -> torch.Tensor:
    """Labels of which exactly round(share·N) are replaced, each by one of the other classes with equal chance."""
    draw = generator(seed, "label noise")
    chosen = torch.randperm(len(y_N), generator=draw)[: round(share * len(y_N))]
    noisy = y_N.clone()
    noisy[chosen] = (y_N[chosen] + torch.randint(1, num_classes, (len(chosen),), generator=draw)) % num_classes
    return noisy


def random_labels(y_N: torch.Tensor, num_classes: int, seed: int) -> torch.Tensor:
    """Labels that say nothing about the images: uniform, independent draws (Zhang 2017, arXiv 1611.03530)."""
    return torch.randint(0, num_classes, (len(y_N),), generator=generator(seed, "random labels"))
