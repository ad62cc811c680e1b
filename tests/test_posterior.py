from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from onesigma.covariance import LowRankCovariance, MarginalCovariance
from onesigma.heads import CovarianceHeads, HeadOptions, bend, unbend, window_mean
from onesigma.modes import evaluating
from onesigma.posterior import VariationalGP


def backbone(features: int = 6) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, features, 3, padding=1),
        nn.BatchNorm2d(features),
        nn.ReLU(),
        nn.Dropout(0.1),
    )


OPTIONS = [
    HeadOptions(),
    HeadOptions(shared_factors=True, scale="shared"),
    HeadOptions(stride=4, scale="none"),
    HeadOptions(stride=3, shared_factors=True),
    HeadOptions(whole_image=True),
    HeadOptions(scale_window=5),
    HeadOptions(scale_position=True),
    HeadOptions(scale="image", layer_distances=True),
]


def images(n: int = 3, seed: int = 0) -> Tensor:
    return torch.rand(n, 3, 13, 18, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("outputs", [1, 4])
def test_marginals_are_those_of_the_field(options, outputs) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    model = VariationalGP(backbone(), outputs, rank=5, options=options).eval()
    nn.init.normal_(model.heads.factor.weight)
    q, log_scale = model(images())
    marginal, same_scale = model.marginals(images())
    assert isinstance(q.covariance, LowRankCovariance)
    assert isinstance(marginal.covariance, MarginalCovariance)
    torch.testing.assert_close(marginal.mean, q.mean)
    torch.testing.assert_close(marginal.variance, q.variance)
    torch.testing.assert_close(same_scale, log_scale)
    assert log_scale.shape == (3, outputs if options.scale == "output" else 1, 13, 18)


def test_channels_are_those_of_the_paper() -> None:
    rank, outputs, features = 20, 11, 6
    paper = HeadOptions(shared_factors=False)
    model = VariationalGP(backbone(features), outputs, rank, options=paper)
    extra = [
        p for name, p in model.named_parameters() if not name.startswith("backbone") and p.ndim == 4
    ]
    assert sum(p.shape[0] for p in extra) == rank * outputs + 3 * outputs
    shared = VariationalGP(backbone(features), outputs, rank)
    assert shared.heads.factor.out_channels == rank


@pytest.mark.parametrize("variance", [0.25, 4.0, 0.01])
def test_training_starts_near_the_prior(variance) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    options = HeadOptions(mean=0.5, variance=variance, log_scale=-1.0)
    q, log_scale = VariationalGP(backbone(), 3, rank=20, options=options).eval()(images())
    assert abs(q.mean.mean() - 0.5) < 0.4
    assert 0.5 * variance < q.variance.mean() < 2 * variance
    assert (log_scale + 1.0).abs().max() < 0.3


@pytest.mark.parametrize("whole_image", [False, True])
def test_only_a_variance_of_the_whole_image_sees_far_pixels(whole_image: bool) -> None:
    torch.manual_seed(0)
    heads = CovarianceHeads(6, 2, 3, 1e-3, HeadOptions(whole_image=whole_image))
    features = torch.randn(2, 6, 13, 18)
    if heads.whole_image is not None:
        torch.testing.assert_close(heads.whole_image(features), torch.zeros(2, 1, 1, 1))
        nn.init.normal_(heads.whole_image.out.weight)
    elsewhere = features.clone()
    elsewhere[0, :, 8:] += 3.0
    change = (heads.diagonal(elsewhere) - heads.diagonal(features)).abs()[:, :, :8]
    assert bool((change[0] > 0).all()) is whole_image
    assert change[1].max() == 0
    torch.testing.assert_close(
        heads.factors(elsewhere)[:, ..., :8, :], heads.factors(features)[:, ..., :8, :]
    )


@pytest.mark.parametrize("window", [1, 3, 9, 31])
def test_window_mean_against_loops(window: int) -> None:
    torch.manual_seed(0)
    maps, half = torch.randn(2, 1, 7, 11, dtype=torch.float64), window // 2
    expected = torch.empty_like(maps)
    for i in range(7):
        for j in range(11):
            around = maps[:, :, max(i - half, 0) : i + half + 1, max(j - half, 0) : j + half + 1]
            expected[:, :, i, j] = around.mean((2, 3))
    torch.testing.assert_close(window_mean(maps, window), expected)


def test_a_window_spreads_the_scale_and_nothing_else() -> None:
    torch.manual_seed(0)
    heads = CovarianceHeads(6, 2, 3, 1e-3, HeadOptions(scale_window=5))
    features = torch.randn(1, 6, 20, 20)
    elsewhere = features.clone()
    elsewhere[:, :, 10, 10] += 3.0
    changed = (heads.scale(elsewhere) - heads.scale(features)).abs() > 0
    assert changed[:, :, 8:13, 8:13].all()
    assert changed.sum() == 2 * 25
    assert ((heads.diagonal(elsewhere) - heads.diagonal(features)).abs() > 0).sum() == 2


@pytest.mark.parametrize("window", [0, 4])
def test_a_window_has_a_middle(window: int) -> None:
    with pytest.raises(ValueError, match=f"odd number of pixels, got {window}"):
        HeadOptions(scale_window=window)


def test_a_black_image_has_gradients() -> None:
    heads = CovarianceHeads(6, 2, 3, 1e-3, HeadOptions(whole_image=True))
    nn.init.normal_(heads.whole_image.out.weight)  # type: ignore[union-attr]
    features = torch.zeros(1, 6, 5, 7, requires_grad=True)
    (slope,) = torch.autograd.grad(heads.diagonal(features).sum(), features)
    assert slope.isfinite().all()


def test_what_no_pixel_shows_can_be_learned_from_the_whole_image() -> None:
    """Features of odd images are wider by a third: log D, linear in a pixel, cannot tell them."""
    g = torch.Generator().manual_seed(0)
    features = torch.randn(16, 4, 12, 12, generator=g)
    features[8:] *= 4 / 3
    wanted = torch.full((16, 1, 1, 1), 0.1)
    wanted[8:] = 1.0
    left = {}
    for whole_image in (False, True):
        torch.manual_seed(0)
        heads = CovarianceHeads(4, 1, 1, 1e-3, HeadOptions(whole_image=whole_image))
        optimiser = torch.optim.Adam(heads.parameters(), 0.02)
        for _ in range(200):
            ratio = heads.diagonal(features) / wanted
            loss = 0.5 * (ratio - 1 - ratio.log()).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        left[whole_image] = loss.item()
    assert left[True] < 0.1 * left[False]


def test_log_scales_stay_in_their_bounds() -> None:
    bounds = (-6.0, 3.0)
    x = torch.linspace(-1e3, 1e3, 1001)
    assert bend(x, bounds).min() >= bounds[0]
    assert bend(x, bounds).max() <= bounds[1]
    for y in (-5.0, 0.0, 2.5):
        assert abs(float(bend(torch.tensor(unbend(y, bounds)), bounds)) - y) < 1e-5


def test_context_leaves_labelled_images_and_statistics_alone() -> None:
    """With running statistics q of the labelled images is what it is without context."""
    torch.manual_seed(0)
    model = VariationalGP(backbone()[:3], 2, rank=3, features=6).train()
    twin = VariationalGP(backbone()[:3], 2, rank=3, features=6).train()
    twin.load_state_dict(model.state_dict())
    for step in range(40):
        q, _ = model(images(seed=step), context=10 * images(2, seed=100 + step))
        alone, _ = twin(images(seed=step))
        assert len(q) == 5
        torch.testing.assert_close(q[:3].mean, alone.mean)
    ours, theirs = model.state_dict(), twin.state_dict()
    for key in ("backbone.1.running_mean", "backbone.1.running_var"):
        torch.testing.assert_close(ours[key], theirs[key])
    # and the context images are seen as an odd image will be seen at test time
    odd = 10 * images(2, seed=1000)
    q, _ = model(images(), context=odd)
    with evaluating(model):
        later, _ = model(odd)
    torch.testing.assert_close(q[3:].mean, later.mean, rtol=0.1, atol=0.05)
    assert model.training
    assert all(part.training for part in model.modules())


def test_a_joint_batch_mixes_statistics() -> None:
    torch.manual_seed(0)
    model = VariationalGP(backbone()[:3], 2, rank=3, features=6, context_statistics="joint").train()
    with_context, _ = model(images(), context=10 * images(2, seed=9))
    alone, _ = model(images())
    assert (with_context[:3].mean - alone.mean).abs().max() > 0.05


def test_first_steps_use_the_context_s_own_statistics_without_keeping_them() -> None:
    torch.manual_seed(0)
    model = VariationalGP(backbone()[:3], 2, rank=3, features=6).train()
    q, _ = model(images(), context=1000 * images(2, seed=9))
    assert q.mean.abs().max() < 50
    assert model.backbone[1].running_mean.abs().max() < 1  # type: ignore[index,union-attr,operator]


@pytest.mark.parametrize("steps", [0, 100])
def test_context_leaves_the_statistics_of_instances_alone(steps: int) -> None:
    norms = nn.InstanceNorm2d(3, track_running_stats=True), nn.BatchNorm2d(3)
    model = VariationalGP(nn.Sequential(*norms), 2, features=3).train()
    model.steps += steps
    twin = copy.deepcopy(model)
    model(images(), context=10 * images(2, seed=9))
    twin(images())
    for ours, theirs in zip(model.backbone.buffers(), twin.backbone.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert norms[0].momentum == norms[1].momentum == 0.1


def test_modes_come_back_after_an_error() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls == 2:
                raise RuntimeError("no")
            return self.norm(x)

    model = VariationalGP(Fails(), 2, features=3).train()
    with pytest.raises(RuntimeError, match="no"):
        model(images(), context=images())
    assert model.backbone.norm.training  # type: ignore[union-attr]
    assert model.backbone.norm.track_running_stats  # type: ignore[union-attr]


def test_a_context_image_of_one_value_per_channel_says_what_to_do() -> None:
    model = VariationalGP(nn.BatchNorm2d(3), 2, features=3).train()
    with pytest.raises(ValueError, match=r"1 context image.*1 x 1.*count: 2"):
        model(images()[..., :1, :1], context=images(1)[..., :1, :1])


def test_gradients_reach_every_parameter() -> None:
    torch.manual_seed(0)
    model = VariationalGP(backbone(), 2, rank=3)
    q, log_scale = model(images(), context=images(1, seed=2))
    (q.mean.square().sum() + q.variance.log().sum() + log_scale.square().sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.usefixtures("as_users_call")
def test_what_does_not_fit_is_explained() -> None:
    with pytest.raises(ValueError, match="feature maps"):
        VariationalGP(nn.Conv2d(3, 4, 3, stride=2), 1).marginals(images())
    with pytest.raises(ValueError, match="features="):
        VariationalGP(nn.Linear(5, 4), 1)
    with pytest.raises(ValueError, match=r"\(3, 3, 13, 18\) and context .* \(2, 3, 13, 9\)"):
        VariationalGP(backbone(), 1)(images(), context=images(2)[..., ::2])
    with pytest.raises(ValueError, match="rank"):
        VariationalGP(backbone(), 1, rank=0)
    with pytest.raises(ValueError, match="context_statistics"):
        VariationalGP(backbone(), 1, context_statistics="batch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scale"):
        HeadOptions(scale="class")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inside"):
        HeadOptions(log_scale=4.0)
