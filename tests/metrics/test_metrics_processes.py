import multiprocessing

import pytest
import torch
from metric_fakes import Labels, labelled
from torch import distributed

from onesigma.metrics import CalibrationError, RiskCoverage, SegmentationSuite

NAMES = ["a", "b", "c"]


def batch():
    probs, target = labelled(torch.Generator().manual_seed(0), n=3)
    return probs, target


def values(images):
    """The metrics of these images, or with all processes of the group together."""
    probs, target = (x[images] for x in batch())
    suite, ece, risk = SegmentationSuite(5), CalibrationError(), RiskCoverage()
    suite.update(Labels(probs), target, names=NAMES[images])
    ece.update(probs, target)
    risk.update(1 - probs.amax(1), probs.max(1).indices != target)
    found = suite.compute()
    return found, ece.compute()["ece"].item(), risk.compute()["aurc"].item()


def work(rank, store, pipe):
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    pipe.send(values(slice(0, 1) if rank == 0 else slice(1, 3)))
    distributed.destroy_process_group()


def test_two_processes_report_the_whole_set(tmp_path):
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    store = f"file://{tmp_path}/store"
    workers = [context.Process(target=work, args=(r, store, pipes[r][1])) for r in range(2)]
    for worker in workers:
        worker.start()
    assert all(pipe.poll(60) for pipe, _ in pipes)
    found = [pipe.recv() for pipe, _ in pipes]
    for worker in workers:
        worker.join(30)
    expected, ece, risk = values(slice(0, 3))
    for suite, one_ece, one_risk in found:
        assert one_ece == pytest.approx(ece)
        assert one_risk == pytest.approx(risk)
        assert [record["name"] for record in suite["per_image"]] == NAMES
        assert suite["set"]["miou"] == pytest.approx(expected["set"]["miou"])
        assert suite["set"]["aurc"] == pytest.approx(expected["set"]["aurc"])
        assert suite["intervals"]["nll"]["low"] == pytest.approx(
            expected["intervals"]["nll"]["low"]
        )
