import numpy as np
import pytest
import torch
from metric_fakes import Labels, labelled
from sklearn.metrics import accuracy_score, jaccard_score, log_loss
from torchmetrics.classification import MulticlassJaccardIndex

from onesigma.metrics import NLL, Brier, MeanIoU, PixelAccuracy


@pytest.fixture
def batch(generator):
    probs, target = labelled(generator)
    valid = torch.rand(target.shape, generator=generator) > 0.3
    return probs, target, valid


def flat(probs, target, valid):
    return probs.movedim(1, -1)[valid].double().numpy(), target[valid].numpy()


def test_iou_against_scikit_learn_and_torchmetrics(batch):
    p, y = flat(*batch)
    metric = MeanIoU(5)
    metric.update(*batch)
    scores = metric.compute()
    expected = jaccard_score(y, p.argmax(1), average=None)
    np.testing.assert_allclose(scores["iou"], expected, rtol=1e-12)
    reference = MulticlassJaccardIndex(5)(torch.from_numpy(p), torch.from_numpy(y))
    torch.testing.assert_close(scores["miou"].float(), reference)


def test_absent_classes_are_stated_and_not_averaged():
    probs = torch.zeros(1, 4, 2, 2)
    probs[0, 0] = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    probs[0, 1] = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    target = torch.tensor([[[0, 0], [1, 2]]])  # 2 is true once but never said, 3 is nowhere
    metric = MeanIoU(4)
    metric.update(probs, target)
    scores = metric.compute()
    assert scores["absent"].tolist() == [False, False, False, True]
    assert scores["iou"][:3].tolist() == [1.0, 0.5, 0.0]
    assert scores["iou"][3].isnan()
    assert scores["miou"].item() == pytest.approx(0.5)


def test_ties_go_to_the_first_class():
    metric = PixelAccuracy()
    metric.update(torch.full((1, 3, 1, 3), 1 / 3), torch.tensor([[[0, 1, 2]]]))
    assert metric.compute().item() == pytest.approx(1 / 3)


def test_accuracy_nll_and_brier(batch):
    probs, target, valid = batch
    p, y = flat(*batch)
    accuracy, nll, brier = PixelAccuracy(), NLL(), Brier()
    accuracy.update(*batch)
    nll.update(Labels(probs), target, valid)
    brier.update(*batch)
    assert accuracy.compute().item() == pytest.approx(accuracy_score(y, p.argmax(1)), abs=1e-12)
    assert nll.compute().item() == pytest.approx(log_loss(y, p / p.sum(1, keepdims=True)), rel=1e-6)
    onehot = np.eye(5)[y]
    assert brier.compute().item() == pytest.approx(((p - onehot) ** 2).sum(1).mean(), rel=1e-6)


def test_default_mask_keeps_labels_in_range(batch):
    probs, target, valid = batch
    metrics = MeanIoU(5), MeanIoU(5)
    metrics[0].update(probs, target, valid)
    metrics[1].update(probs, torch.where(valid, target, 255))
    assert torch.equal(metrics[0].intersection, metrics[1].intersection)
    assert torch.equal(metrics[0].union, metrics[1].union)


def test_a_valid_label_out_of_range_is_an_error(batch):
    probs, target, valid = batch
    with pytest.raises(ValueError, match="labels go from 0 to 4"):
        PixelAccuracy().update(probs, torch.full_like(target, 7), valid)


def test_impossible_label_has_infinite_nll():
    nll = NLL()
    nll.update(Labels(torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)), torch.tensor([[[1]]]))
    assert nll.compute().item() == float("inf")
