"""The stages at the end: after all others, alone, the same when resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_recipe
from torch import nn

from onesigma.familiarity import ImageScale
from onesigma.training import Recipe, load, train
from onesigma.training.assemble import build_method
from onesigma.training.callbacks import Logs
from onesigma.training.config import StageConfig
from onesigma.training.late import FamiliarStage, NoiseStage, with_late_stages
from onesigma.training.method import FunctionalVI
from onesigma.training.module import TrainingModule
from onesigma.training.resolve import resolve

STAGES = [{"epochs": 2, "batch": 2, "average": 0.5, "optimiser": {"lr": 1e-2}}]
FAMILIAR: dict[str, Any] = {"posterior__layer_distances": True}
NOISE: dict[str, Any] = {"method__noise_epochs": 2, "posterior__scale_position": True}


IMAGE_SCALE: dict[str, Any] = {
    "likelihood__options": {"scale": "shared"},
    "posterior__scale": "image",
    "method__noise_epochs": 2,
    "method__noise_strength": 0.5,
}


def recipe(**options: Any) -> Recipe:
    return tiny_recipe("scenes-depth", stages=STAGES, **options)


def labels(**options: Any) -> Recipe:
    return tiny_recipe(stages=STAGES, posterior__layer_distances=False, **options)


@pytest.mark.parametrize(
    ("recipe", "options", "learned", "kept", "changed"),
    [
        (recipe, FAMILIAR, (".familiarity.",), ("mean", "aleatoric"), "epistemic"),
        (recipe, NOISE, (".log_scale.", ".scale_position."), ("mean", "epistemic"), "aleatoric"),
        (labels, IMAGE_SCALE, (".image_scale.",), (), "probs"),
    ],
)
def test_all_but_what_learns_there_stays(
    recipe: Callable[..., Recipe],
    options: dict[str, Any],
    learned: tuple[str, ...],
    kept: tuple[str, ...],
    changed: str,
    tmp_path: Path,
) -> None:
    plain, late = train(recipe(), tmp_path / "plain"), train(recipe(**options), tmp_path / "late")
    before, after = plain.method.state_dict(), late.method.state_dict()
    for name, value in after.items():
        same = name in before and torch.equal(value, before[name])
        assert same != any(part in name for part in learned), name
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    one, two, again = (r.predict(image) for r in (plain, late, load(tmp_path / "late")))
    for name in kept:
        torch.testing.assert_close(getattr(one, name), getattr(two, name))
    assert not torch.allclose(getattr(one, changed), getattr(two, changed))
    assert torch.equal(getattr(two, changed), getattr(again, changed))


@pytest.mark.parametrize(("stage", "epoch"), [(1, 1), (2, 3)])
def test_a_run_that_stops_in_such_a_stage_goes_on(
    stage: int, epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = recipe(**NOISE, **FAMILIAR)
    whole = train(both, tmp_path / "whole")
    end = Logs.on_train_batch_end

    def stop(self: Logs, trainer: object, module: TrainingModule, *rest: object) -> None:
        end(self, trainer, module, *rest)  # type: ignore[arg-type]
        if module.place.stage == stage and module.place.epoch == epoch:
            raise KeyboardInterrupt

    monkeypatch.setattr(Logs, "on_train_batch_end", stop)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(both, tmp_path / "half")
    monkeypatch.undo()
    resumed = train(both, tmp_path / "half", resume=True)
    assert isinstance(resumed.method, FunctionalVI)
    for name, value in whole.method.state_dict().items():
        assert torch.equal(value, resumed.method.state_dict()[name]), name


def test_the_noise_comes_first_and_only_where_there_is_one_to_learn() -> None:
    def kinds(**options: Any) -> list[type]:
        resolved = resolve(recipe(**options))
        stages = with_late_stages(resolved, build_method(resolved)).stages
        return [type(stage) for stage in stages[1:]]

    assert kinds() == []
    assert kinds(**NOISE, **FAMILIAR) == [NoiseStage, FamiliarStage]
    assert kinds(**NOISE, method__name="heteroscedastic") == []
    resolved = resolve(labels(**IMAGE_SCALE))
    noise = with_late_stages(resolved, build_method(resolved)).stages[-1]
    assert isinstance(noise, NoiseStage)
    assert (noise.epochs, noise.strength, noise.average) == (2, 0.5, 0.0)


def test_images_are_seen_as_they_will_be_at_prediction() -> None:
    zoomed = {**STAGES[0], "size": [40, 60], "crop": [20, 30],
              "augment": {"flip": 0.25, "scale": [0.5, 1.0]}}  # fmt: skip

    def late(**options: Any) -> StageConfig:
        resolved = resolve(tiny_recipe("scenes-depth", stages=[zoomed], **options, **FAMILIAR))
        return with_late_stages(resolved, build_method(resolved)).stages[-1]

    whole = late(data__eval_size=[24, 36])
    assert (whole.size, whole.crop, whole.augment) == ((24, 36), None, {"flip": 0.25})
    unknown = late(data__eval_size=None)
    assert (unknown.size, unknown.crop) == ((40, 60), (20, 30))
    assert unknown.augment == zoomed["augment"]


def test_the_scale_of_images_learns_at_a_rate_of_its_own(tmp_path: Path) -> None:
    slow = [{**STAGES[0], "optimiser": {"name": "sgd", "lr": 1e-9}}]
    recipe = tiny_recipe(stages=slow, posterior__layer_distances=False, **IMAGE_SCALE)
    method = train(recipe, tmp_path / "run").method
    assert isinstance(method, FunctionalVI)
    assert method.posterior.image_scale is not None
    began = ImageScale(nn.BatchNorm2d(1)).state_dict()
    for name, learned in method.posterior.image_scale.state_dict().items():
        assert (learned - began[name]).abs().max() > 0.01, name


def test_the_noise_is_learned_on_altered_images_and_their_own_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    loss, step = FunctionalVI.loss, TrainingModule.training_step

    def look(self: TrainingModule, batch: Any, number: int) -> torch.Tensor:
        stage = self.place.stage

        def noted(method: FunctionalVI, ready: Any, *rest: Any) -> Any:
            seen.setdefault(stage, []).append((ready.images, ready.target))
            return loss(method, ready, *rest)

        monkeypatch.setattr(FunctionalVI, "loss", noted)
        return step(self, batch, number)

    monkeypatch.setattr(TrainingModule, "training_step", look)
    still = [{**STAGES[0], "augment": {"flip": 0.0}}]
    train(tiny_recipe("scenes-depth", stages=still, **NOISE), tmp_path / "run")

    def by_target(stage: int) -> dict[bytes, list[torch.Tensor]]:
        images: dict[bytes, list[torch.Tensor]] = {}
        for batch in seen[stage]:
            for image, target in zip(*batch, strict=True):
                images.setdefault(target.numpy().tobytes(), []).append(image)
        return images

    plain, altered = by_target(0), by_target(1)
    assert plain.keys() == altered.keys()
    same = [torch.equal(i, plain[t][0]) for t, images in altered.items() for i in images]
    assert all(torch.equal(i, images[0]) for images in plain.values() for i in images)
    # one in three stays as it is: of twelve, not all and not none
    assert 0 < sum(same) < len(same) == 12


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("scenes-depth", {"method__noise_epochs": -1}),
        ("scenes-depth", {"method__noise_epochs": 3, "posterior__scale": "none"}),
        ("scenes-segmentation", {"method__noise_epochs": 3}),
        ("scenes-segmentation", {**IMAGE_SCALE, "method__noise_epochs": 0}),
        ("scenes-segmentation", {**IMAGE_SCALE, "likelihood__options": {"scale": "none"}}),
        ("scenes-depth", {"method__noise_epochs": 3, "posterior__scale": "image"}),
        ("scenes-depth", {**NOISE, "method__noise_strength": 0.0}),
        ("scenes-depth", {**NOISE, "method__noise_strength": 2.0}),
    ],
)
def test_where_the_noise_cannot_be_learned_no_folder_is_left(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    told = f"noise_epochs {options['method__noise_epochs']}"
    with pytest.raises(ValueError, match=f"{told}|noise_strength is"):
        train(tiny_recipe(name, **options), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()
