"""Every method trains, comes back from its folder and predicts in the target's unit."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Never

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import tiny_recipe
from torch import Tensor

import onesigma
from onesigma.field import GaussianField
from onesigma.objective import unlabelled_divergence
from onesigma.prediction import CategoricalPrediction, RegressionPrediction
from onesigma.training import Recipe, Run, load_recipe, train
from onesigma.training.assemble import build_method
from onesigma.training.checkpoint import Place
from onesigma.training.components import build_dataset
from onesigma.training.config import OptimiserConfig
from onesigma.training.loading import epoch_batches
from onesigma.training.method import Batch, FunctionalVI, Terms, Viewed
from onesigma.training.module import TrainingModule
from onesigma.training.resolve import resolve
from onesigma.training.schedule import learning_rate
from onesigma.views import Marginals, resized, whole

ONE = [{"epochs": 1, "batch": 3}]


@pytest.fixture(scope="module")
def depth_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = tiny_recipe("scenes-depth", stages=ONE, trainer__validate_epochs=1)
    return train(recipe, tmp_path_factory.mktemp("depth") / "run")


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("scenes-segmentation", {"method__name": "mc_dropout", "method__passes": 3}),
        ("scenes-segmentation", {"method__name": "deterministic", "method__temperature": True}),
        ("scenes-segmentation", {"method__name": "heteroscedastic"}),
        ("scenes-depth", {"method__name": "mc_dropout", "method__passes": 3}),
        ("scenes-depth", {"method__name": "deterministic", "method__loss": "berhu"}),
        ("scenes-depth", {"method__members": 2, "prior__kernel": "scene"}),
        ("scenes-depth", {"likelihood__name": "berhu", "prior__learn": ["noise", "scale"]}),
    ],
)
def test_every_method_trains_and_its_run_predicts(
    name: str, overrides: dict[str, object], tmp_path: Path
) -> None:
    trained = train(tiny_recipe(name, stages=ONE, **overrides), tmp_path / "run")
    image = torch.rand(3, 24, 40, generator=torch.Generator().manual_seed(0))
    one, two = trained.predict(image), onesigma.load(tmp_path / "run").predict(image)
    if name == "scenes-depth":
        assert isinstance(one, RegressionPrediction)
        assert torch.equal(one.mean, two.mean)
        assert one.mean.shape == (1, 1, 24, 40)
        assert bool((one.variance > 0).all())
    else:
        assert torch.equal(one.probs, two.probs)
        assert one.probs.shape == (1, 11, 24, 40)
        assert torch.allclose(one.probs.sum(1), torch.ones(1, 24, 40), atol=1e-5)


def test_pixels_without_a_label_count_more_if_asked() -> None:
    def loss(weight: float, valid: Tensor) -> float:
        method = build_method(resolve(tiny_recipe(method__unlabelled_weight=weight)))
        method.prepare(32, 32)
        torch.manual_seed(0)  # of dropout
        batch = Batch(images, torch.where(valid, 1, -1), valid)
        terms = method.loss(batch, 0.1, torch.Generator().manual_seed(0))
        return float(terms.loss.detach())

    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    full = torch.ones(2, 32, 32, dtype=torch.bool)
    half = full.clone()
    half[:, :, 16:] = False
    assert loss(5.0, full) == loss(0.0, full)
    once, twice = (loss(weight, half) - loss(0.0, half) for weight in (5.0, 10.0))
    assert once > 1e-3
    assert twice == pytest.approx(2 * once, rel=1e-3)


def test_strangers_have_no_target_and_their_divergence_counts_as_asked() -> None:
    def method_of(weight: float) -> FunctionalVI:
        settings = {"method__stranger_weight": weight, "method__kl_stride": 1}
        method = build_method(resolve(tiny_recipe(**settings)))
        assert isinstance(method, FunctionalVI)
        method.prepare(32, 32)
        return method

    def maps(method: FunctionalVI, labels: Tensor) -> dict[str, Tensor]:
        torch.manual_seed(0)  # of dropout
        batch = Batch(images, labels, torch.ones(8, 32, 32, dtype=torch.bool))
        return method.loss(batch, 0.1, torch.Generator().manual_seed(0)).maps

    images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    labels = torch.zeros(8, 32, 32, dtype=torch.int64)
    once, twice = method_of(5.0), method_of(10.0)
    stream = torch.Generator().manual_seed(0)
    once.context(images, stream)
    changed, strange = once.strangers(images, stream)
    assert bool(strange.any())
    one, two = maps(once, labels), maps(twice, labels)
    # their labels say nothing, those of all others do
    other = maps(once, torch.where(strange, 1, labels))
    assert torch.equal(one["fit"], other["fit"])
    assert torch.equal(one["fit"] == 0, strange)
    # 5 KL more at their pixels, nothing more elsewhere
    torch.manual_seed(0)
    q, _ = once.posterior(changed, context=changed[:1])
    p = once.prior.at(32, 32)(changed)
    alone = unlabelled_divergence(q[:8], p, strange)
    torch.testing.assert_close(two["kl"] - one["kl"], 5 * alone, rtol=1e-3, atol=1e-3)
    assert float(alone.detach().sum()) > 1


@pytest.mark.parametrize(
    "setting", ["context_weight", "unlabelled_weight", "stranger_weight", "kl_stride", "fit_stride"]
)
def test_weights_out_of_range_leave_no_folder(setting: str, tmp_path: Path) -> None:
    recipe = tiny_recipe(**{f"method__{setting}": -1})
    with pytest.raises(ValueError, match=f"{setting} -1"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize(("name", "power"), [("scenes-depth", 1.5), ("scenes-segmentation", 1.0)])
def test_a_power_out_of_place_leaves_no_folder(name: str, power: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"scale_power {power}"):
        train(tiny_recipe(name, method__scale_power=power), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_the_power_of_the_scale_changes_the_loss_but_not_the_fit() -> None:
    def terms(power: float) -> Terms:
        method = build_method(resolve(tiny_recipe("scenes-depth", method__scale_power=power)))
        method.prepare(32, 32)
        torch.manual_seed(0)  # of dropout
        batch = Batch(images, 3 * images[:, :1], torch.ones(2, 32, 32, dtype=torch.bool))
        return method.loss(batch, 0.1, torch.Generator().manual_seed(0))

    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    plain, even = terms(0.0), terms(1.0)
    assert torch.equal(plain.fit, even.fit)
    assert (plain.loss - even.loss).abs() > 1e-5


def test_a_divergence_that_weighs_nothing_is_not_computed() -> None:
    method = build_method(resolve(tiny_recipe("scenes-depth"))).eval()
    assert isinstance(method, FunctionalVI)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    batch = Batch(images, 3 * images[:, :1], torch.ones(2, 32, 32, dtype=torch.bool))
    with_it = method.loss(batch, 0.1, torch.Generator().manual_seed(0))
    assert with_it.kl is not None
    torch.testing.assert_close(with_it.loss, 0.1 * with_it.kl - with_it.fit)

    def refuse(*_: object) -> Never:
        raise AssertionError("nobody asked")

    method.context = method.prior.at = refuse  # type: ignore
    without = method.loss(batch, 0.0, torch.Generator().manual_seed(0))
    assert without.kl is None
    torch.testing.assert_close(without.fit, with_it.fit)
    assert torch.equal(without.loss, -without.fit)


def test_depth_is_in_metres(depth_run: Run) -> None:
    targets = [
        build_dataset(depth_run.recipe.data, "train", None)[i]["target"].double() for i in range(6)
    ]
    values = torch.cat([target[target.isfinite()] for target in targets])
    transform = depth_run.recipe.transform
    assert transform.shift == pytest.approx(float(values.mean()), rel=1e-6)
    assert transform.scale == pytest.approx(float(values.std()), rel=1e-3)
    image = torch.rand(1, 3, 32, 32)
    assert isinstance(depth_run.method, FunctionalVI)
    with torch.no_grad():
        q, log_scale = depth_run.method.posterior.marginals(image)
    prediction = depth_run.predict(image)
    assert torch.allclose(prediction.mean, transform.shift + transform.scale * q.mean)
    # Laplace: Var y = scale² (Var f + 2 σ²)
    variance = transform.scale**2 * (q.variance + 2 * (2 * log_scale).exp())
    assert torch.allclose(prediction.variance, variance, rtol=1e-4)


def test_predict_takes_an_image_in_any_form(depth_run: Run, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    tensor = torch.from_numpy(pixels).permute(2, 0, 1).float() / 255
    forms = [
        tmp_path / "image.png",
        str(tmp_path / "image.png"),
        Image.fromarray(pixels),
        pixels,
        (pixels / 255).astype(np.float32),
        tensor,
        tensor[None],
    ]
    means = [depth_run.predict(form).mean for form in forms]
    assert all(torch.allclose(mean, means[0], atol=1e-4) for mean in means)
    with pytest.raises(ValueError, match="from 0 to 255"):
        depth_run.predict(pixels.astype(np.float32))


def test_logs_have_fit_kl_and_validation(depth_run: Run) -> None:
    (log,) = depth_run.folder.logs.glob("part-*/metrics.csv")
    rows = list(csv.DictReader(log.open()))
    assert [row["step"] for row in rows if row["fit"]] == ["1", "2"]
    assert all(math.isfinite(float(row["kl"])) for row in rows if row["fit"])
    assert len([row for row in rows if row["val_nll"]]) == 1
    assert list(depth_run.folder.logs.glob("part-*/events*"))


def test_tiles_and_whole_images_agree(depth_run: Run) -> None:
    image = torch.rand(1, 3, 160, 192, generator=torch.Generator().manual_seed(1))
    one, two = depth_run.predict(image), depth_run.predict(image, memory_mb=2.0)
    assert not torch.equal(one.mean, two.mean)  # it was cut
    assert torch.allclose(one.mean, two.mean, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("scenes-depth", {"method__name": "deterministic"}),
        ("scenes-depth", {"method__name": "mc_dropout", "method__passes": 3}),
        ("scenes-segmentation", {"method__name": "mc_dropout", "method__loss": "boltzmann"}),
    ],
)
def test_baselines_predict_through_a_view(name: str, overrides: dict[str, object]) -> None:
    def mirrored(marginals: Marginals, images: Tensor) -> tuple[GaussianField, Tensor]:
        q, log_scale = marginals(images.flip(-1))
        mean, variance = q.mean.flip(-1), q.variance.flip(-1)
        return GaussianField(mean, onesigma.MarginalCovariance(variance)), log_scale.flip(-1)

    method = build_method(resolve(tiny_recipe(name, stages=ONE, **overrides))).eval()
    image = torch.rand(2, 3, 24, 32)
    with torch.no_grad():
        seen, twin = method.predict(image, mirrored), method.predict(image.flip(-1))
    for key in ("epistemic", "aleatoric", "mean" if name == "scenes-depth" else "probs"):
        assert torch.allclose(getattr(seen, key), getattr(twin, key).flip(-1), atol=1e-6)


def test_berhu_hears_when_an_epoch_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    monkeypatch.setattr(onesigma.BerHu, "start_epoch", lambda self: begun.append(int(self.batches)))
    options = {"likelihood__name": "berhu", "likelihood__options": {"keep": "maximum"}}
    train(tiny_recipe("scenes-depth", **options), tmp_path / "run")
    assert begun == [0, 3, 6]


def test_a_resized_view_interpolates_the_maps_before_the_law() -> None:
    method = build_method(resolve(tiny_recipe(stages=ONE))).eval()
    assert isinstance(method, FunctionalVI)
    image = torch.rand(1, 3, 48, 64)
    with torch.no_grad():
        small = torch.nn.functional.interpolate(
            image, (24, 32), mode="bilinear", align_corners=False, antialias=True
        )
        q, log_scale = method.posterior.marginals(small)
        up = [
            torch.nn.functional.interpolate(m, (48, 64), mode="bilinear", align_corners=False)
            for m in (q.mean, q.variance, log_scale)
        ]
        field = GaussianField(up[0], onesigma.MarginalCovariance(up[1]))
        want = method.likelihood.predict(field, up[2])
        have = Viewed(method, lambda m, x: resized((24, 32), m, x)).predict(image)
    assert isinstance(have, CategoricalPrediction)
    assert torch.allclose(have.probs, want.probs, atol=1e-6)
    assert not torch.allclose(have.probs, method.predict(image, whole).probs, atol=1e-4)


def test_the_prior_follows_the_size_and_keeps_what_it_learned() -> None:
    recipe = resolve(tiny_recipe(stages=ONE, prior__learn=["scale", "kernel"]))
    method = build_method(recipe)
    assert isinstance(method, FunctionalVI)
    before = dict(method.named_parameters())
    method.prepare(30, 44)
    after = dict(method.named_parameters())
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)
    assert any(name.startswith("prior.") for name in before)
    assert method.prior.at(30, 44)(torch.rand(2, 3, 30, 44)).mean.shape == (2, 11, 30, 44)


def test_every_epoch_sees_every_image_once_in_its_own_order() -> None:
    first, second = (epoch_batches(10, 3, (0, 0, epoch)) for epoch in (0, 1))
    assert [len(batch) for batch in first] == [3, 3, 3]
    assert len({i for batch in first for i in batch}) == 9
    assert first != second
    assert epoch_batches(10, 3, (0, 0, 0), start=2) == first[2:]


def test_learning_rates_follow_their_formulas() -> None:
    exponential = OptimiserConfig(lr=1e-3, schedule="exponential", gamma=0.998)
    assert learning_rate(exponential, 1000, 0.5, 1000) == pytest.approx(1e-3 * 0.998**1000)
    cosine = OptimiserConfig(lr=2.0, schedule="cosine", warmup=2.0)
    assert learning_rate(cosine, 1, 0.0, 4) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert learning_rate(cosine, 2, 0.0, 4) == pytest.approx(1.0)


def test_the_weight_of_the_divergence_may_rise() -> None:
    stages = [{"epochs": 4, "batch": 3, "kl_weight": 0.6, "kl_rise": 2}]
    recipe = resolve(tiny_recipe(stages=stages))
    data = build_dataset(recipe.data, "train", None)
    weights = [
        TrainingModule(build_method(recipe), recipe, data, Place(0, epoch, step)).kl_weight
        for epoch, step in ((0, 0), (0, 1), (1, 0), (2, 0), (3, 1))
    ]
    # six images in two steps an epoch; the middle of each step counts
    assert weights == pytest.approx([0.6 / 8, 3 * 0.6 / 8, 5 * 0.6 / 8, 0.6, 0.6])


def test_a_recipe_may_bring_its_own_network(tmp_path: Path) -> None:
    recipe: Recipe = load_recipe(
        "scenes-segmentation",
        {"network.class_path": "onesigma.networks.UNet", "network.options.widths": [4, 8]},
    )
    assert recipe.network.name is None
    assert build_method(resolve(recipe)).predict(torch.rand(1, 3, 32, 32)).probs.shape[1] == 11


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("network", "onesigma.networks.UNet"),
        ("data", "onesigma.data.Scenes"),
        ("likelihood", "onesigma.Boltzmann"),
        ("context", "onesigma.ShuffledPatches"),
        ("prior", "onesigma.SampledPrior"),
    ],
)
def test_what_it_brings_may_need_no_options(section: str, path: str) -> None:
    recipe = load_recipe("scenes-segmentation", {f"{section}.class_path": path})
    part = getattr(recipe, section)
    assert (part.class_path, part.options) == (path, {})
