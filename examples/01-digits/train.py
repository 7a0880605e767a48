"""Train a small CNN to classify handwritten digits: 1,797 images of 8x8 pixels, from scikit-learn.

The same file runs alone (`python train.py`), under torchrun, and as a job of the platform.
"""

import math

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import drivetrain

BATCH = 64  # per rank
EVALUATE_EVERY = 50


class Net(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(16 * width, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def load() -> tuple[TensorDataset, TensorDataset]:
    """Training and validation data; the same fifth is for validation in every run."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    validation, train = order[:360], order[360:]
    return (
        TensorDataset(images[train], labels[train]),
        TensorDataset(images[validation], labels[validation]),
    )


def augment(images: torch.Tensor) -> torch.Tensor:
    """Rotate by up to 12 degrees, scale by up to 10 %, shift by up to a pixel, add some noise."""
    count = len(images)
    angle = (torch.rand(count) - 0.5) * math.radians(24)
    scale = 1 + (torch.rand(count) - 0.5) * 0.2
    transform = torch.zeros(count, 2, 3)
    transform[:, 0, 0] = transform[:, 1, 1] = torch.cos(angle) * scale
    transform[:, 0, 1] = -torch.sin(angle) * scale
    transform[:, 1, 0] = torch.sin(angle) * scale
    transform[:, :, 2] = (torch.rand(count, 2) - 0.5) * 0.5
    grid = F.affine_grid(transform, list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, align_corners=False)
    return moved + 0.03 * torch.randn_like(moved)


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    images, labels = data.tensors
    model.eval()
    guesses = model(images.to(device)).argmax(1).cpu()
    model.train()
    return (guesses == labels).float().mean().item()


def main() -> None:
    train, validation = load()
    with drivetrain.run(
        max_steps=1500,
        hyperparameters={
            "learning_rate": 0.003,
            "weight_decay": 0.01,
            "dropout": 0.2,
            "width": 32,
        },
        checkpoint_every_steps=100,
    ) as run:
        values = run.hyperparameters
        model = run.parallel(Net(values["width"], values["dropout"]))
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=values["learning_rate"], weight_decay=values["weight_decay"]
        )
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, run.max_steps)
        sampler = DistributedSampler(train, run.world_size, run.rank, drop_last=True)
        loader = DataLoader(train, BATCH, sampler=sampler, drop_last=True)
        run.resume(model=model, optimizer=optimizer, scheduler=scheduler)

        for images, labels in run.steps(loader):
            guesses = model(augment(images).to(run.device))
            loss = F.cross_entropy(guesses, labels.to(run.device), label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss, learning_rate=scheduler.get_last_lr()[0])
            scheduler.step()
            if run.step % EVALUATE_EVERY == 0 or run.step == run.max_steps:
                share = accuracy(model, validation, run.device)
                run.log(validation_accuracy=share)
                if run.rank == 0:
                    print(f"step {run.step}: loss {loss.item():.3f}, accuracy {share:.2%}")


if __name__ == "__main__":
    main()
