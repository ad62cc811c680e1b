"""wrap: which layer makes the output, heads at that layer's resolution, networks of any kind."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onesigma.heads import CovarianceHeads, HeadOptions
from onesigma.posterior import VariationalGP
from onesigma.wrap import wrap


def images(n: int = 3, channels: int = 3) -> Tensor:
    return torch.rand(n, channels, 13, 18, generator=torch.Generator().manual_seed(0))


def network(outputs: int, up: bool = False) -> nn.Sequential:
    layers = [
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, outputs, 1),
    ]
    if up:
        layers = [nn.AvgPool2d(2), *layers, nn.Upsample(scale_factor=2)]
    return nn.Sequential(*layers)


class Branches(nn.Module):
    """Convolutions with equally many outputs, in the order of their names; how they are used."""

    def __init__(self, use: Callable[[Branches, Tensor], object], outputs: int = 4) -> None:
        super().__init__()
        self.use = use
        self.first, self.second = nn.Conv2d(5, outputs, 1), nn.Conv2d(5, outputs, 1)
        self.stem = nn.Conv2d(3, 5, 3, padding=1)
        self.of_outputs = nn.Conv2d(outputs, outputs, 1)

    def forward(self, x: Tensor) -> object:
        return self.use(self, self.stem(x).relu())


def wrapped(use: Callable[[Branches, Tensor], object], **options: object) -> str:
    return wrap(Branches(use), 4, **options).layer  # type: ignore[arg-type]


def test_the_layer_is_the_one_that_makes_the_output() -> None:
    assert wrapped(lambda net, x: net.first(x)) == "first"
    with_auxiliary = {
        "first": lambda net, x: {"out": net.first(x), "aux": net.second(x)},
        "second": lambda net, x: {"out": net.second(x), "aux": net.first(x)},
    }
    for name, use in with_auxiliary.items():
        assert wrapped(use, select=lambda out: out["out"]) == name  # type: ignore[index]
    assert wrapped(lambda net, x: net.first(x * net.second(x).mean(1, keepdim=True))) == "first"
    assert wrapped(lambda net, x: net.of_outputs(net.second(x) + net.first(x))) == "of_outputs"
    # frozen networks have an output too
    frozen = Branches(lambda net, x: net.first(x)).requires_grad_(False)
    assert wrap(frozen, 4).layer == "first"


def test_looking_for_it_draws_no_random_numbers() -> None:
    net = Branches(lambda net, x: net.first(functional.dropout(x, 0.5, training=True)))
    made = []
    for layer in (None, "first"):
        torch.manual_seed(1)
        made.append(wrap(net, 4, layer=layer).heads.factor.weight)
    torch.testing.assert_close(*made)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda net, x: net.first(x) + net.second(x), "comes from second and beside it first"),
        (lambda net, x: x[:, :4], "comes from none of them"),
        (lambda net, x: [net.first(x)], "returned a list; pass select="),
        (lambda net, x: net.first(x[:, :2]), r"did not accept .* \(1, \d+, 64, 64\)"),
    ],
)
def test_where_several_might_the_candidates_are_named(use, reason) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=rf"3 convolutions.*first, second, of_outputs.*{reason}"):
        wrapped(use)


@pytest.mark.parametrize("up", [False, True])
def test_a_wrapped_network_keeps_its_output_as_the_mean(up) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    net = network(4, up).eval()
    batch = images()[..., :12, :]
    model = wrap(net, 4, rank=3).eval()
    marginal, log_scale = model.marginals(batch)
    torch.testing.assert_close(marginal.mean, net(batch))
    assert marginal.variance.shape == marginal.mean.shape == log_scale.shape
    assert model.heads.factor.in_channels == 8
    q, _ = model(batch, context=batch)
    assert len(q) == 6


def test_wrap_picks_from_dictionaries_and_named_layers() -> None:
    class Dictionary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network(4)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"out": self.net(x)}

    with pytest.raises(TypeError, match="select="):
        wrap(Dictionary(), 4).marginals(images())
    model = wrap(Dictionary(), 4, select=lambda out: out["out"], layer="net.5")  # type: ignore[index]
    assert model.heads.factor.in_channels == 8
    assert model.marginals(images())[0].mean.shape == (3, 4, 13, 18)


@pytest.mark.usefixtures("as_users_call")
def test_what_does_not_fit_is_explained() -> None:
    with pytest.raises(ValueError, match=r"no convolution with 7 outputs.*6 \(4\)"):
        wrap(network(4), 7)
    with pytest.raises(ValueError, match="no layer 'last'"):
        wrap(network(4), 4, layer="last")
    with pytest.raises(ValueError, match="up-sample its end"):
        wrap(nn.Conv2d(3, 4, 3, stride=2), 4).marginals(images())


class Tokens(nn.Module):
    def __init__(self, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.call, self.stem = call, nn.Conv2d(3, 5, 1)
        self.head = Flexible()

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.head, self.stem(x))


class Flexible(nn.Module):
    def forward(self, x: Tensor | list[Tensor]) -> Tensor:
        return x[0] if isinstance(x, list) else x


@pytest.mark.parametrize(
    ("call", "came"),
    [
        (lambda head, x: head(x.flatten(2)).view_as(x), r"a tensor of shape \(1, 5, 4096\)"),
        (lambda head, x: head(x=x), r"only arguments by keyword \(x\)"),
        (lambda head, x: head([x]), "a list"),
    ],
)
@pytest.mark.usefixtures("as_users_call")
def test_a_layer_without_feature_maps_is_explained(call, came) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=f"'head' is given {came}; wrap wants one whose first"):
        wrap(Tokens(call), 5, layer="head")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_heads_are_of_the_network_s_kind(dtype: torch.dtype) -> None:
    """Their random start is that of float32, whatever the network is."""
    options = HeadOptions(layer_distances=True, whole_image=True, scale="image")
    net = nn.Sequential(nn.Conv2d(5, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)).to(dtype)
    for build in (wrap, VariationalGP):
        for part, start in ((net, dtype), (copy.deepcopy(net).float(), torch.float32)):
            torch.manual_seed(0)
            model = build(part, 4, rank=2, options=options).eval()
            assert {p.dtype for p in model.parameters()} == {start}
            field, log_scale = model.marginals(images(channels=5).to(start))
            assert field.variance.dtype == log_scale.dtype == start


def test_heads_at_the_layer_s_resolution_are_those_on_up_sampled_features() -> None:
    torch.manual_seed(0)
    options = HeadOptions(shared_factors=False, scale_window=3, scale_position=True)
    heads = CovarianceHeads(6, 2, 3, 1e-3, options)
    for part in (heads.factor, heads.log_diagonal, heads.log_scale):
        nn.init.normal_(part.weight)  # type: ignore[union-attr]
    nn.init.normal_(heads.scale_position.slopes)  # type: ignore[union-attr]
    coarse, size = torch.randn(2, 6, 5, 7), (18, 30)
    fine = functional.interpolate(coarse, size, mode="bilinear", align_corners=False)
    for name in ("diagonal", "scale", "factors", "factor_variance"):
        head = getattr(heads, name)
        torch.testing.assert_close(head(coarse, size=size), head(fine), rtol=1e-5, atol=1e-5)


def test_a_stride_counts_pixels_of_the_image() -> None:
    """Features of stride 4 are the averages over 4 × 4 pixels that stride=4 asks for."""
    torch.manual_seed(0)
    plain, coarse = (CovarianceHeads(6, 2, 3, 1e-3, HeadOptions(stride=s)) for s in (1, 4))
    coarse.load_state_dict(plain.state_dict())
    features, size = torch.randn(2, 6, 5, 7), (20, 28)
    torch.testing.assert_close(coarse.factors(features, size), plain.factors(features, size))


def test_copies_and_pickles_have_hooks_of_their_own() -> None:
    torch.manual_seed(0)
    model = wrap(network(4), 4, rank=2).eval()
    expected = model.marginals(images())[0].variance
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        nn.init.zeros_(model.network[0].weight)  # type: ignore[index,arg-type]
        torch.testing.assert_close(twin.marginals(images())[0].variance, expected)
    model.network(images())
    assert model.given.last is None


COMPILED = """
import torch, onesigma
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 6, 2, stride=2), nn.Conv2d(6, 4, 1), nn.Upsample(scale_factor=2))

class Maps(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = onesigma.wrap(net, 4, rank=2)

    def forward(self, images):
        field, log_scale = self.model.marginals(images)
        return field.mean, field.variance, log_scale

maps, images = Maps().eval(), torch.rand(2, 3, 12, 18)

def probs(images):
    return onesigma.Boltzmann().predict(*maps.model.marginals(images)).probs

with torch.no_grad():
    compiled = torch.compile(probs, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), probs(images))
    traced = torch.jit.trace(maps, images, check_trace=False)
    torch.testing.assert_close(traced(images), maps(images))
    any_number = ({0: torch.export.Dim("n", min=1, max=8)},)
    program = torch.export.export(maps, (images,), dynamic_shapes=any_number).module()
    torch.testing.assert_close(program(images[:1]), maps(images[:1]))
"""


@pytest.mark.slow
def test_marginals_are_compiled_whole_traced_and_exported() -> None:
    """In a process of its own: nothing compiles the checks of shapes that tests run with."""
    run = [sys.executable, "-W", "ignore", "-c", COMPILED]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
