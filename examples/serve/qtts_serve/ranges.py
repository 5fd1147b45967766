# SPDX-License-Identifier: LGPL-2.1-or-later
"""Parts of an answer to GET, for players that ask for bytes: Safari plays nothing of a server that cannot give it the
first two.

A part is cut out of the whole sound, made anew for each request: nothing is kept between requests, and any replica with
the same fingerprint gives the same bytes. This needs a seed; an address without one has its own.
"""
import dataclasses
import hashlib
import re

from .errors import ApiError

ONE_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,15})-([0-9]{0,15})[ \t]*")
# Formats whose bytes are the same each time. Ogg has a random number in its pages.
REPEATABLE = ("wav", "pcm", "flac", "mp3", "aac", "g711_ulaw", "g711_alaw")
SEED_BITS = 53


def seed_of_address(query):
    """The seed of an address without one."""
    return int.from_bytes(hashlib.sha256(query).digest()) >> (256 - SEED_BITS)


def are_possible(wishes):
    """Whether parts of the answer can be had: its bytes are the same each time, and there are not too many to keep."""
    return wishes.response_format in REPEATABLE and not wishes.events and not wishes.json and wishes.held


def tag(wishes, fingerprint):
    """ETag: names the bytes of the whole sound."""
    words = (wishes.text, sorted(wishes.settings.items()), wishes.lexicon, wishes.response_format, wishes.sample_rate,
             wishes.start_frame, hashlib.sha256(wishes.recording).hexdigest(), fingerprint)
    return f'"{hashlib.sha256(repr(words).encode()).hexdigest()[:32]}"'


@dataclasses.dataclass
class Range:
    """One range of bytes: from the first to the last, or the last so many."""
    first: int | None
    last: int | None

    @classmethod
    def of(cls, headers, wishes, current_tag):
        """The part that `Range` asks for; None where the whole sound is the answer, as RFC 9110 (14.2) allows: several
        ranges, one that is malformed, or of other bytes than these (`If-Range`)."""
        match = ONE_RANGE.fullmatch(headers.get("range", ""))
        if match is None or not are_possible(wishes):
            return None
        if headers.get("if-range", current_tag) != current_tag:
            return None
        first, last = (int(number) if number else None for number in match.groups())
        if first is None and last is None or first is not None and last is not None and last < first:
            return None
        # From the first byte to the end: streamed, it comes sooner than a part.
        return None if first == 0 and last is None else cls(first, last)

    def cut(self, size):
        """The slice of `size` bytes. ApiError 416 if there is nothing in it."""
        if self.first is None:
            first, last = max(0, size - self.last), size - 1
        else:
            first, last = self.first, size - 1 if self.last is None else min(self.last, size - 1)
        if first > last:
            raise ApiError(416, f"The sound has {size} bytes.", code="range_not_satisfiable",
                           headers={"content-range": f"bytes */{size}"})
        return first, last
