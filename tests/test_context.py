from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from onesigma.context import (
    AlteredCopies,
    Context,
    FrequencyNoise,
    MixedContext,
    NoisyCopies,
    PastedMixtures,
    ShiftedColours,
    ShuffledPatches,
    Strangers,
)

MAKERS: list[Callable[[int], Context]] = [
    NoisyCopies,
    ShuffledPatches,
    ShiftedColours,
    PastedMixtures,
    FrequencyNoise,
    lambda count: MixedContext([NoisyCopies(), ShuffledPatches(), FrequencyNoise()], count),
]


@pytest.fixture
def images() -> Tensor:
    g = torch.Generator().manual_seed(1)
    coarse = torch.rand(3, 3, 6, 8, generator=g)
    return torch.nn.functional.interpolate(coarse, (37, 50), mode="bilinear")


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_new_images_only_and_the_same_again(make, count, images) -> None:  # type: ignore[no-untyped-def]
    before = images.clone()
    context = make(count)
    made = context(images, generator=torch.Generator().manual_seed(4))
    again = context(images, generator=torch.Generator().manual_seed(4))
    other = context(images, generator=torch.Generator().manual_seed(5))
    assert made.shape == (count, 3, 37, 50)
    assert made.isfinite().all()
    torch.testing.assert_close(made, again, rtol=0, atol=0)
    assert (made != other).any()
    torch.testing.assert_close(images, before, rtol=0, atol=0)
    distance = (made[:, None] - images[None]).abs().mean((2, 3, 4))
    assert distance.min() > 1e-3


def test_noise_has_its_variance_unless_clamped(generator) -> None:  # type: ignore[no-untyped-def]
    grey = torch.full((1, 3, 200, 200), 0.5)
    noise = NoisyCopies(variance=0.1)(grey, generator) - grey
    # the standard error of a variance over S draws is variance·√(2/S)
    assert abs(noise.var() - 0.1) < 5 * 0.1 * (2 / noise.numel()) ** 0.5
    clamped = NoisyCopies(variance=0.1, clamp=True)(grey, generator)
    assert clamped.min() >= 0
    assert clamped.max() <= 1
    z = torch.linspace(-6, 6, 100_001)
    wanted = (
        torch.distributions.Normal(0, 1).log_prob(z).exp() * (0.1**0.5 * z).clamp(-0.5, 0.5) ** 2
    )
    assert abs(clamped.var() - wanted.sum() * (z[1] - z[0])) < 1e-3


def test_shuffled_patches_keep_every_pixel(images, generator) -> None:  # type: ignore[no-untyped-def]
    shuffled = ShuffledPatches(3, grid=4)(images, generator)
    for channel in range(3):
        seen = {tuple(row) for row in shuffled[:, channel].flatten(1).sort().values.tolist()}
        held = {tuple(row) for row in images[:, channel].flatten(1).sort().values.tolist()}
        assert seen == held


def test_pasted_pixels_come_from_the_batch(generator) -> None:  # type: ignore[no-untyped-def]
    flat = torch.stack([torch.full((3, 40, 40), v) for v in (0.0, 1.0)])
    pasted = PastedMixtures(2, share=0.3)(flat, generator)
    assert set(pasted.unique().tolist()) <= {0.0, 1.0}
    shares = [(p != p.flatten().mode().values).float().mean().item() for p in pasted]
    assert all(share == 0 or abs(share - 0.3) < 0.02 for share in shares)


def test_strangers_are_of_the_batch_in_other_colours_and_where_they_are_is_known(
    images: Tensor,
) -> None:
    many = images.repeat(100, 1, 1, 1)
    before = many.clone()
    made, where = Strangers(rate=0.5, size=0.05)(many, torch.Generator().manual_seed(0))
    again, _ = Strangers(rate=0.5, size=0.05)(many, torch.Generator().manual_seed(0))
    assert torch.equal(made, again)
    assert torch.equal(many, before)
    assert made.min() >= 0
    assert made.max() <= 1
    changed = (made != many).any(1)
    assert not bool((changed & ~where).any())
    assert changed[where].float().mean() > 0.99
    shares = where.flatten(1).float().mean(1)
    # 300 draws: the standard error of a half is 0.03; sizes are uniform on (0, 0.1)
    assert abs((shares > 0).float().mean() - 0.5) < 0.12
    assert abs(shares[shares > 0].mean() - 0.05) < 0.01
    assert shares.max() < 0.105


@pytest.mark.parametrize("options", [{"rate": 0.0}, {"rate": 1.5}, {"size": 0.0}, {"size": 0.6}])
def test_strangers_refuse_shares_that_make_no_sense(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Strangers got"):
        Strangers(**options)


def test_frequency_noise_has_its_spectrum(generator) -> None:  # type: ignore[no-untyped-def]
    base = torch.rand(1, 1, 256, 256, generator=generator)
    made = FrequencyNoise(power=1.0)(base, generator)[0, 0]
    power = torch.fft.fft2(made - made.mean()).abs().square()
    f = torch.fft.fftfreq(256)
    radius = (f[:, None].square() + f[None].square()).sqrt()
    low, high = (radius > 0.02) & (radius < 0.03), (radius > 0.2) & (radius < 0.3)
    # amplitudes 1/f: power falls by 100 over a factor of 10 in frequency
    assert 60 < power[low].mean() / power[high].mean() < 160
    torch.testing.assert_close(made.mean(), base.mean(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.std(), base.std(), rtol=1e-3, atol=1e-3)


def test_mixtures_follow_their_weights() -> None:
    black = torch.zeros(1, 3, 8, 8)
    never = MixedContext([NoisyCopies(), ShuffledPatches()], count=50, weights=[0.0, 1.0])
    assert never(black, torch.Generator().manual_seed(0)).abs().max() == 0
    with pytest.raises(ValueError, match="one weight each"):
        MixedContext([NoisyCopies()], weights=[1.0, 2.0])
    with pytest.raises(ValueError, match="got 0 generators"):
        MixedContext([])


def test_a_mixture_has_five_kinds_unless_told() -> None:
    kinds = {type(part) for part in MixedContext().generators}
    assert kinds == {NoisyCopies, ShuffledPatches, ShiftedColours, PastedMixtures, FrequencyNoise}


def test_altered_copies_keep_their_places_and_a_third_of_them_all_values(images: Tensor) -> None:
    many = images.repeat(30, 1, 1, 1)
    altered = AlteredCopies().alter(many, many, torch.Generator().manual_seed(0))
    assert altered.shape == many.shape
    assert altered.min() >= 0
    assert altered.max() <= 1
    same = (altered == many).flatten(1).all(1)
    # the standard error of a third over 90 draws is 0.05
    assert abs(same.float().mean() - 1 / 3) < 0.15
    # a changed one still resembles its own image more than the others of the batch
    changed = altered[~same].flatten(1)
    likeness = torch.corrcoef(torch.cat([images.flatten(1), changed]))[3:, :3]
    nearest = likeness.argmax(1) == torch.arange(90)[~same] % 3
    assert nearest.float().mean() > 0.8


def test_less_strength_alters_less(images: Tensor) -> None:
    many = images.repeat(30, 1, 1, 1)
    changes = []
    for strength in (0.5, 1.0):
        source = torch.Generator().manual_seed(0)
        altered = AlteredCopies(strength=strength).alter(many.clone(), many, source)
        changes.append((altered - many).abs().mean())
    assert 0 < changes[0] < 0.8 * changes[1]
    for strength in (0.0, 2.0, float("nan")):
        with pytest.raises(ValueError, match=f"the strength {strength}; it wants one above 0"):
            AlteredCopies(strength=strength)


def test_bad_requests_are_answered() -> None:
    with pytest.raises(ValueError, match="at least one"):
        NoisyCopies(count=0)
    with pytest.raises(ValueError, match="lower grid"):
        ShuffledPatches(grid=9)(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize("make", [*MAKERS, AlteredCopies, lambda count: Strangers()])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_images_of_any_precision(make, dtype, images) -> None:  # type: ignore[no-untyped-def]
    for seed in range(3):
        made = make(2)(images.to(dtype), generator=torch.Generator().manual_seed(seed))
        made = made[0] if isinstance(made, tuple) else made
        assert made.dtype == dtype
        assert made.isfinite().all()


@pytest.mark.parametrize("make", [ShiftedColours, AlteredCopies, Strangers])
def test_clamping_what_is_no_photograph_is_refused(make, images) -> None:  # type: ignore[no-untyped-def]
    make()(images + 0.2 * torch.randn_like(images).clamp(-2, 2))
    for odd in (4 * images - 2, 255 * images):
        with pytest.raises(ValueError, match=r"RGB in \[0, 1\]. Normalise inside the network"):
            make()(odd)


@pytest.mark.parametrize("make", [NoisyCopies, ShiftedColours, MixedContext, Strangers])
@pytest.mark.usefixtures("as_users_call")
def test_what_are_no_images_is_refused(make, images) -> None:  # type: ignore[no-untyped-def]
    for odd in ((255 * images).byte(), images[0], images[:0]):
        with pytest.raises(ValueError, match=r"at least one RGB image in \[0, 1\]"):
            make()(odd)


@pytest.mark.usefixtures("as_users_call")
def test_what_is_no_generator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the variance -0\.1"):
        NoisyCopies(variance=-0.1)
    for odd in (NoisyCopies, torch.rand, Strangers()):
        with pytest.raises(TypeError, match=r"such as NoisyCopies\(\)"):
            MixedContext([ShiftedColours(), odd])  # type: ignore[list-item]
