import re
from pathlib import Path

import pytest
import torch
from rich.console import Console
from sklearn.metrics import roc_auc_score

from onesigma.covariance import MarginalCovariance
from onesigma.data.scenes import Scenes
from onesigma.field import GaussianField
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.prediction.categorical import CategoricalPrediction
from onesigma.report.demo import DemoOptions, run_demo
from onesigma.report.run_page import write_run_page
from onesigma.report.scales import scales_for
from onesigma.report.scenes_study import KINDS, image_auroc, study
from onesigma.training.components import build_dataset
from onesigma.training.run import load

SMALL = DemoOptions(
    size=(24, 32), train_scenes=4, epochs=(1, 1), test_scenes=1, shown=1, max_std=10.0
)


def dark(image: torch.Tensor) -> CategoricalPrediction:
    """Knows less where the image is dark; always says road."""
    mean = torch.zeros(1, 11, *image.shape[2:])
    mean[:, 3] = 4.0
    variance = (4 * (1 - image.mean(1, keepdim=True))).square().expand_as(mean)
    field = GaussianField(mean, MarginalCovariance(variance.contiguous()))
    return Boltzmann(scale="none").predict(field)


def test_image_auroc_is_sklearns() -> None:
    odd, normal = [0.3, 0.9, 0.5, 0.5], [0.1, 0.5, 0.4]
    truth = [1] * len(odd) + [0] * len(normal)
    assert image_auroc(odd, normal) == pytest.approx(roc_auc_score(truth, odd + normal))


def test_study_counts_what_a_loop_counts() -> None:
    scenes = Scenes(size=(24, 32), length=3, split="test", truth=True)
    found = study(dark, scenes, scales_for(scenes.spec), ["normal", "night", "unseen objects"], 2)
    assert [f.kind for f in found] == ["normal", "night", "unseen objects"]
    assert [len(f.rows) for f in found] == [2, 2, 2]
    assert found[1].numbers["image_auroc_epistemic"] == 1.0  # nights are dark
    truth, scores = [], []
    for index in range(3):
        sample = Scenes(size=(24, 32), length=3, split="test", truth=True, odd="objects")[index]
        prediction = dark(sample["image"][None])
        truth += sample["ood"].flatten().tolist()
        scores += prediction.epistemic.flatten().tolist()
        mean = float(prediction.epistemic.mean())
        assert found[2].scores["epistemic"][index] == pytest.approx(mean, rel=1e-5)
    auroc = found[2].numbers["pixel_auroc_epistemic"]
    assert auroc == pytest.approx(roc_auc_score(truth, scores), abs=2e-3)


@pytest.mark.slow
def test_demo_and_the_page_of_a_run(tmp_path: Path) -> None:
    page = run_demo(tmp_path / "demo", SMALL, Console(quiet=True))
    assert page == tmp_path / "demo" / "report.html"
    text = page.read_text(encoding="utf-8")
    for kind in KINDS:
        assert text.count(f"<b>{kind}, scene 1</b>") == 2
    assert text.count("<img ") == 2 * 6 * len(KINDS)
    run = load(tmp_path / "demo" / "depth")
    metrics = {"images": 1, "pixels": 700, "set": {"rms": 3.25}, "intervals": {}}
    text = write_run_page(run, metrics, shown=2).read_text(encoding="utf-8")
    assert (tmp_path / "demo" / "depth" / "report.html").is_file()
    assert text.count("<img ") == 2 * 7
    assert "3.25" in text
    split = build_dataset(run.recipe.data, run.recipe.data.evaluate, None)
    shown = [split[i]["name"] for i in (0, len(split) // 2)]
    assert re.findall(r"<b>(.*?)</b>", text) == shown
