"""Predictions in closed form, written independently of the library's own."""

import math

import torch


class Labels:
    """Class probabilities."""

    def __init__(self, probs):
        self.probs = probs

    def __getitem__(self, images):
        return Labels(self.probs[images])

    def log_prob(self, target):
        return self.probs.gather(1, target[:, None]).squeeze(1).log()

    @property
    def entropy(self):
        return -(self.probs * self.probs.clamp_min(1e-30).log()).sum(1)

    @property
    def mutual_information(self):
        return self.entropy / 3

    @property
    def aleatoric(self):
        return self.entropy - self.mutual_information


class Normal:
    """N(mean, std²) for every output."""

    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __getitem__(self, images):
        return Normal(self.mean[images], self.std[images])

    @property
    def median(self):
        return self.mean

    @property
    def variance(self):
        return self.std**2

    @property
    def law(self):
        return torch.distributions.Normal(self.mean, self.std)

    def log_prob(self, target):
        return self.law.log_prob(target)

    def cdf(self, target):
        return self.law.cdf(target)

    def interval(self, level):
        tail = torch.tensor((1 - level) / 2, dtype=self.mean.dtype)
        return self.law.icdf(tail), self.law.icdf(1 - tail)

    def crps(self, target):
        z = (target - self.mean) / self.std
        density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        below = torch.special.ndtr(z)
        return self.std * (z * (2 * below - 1) + 2 * density - 1 / math.sqrt(math.pi))


def labelled(generator, n=3, c=5, h=12, w=10, sharpness=2.0):
    """Probabilities and labels drawn from them: a perfectly calibrated segmentation."""
    probs = (sharpness * torch.randn(n, c, h, w, generator=generator)).softmax(1)
    rows = probs.movedim(1, -1).reshape(-1, c)
    target = rows.multinomial(1, generator=generator).view(n, h, w)
    return probs, target


def measured(generator, n=3, c=1, h=12, w=10, dtype=torch.float64):
    """A normal prediction and values drawn from it: a perfectly calibrated regression."""
    mean = 5 + torch.rand(n, c, h, w, generator=generator, dtype=dtype)
    std = 0.1 + torch.rand(n, c, h, w, generator=generator, dtype=dtype)
    target = mean + std * torch.randn(n, c, h, w, generator=generator, dtype=dtype)
    return Normal(mean, std), target
