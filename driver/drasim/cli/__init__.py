"""The command line. This file imports nothing: ``drasim node`` must not pay for what people's commands use.

``commands`` has the commands for people (typer); ``node`` is for the daemon and reads its few flags itself.
"""
