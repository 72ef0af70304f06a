"""`python -m bench`: measures, shows a table for each section as it is done, and writes what is asked for."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import click
import msgspec
from rich.console import Console

from bench import report
from bench.console import open_console
from bench.machine import describe
from bench.registry import BENCHMARKS, run
from bench.wire import ROOT
from bench.world import TINY, Scale, World

PAGE = ROOT / "docs" / "benchmarks.md"


def _with_folder(_: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """What takes minutes to measure is not to be lost because the folder it should go to is not there, or not ours."""
    if path is None:
        return None
    is_folder = isinstance(option.type, click.Path) and option.type.dir_okay
    folder = path if is_folder else path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"the folder {folder} cannot be made: {error.strerror}"
        raise click.BadParameter(problem, param=option) from error
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise click.BadParameter(f"{path} may not be written", param=option)
    return path


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--size", "sizes", type=click.IntRange(1), multiple=True, help="Observations; repeatable."
)
@click.option(
    "--only",
    type=click.Choice([each.name for each in BENCHMARKS]),
    multiple=True,
    help="Repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Everything, and write docs/benchmarks.md.")
@click.option("--tiny", is_flag=True, help="A few samples of little: does it run?")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    callback=_with_folder,
    help="Write the rows to a file, as JSON, also where the run is stopped.",
)
@click.option(
    "--memory",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A memory.json of the reference server to import.",
)
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    callback=_with_folder,
    help="Write what `scale` measured to a file, as SVG.",
)
@click.option(
    "--vectors",
    type=click.Path(path_type=Path, file_okay=False, writable=True),
    callback=_with_folder,
    help="A folder that keeps vectors for the next run, which then embeds little.",
)
@click.option(
    "--peer",
    metavar="COMMAND",
    help="A memory server with the same nine tools to stand beside, for `peers`. It is filled with what is made up: "
    "have it keep that apart from your memory.",
)
@click.option(
    "--dir",
    "parent",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where to make the temporary folder: on the disk that is to be measured.",
)
def main(
    sizes: tuple[int, ...],
    only: tuple[str, ...],
    every: bool,
    tiny: bool,
    json_file: Path | None,
    memory: Path | None,
    plot_file: Path | None,
    vectors: Path | None,
    peer: str | None,
    parent: Path | None,
) -> None:
    """Measure memlog beside the bare parts under it.

    Without options: the canonical load, in less than five minutes.
    """
    if every and (sizes or only or tiny):
        raise click.UsageError("--all measures everything; leave --size, --only and --tiny out")
    if every and not os.access(PAGE, os.W_OK):
        raise click.UsageError(
            f"--all writes {PAGE}, which this user may not; take a checkout of your own"
        )
    # As an exception, so that the folder, which may be large, goes and the children with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scale = TINY if tiny else Scale()
    if sizes:
        scale = msgspec.structs.replace(scale, sizes=sizes, scale_sizes=sizes)
    asked = {"import": memory, "peers": peer}
    names = only or [
        each.name for each in BENCHMARKS if each.canonical or every or asked.get(each.name)
    ]
    for option, given, name in (
        ("--plot", plot_file, "scale"),
        ("--memory", memory, "import"),
        ("--peer", peer, "peers"),
    ):
        if given is not None and name not in names:
            problem = f"{option} is for `{name}`, which is left out; add --only {name}"
            raise click.UsageError(problem)
    console, progress = open_console(), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="memlog-bench-", dir=parent) as folder:
        machine = describe(Path(folder))
        measured = []
        try:
            with World(Path(folder), scale, progress, memory, peer, vectors) as world:
                for benchmark, section in run(world, names):
                    for shown in report.tables(section):
                        console.print(shown, "")
                    measured.append((benchmark.name, section))
        finally:  # what was measured before one failed, or before Ctrl-C, too
            if json_file is not None and measured:
                document = report.Document(machine, [section for _, section in measured])
                json_file.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
    sections = [section for _, section in measured]
    if any(report.headline_rows(measured)):
        console.print(report.headlines(measured), "")
    console.print(report.verdict(sections))
    if plot_file is not None:
        plot_file.write_text(report.plotted(sections))
    if every:
        PAGE.write_text(report.page(machine, measured))
        PAGE.with_name(report.PLOT).write_text(report.plotted(sections))
        console.print(f"Written: {PAGE.relative_to(ROOT)} and {report.PLOT} beside it")


if __name__ == "__main__":
    main()
