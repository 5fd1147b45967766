# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pipelines that wait for text, for reuse, on one card or several."""
import asyncio
import collections

# Idle pipelines of a card that are kept ahead of requests, and seconds after a request in which the next is made: not in the
# turn of the event loop in which it is given to the engine.
AHEAD, REFILL_DELAY = 16, 0.001


class Pool:
    """Speakers. Once it was filled, some are made ahead: while the last request waits for its first frame, not while the next
    one waits for a pipeline.

    `make(card)` makes a speaker on this card, or for None on the one that its engine chooses, and sets its `card`. After
    spread(), the next speaker is one of the card with the most free slots.
    """

    def __init__(self, make):
        self._make = make
        self._most = 0  # pipelines in all, up to which some are made ahead
        self._refills = False  # _refill() will be called
        self._slots = {None: 1}  # of each card
        self._idle = {None: []}  # of each card
        self._taken = collections.Counter()  # speakers of each card that are not idle
        self._open = set()  # all, also those that speak

    @property
    def idle(self):
        return sum(map(len, self._idle.values()))

    @property
    def slots(self):
        """The slots of all cards, after spread()."""
        return sum(self._slots.values())

    def spread(self, slots):
        """`slots`: those of each card, by its number. No speaker is idle, and each has the number of its card."""
        self._slots = dict(slots)
        self._idle = {card: [] for card in slots}
        self._taken = collections.Counter(speaker.card for speaker in self._open)

    def lose(self, card):
        """Takes no more speakers of this card. Returns whether there is another one."""
        if card in self._slots and len(self._slots) > 1:
            del self._slots[card]
            for speaker in self._idle.pop(card):
                self._close(speaker)
            return True
        return card not in self._slots

    def fill(self, count, most):
        """Makes `count`, and later up to `most` with those that speak."""
        self._most = most
        while self.idle < min(count, most):
            self._add()

    def _refill(self):
        self._refills = False
        if min(map(len, self._idle.values())) < AHEAD and len(self._open) < self._most:
            self._add()

    def _add(self):
        """Makes an idle one on the card that has the fewest."""
        card = min(self._idle, key=lambda card: len(self._idle[card]))
        self._idle[card].append(self._new(card))

    def take(self):
        card = max(self._slots, key=lambda card: self._slots[card] - self._taken[card])
        self._taken[card] += 1
        idle = self._idle[card]
        if len(idle) <= AHEAD and not self._refills and len(self._open) < self._most:
            self._refills = True
            asyncio.get_running_loop().call_later(REFILL_DELAY, self._refill)
        while idle:
            speaker = idle.pop()
            if not speaker.broken:
                return speaker
            self._close(speaker)
        return self._new(card)

    def give_back(self, speaker):
        """`speaker` has come to the end of its utterance and its sound was pulled, or has not spoken; or it is broken."""
        speaker.on_change = speaker.spoken = None
        speaker.tells_words = False
        self._taken[speaker.card] -= 1
        if speaker.broken or speaker.card not in self._idle:
            self._close(speaker)
        else:
            self._idle[speaker.card].append(speaker)

    def close(self):
        self._most = 0
        for idle in self._idle.values():
            while idle:
                self._close(idle.pop())

    def stats(self):
        """The element's `stats` of each card: all pipelines on it share one engine."""
        return [speaker.stats() for speaker in {speaker.card: speaker for speaker in self._open if not speaker.broken}.values()]

    def count_tokens(self, text):
        """The number of the model's tokens for a text. 0 without a pipeline."""
        return next((speaker.count_tokens(text) for speaker in self._open if not speaker.broken), 0)

    def _new(self, card):
        speaker = self._make(card)
        self._open.add(speaker)
        return speaker

    def _close(self, speaker):
        self._open.discard(speaker)
        speaker.close()
