#!/usr/bin/env python3
"""The GPU part of the recipe on one machine of one or several GPUs: teacher, codec, talker beside decoder, evaluation.

usage: run_gpu.py INPUTS WORK --seconds T [--teacher 60] [--codec 400] [--evaluate 100] [--each 13]

INPUTS holds corpus/, tok/, kokoro.npz, styles.npz. WORK gets speech/, codec/, talker/, model/, logs/. With G GPUs the codec
takes the first half, then the decoder the first quarter and the talker the next half; the teacher has all of them at first and the last quarter to the end.
Every stage writes its state as it goes; WORK/status says where the run is. A stage that dies is started again once, on one GPU.
"""
import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("inputs"); ap.add_argument("work")
ap.add_argument("--seconds", type=float, required=True, help="of the whole run")
ap.add_argument("--teacher", type=float, default=60, help="seconds in which every GPU speaks")
ap.add_argument("--codec", type=float, default=400, help="when the codec's first stage ends, in seconds from the start")
ap.add_argument("--early", type=float, default=130, help="the talker starts so many seconds before the codec is ready, to compile")
ap.add_argument("--evaluate", type=float, default=100, help="seconds kept for the evaluation")
ap.add_argument("--each", type=int, default=13, help="teacher processes a GPU")
ap.add_argument("--gpus", type=int)
ap.add_argument("--codec_gpus", type=int, help="GPUs of the codec's first stage; default: half of them")
ap.add_argument("--teacher_args", default=""); ap.add_argument("--codec_args", default=""); ap.add_argument("--talker_args", default="--compile"); ap.add_argument("--no_evaluation", action="store_true")
a = ap.parse_args()
T0 = time.time()
END = T0 + a.seconds - a.evaluate
os.makedirs(f"{a.work}/logs", exist_ok=True)
G = a.gpus or max(1, len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()))
half, quarter = max(1, G // 2), max(1, G // 4)
CODEC, DECODER = list(range(a.codec_gpus or half)), list(range(quarter))
TALKER = [0] if G == 1 else list(range(quarter, G - quarter)) or [1]
LAST = [g for g in range(G) if g not in CODEC and g not in TALKER]
speech = f"{a.work}/speech"
os.makedirs(speech, exist_ok=True)


def say(*x):
    line = f"[run {time.time() - T0:6.1f}s] " + " ".join(map(str, x))
    print(line, flush=True)
    open(f"{a.work}/status", "a").write(line + "\n")


def start(name, gpu, command, world=1, rank=0, meet=""):
    env = dict(os.environ, CUDA_VISIBLE_DEVICES=str(gpu), OMP_NUM_THREADS="4", PYTHONUNBUFFERED="1", WORLD_SIZE=str(world), RANK=str(rank),
               MEET=f"file://{a.work}/meet.{meet}", TORCH_NCCL_ENABLE_MONITORING="0")
    return subprocess.Popen([sys.executable] + command.split(), cwd=HERE, env=env, stdout=open(f"{a.work}/logs/{name}.{rank}.log", "a"), stderr=subprocess.STDOUT)


class Stage:
    def __init__(self, name, gpus, command):
        self.name, self.gpus, self.command, self.tries = name, gpus, command, 0
        self.go(gpus)

    def go(self, gpus, extra=""):
        self.tries += 1
        say(f"{self.name} starts on GPUs {gpus}")
        self.jobs = [start(self.name, g, self.command + extra, len(gpus), r, f"{self.name}.{self.tries}") for r, g in enumerate(gpus)]

    def watch(self, extra=""):
        """starts a dead stage again, on one GPU; -> still running"""
        codes = [j.poll() for j in self.jobs]
        if any(c not in (None, 0) for c in codes):
            say(f"{self.name} failed: {codes}")
            for j in self.jobs:
                if j.poll() is None:
                    j.kill()
            if self.tries > 1:
                return False
            self.go(self.gpus[:1], extra)
            return True
        return any(c is None for c in codes)


def stop_teacher(gpus):
    for g in gpus:
        open(f"{speech}/stop.{g}", "w").close()


tok = start("tokens", "", f"tokenize_text.py {a.inputs}/corpus {a.inputs}/tok {a.work}/tokens.npz --processes 12")
teacher = start("teacher", "", f"teacher.py {a.inputs}/corpus {a.inputs}/kokoro.npz {a.inputs}/styles.npz {speech} --gpus {','.join(map(str, range(G)))} --each {a.each} {a.teacher_args}")
say(f"{G} GPUs: codec {CODEC}, decoder {DECODER}, talker {TALKER}, teacher to the end {LAST}")
count = lambda: sum(f.endswith(".npz") and f[0] != "x" and ".tmp" not in f for f in os.listdir(speech))
codec = Stage("codec", CODEC, f"train_codec.py {speech} {a.work}/codec --codec {T0 + a.codec} --until {END} --keep {len(DECODER)} "
              f"--hours {160 / len(CODEC) if G > 1 else 20:.0f} {a.codec_args}")
while time.time() - T0 < a.teacher:
    time.sleep(0.5)
stop_teacher(CODEC)
say(f"{count()} shards spoken")
talker = None
evaluated = False
while time.time() < END + 25:
    now = time.time() - T0
    made = os.path.exists(f"{a.work}/codec/codec.pt")
    alive = codec.watch(" --skip_codec" if made else " --eager")
    if talker is None and now > a.codec - a.early:
        talker = Stage("talker", TALKER, f"train_talker.py {a.inputs}/corpus {a.inputs}/tok {a.work}/tokens.npz {speech} {a.work}/codec {a.work}/talker --until {END} "
                       f"{a.talker_args}")
    if talker is not None and not talker.watch() and not alive:
        break
    if now > a.codec - 12 and G > 1:
        stop_teacher(TALKER)
    if time.time() > END - 60:
        stop_teacher(range(G))
    time.sleep(1)
stop_teacher(range(G))
say(f"trained; {count()} shards spoken")
for j in codec.jobs + (talker.jobs if talker else []) + [teacher]:
    if j.poll() is None:
        j.kill()
os.system("cd %s && %s export.py %s/talker/talker.pt %s/codec/decoder.pt %s/tok %s/model >>%s/logs/export.log 2>&1"
          % (HERE, sys.executable, a.work, a.work, a.inputs, a.work, a.work))
open(f"{a.work}/model.done", "w").close()
say("exported")
# shipped setting with three seeds, the streaming layout, other temperatures: beside each other
SETTINGS = [("shipped", f"--temperature 0.9 --seeds 3 --codec {a.work}/codec/codec.pt"), ("cooler", "--temperature 0.7 --seeds 2"),
            ("cool", "--temperature 0.5 --seeds 2"), ("stream", "--temperature 0.7 --seeds 2 --stream")]
if not a.no_evaluation:
    jobs = [start(f"evaluate-{name}", k % G, f"evaluate.py {a.work}/model {a.work}/evaluation-{name}.json --speech {speech} --corpus {a.inputs}/corpus "
                  f"--processes {max(2, os.cpu_count() // 4 - 1)} {settings}") for k, (name, settings) in enumerate(SETTINGS)]
    say("evaluated", [j.wait() for j in jobs])
open(f"{a.work}/run.done", "w").close()
