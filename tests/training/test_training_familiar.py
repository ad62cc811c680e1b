"""The stage that learns what is familiar: after all others, alone, the same when resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import tiny_recipe

from onesigma.training import Recipe, load, train
from onesigma.training.callbacks import Logs
from onesigma.training.method import FunctionalVI

STAGES = [{"epochs": 2, "batch": 2, "optimiser": {"lr": 1e-2}}]


def recipe(distances: bool) -> Recipe:
    return tiny_recipe("scenes-depth", stages=STAGES, posterior__layer_distances=distances)


def test_all_but_what_is_familiar_stays(tmp_path: Path) -> None:
    plain, watched = (train(recipe(on), tmp_path / str(on)) for on in (False, True))
    before, after = plain.method.state_dict(), watched.method.state_dict()
    for name, value in before.items():
        assert torch.equal(value, after[name]), name
    added = after.keys() - before.keys()
    assert added
    assert all(".familiarity." in name for name in added)
    assert after["posterior.familiarity.out.weight"].abs().max() > 0
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    one, two, again = (r.predict(image) for r in (plain, watched, load(tmp_path / "True")))
    torch.testing.assert_close(one.mean, two.mean)
    torch.testing.assert_close(one.aleatoric, two.aleatoric)
    assert not torch.allclose(one.epistemic, two.epistemic)
    assert torch.equal(two.epistemic, again.epistemic)


def test_a_run_that_stops_in_that_stage_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(recipe(True), tmp_path / "whole")
    end = Logs.on_train_batch_end

    def stop(self: Logs, trainer: object, module: object, *rest: object) -> None:
        end(self, trainer, module, *rest)  # type: ignore[arg-type]
        if module.place.stage == 1 and module.place.epoch == 3:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    monkeypatch.setattr(Logs, "on_train_batch_end", stop)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(recipe(True), tmp_path / "half")
    monkeypatch.undo()
    resumed = train(recipe(True), tmp_path / "half", resume=True)
    assert isinstance(resumed.method, FunctionalVI)
    for name, value in whole.method.state_dict().items():
        assert torch.equal(value, resumed.method.state_dict()[name]), name
