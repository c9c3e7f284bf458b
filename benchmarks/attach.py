"""What measuring a step costs: torchvision's ResNet-18 and timm's small vision transformer, with and without attach.

python benchmarks/attach.py                # medians of 9 interleaved rounds of 6 steps each, one thread
"""

import platform
import statistics
import time
from contextlib import nullcontext

import timm
import torch
import torch.nn.functional as F
import torchvision

from plainres.probes import attach

ROUNDS, STEPS, BATCH = 9, 3, 32


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.processor() or platform.machine()}, 1 thread, batch {BATCH}")
    vit = {"img_size": 32, "patch_size": 4, "num_classes": 10}
    models = {
        "torchvision resnet18, 32x32": torchvision.models.resnet18(num_classes=10),
        "timm vit_tiny_patch16_224 at 32x32, patch 4": timm.create_model("vit_tiny_patch16_224", **vit),
    }
    for name, model in models.items():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        probes = attach(model)
        x, y = torch.randn(BATCH, 3, 32, 32), torch.arange(BATCH) % 10
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for round_ in range(ROUNDS + 1):
            for measured in (False, True):
                start = time.process_time()
                for step in range(STEPS):
                    with probes.measure(step) if measured else nullcontext():
                        loss = F.cross_entropy(model(x), y)
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                if round_:  # the first warms up
                    seconds[measured].append((time.process_time() - start) / STEPS)
        without, with_ = (statistics.median(seconds[m]) for m in (False, True))
        ratios = sorted(b / a for a, b in zip(seconds[False], seconds[True], strict=True))
        print(
            f"{name}: {1000 * without:.1f} ms a step, {1000 * with_:.1f} ms measured; "
            f"ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )


if __name__ == "__main__":
    main()
