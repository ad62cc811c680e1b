from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from onesigma.familiarity import (
    BEND,
    MOST_LOG_SCALE,
    SMALL,
    SPREAD,
    USUAL,
    Familiarity,
    ImageScale,
    distances,
    moments,
    remembering,
    watching,
)
from onesigma.heads import HeadOptions
from onesigma.likelihoods import Boltzmann
from onesigma.posterior import VariationalGP
from onesigma.wrap import wrap

DISTANCES = HeadOptions(layer_distances=True)
IMAGE_SCALE = HeadOptions(scale="image")


def backbone() -> nn.Sequential:
    """Two normalisations; what the second passes on is squashed."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 4, 1), nn.BatchNorm2d(4), nn.Tanh(),
    )  # fmt: skip


def distance(layer: nn.BatchNorm2d, maps: Tensor) -> Tensor:
    return distances([layer], [moments(maps)])[:, 0]


def images(n: int = 3, seed: int = 0) -> Tensor:
    return torch.rand(n, 3, 13, 18, generator=torch.Generator().manual_seed(seed))


def test_distances_against_loops() -> None:
    torch.manual_seed(0)
    layer, maps = nn.BatchNorm2d(4), 2 * torch.randn(3, 4, 5, 6) + 1
    layer.running_mean, layer.running_var = torch.randn(4), torch.rand(4) + 0.5
    found = distance(layer, maps)
    for i in range(3):
        contrast = stretch = shift = 0.0
        for c in range(4):
            values, known = maps[i, c].double(), float(layer.running_var[c])
            shift += float((values.mean() - layer.running_mean[c]) ** 2) / known / 4
            ratio = float(0.5 * (values.var(correction=0) / known).log())
            contrast, stretch = contrast + ratio / 4, stretch + ratio**2 / 4
        assert found[i].tolist() == pytest.approx([contrast, stretch, shift], rel=1e-3)


def test_many_layers_at_once_are_each_alone() -> None:
    torch.manual_seed(0)
    layers = [nn.BatchNorm2d(c, eps=eps) for c, eps in ((2, 1e-5), (5, 1e-2), (1, 0.1))]
    for layer in layers:
        layer.running_mean = torch.randn(layer.num_features)
        layer.running_var = torch.rand(layer.num_features)
    maps = [torch.randn(3, layer.num_features, 7 - i, 5) for i, layer in enumerate(layers)]
    together = distances(layers, [moments(each) for each in maps])
    alone = [distance(layer, each) for layer, each in zip(layers, maps, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone, 1))


def test_images_like_those_of_training_are_near() -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(5, momentum=None)
    maps = torch.randn(40, 5, 30, 30) * torch.arange(1.0, 6.0)[:, None, None]
    layer(maps)
    assert distance(layer, maps).abs().max() < 0.05
    shifted, wider = distance(layer, maps + 9), distance(layer, 3 * maps)
    assert shifted[:, 2].min() > 2 > 0.05 > shifted[:, 1].max()
    assert wider[:, 1].min() > 1 > 0.2 > wider[:, 2].max()
    assert wider[:, 0].min() > 1 > -1 > distance(layer, maps / 3)[:, 0].max()
    # a channel without variance, as of a black image
    assert distance(layer, torch.zeros(1, 5, 3, 3)).isfinite().all()


def test_every_layer_is_watched_and_let_go() -> None:
    network = backbone().eval()
    with watching(network) as found:
        network(images())
    first = found.stacked(images())
    assert first.shape == (3, 2, 3)
    assert first[:, 1].abs().min() > 0
    network(9 * images())
    assert torch.equal(found.stacked(images()), first)
    with watching(network) as half:
        network[:3](images())
    torch.testing.assert_close(half.stacked(images())[:, 0], first[:, 0])
    assert half.stacked(images())[:, 1].abs().max() == 0
    with pytest.raises(RuntimeError), watching(network):
        network(torch.zeros(1, 5, 4, 4))
    assert not any(layer._forward_pre_hooks for layer in remembering(network))


def test_what_is_not_learned_yet_is_not_asked() -> None:
    q = VariationalGP(backbone(), 2, options=HeadOptions(layer_distances=True, scale="image"))
    assert q.familiarity is not None
    assert q.image_scale is not None
    for judge in (q.familiarity, q.image_scale):
        assert not judge.silent, "it has a gradient to hear"
        judge.requires_grad_(False)
        assert judge.silent
    asked: list[str] = []
    for judge in (q.familiarity, q.image_scale):
        judge.register_forward_hook(lambda part, *_: asked.append(type(part).__name__))
    before = q.train()(images())
    assert asked == []
    torch.nn.init.constant_(q.familiarity.out.bias, 0.5)
    torch.nn.init.constant_(q.image_scale.least, 0.5)
    after = q(images())
    assert asked == ["Familiarity", "ImageScale"]
    assert bool((after[0].variance > before[0].variance).all())
    assert bool((after[1] > 0.4).all())
    assert bool((before[1] == 0).all())


def test_a_network_without_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Conv2d has no batch normalisation.*whole_image"):
        Familiarity(nn.Conv2d(3, 4, 1))
    with pytest.raises(ValueError, match=r'Conv2d has no batch.*scale "image".*scale: none'):
        ImageScale(nn.Conv2d(3, 4, 1))
    with pytest.raises(ValueError, match="no batch normalisation"):
        VariationalGP(nn.BatchNorm2d(3, track_running_stats=False), 1, options=DISTANCES)


@pytest.mark.parametrize("context_statistics", ["running", "joint"])
def test_the_field_and_its_marginals_agree(context_statistics) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    model = VariationalGP(
        backbone(), 2, rank=3, options=DISTANCES, context_statistics=context_statistics
    )
    plain = model.eval().marginals(images())[0].variance
    assert model.familiarity is not None
    nn.init.normal_(model.familiarity.out.weight)
    changed = model.marginals(images())[0]
    assert not torch.allclose(changed.variance, plain)
    q, _ = model(images(2), context=images(1, seed=1))
    alone = model.marginals(torch.cat([images(2), images(1, seed=1)]))[0]
    torch.testing.assert_close(q.variance, alone.variance)
    q, _ = model.train()(images(2), context=images(1, seed=1))
    assert q.variance.shape == (3, 2, 13, 18)
    q.variance.sum().backward()
    assert all(p.grad is not None for p in model.familiarity.parameters())


def test_features_are_read_and_not_shaped() -> None:
    torch.manual_seed(0)
    model = VariationalGP(backbone(), 2, rank=3, options=DISTANCES).eval()
    assert model.familiarity is not None
    nn.init.normal_(model.familiarity.out.weight)
    with watching(model) as found:
        model.features_and_mean(images())
    value = model.familiarity(found.stacked(images()))
    assert value.requires_grad
    assert not found.stacked(images()).requires_grad


def test_a_wrapped_network_is_watched_too() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(backbone(), nn.Conv2d(4, 2, 1)).eval()
    model = wrap(network, 2, rank=3, options=DISTANCES).eval()
    assert model.familiarity is not None
    nn.init.normal_(model.familiarity.out.weight)
    one, other = (model.marginals(scale * images())[0].variance for scale in (1, 4))
    assert not torch.allclose(one, other)


def test_the_scale_of_an_image_against_loops() -> None:
    torch.manual_seed(0)
    scale, distances = ImageScale(backbone()), torch.rand(3, 2, 3)
    torch.testing.assert_close(scale(distances), torch.zeros(3, 1, 1, 1), atol=1e-7, rtol=0)
    nn.init.normal_(scale.slopes)
    nn.init.constant_(scale.start, 0.3)
    nn.init.constant_(scale.least, 0.1)
    for image, found in zip(distances.tolist(), scale(distances), strict=True):
        line = 0.3
        for contrast, stretch, shift in image:
            seen = (contrast, math.log(stretch + SMALL), math.log(shift + SMALL))
            terms = zip(scale.slopes.tolist(), seen, USUAL, SPREAD, strict=True)
            line += sum(b * (x - usual) / spread for b, x, usual, spread in terms) / 2
        bent = 0.1 + math.log1p(math.exp(BEND * line)) / BEND
        wanted = MOST_LOG_SCALE * math.tanh(bent / MOST_LOG_SCALE)
        assert found.item() == pytest.approx(wanted, rel=1e-5)
    nn.init.constant_(scale.start, 1e9)
    assert scale(distances).max() <= MOST_LOG_SCALE


@pytest.mark.parametrize("build", [VariationalGP, wrap])
def test_every_pixel_of_an_image_has_its_scale(build) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    network = nn.Sequential(backbone(), nn.Conv2d(4, 2, 1))
    model = build(network, 2, rank=3, options=IMAGE_SCALE)
    assert model.image_scale is not None
    assert model(images(2), context=images(1))[1].abs().max() == 0
    nn.init.constant_(model.image_scale.slopes, 0.2)
    together = torch.cat([images(2), 4 * images(1, seed=1)])
    _, log_scale = model.eval()(together[:2], context=together[2:])
    assert log_scale.shape == (3, 1, 13, 18)
    assert all(torch.unique(image).numel() == 1 for image in log_scale)
    assert log_scale[2].mean() > log_scale[:2].max()
    torch.testing.assert_close(model.marginals(together)[1], log_scale)


def test_images_far_from_training_become_as_unsure_as_their_labels() -> None:
    """Bright images look alike to a squashing end, but their labels are drawn at random."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.BatchNorm2d(3), nn.InstanceNorm2d(3))
    for _ in range(200):
        network(images(16))
    model = VariationalGP(network, 3, 1, options=IMAGE_SCALE).eval()
    assert model.image_scale is not None
    with torch.no_grad():
        model.mean.weight.copy_(2 * torch.eye(3)[..., None, None])
    seen = torch.cat([images(16), 10 * images(16)])
    labels = model.marginals(seen)[0].mean.argmax(1)
    labels[16:] = torch.randint(3, labels[16:].shape)
    likelihood, optimiser = (
        Boltzmann("shared"),
        torch.optim.Adam(model.image_scale.parameters(), 0.02),
    )
    for _ in range(300):
        fit = likelihood.expected_log_prob(labels, *model.marginals(seen))
        optimiser.zero_grad()
        (-fit.mean()).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    others = torch.cat([images(8, seed=1), 10 * images(8, seed=1)])
    entropy = likelihood.predict(*model.marginals(others)).entropy.mean((1, 2))
    assert entropy[:8].max() < 0.4 < 1.0 < entropy[8:].min()


def test_what_the_last_features_forgot_is_learned_from_the_layers() -> None:
    """Odd images are ten times as bright; a squashing end makes their features look alike."""
    left = {}
    familiar = images(8)
    for options in (HeadOptions(whole_image=True), DISTANCES):
        torch.manual_seed(0)
        network = nn.Sequential(nn.BatchNorm2d(3), nn.InstanceNorm2d(3))
        for _ in range(200):
            network(familiar)
        model = VariationalGP(network, 1, 1, options=options).eval()
        wanted = torch.full((16, 1, 1, 1), 0.1)
        wanted[8:] = 1.0
        optimiser = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(200):
            ratio = model.marginals(torch.cat([familiar, 10 * familiar]))[0].variance / wanted
            loss = 0.5 * (ratio - 1 - ratio.log()).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        left[options] = loss.item()
    assert left[DISTANCES] < 0.1 * left[HeadOptions(whole_image=True)]
