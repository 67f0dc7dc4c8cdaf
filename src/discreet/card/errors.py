"""The one error of this package."""


class CardError(ValueError):
    """A model cannot be saved, or a model file cannot be trusted; the message says why."""
