"""hotloop keeps the training loop hot: see ``hotloop --help`` and ARCHITECTURE.md."""

__version__ = "0.1.0"
