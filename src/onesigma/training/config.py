"""What a recipe says: every setting of a run, typed, with our defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Size = tuple[int, int]
MethodName = Literal["functional_vi", "deterministic", "heteroscedastic", "mc_dropout"]


@dataclass(frozen=True)
class Component:
    """Something to build: one of ours by `name`, or anything importable by `class_path`.

    Attributes:
        name: a short name.
        class_path: a dotted path to a class or function, instead of a name. It is imported and
            called: a recipe can run code, a weights file cannot.
        options: arguments for it.
    """

    name: str | None = None
    class_path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataConfig:
    """Where images and targets come from.

    Attributes:
        name: scenes, camvid, nyuv2, make3d or folder.
        class_path: a `PixelDataset` of your own instead.
        root: the folder of the data; scenes need none.
        options: arguments of the data set for all splits.
        splits: further arguments for one split, such as `{val: {length: 50}}`.
        limit: train on so many images only, evenly spread over the training split.
        evaluate: the split that `evaluate` takes by default.
        eval_size: rows and columns at which the network sees images for evaluation and prediction;
            null for the images' own.
        workers: processes that read data.
    """

    name: str | None = "scenes"
    class_path: str | None = None
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)
    limit: int | None = None
    evaluate: str = "test"
    eval_size: Size | None = None
    workers: int = 0


@dataclass(frozen=True)
class TransformConfig:
    """The space in which the model sees a target: z = (g(y) - shift) / scale.

    Attributes:
        name: affine (g(y) = y) or log (g(y) = log(y + offset)), for depth; null leaves the target
            as it is.
        shift: null for the mean of g over training targets.
        scale: null for the standard deviation of g over training targets.
        offset: of the logarithm, in the target's unit; 0 makes relative errors equal, a large one
            is nearly affine.
    """

    name: Literal["affine", "log"] | None = None
    shift: float | None = None
    scale: float | None = None
    offset: float = 0.0


@dataclass(frozen=True)
class TargetConfig:
    """What the run predicts; filled in from the data when the run starts.

    Attributes:
        task: segmentation or depth.
        classes: names of the labels.
        palette: a display colour for each class.
        unit: of the target.
        shares: of each class among the labelled pixels of the training images; filled in where
            the prior's mean asks for them.
    """

    task: Literal["segmentation", "depth"] | None = None
    classes: list[str] = field(default_factory=list)
    palette: list[tuple[int, int, int]] = field(default_factory=list)
    unit: str = ""
    shares: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class MethodConfig:
    """How uncertainty is learned.

    Attributes:
        name: functional_vi, deterministic, heteroscedastic or mc_dropout.
        loss: of deterministic and mc_dropout networks: l1, berhu, cross_entropy, boltzmann, or
            "likelihood" to learn the scale of the recipe's likelihood.
        passes: of MC dropout at prediction.
        members: above 1, an ensemble of this many networks from different starts, trained side by
            side on the same batches.
        temperature: after training, fit one temperature on the split `val`.
        normalisation: of the KL, see `functional_elbo`.
        kl_stride: measure the KL at every so-many-th row and column, from a random offset each
            step: an unbiased estimate for a fraction of the time.
        fit_stride: likewise, measure what the variance takes from the fit on such a grid, and the
            fit at the mean everywhere.
        context_weight: what context images add to the KL counts so many times; more makes odd
            inputs more uncertain and fits a little less.
        unlabelled_weight: the KL of pixels without a target is added so many times, so that
            things nobody labelled are reported as not known.
        stranger_weight: above 0, things that do not belong are pasted into training images
            (`Strangers`), and the KL of their pixels is added so many times, so that things like
            none in training are reported as not known, also where every pixel has a label.
        scale_power: of functional VI of values: pixels count in the fit by σ to this power, from 0,
            the bound itself, to 1, where the mean learns from noisy pixels as from others.
        noise_epochs: of functional VI with a scale: epochs at the end of training in which log σ
            alone is learned (once more, but for the scale of images), on images altered so that
            the mean does not know them by heart (`AlteredCopies`); 0 for none.
        noise_strength: how much they are altered there.
    """

    name: MethodName = "functional_vi"
    loss: Literal["l1", "berhu", "cross_entropy", "boltzmann", "likelihood"] | None = None
    passes: int = 50
    members: int = 1
    temperature: bool = False
    normalisation: Literal["labelled", "valid"] = "labelled"
    kl_stride: int = 1
    fit_stride: int = 1
    context_weight: float = 1.0
    unlabelled_weight: float = 0.0
    stranger_weight: float = 0.0
    scale_power: float = 0.0
    noise_epochs: int = 0
    noise_strength: float = 1.0


@dataclass(frozen=True)
class PriorConfig:
    """The prior p(f) of functional VI, at the size of the images of a stage.

    Attributes:
        kernel: paper, dense_paper, scene or texture.
        class_path: a `Prior` of your own instead, called with `outputs` and `options`.
        options: arguments of the kernel, or of your own prior.
        mean: of every output, one number or one for each; "shares" for the logarithms of the
            classes' shares of the training pixels, so that who knows nothing says what is usual.
        scale: factor on the kernel.
        noise: variance of the white noise.
        learn: which of mean, noise, scale, kernel are learned.
    """

    kernel: Literal["paper", "dense_paper", "scene", "texture"] = "scene"
    class_path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    mean: float | list[float] | Literal["shares"] = 0.0
    scale: float = 0.9
    noise: float = 0.1
    learn: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PosteriorConfig:
    """The heads that make a network a variational posterior.

    Attributes:
        rank: of the covariance between images (the paper's L).
        min_diagonal: added to its diagonal.
        scale: log σ per output, shared by the outputs of a pixel, of the image, or none; null for
            what the likelihood wants. That of the image, for labels whose likelihood has a shared
            scale, is learned in `noise_epochs` alone from how far it is from the training images
            at every batch normalisation, so that a label must go through f.
        shared_factors: one set of factors for all outputs.
        stride: of the factors, in pixels.
        whole_image: let the variance see the whole image, so that an odd one is unsure everywhere.
        layer_distances: let it see how far the image is from the training images at every batch
            normalisation of the network; learned in eight more epochs, when all else has been.
        scale_window: average log σ over so many pixels in either direction.
        scale_position: let log σ see where in its image a pixel lies; learned in `noise_epochs`
            alone where there are any. The last stage should not cut crops then.
        mean: of q at the start; null for the prior's.
        variance: of q at the start; null for the prior's.
        context_statistics: running or joint (the published code).
    """

    rank: int = 20
    min_diagonal: float = 1e-3
    scale: Literal["output", "shared", "image", "none"] | None = None
    shared_factors: bool = True
    stride: int = 1
    whole_image: bool = False
    layer_distances: bool = False
    scale_window: int = 1
    scale_position: bool = False
    mean: float | None = None
    variance: float | None = 0.1
    context_statistics: Literal["running", "joint"] = "running"


@dataclass(frozen=True)
class OptimiserConfig:
    """How weights move.

    Attributes:
        name: sgd, adam or adamw.
        lr: learning rate at the start of the stage.
        momentum: of SGD.
        weight_decay: added to the gradient by sgd and adam, decoupled in adamw.
        schedule: constant; exponential (lr · gamma^epoch); cosine (to 0 at the end of the stage).
        gamma: factor per epoch of the exponential schedule.
        warmup: epochs of a linear rise from 0.
    """

    name: Literal["sgd", "adam", "adamw"] = "adamw"
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: Literal["constant", "exponential", "cosine"] = "constant"
    gamma: float = 0.998
    warmup: float = 0.0


@dataclass(frozen=True)
class StageConfig:
    """A part of training.

    Attributes:
        epochs: how many.
        batch: images per step.
        size: rows and columns that images are resized to; null for their own.
        crop: rows and columns cut out at random; null for none.
        optimiser: and its schedule.
        kl_weight: a number, or "data" for B / (N A): batch over training images, and A. At 0 the
            divergence is not computed.
        kl_rise: epochs over which that weight rises from 0, so that labels are learned first.
        correlated_pixels: A, how many neighbouring pixels share one unknown; below 1, 1/A pixels
            are one observation, see `data_weight`.
        average: the stage ends with the mean of the weights over this share of its last steps; 0
            for those of the last step.
        augment: arguments of `onesigma.data.Augment` besides `crop`.
    """

    epochs: int = 1
    batch: int = 4
    size: Size | None = None
    crop: Size | None = None
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    kl_weight: float | Literal["data"] = "data"
    kl_rise: float = 0.0
    correlated_pixels: float = 1.0
    average: float = 0.0
    augment: dict[str, Any] = field(default_factory=lambda: {"flip": 0.5})


@dataclass(frozen=True)
class TrainerConfig:
    """How the machine is used; none of it changes what is learned, but precision and clip.

    Attributes:
        accelerator: as Lightning names it: auto, cpu, gpu.
        precision: as Lightning names it: 32-true, bf16-mixed, 16-mixed.
        clip: largest norm of the gradient; 0 for none.
        threads: of the CPU; null for as many as torch takes. Results are bit-identical for equal
            numbers only.
        checkpoint_seconds: at most so long between checkpoints; every epoch ends with one.
        checkpoint_steps: at most so many steps between checkpoints; 0 for no such limit.
        log_steps: steps between two rows of the logs; the first step and the last of a stage have
            one too.
        validate_epochs: epochs between two looks at the split `val`; 0 for none.
    """

    accelerator: str = "auto"
    precision: str = "32-true"
    clip: float = 1.0
    threads: int | None = None
    checkpoint_seconds: float = 30.0
    checkpoint_steps: int = 0
    log_steps: int = 10
    validate_epochs: int = 0


@dataclass(frozen=True)
class Recipe:
    """All settings of a run.

    Attributes:
        description: one line for people.
        seed: of everything random.
        data: images and targets.
        network: the feature network.
        method: how uncertainty is learned.
        likelihood: of the target: boltzmann, gaussian, laplace or berhu.
        prior: of functional VI.
        posterior: of functional VI.
        context: extra images of functional VI.
        transform: of the target.
        target: what is predicted.
        stages: of training.
        trainer: how the machine is used.
    """

    description: str = ""
    seed: int = 0
    data: DataConfig = field(default_factory=DataConfig)
    network: Component = field(default_factory=lambda: Component(name="fc_densenet_small"))
    method: MethodConfig = field(default_factory=MethodConfig)
    likelihood: Component = field(default_factory=lambda: Component(name="boltzmann"))
    prior: PriorConfig = field(default_factory=PriorConfig)
    posterior: PosteriorConfig = field(default_factory=PosteriorConfig)
    context: Component = field(default_factory=lambda: Component(name="mixed"))
    transform: TransformConfig = field(default_factory=TransformConfig)
    target: TargetConfig = field(default_factory=TargetConfig)
    stages: list[StageConfig] = field(default_factory=lambda: [StageConfig()])
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
