"""The current picture of each cluster in Redis: written by the lease holder alone, read by everybody.

Beside the picture stands its head: epoch, sequence, the age of the numbers, and what is wrong if they no longer
follow the cluster. It knows neither clusters nor what the numbers mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from gpupools.domain.gpus import Picture
from gpupools.errors import ConsoleError, Unreachable

# Answers come from memory next door: what takes longer than this is away.
TIMEOUT_SECONDS: Final = 3.0
_DECODER: Final = msgspec.msgpack.Decoder(Picture)
_ENCODER: Final = msgspec.msgpack.Encoder()

# One step on the server, so that a holder whose lease was taken over can never write over its successor.
_STORE = """
local epoch = tonumber(redis.call('HGET', KEYS[2], 'epoch') or '0')
local sequence = tonumber(redis.call('HGET', KEYS[2], 'sequence') or '0')
local mine, next = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch > mine or (epoch == mine and sequence >= next) then
  return {0, epoch, sequence}
end
redis.call('SET', KEYS[1], ARGV[4])
redis.call('HSET', KEYS[2], 'epoch', mine, 'sequence', next, 'taken_at', ARGV[3], 'error', ARGV[5])
return {1, mine, next}
"""
# An error may be told of numbers that an earlier epoch has published; only the epoch's holder makes them younger.
_PULSE = """
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
local mine = tonumber(ARGV[1])
if epoch > mine or (epoch < mine and ARGV[3] == '') then
  return ''
end
redis.call('HSET', KEYS[1], 'error', ARGV[3])
local seen = redis.call('HGET', KEYS[1], 'taken_at') or '0'
if epoch == mine and tonumber(seen) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'taken_at', ARGV[2])
  return ARGV[2]
end
return seen
"""


class Outranked(ConsoleError):
    """Somebody else has published with a higher epoch, or with this sequence already."""

    default_code = "outranked"

    def __init__(self, *, epoch: int, sequence: int) -> None:
        super().__init__("Another holder publishes this cluster.", epoch=epoch, sequence=sequence)
        self.epoch = epoch
        self.sequence = sequence


@dataclass(frozen=True, slots=True)
class Stored:
    """A picture as it is stored. ``error`` says why the numbers no longer follow the cluster, if they do not."""

    picture: Picture
    error: str = ""


@lru_cache(maxsize=4)
def _client(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS)


def _broker() -> Redis:
    return _client(settings.REDIS_URL)


def _keys(cluster_id: int) -> tuple[str, str]:
    return f"gpupools:picture:{cluster_id}", f"gpupools:head:{cluster_id}"


def _away(error: Exception) -> Unreachable:
    return Unreachable(
        "The broker does not answer, so the current numbers cannot be read or written.",
        code="broker-away",
        reason=type(error).__name__,
    )


def store(cluster_id: int, picture: Picture, *, error: str = "") -> None:
    """Write a picture; raise Outranked when a higher epoch, or this sequence, is there already.

    ``error`` says why the picture does not follow the cluster in everything. Raises Unreachable when the broker is
    away.
    """
    arguments = [picture.epoch, picture.sequence, repr(picture.taken_at), _ENCODER.encode(picture), error]
    stored, epoch, sequence = _run(_STORE, list(_keys(cluster_id)), arguments)
    if not stored:
        raise Outranked(epoch=int(epoch), sequence=int(sequence))


def confirm(cluster_id: int, *, epoch: int, taken_at: float, error: str = "") -> float | None:
    """Say that the picture was still true at ``taken_at`` (seconds since 1970), or why nobody knows.

    Returns the instant up to which it is known to be true by now, None when another epoch is published. Raises
    Unreachable when the broker is away.
    """
    newest = _run(_PULSE, [_keys(cluster_id)[1]], [epoch, repr(taken_at), error])
    return float(newest) if newest else None


def _run(script: str, keys: list[str], arguments: list[Any]) -> Any:
    try:
        return _broker().eval(script, len(keys), *keys, *arguments)
    except (RedisError, OSError) as error:
        raise _away(error) from error


def load(cluster_id: int) -> Stored | None:
    """Read the current picture with the age that was last confirmed; None when nobody has published yet.

    Raises Unreachable when the broker is away: that is not the same as having no numbers.
    """
    picture_key, head_key = _keys(cluster_id)
    try:
        with _broker().pipeline(transaction=True) as pipeline:
            pipeline.get(picture_key)
            pipeline.hmget(head_key, ["epoch", "sequence", "taken_at", "error"])
            encoded, (epoch, sequence, taken_at, error) = pipeline.execute()
    except (RedisError, OSError) as reason:
        raise _away(reason) from reason
    if encoded is None:
        return None
    try:
        picture = _DECODER.decode(encoded)
    except msgspec.DecodeError:
        # Written by another version of the console: the next publication replaces it.
        return None
    if epoch is None or (int(epoch), int(sequence)) != (picture.epoch, picture.sequence):
        return Stored(picture)
    newest = max(picture.taken_at, float(taken_at))
    return Stored(msgspec.structs.replace(picture, taken_at=newest), error.decode())


def forget(cluster_id: int) -> None:
    """Drop the picture of a cluster that is no longer connected. Raises Unreachable when the broker is away."""
    try:
        _broker().delete(*_keys(cluster_id))
    except (RedisError, OSError) as error:
        raise _away(error) from error
