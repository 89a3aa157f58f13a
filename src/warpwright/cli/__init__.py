"""The `warpwright` command: one module a sub-command; what goes wrong is told in one line, with exit code 2."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of `warpwright`."""
    # PTX kernels and torch's operations take turns on the same cores: torch's idle threads must not spin. libgomp reads this when it loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from warpwright.errors import WarpwrightError

    try:
        code = build()(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except WarpwrightError as error:
        sys.exit(_fail(str(error)))
    except KeyboardInterrupt:
        print("warpwright: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        sys.exit(_fail(f"{error.filename or 'output'}: {error.strerror or error}"))
    except Exception as error:
        if not hasattr(error, "format_message"):  # that is how typer says that an option or argument is wrong
            raise
        message = error.format_message()
        if "\n" in message:  # it is the help, since nothing was asked for
            print(message)
            sys.exit(2)
        sys.exit(_fail(f"{message}; see {' '.join(_command())} --help"))


def _command() -> list[str]:
    """The words of the command line that choose the command."""
    words = []
    for word in sys.argv[1:]:
        if word.startswith("-"):
            break
        words.append(word)
    known = {"train", "generate", "export", "bench", "kernels", "ptx", "check", "run", "schedule", "plan", "model"}
    return ["warpwright", *(word for word in words[:2] if word in known)]


def _fail(message: str) -> int:
    print(f"warpwright: error: {message}", file=sys.stderr)
    return 2


def build():
    """The typer application with all its commands. Their modules import torch and LLVM only when they run."""
    import typer

    from warpwright import __version__
    from warpwright.cli import bench, kernels, plan, ptx, schedule
    from warpwright.cli.export import export
    from warpwright.cli.generate import generate
    from warpwright.cli.train import train

    app = typer.Typer(
        help="Train DeepSeek-V3-style mixture-of-experts models with kernels written in PTX, on this computer's processor.",
        no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

    def show_version(asked: bool) -> None:
        if asked:
            print(f"warpwright {__version__}")
            raise typer.Exit

    @app.callback()
    def options(version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Print the version.")) -> None:
        pass

    app.command()(train)
    app.command()(generate)
    app.command()(export)
    app.add_typer(bench.app, name="bench")
    app.command("kernels")(kernels.kernels)
    app.add_typer(plan.app, name="plan")
    app.add_typer(ptx.app, name="ptx")
    app.add_typer(schedule.app, name="schedule")
    return app
