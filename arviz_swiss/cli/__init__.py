"""The command line, for who has files: one command a function of the package.

Standard output holds what was asked for and nothing else; warnings and errors are one line each on
standard error. Whatever takes long to import is imported by the command that needs it, so that
``--help`` is there at once.
"""

from arviz_swiss.cli.main import main

__all__ = ["main"]
