import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from onesigma.metrics import Anomaly, RiskCoverage, Sparsification
from onesigma.metrics.ranking import exact_detection_scores

MAGNITUDES = [1.0, 1e-12, 1e-30]


def slow_risk(uncertainty, error):
    """Areas of one order of the pixels."""
    risk = error[np.argsort(uncertainty, kind="stable")].cumsum()
    kept = np.arange(1, len(error) + 1)
    return (risk / kept).mean(), (risk / len(error)).mean()


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_risk_coverage_against_sorting(generator, magnitude):
    score = torch.rand(2, 80, 90, generator=generator) ** 4 * magnitude
    error = torch.rand(score.shape, generator=generator) < (score / magnitude) ** 0.5
    valid = torch.rand(score.shape, generator=generator) > 0.2
    metric = RiskCoverage()
    metric.update(score, error, valid)
    scores = metric.compute()
    aurc, augrc = slow_risk(score[valid].numpy(), error[valid].numpy().astype(float))
    assert scores["aurc"].item() == pytest.approx(aurc, abs=1e-3)
    assert scores["augrc"].item() == pytest.approx(augrc, abs=1e-3)
    assert abs(aurc - error[valid].double().mean().item()) > 0.1  # the order matters here


def test_ties_are_taken_in_random_order():
    score = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 3.0])
    error = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
    rng = np.random.default_rng(0)
    orders = [rng.permutation(6) for _ in range(4000)]
    draws = np.array([slow_risk(score[o], error[o]) for o in orders])
    metric = RiskCoverage()
    shape = (1, 2, 3)
    metric.update(torch.tensor(score).view(shape), torch.tensor(error).view(shape))
    found = np.array([x.item() for x in metric.compute().values()])
    assert (abs(found - draws.mean(0)) < 4 * draws.std(0) / 4000**0.5).all()


def slow_curve(key, error, intervals, root):
    """Error of what is left when the k/K largest keys are removed."""
    order = np.argsort(key, kind="stable")
    total = np.concatenate([[0.0], error[order].cumsum()])
    kept = len(error) * (1 - np.arange(intervals) / intervals)
    curve = np.interp(kept, np.arange(len(error) + 1), total) / kept
    return np.append(curve**0.5 if root else curve, 0.0)


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_sparsification_against_sorting(generator, magnitude):
    std = 0.05 + torch.rand(2, 1, 80, 90, generator=generator) ** 2
    mean = 2 + torch.rand(std.shape, generator=generator)
    target = (mean + std * torch.randn(std.shape, generator=generator)).clamp_min(0.2)
    valid = torch.rand(2, 80, 90, generator=generator) > 0.2
    metric = Sparsification()
    median = 0.9 * mean
    metric.update(std * magnitude, mean, target, valid, median)
    scores = {name: value.item() for name, value in metric.compute().items()}
    maps = (std, mean, median, target)
    key, mu, m, y = (x[:, 0][valid].double().numpy() for x in maps)
    for name, error, root in (("rel", abs(m - y) / y, False), ("rms", (mu - y) ** 2, True)):
        curve, oracle = (slow_curve(k, error, 50, root) for k in (key, error))
        ause = np.trapezoid(curve - oracle, dx=1 / 50)
        aurg = curve[0] - np.trapezoid(curve, dx=1 / 50)
        assert scores[f"ause_{name}"] == pytest.approx(ause, abs=1e-3)
        assert scores[f"aurg_{name}"] == pytest.approx(aurg, abs=1e-3)
        assert scores[f"ause_{name}_normalised"] == pytest.approx(ause / curve[0], abs=1e-3)
        assert scores[f"aurg_{name}_normalised"] == pytest.approx(aurg / curve[0], abs=1e-3)
        assert aurg > 0.02


def test_the_oracle_has_no_sparsification_error(generator):
    mean = 1 + torch.rand(1, 1, 60, 60, generator=generator)
    target = torch.ones_like(mean)
    metric = Sparsification()
    metric.update((mean - target).abs(), mean, target)
    scores = metric.compute()
    assert abs(scores["ause_rel"].item()) < 1e-12
    assert abs(scores["ause_rms"].item()) < 1e-6


def test_relative_areas_need_positive_targets(generator):
    mean = torch.rand(1, 1, 8, 8, generator=generator)
    metric = Sparsification()
    metric.update(mean, mean, mean - 0.5)
    scores = metric.compute()
    assert scores["ause_rel"].isnan()
    assert scores["ause_rms"].isfinite()


def detection(score, target):
    fpr, tpr, _ = roc_curve(target, score)
    return {
        "auroc": roc_auc_score(target, score),
        "average_precision": average_precision_score(target, score),
        "fpr95": fpr[np.argmax(tpr >= 0.95)],
    }


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("signed", [False, True])
def test_anomaly_against_scikit_learn(generator, magnitude, signed):
    target = torch.rand(3, 100, 110, generator=generator) < 0.1
    score = torch.randn(target.shape, generator=generator) + 1.5 * target
    score = (score if signed else score.exp()) * magnitude
    valid = torch.rand(target.shape, generator=generator) > 0.2
    metric = Anomaly()
    metric.update(score, target, valid)
    expected = detection(score[valid].numpy() / magnitude, target[valid].numpy())
    for name, value in metric.compute().items():
        assert value.item() == pytest.approx(expected[name], abs=1e-3), name


def test_scores_that_hardly_vary(generator):
    # a collapsed variance, 0.25 give or take one percent
    target = torch.rand(1, 200, 200, generator=generator) < 0.2
    noise = torch.randn(target.shape, generator=generator)
    score = 0.25 * (1 + 0.01 * (noise - target.float()))
    metric = Anomaly()
    metric.update(score, target)
    expected = roc_auc_score(target.flatten().numpy(), score.flatten().numpy())
    assert expected < 0.3  # upside down
    assert metric.compute()["auroc"].item() == pytest.approx(expected, abs=1e-3)


def test_tied_scores_as_scikit_learn(generator):
    target = torch.rand(1, 50, 50, generator=generator) < 0.3
    score = (torch.randint(0, 4, target.shape, generator=generator) + target).float()
    metric = Anomaly()
    metric.update(score, target)
    found, expected = metric.compute(), detection(score.flatten().numpy(), target.flatten().numpy())
    assert found["auroc"].item() == pytest.approx(expected["auroc"], abs=1e-12)
    name = "average_precision"
    assert found[name].item() == pytest.approx(expected[name], abs=1e-12)


def test_exact_scores_against_scikit_learn(generator):
    target = torch.rand(60, generator=generator) < 0.4
    score = torch.randn(60, generator=generator).double() + target
    expected = detection(score.numpy(), target.numpy())
    for name, value in exact_detection_scores(score, target).items():
        assert value.item() == pytest.approx(expected[name], abs=1e-12)


def test_one_kind_alone_is_undefined():
    metric = Anomaly()
    metric.update(torch.rand(1, 4, 4), torch.zeros(1, 4, 4, dtype=torch.bool))
    assert all(value.isnan() for value in metric.compute().values())
