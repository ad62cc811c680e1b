"""Priors: fields of the right law, sampled against closed form, and the report."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from onesigma import kernels
from onesigma.covariance import BlockCovariance
from onesigma.field import GaussianField
from onesigma.kernels import KernelState
from onesigma.priors import CNNGPPrior, Prior, SampledPrior, prior_report


def noise(n: int, h: int, w: int, seed: int = 6) -> Tensor:
    return torch.rand(n, 3, h, w, generator=torch.Generator().manual_seed(seed))


def small_kernel() -> kernels.Sequential:
    return kernels.Sequential(
        kernels.Standardise(0.5, 0.3),
        kernels.Conv(3, 0.2, 0.1),
        kernels.ReLU(),
        kernels.Conv(1, 1.0),
    )


class TestCNNGPPrior:
    def test_field_is_kernel_plus_noise(self) -> None:
        x = noise(4, 24, 26)
        x[3] = x[0]  # equal images stay two variables
        kernel = kernels.paper_kernel(24, 26, upsample="nearest")
        p = CNNGPPrior(kernel, outputs=5, mean=0.5, noise=0.1)(x)
        assert isinstance(p, GaussianField)
        assert isinstance(p.covariance, BlockCovariance)
        assert p.covariance.blocks().shape == (4, 4, 1, 24, 26)
        assert p.mean.shape == (4, 5, 24, 26)
        assert (p.mean == 0.5).all()
        wanted = kernel.propagate(KernelState.of_images(x)).blocks()
        wanted = wanted + 0.1 * torch.eye(4)[:, :, None, None]
        torch.testing.assert_close(p.covariance.blocks()[:, :, 0], wanted)
        eigenvalues = torch.linalg.eigvalsh(wanted.movedim((0, 1), (-2, -1)))
        assert eigenvalues.min() > 0.0999

    def test_scale_and_mean_per_output(self) -> None:
        x = noise(2, 8, 8)
        one = CNNGPPrior(small_kernel(), 2, mean=[1.0, -1.0], noise=0.2)(x)
        ten = CNNGPPrior(small_kernel(), 2, mean=[1.0, -1.0], noise=0.2, scale=10.0)(x)
        white = 0.2 * torch.eye(2).view(2, 2, 1, 1, 1)
        torch.testing.assert_close(
            ten.covariance.blocks() - white, 10 * (one.covariance.blocks() - white)
        )
        assert one.mean[0, :, 0, 0].tolist() == [1.0, -1.0]

    def test_learned_numbers_get_their_gradients(self) -> None:
        x = noise(3, 6, 6).double()
        names = ("mean", "noise", "scale", "kernel")
        prior = CNNGPPrior(small_kernel(), 1, mean=0.3, noise=0.1, scale=2.0, learn=names).double()
        # kernel: two weight variances and the one bias variance above 0
        assert len(list(prior.parameters())) == 6

        def value() -> Tensor:
            p = prior(x)
            return (p.covariance.blocks() ** 2).sum() + (3 * p.mean).sum()

        value().backward()
        for parameter in prior.parameters():
            step = 1e-5
            with torch.no_grad():
                parameter += step
                above = value()
                parameter -= 2 * step
                slope = (above - value()) / (2 * step)
                parameter += step
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad.sum(), slope, rtol=1e-5, atol=1e-8)

    def test_a_scale_that_starts_at_one_is_learned_too(self) -> None:
        prior = CNNGPPrior(small_kernel(), 1, learn=("scale",))
        blocks = prior.covariance(noise(2, 5, 6))
        blocks.sum().backward()
        # K = e^s kernel, so ∂ΣK/∂s = ΣK
        assert prior.scale.log is not None
        assert prior.scale.log.grad is not None
        torch.testing.assert_close(prior.scale.log.grad, blocks.detach().sum())

    def test_nothing_is_learned_by_default(self) -> None:
        assert not list(CNNGPPrior(small_kernel(), 2).parameters())

    def test_learned_start_where_they_were(self) -> None:
        x = noise(3, 6, 6)
        plain = CNNGPPrior(small_kernel(), 1, 0.3, 0.1, 2.0)(x)
        learn = ("mean", "noise", "scale", "kernel")
        learned = CNNGPPrior(small_kernel(), 1, 0.3, 0.1, 2.0, learn)(x)
        torch.testing.assert_close(learned.covariance.blocks(), plain.covariance.blocks())
        torch.testing.assert_close(learned.mean, plain.mean)

    def test_one_pixel_outputs(self) -> None:
        kernel = kernels.Sequential(
            kernels.Conv(3, 0.2, stride=2), kernels.ReLU(), kernels.Conv((3, 4), 0.1)
        )
        p = CNNGPPrior(kernel, outputs=10)(noise(5, 7, 9))
        assert p.mean.shape == (5, 10, 1, 1)
        assert p.sample(2, joint=True).shape == (2, 5, 10, 1, 1)

    @pytest.mark.parametrize(
        "call",
        [
            lambda: CNNGPPrior(small_kernel(), 0),
            lambda: CNNGPPrior(small_kernel(), 2, mean=[1.0]),
            lambda: CNNGPPrior(small_kernel(), 2, noise=-0.1),
            lambda: CNNGPPrior(small_kernel(), 2, scale=float("inf")),
            lambda: CNNGPPrior(small_kernel(), 2, learn=("variance",)),
            lambda: CNNGPPrior(small_kernel(), 2, learn="mean"),
            lambda: CNNGPPrior(small_kernel(), 2)(torch.zeros(0, 3, 8, 8)),
            lambda: CNNGPPrior(small_kernel(), 2)(torch.zeros(2, 3, 2, 8)),
            lambda: SampledPrior(nn.Identity, 2, samples=1),
            lambda: SampledPrior(nn.Identity, 2, shrinkage=0.0),
            lambda: SampledPrior(nn.Identity, 2, learn=("scale",)),
            lambda: SampledPrior(lambda: nn.Flatten(0), 2)(torch.rand(2, 3, 4, 4)),
            lambda: prior_report(CNNGPPrior(small_kernel(), 1), noise(1, 5, 5)),
        ],
    )
    def test_bad_arguments(self, call: object) -> None:
        with pytest.raises(ValueError, match="want"):
            call()  # type: ignore[operator]


def standard_error(K: Tensor, samples: int) -> Tensor:
    """Of a sample covariance of Gaussians: √((K_ii K_jj + K_ij²) / samples)."""
    variance = torch.einsum("iichw->ichw", K)
    return ((variance[:, None] * variance[None] + K.square()) / samples).sqrt()


class TestSampledPrior:
    def sampled(self, kernel: kernels.Layer, width: int, samples: int, **options: object) -> Prior:
        return SampledPrior(
            lambda: kernel.network(3, width),
            outputs=2,
            noise=0.1,
            samples=samples,
            generator=torch.Generator().manual_seed(7),
            **options,  # type: ignore[arg-type]
        )

    def test_agrees_with_the_closed_form(self) -> None:
        x = noise(3, 6, 7)
        kernel = small_kernel()
        exact = CNNGPPrior(kernel, 2).covariance(x)
        samples, width = 150, 64
        sampled = self.sampled(kernel, width, samples, shrinkage=1e-9).covariance(x)
        # the outputs of one network are uncorrelated, but not independent: count a quarter of them
        error = standard_error(exact, samples * width // 4)
        assert ((sampled - exact).abs() < 4.5 * error).all()
        assert (error < 0.05 * exact.max()).all()

    def test_shrinks_correlations_only(self) -> None:
        x = noise(3, 5, 5)
        plain = self.sampled(small_kernel(), 4, 10, shrinkage=1e-9).covariance(x)
        half = self.sampled(small_kernel(), 4, 10, shrinkage=0.5).covariance(x)
        keep = (0.5 + 0.5 * torch.eye(3)).view(3, 3, 1, 1, 1)
        torch.testing.assert_close(half, plain * keep)

    def test_is_the_covariance_of_the_networks(self) -> None:
        x = noise(3, 5, 5)
        nets = iter([nn.Conv2d(3, 4, 3) for _ in range(6)])
        outputs = []

        def factory() -> nn.Module:
            network = next(nets)
            outputs.append(network(x).detach())
            return network

        prior = SampledPrior(factory, 1, samples=6, shrinkage=0.3)
        ours = prior.covariance(x)
        f = torch.stack(outputs)
        for i in range(3):
            for j in range(3):
                centred = (f[:, i] - f[:, i].mean(0)) * (f[:, j] - f[:, j].mean(0))
                wanted = centred.sum(0).mean(0) / 5 * (1.0 if i == j else 0.7)
                torch.testing.assert_close(ours[i, j, 0], wanted)

    def test_stays_positive_definite_with_few_samples(self) -> None:
        x = noise(8, 5, 5)
        x[1] = x[0]
        prior = self.sampled(kernels.Sequential(kernels.Conv(3, 0.2)), 1, 3)
        K = prior.covariance(x)[:, :, 0].movedim((0, 1), (-2, -1)).double()
        scale = K.diagonal(dim1=-2, dim2=-1).amin(-1)
        assert (torch.linalg.eigvalsh(K)[..., 0] > 1e-4 * scale).all()

    def test_shrinkage_goes_away_with_samples(self) -> None:
        x = noise(3, 5, 5)
        exact = CNNGPPrior(small_kernel(), 2).covariance(x)
        errors = [
            (self.sampled(small_kernel(), 8, samples).covariance(x) - exact).abs().mean()
            for samples in (5, 160)
        ]
        assert errors[1] < 0.4 * errors[0]  # √32 = 5.7 times smaller in expectation

    def test_same_networks_at_every_call_and_global_state_untouched(self) -> None:
        x = noise(3, 5, 5)
        prior = self.sampled(small_kernel(), 4, 5)
        state = torch.get_rng_state()
        assert torch.equal(prior.covariance(x), prior.covariance(x))
        assert torch.equal(torch.get_rng_state(), state)
        part = self.sampled(small_kernel(), 4, 5, shrinkage=0.1)
        torch.testing.assert_close(part.covariance(x[:2]), part.covariance(x)[:2, :2])

    def test_mean_and_noise_can_be_learned(self) -> None:
        prior = self.sampled(small_kernel(), 4, 5, learn=("mean", "noise"))
        p = prior(noise(3, 5, 5))
        (p.mean.sum() + p.covariance.blocks().sum()).backward()
        gradients = {name: value.grad for name, value in prior.named_parameters()}
        assert gradients["mean"].tolist() == [27.0, 27.0]  # 3 images of 3×3 pixels
        assert gradients["noise.log"].item() == pytest.approx(0.1 * 27)  # d/d log noise

    def test_classification_with_pooling(self) -> None:
        """Global average pooling of a linear network has a closed form over all pixel pairs."""
        x = noise(4, 6, 6) - 0.5
        width = 64

        def factory() -> nn.Module:
            head = kernels.Conv(1, 1.0).network(3, width)
            return nn.Sequential(head, nn.AdaptiveAvgPool2d(1), nn.Flatten())

        samples = 100
        prior = SampledPrior(factory, outputs=10, mean=1.0, samples=samples, shrinkage=1e-9)
        p = prior(x)
        assert p.mean.shape == (4, 10, 1, 1)
        pooled = x.mean((2, 3))
        exact = (pooled @ pooled.T / 3).view(4, 4, 1, 1, 1)
        error = standard_error(exact, samples * width)
        K = p.covariance.blocks() - 0.1 * torch.eye(4).view(4, 4, 1, 1, 1)
        assert ((K - exact).abs() < 4.5 * error + 1e-7).all()  # float32 beside noise 0.1


class TestReport:
    def test_known_correlations(self) -> None:
        """Constant images of one channel each: K = mean over channels of x x', by hand."""
        x = torch.zeros(3, 2, 4, 4)
        x[0, 0], x[1, 1], x[2] = 1.0, 2.0, 1.0
        report = prior_report(CNNGPPrior(kernels.Scale(1.0), 1), x)
        # correlations 0, 1/√2, 1/√2; variances 1/2, 2, 1
        assert report.correlation[0.0] == 0
        assert report.correlation[0.5] == pytest.approx(math.sqrt(0.5))
        assert report.variance == pytest.approx(
            {0.0: 0.5, 0.05: 0.5, 0.25: 0.5, 0.5: 1.0, 0.75: 2.0, 0.95: 2.0, 1.0: 2.0}, abs=1e-6
        )
        # eigenvalues of the correlation matrix: 2, 1, 0
        wanted = math.exp(-(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3))
        assert report.effective_rank == pytest.approx(wanted, rel=1e-5)
        assert "effective rank  1.89 of 3 images" in str(report)
        assert "50 %: 0.7071" in str(report)

    def test_noise_is_left_out(self) -> None:
        x = noise(3, 24, 24)
        quiet = prior_report(CNNGPPrior(kernels.paper_kernel(24, 24), 1, noise=0.0), x)
        loud = prior_report(CNNGPPrior(kernels.paper_kernel(24, 24), 1, noise=5.0), x)
        assert quiet == loud
        assert quiet.correlation[0.5] > 0.98
        assert quiet.effective_rank < 1.1
