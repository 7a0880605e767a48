"""Segmentation: a small convolutional net, a weighted sampler, the mean overlap per epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

import drivetrain


class Squares(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        image, mask = torch.zeros(1, 8, 8), torch.zeros(8, 8, dtype=torch.long)
        top, left = index % 4, index % 5
        image[:, top : top + 4, left : left + 3] = 1
        mask[top : top + 4, left : left + 3] = 1
        if torch.rand(()) < 0.5:
            image, mask = image.flip(-1), mask.flip(-1)
        return image + 0.3 * torch.randn(1, 8, 8), mask


with drivetrain.run(seed=3, checkpoint_every_steps=3) as run:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)
    )
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    sampler = WeightedRandomSampler([1 + i % 3 for i in range(24)], 24)
    loader = DataLoader(Squares(), 4, sampler=sampler, num_workers=2)
    run.resume(model=model, optimizer=optimizer, schedule=schedule)
    for epoch in run.epochs(3):
        inside = union = 0
        for image, mask in epoch.steps(loader):
            out = model(image)
            loss = nn.functional.cross_entropy(out, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"loss/train": loss})
        schedule.step()
        model.eval()
        with torch.no_grad():
            found = model(torch.stack([Squares()[i][0] for i in range(6)])).argmax(1)
        model.train()
        run.log({"found": found.float().mean(), "rate": schedule.get_last_lr()[0]})
    torch.save(model.state_dict(), "unet.pt")
