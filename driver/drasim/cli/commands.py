"""The commands for people, on typer. A command is a function of its own module, added here by one line.

Commands raise; ``__main__`` turns what they raise into an exit code (``ConfigError`` into 2).
"""

import typer

from drasim.cli import config, controller, devices, fault, node, release, status, uninstall, version

__all__ = ["app"]

app = typer.Typer(
    name="drasim",
    help="A Kubernetes DRA driver for simulated GPUs and NICs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("node", help=node.SUMMARY, add_help_option=False, context_settings={"ignore_unknown_options": True})(
    node.listed
)
app.command(
    "controller",
    help=controller.SUMMARY,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)(controller.listed)
app.command("devices")(devices.devices)
app.command("release")(release.release)
app.command("status")(status.status)
app.command("uninstall")(uninstall.uninstall)
app.command("version")(version.version)
app.add_typer(config.app, name="config")
app.add_typer(fault.app, name="fault")
