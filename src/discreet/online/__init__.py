"""Private learning on streams: a public horizon, one charge, answers after every step."""

from discreet.online.ftrl import PrivateFTRL
from discreet.online.linear import PrivateOnlineLinearModel
from discreet.online.stream import HorizonReached, StreamError

__all__ = ["HorizonReached", "PrivateFTRL", "PrivateOnlineLinearModel", "StreamError"]
