"""The weights that a stage ends with may be the mean over its last steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_recipe
from torch import Tensor, nn

from onesigma.training import RecipeError, checkpoint, train
from onesigma.training.averaging import WeightAverage
from onesigma.training.checkpoint import load_checkpoint


def stages(first: float, second: float | None = None) -> list[dict[str, object]]:
    """One stage of 6 steps or two of 6 and 3 with weights averaged over these shares."""
    optimiser = {"name": "adamw", "lr": 0.01}
    both = [
        {"epochs": 2, "batch": 2, "average": first, "optimiser": optimiser},
        {"epochs": 1, "batch": 2, "average": second, "optimiser": optimiser},
    ]
    return both[: 1 if second is None else 2]


def every_step(folder: Path, monkeypatch: pytest.MonkeyPatch, average: float) -> list[Path]:
    """The checkpoints of all 6 steps of a run."""
    monkeypatch.setattr(checkpoint, "KEPT", 99)
    recipe = tiny_recipe(
        stages=stages(average), trainer__checkpoint_steps=1, posterior__layer_distances=False
    )
    train(recipe, folder)
    return sorted((folder / "checkpoints").glob("step-*.safetensors"))


def last(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "weights.safetensors")


def test_it_is_the_mean_of_the_last_steps_and_changes_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [load_checkpoint(p).weights for p in every_step(tmp_path / "a", monkeypatch, 0.0)]
    averaged = [load_checkpoint(p).weights for p in every_step(tmp_path / "b", monkeypatch, 0.5)]
    found = last(tmp_path / "b")
    for name, end in plain[-1].items():
        assert all(torch.equal(plain[i][name], averaged[i][name]) for i in range(5))
        assert torch.equal(averaged[-1][name], found[name])
        if end.is_floating_point():
            mean = torch.stack([plain[i][name].double() for i in (3, 4, 5)]).mean(0)
            torch.testing.assert_close(found[name].double(), mean, rtol=1e-5, atol=1e-7)
        else:
            assert torch.equal(found[name], end)
    assert any(not torch.equal(found[name], plain[-1][name]) for name in found)


def test_the_next_stage_begins_with_the_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = load_checkpoint(every_step(tmp_path / "a", monkeypatch, 0.5)[-1]).weights
    two = stages(0.5, 0.0)
    two[1]["optimiser"] = {"name": "sgd", "lr": 1e-30}
    train(tiny_recipe(stages=two), tmp_path / "b")
    weights = [name for name in mean if name.endswith("mean.weight")]
    assert weights
    assert all(torch.equal(last(tmp_path / "b")[name], mean[name]) for name in weights)


def test_numbers_that_are_not_floats_are_those_of_the_last_step() -> None:
    layer, average = nn.BatchNorm1d(3), WeightAverage()
    for number in (1, 2, 3):
        layer(torch.randn(5, 3))
        average.add(layer, number)
    assert int(average.state["num_batches_tracked"]) == 3
    assert not torch.equal(average.state["running_mean"], layer.running_mean)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_that_is_none_is_refused_before_the_run_begins(
    tmp_path: Path, share: float
) -> None:
    with pytest.raises(RecipeError, match=r"stages\.average .* from 0 to 1, got"):
        train(tiny_recipe(stages=stages(share)), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()
