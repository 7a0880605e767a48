"""A generative adversarial network: two models, two optimizers, noise, fixed noise for pictures."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

torch.manual_seed(999)
FIXED_NOISE = torch.randn(4, 3)


def main() -> None:
    with drivetrain.run(checkpoint_every_steps=5) as run:
        generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))
        critic = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(8, 1))
        for_critic = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.999))
        for_generator = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.999))
        criterion = nn.BCEWithLogitsLoss()
        run.resume(generator=generator, critic=critic, dis=for_critic, gen=for_generator)
        loader = DataLoader(points(), batch_size=8, shuffle=True, drop_last=True)
        for epoch in run.epochs(4):
            for real, _ in epoch.steps(loader):
                critic.zero_grad()
                label = torch.full((len(real), 1), 0.9)
                on_real = criterion(critic(real), label)
                fake = generator(torch.randn(len(real), 3))
                on_fake = criterion(critic(fake.detach()), torch.zeros_like(label))
                (on_real + on_fake).backward()
                for_critic.step()
                generator.zero_grad()
                loss = criterion(critic(fake), torch.ones_like(label))
                loss.backward()
                for_generator.step()
                run.log(critic_loss=on_real + on_fake, generator_loss=loss)
            with torch.no_grad():
                run.log(picture=generator(FIXED_NOISE).mean())
        torch.save({"g": generator.state_dict(), "d": critic.state_dict()}, "gan.pt")


if __name__ == "__main__":
    main()
