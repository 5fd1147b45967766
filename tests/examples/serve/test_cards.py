# SPDX-License-Identifier: LGPL-2.1-or-later
"""One process for several cards, with speakers that stand for pipelines."""
import asyncio
import collections

from qtts_serve import metrics
from qtts_serve.front import Front
from qtts_serve.pool import Pool
from qtts_serve.settings import Settings


class Stats(dict):
    get_value = dict.__getitem__


class Pipeline:
    loaded, broken, closed, spoken = True, "", False, None

    def __init__(self, card, number, slots):
        self.card, self.number, self._slots = card, number, slots

    def stats(self):
        return Stats({field: 0 for _, _, _, field, _ in metrics.Engine.PARTS} |
                     {"cuda-device-id": self.number, "slots": self._slots, "steps": 1 + self.number})

    def close(self):
        self.closed = True


class Host:
    """Cards with these slots; 0: too small for the model. A new pipeline without a card takes the one with the most free
    slots, as elements do; one without an engine has VOICES, as far as anybody knows."""

    VOICES = 10

    def __init__(self, *slots):
        self._slots = slots
        self._users = collections.Counter()
        self.asked = []  # card of each pipeline that was made

    def _free(self, card):
        return self._slots[card] - self._users[card] if self._users[card] else self.VOICES

    def make(self, card):
        self.asked.append(card)
        if not self._slots:
            return Pipeline(card, -1, 4)  # a processor
        if card is None:
            card = max((card for card, slots in enumerate(self._slots) if slots), key=self._free)
        self._users[card] += 1
        return Pipeline(self.asked[-1], card, self._slots[card])


def load(host):
    """Returns a front that has loaded `host`'s cards."""
    front = Front(Settings())
    front.pool = Pool(host.make)
    asyncio.run(front._load_cards())
    return front


def test_every_card_is_loaded_and_counts():
    for slots, made, total in (((), 1, 4), ((10,), 2, 10), ((10, 10), 3, 20), ((7, 10, 5), 4, 22)):
        host = Host(*slots)
        front = load(host)
        assert (len(host.asked), front.slots.total, front.cards) == (made, total, max(len(slots), 1))
        assert front.pool.idle == made
        assert len(front.pool.stats()) == front.cards


def test_a_card_that_elements_do_not_take_is_left_out():
    host = Host(10, 0)
    assert (load(host).slots.total, host.asked) == (10, [None, None])


def test_the_card_with_the_most_free_slots_speaks():
    host = Host(3, 5)
    pool = load(host).pool

    async def speak():
        await pool.fill(8)
        speakers = [pool.take() for _ in range(8)]
        assert collections.Counter(speaker.number for speaker in speakers) == {0: 3, 1: 5}
        assert [speaker.number for speaker in speakers[:2]] == [1, 1]
        for speaker in speakers:
            if speaker.number == 0:
                pool.give_back(speaker)
        assert [pool.take().number for _ in range(3)] == [0, 0, 0]

    asyncio.run(speak())
    assert None not in host.asked[3:]  # each was made for a card


def test_one_card_leaves_the_choice_to_the_element():
    host = Host(3)
    pool = load(host).pool

    async def speak():
        await pool.fill(3)
        for speaker in [pool.take() for _ in range(3)]:
            pool.give_back(speaker)

    asyncio.run(speak())
    assert set(host.asked) == {None} and pool.idle == 3


def test_a_lost_card_takes_its_own_slots_only():
    host = Host(10, 10)
    front = load(host)

    async def speak():
        speaking = [front.pool.take() for _ in range(4)]
        front._loaded.set()
        front._lose("The GPU was lost.", 1)
        front._lose("The GPU was lost.", 1)  # as each of its pipelines tells it
        assert front.ready and front.slots.total == 10 and not front.device_lost
        assert {front.pool.take().number for _ in range(4)} == {0}
        for speaker in speaking:
            front.pool.give_back(speaker)
        assert all(speaker.closed == (speaker.number == 1) for speaker in speaking)
        front._lose("The GPU was lost.", 0)
        assert front.device_lost and not front.ready

    asyncio.run(speak())


def test_metrics_add_the_cards():
    values = {metric.name: metric.samples[0].value for metric in metrics.Engine(load(Host(2, 2)).pool).collect()}
    assert values["qtts_steps"] == 3
