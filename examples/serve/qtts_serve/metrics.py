# SPDX-License-Identifier: LGPL-2.1-or-later
"""Metrics for Prometheus. No label tells a voice, a client or a text."""
import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

FIRST_SOUND = (.001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .2, .5, 1, 2)
LOOP_DELAY = (.001, .002, .005, .01, .02, .05, .1, .2, .5, 1)
PROTOCOLS = ("http", "websocket")
WAIT = (.001, .01, .05, .1, .25, .5, 1, 2, 5, 10, 30)

NANOSECOND = 1e-9


class Engine:
    """Figures of the engines of all cards, as elements report them, over all their users in this process."""

    PARTS = (
        (GaugeMetricFamily, "qtts_pages", "Pages of the GPU's memory for contexts; 0 without a GPU", "pages", 1),
        (GaugeMetricFamily, "qtts_pages_free", "Those that no utterance has", "free-pages", 1),
        (GaugeMetricFamily, "qtts_parked_utterances", "Utterances that wait in the host's memory for pages", "parked-utterances", 1),
        (CounterMetricFamily, "qtts_steps", "Steps of the engine: one frame of each utterance that takes part", "steps", 1),
        (CounterMetricFamily, "qtts_step_frames", "Frames in them", "step-frames", 1),
        (CounterMetricFamily, "qtts_step_seconds", "Time that they took", "step-time", NANOSECOND),
        (GaugeMetricFamily, "qtts_slots_ahead", "Slots in which parts of long texts are made ahead; anybody gets them at once",
         "ahead-slots", 1),
        (CounterMetricFamily, "qtts_parts_ahead", "Parts of long texts that were begun ahead of their turn", "ahead-parts", 1),
        (CounterMetricFamily, "qtts_parts_preempted", "Those of them that gave their slots to others, and are made again",
         "preempted-parts", 1),
    )

    def __init__(self, pool):
        self._pool = pool

    def describe(self):
        return [family(name, text) for family, name, text, _, _ in self.PARTS]

    def collect(self):
        stats = self._pool.stats()
        if stats:
            for family, name, text, field, unit in self.PARTS:
                yield family(name, text, value=sum(of_card.get_value(field) for of_card in stats) * unit)


class Metrics:
    """Values that are counted here, and `front`'s, which are read when somebody asks."""

    def __init__(self, front):
        registry = self.registry = prometheus.CollectorRegistry()
        for collector in (prometheus.ProcessCollector, prometheus.PlatformCollector, prometheus.GCCollector):
            collector(registry=registry)

        def gauge(name, text, function):
            prometheus.Gauge(name, text, registry=registry).set_function(function)

        def counter(name, text, labels=()):
            return prometheus.Counter(name, text, labels, registry=registry)

        def histogram(name, text, buckets, labels=()):
            return prometheus.Histogram(name, text, labels, buckets=buckets, registry=registry)

        gauge("qtts_slots", "Utterances that may be spoken at once", lambda: front.slots.total)
        gauge("qtts_slots_busy", "Utterances that are being spoken", lambda: front.slots.busy)
        gauge("qtts_waiting_utterances", "Utterances that wait for a slot", lambda: front.slots.waiting)
        self.sessions = prometheus.Gauge("qtts_sessions", "Connections that speak or may speak", ["protocol"],
                                         registry=registry)
        gauge("qtts_sessions_limit", "The most there may be", lambda: front.settings.sessions)
        self.connections = prometheus.Gauge("qtts_connections", "Connections, also those that have not asked yet",
                                            registry=registry)
        gauge("qtts_connections_limit", "The most there may be", lambda: front.settings.most_connections)
        self.refused_connections = counter("qtts_connections_refused", "Connections that were refused before their request "
                                           "was read", ["reason"])
        self.loop_delay = histogram("qtts_loop_delay_seconds", "Time by which a tick of the event loop came late, ten times a "
                                    "second", LOOP_DELAY)
        gauge("qtts_pipelines_idle", "Pipelines that wait for text", lambda: front.pool.idle)
        self.wait = histogram("qtts_wait_seconds", "Time an utterance waited for its slot", WAIT)
        self.first_sound = histogram("qtts_first_sound_seconds", "From the text to the first write of sound", FIRST_SOUND,
                                     ["protocol", "layout"])
        self.first_frame = histogram("qtts_engine_first_frame_seconds", "The element's first-frame-latency", FIRST_SOUND)
        self.frames = counter("qtts_frames", "Frames of 80 ms that were written")
        self.dropped = counter("qtts_frames_dropped", "Frames that were made and not written: the cost of interruptions")
        self.utterances = counter("qtts_utterances", "Utterances by how they ended", ["reason"])
        self.requests = counter("qtts_requests", "Requests", ["route", "code"])
        self.underruns = counter("qtts_underruns", "Gaps in speech because a frame came late")
        self.stalled = counter("qtts_stalled_seconds", "Silence because text came late")
        self.characters = counter("qtts_text_characters", "Characters given to the engine")
        self.audio = counter("qtts_audio_seconds", "Seconds of sound that were written")
        gauge("qtts_ready", "1 if the server takes requests", lambda: int(front.ready))
        gauge("qtts_device_lost", "1 if the GPU was lost", lambda: int(front.device_lost))
        self.load = prometheus.Gauge("qtts_load_seconds", "Time to load the model and speak once", registry=registry)
        registry.register(Engine(front.pool))
        self.build = prometheus.Info("qtts_build", "Version, model and device", registry=registry)

    def text(self):
        return prometheus.generate_latest(self.registry)
