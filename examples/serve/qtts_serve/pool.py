# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pipelines that wait for text, for reuse, on one card or several."""
import asyncio
import collections


class Pool:
    """Speakers, of which as many are made at the start as speak at once: each takes most of a millisecond of the event loop,
    for which a request and all who listen would wait. One that broke is replaced when a request finds none.

    `make(card)` makes a speaker on this card, or for None on the one that its engine chooses, and sets its `card`. After
    spread(), the next speaker is one of the card with the most free slots.
    """

    def __init__(self, make):
        self._make = make
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

    async def fill(self, count):
        """Makes pipelines until there are `count`, in each turn of the event loop one, on the card that lacks the most."""
        def lacks(card):
            return self._slots[card] - self._taken[card] - len(self._idle[card])

        while len(self._open) < count:
            card = max(self._slots, key=lacks)
            self._idle[card].append(self._new(card))
            await asyncio.sleep(0)

    def take(self):
        card = max(self._slots, key=lambda card: self._slots[card] - self._taken[card])
        self._taken[card] += 1
        idle = self._idle[card]
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
