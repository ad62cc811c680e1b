"""The command line: recipes, train, evaluate, predict, compare, demo."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill
from typing import Any

from onesigma.console import counting, failed, guarded

# Everything else is imported by the command that needs it: help must not wait for torch.

COMMANDS = ("recipes", "train", "evaluate", "predict", "compare", "demo")
MEMORY_MB = 1024.0
OVERRIDES = (
    "Any setting of the recipe can be changed by its dotted key: --seed 1, --data.root DIR, "
    "--stages.epochs 5 (all stages), --stages.0.optimiser.lr 1e-4 (the first). "
    "docs/training.md lists them."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status.

    Args:
        argv: arguments after the program's name; those of the process when left out.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    # the current folder, so that a class_path may name a file that lies there
    if "" not in sys.path:
        sys.path.append("")
    parser = build_parser()
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        close = get_close_matches(words[0], COMMANDS, n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]!r}?" if close else f"Choose from {', '.join(COMMANDS)}."
        return failed(f"There is no command {words[0]!r}. {hint}", 2)
    from onesigma.training.arguments import split_overrides

    words, rest = split_overrides(words)
    options = parser.parse_args(words)
    if options.command is None:
        parser.print_help()
        return 2
    return guarded(options.run, options, rest)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="onesigma",
        description="Uncertainty for every pixel: train, evaluate and predict.",
        epilog="Example: onesigma train scenes-segmentation --out runs/first",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (_add_recipes, _add_train, _add_evaluate, _add_predict, _add_compare, _add_demo):
        add(commands)
    return parser


def _command(
    commands: Any, name: str, run: Callable[[Any, list[str]], int], about: str, example: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=fill(about, 88),
        epilog=f"Example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def _add_recipes(commands: Any) -> None:
    parser = _command(
        commands, "recipes", _recipes, "List the recipes, or show one.", "onesigma recipes camvid"
    )
    parser.add_argument("recipe", nargs="?", help="show this one with all its settings")


def _add_train(commands: Any) -> None:
    parser = _command(
        commands,
        "train",
        _train,
        f"Train a recipe into a run folder. {OVERRIDES}",
        "onesigma train camvid-small --data.root camvid --out runs/camvid --stages.epochs 8",
    )
    parser.add_argument("recipe", help="a name of `onesigma recipes`, or a YAML file")
    parser.add_argument("--out", metavar="RUN", help="the run folder (default: runs/RECIPE)")
    parser.add_argument("--resume", action="store_true", help="go on where this run stopped")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _add_evaluate(commands: Any) -> None:
    parser = _command(
        commands,
        "evaluate",
        _evaluate,
        "Write all metrics of a run to RUN/metrics.json and print them. Settings of the data can "
        "be changed by their dotted key: --data.root DIR, --data.options.odd fog.",
        "onesigma evaluate runs/camvid --data.root camvid --split test",
    )
    parser.add_argument("folder", metavar="RUN", help="a run folder")
    parser.add_argument("--split", help="train, val or test (default: the recipe's)")
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: a GPU if there is one)")
    parser.add_argument("--out", metavar="FILE", help="write here instead of RUN/metrics.json")


def _add_predict(commands: Any) -> None:
    parser = _command(
        commands,
        "predict",
        _predict,
        "Predict images: for each, maps of the prediction and of its total, epistemic and "
        "aleatoric uncertainty as PNG, and the arrays as .npz.",
        "onesigma predict runs/camvid street.png photos/ --out maps",
    )
    parser.add_argument("folder", metavar="RUN", help="a run folder")
    parser.add_argument("images", metavar="IMAGES", nargs="+", help="image files, or folders")
    parser.add_argument("--out", metavar="DIR", required=True, help="where the maps go")
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: a GPU if there is one)")
    parser.add_argument(
        "--memory",
        metavar="MB",
        type=_megabytes,
        default=MEMORY_MB,
        help=f"memory of one pass; larger images are cut into tiles (default: {MEMORY_MB:g})",
    )


def _megabytes(text: str) -> float:
    size = float(text)
    if not size > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a size; give more than 0 MB")
    return size


def _add_compare(commands: Any) -> None:
    parser = _command(
        commands,
        "compare",
        _compare,
        "Compare evaluated runs with the first: differences, paired-bootstrap intervals, and a * "
        "where 0 is excluded.",
        "onesigma compare runs/deterministic runs/mc-dropout runs/functional-vi",
    )
    parser.add_argument("folders", metavar="RUN", nargs="+", help="two or more run folders")
    parser.add_argument("--out", metavar="FILE", help="write the table here too")


def _add_demo(commands: Any) -> None:
    parser = _command(
        commands,
        "demo",
        _demo,
        "Train a small network on generated scenes and write a page that shows what it knows.",
        "onesigma demo --out demo",
    )
    parser.add_argument("--out", metavar="DIR", default="demo", help="a new folder (default: demo)")


def _recipes(options: Any, rest: list[str]) -> int:
    from onesigma.training.recipes import describe_recipes, load_recipe, write_yaml

    if options.recipe is not None:
        print(write_yaml(load_recipe(options.recipe)), end="")
        return 0
    found = describe_recipes()
    width = max(map(len, found))
    for name, text in found.items():
        print(f"{name:<{width}}  {text}")
    print(
        "\nTrain one: onesigma train NAME. Show one with all its settings: onesigma recipes NAME."
    )
    return 0


def _train(options: Any, rest: list[str]) -> int:
    from onesigma.training.arguments import parse_overrides
    from onesigma.training.recipes import load_recipe

    out = Path(options.out or Path("runs") / Path(options.recipe).stem)
    recipe = load_recipe(options.recipe, parse_overrides(rest))
    from onesigma.training.folder import RunFolder

    finished = RunFolder(out).weights.is_file()
    RunFolder(out).check_free(options.resume)
    from rich.console import Console

    from onesigma.training.errors import TrainingInterrupted
    from onesigma.training.fit import train
    from onesigma.training.memory import keep_freed_memory

    keep_freed_memory()
    try:
        run = train(recipe, out, options.resume, None if options.quiet else Console())
    except TrainingInterrupted as stop:
        print(f"{stop} Go on with the same command and --resume:\n  {_again(options, rest, out)}")
        return 130
    if finished:
        print(f"{run.path} is finished already; there is nothing to resume.")
    else:
        print(f"Trained. The run is {run.path}; its weights are {run.folder.weights}.")
    print(f"Next: onesigma evaluate {shlex.quote(str(run.path))}")
    return 0


def _evaluate(options: Any, rest: list[str]) -> int:
    from onesigma.training.arguments import data_overrides, parse_overrides

    root, extra = data_overrides(parse_overrides(rest))
    from onesigma.metrics import format_metrics
    from onesigma.training.evaluate import (
        evaluate_run,
        on_data,
        other_data,
        prepare_file,
        save_metrics,
    )

    run = on_data(_load(options), root, extra)
    path = Path(options.out) if options.out else run.folder.metrics
    prepare_file(path)
    with counting("evaluating") as seen:
        metrics = evaluate_run(run, options.split, seen)
    before = other_data(path, metrics)
    if before:
        print(f"{path} was of {before}; it is replaced. --out FILE keeps both.")
    save_metrics(path, metrics)
    print("\n".join(format_metrics(metrics)))
    print(f"{metrics['split']} of {run.path}: all metrics, per set and per image, are in {path}")
    if not options.out:
        from onesigma.report.run_page import write_run_page

        print(f"A page with pictures is {write_run_page(run, metrics, split=options.split)}")
    return 0


def _load(options: Any) -> Any:
    """The run, on the device that was asked for or on a GPU if there is one."""
    from onesigma.training.devices import find_device
    from onesigma.training.run import load

    device = find_device(options.device)
    return load(options.folder).to(device)


def _predict(options: Any, rest: list[str]) -> int:
    from onesigma.metrics.table import count_images
    from onesigma.report.maps import save_maps
    from onesigma.report.scales import scales_for
    from onesigma.training.predicting import predict_files

    run = _load(options)
    scales = scales_for(run.spec, high=run.largest_target)
    done, skipped = predict_files(
        run,
        options.images,
        Path(options.out),
        lambda prediction, name, out: save_maps(prediction, name, out, scales),
        options.memory,
    )
    if done:
        for kind in ("prediction", "total", "epistemic", "aleatoric"):
            print(f"{kind:<10}  {_scale_text(getattr(scales, kind))}")
        print(f"Maps and arrays of {count_images(len(done))} are in {options.out}")
    for path, reason in skipped:
        named = reason if str(path) in reason else f"{path}: {reason}"
        print(f"onesigma: skipped: {named}", file=sys.stderr)
    return 1 if skipped or not done else 0


def _scale_text(scale: Any) -> str:
    """What the colours of a map mean."""
    from onesigma.report.scales import LabelScale

    if isinstance(scale, LabelScale):
        return f"{scale.label}: one colour for each of {', '.join(scale.classes)}"
    more = " or more" if scale.open_end else ""
    return f"{scale.label}: {scale.low:g} to {scale.high:.4g}{more}, colours {scale.colours}"


def _compare(options: Any, rest: list[str]) -> int:
    from onesigma.metrics import format_comparison
    from onesigma.training.evaluate import read_metrics
    from onesigma.training.folder import RunFolder

    if len({Path(name).resolve() for name in options.folders}) < max(2, len(options.folders)):
        return failed("compare wants two or more runs, each once.", 2)
    runs = {name: read_metrics(RunFolder(Path(name))) for name in options.folders}
    tasks = {str(metrics["task"]) for metrics in runs.values() if "task" in metrics}
    if len(tasks) > 1:
        return failed("The runs have different tasks: one predicts labels, one depth.", 1)
    splits = {str(metrics.get("split")) for metrics in runs.values()}
    if len(splits) > 1:
        return failed(
            f"The runs were evaluated on different splits: {', '.join(sorted(splits))}.", 1
        )
    short = {name: Path(name).name for name in runs}
    if len({*short.values()}) == len(short):
        runs = {short[name]: metrics for name, metrics in runs.items()}
    lines = format_comparison(runs)
    lines.append("* the 95 % interval of the difference, by paired bootstrap, excludes 0")
    print("\n".join(lines))
    if options.out:
        Path(options.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"The table is in {options.out}")
    return 0


def _demo(options: Any, rest: list[str]) -> int:
    from onesigma.report.demo import run_demo
    from onesigma.training.memory import keep_freed_memory

    keep_freed_memory()
    page = run_demo(Path(options.out))
    print(f"The demonstration is in {page or options.out}")
    return 0


def _again(options: Any, rest: list[str], out: Path) -> str:
    quiet = ["--quiet"] if options.quiet else []
    words = ["onesigma", "train", options.recipe, "--out", str(out), *rest, *quiet, "--resume"]
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
