"""The speakers: our name, the teacher's style, and the gain that makes all equally loud."""
import collections

Speaker = collections.namedtuple("Speaker", "name style gain")
SPEAKERS = [Speaker("clara", "af_heart", 1.35), Speaker("owen", "am_michael", 1.4), Speaker("ross", "am_fenrir", 0.93),
            Speaker("grace", "bf_emma", 0.97), Speaker("hugh", "bm_george", 1.07)]
# heard, too, where a prompt names no speaker
DEFAULT = "grace"
INDEX = {s.name: i for i, s in enumerate(SPEAKERS)}
