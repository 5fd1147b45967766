#!/usr/bin/env python3
"""The GPU part of the recipe on one machine of one or several GPUs: teacher, codec, then talker beside decoder, and export.

usage: run_gpu.py INPUTS WORK --seconds T [--teacher 240] [--codec 900] [--evaluate 0]

INPUTS holds corpus/, tok/, kokoro.npz, styles.npz. WORK gets speech/, codec/, codes/, talker/, model/, logs/. WORK/status says where the run is.
Every stage writes its state as it goes; one that dies is started again once, on one GPU.

To go on from an earlier run, put its results into WORK before: codec/codec.pt (the codec is kept, its decoder trained further), codes/ with
all.done (the talker starts at once), talker/start.pt (the talker begins with it).
"""
import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("inputs")
ap.add_argument("work")
ap.add_argument("--seconds", type=float, required=True, help="of the whole run")
ap.add_argument("--teacher", type=float, default=240, help="seconds of speaking, before all else")
ap.add_argument("--codec", type=float, default=900, help="when the codec's first stage ends, in seconds from the start")
ap.add_argument("--early", type=float, default=60, help="the talker starts so many seconds before the codec is ready, to compile")
ap.add_argument("--evaluate", type=float, default=0, help="seconds kept for the evaluation; 0: none")
ap.add_argument("--gpus", type=int)
ap.add_argument("--only", default="decoder,talker", help="what is trained once there are codes")
ap.add_argument("--teacher_args", default="")
ap.add_argument("--codec_args", default="")
ap.add_argument("--talker_args", default="--compile")
a = ap.parse_args()
T0 = time.time()
END = T0 + a.seconds - a.evaluate
G = a.gpus or max(1, len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()))
ALL = list(range(G))
DECODER = ALL[:max(1, G // 2)] if "talker" in a.only else ALL
TALKER = (ALL[len(DECODER):] or ALL) if "decoder" in a.only else ALL
for folder in ("logs", "speech", "codec", "codes", "talker"):
    os.makedirs(f"{a.work}/{folder}", exist_ok=True)


def say(*x):
    line = f"[run {time.time() - T0:6.1f}s] " + " ".join(map(str, x))
    print(line, flush=True)
    with open(f"{a.work}/status", "a") as f:
        f.write(line + "\n")


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
            self.end()
            if self.tries > 1:
                return False
            self.go(self.gpus[:1], extra)
            return True
        return any(c is None for c in codes)

    def end(self):
        for j in self.jobs:
            if j.poll() is None:
                j.kill()


def count(folder):
    return sum(f.endswith(".npz") and ".tmp" not in f for f in os.listdir(f"{a.work}/{folder}"))


have = lambda path: os.path.exists(f"{a.work}/{path}")
codec_kept, codes_kept = have("codec/codec.pt"), have("codes/all.done")
say(f"{G} GPUs: decoder {DECODER}, talker {TALKER}; kept: {'codec ' * codec_kept}{'codes' * codes_kept}")
stages = {}
if not have("tokens.npz"):
    stages["tokens"] = Stage("tokens", [0], f"tokenize_text.py {a.inputs}/corpus {a.inputs}/tok {a.work}/tokens.npz --processes {min(12, os.cpu_count())}")


def start_talker():
    begin = f" --start {a.work}/talker/start.pt" if have("talker/start.pt") else ""
    stages["talker"] = Stage("talker", TALKER, f"train_talker.py {a.inputs}/corpus {a.inputs}/tok {a.work}/tokens.npz {a.work}/codes {a.work}/talker --until {END}{begin} "
                             f"{a.talker_args}")


if "decoder" in a.only or not codes_kept:
    teacher = start("teacher", ",".join(map(str, ALL)), f"teacher.py {a.inputs}/corpus {a.inputs}/kokoro.npz {a.inputs}/styles.npz {a.work}/speech --gpus {','.join(map(str, ALL))} "
                    f"{a.teacher_args}")
    while time.time() - T0 < a.teacher and teacher.poll() is None:
        time.sleep(0.5)
    for g in ALL:
        open(f"{a.work}/speech/stop.{g}", "w").close()
    try:
        teacher.wait(30)
    except subprocess.TimeoutExpired:
        teacher.kill()
    say(f"{count('speech')} shards spoken")
    while "tokens" in stages and stages["tokens"].watch():
        time.sleep(0.5)
    codec_end = T0 + (0 if codec_kept else a.codec)
    stages["codec"] = Stage("codec", DECODER if codec_kept else ALL, f"train_codec.py {a.work}/speech {a.work}/codec --codec {codec_end} "
                            f"--until {END if 'decoder' in a.only else codec_end + 1} --keep {len(DECODER)} {a.codec_args}{' --skip_codec' * codec_kept}")
while "tokens" in stages and stages["tokens"].watch():
    time.sleep(0.5)
while time.time() < END + 25:
    made = have("codec/codec.pt")
    if "talker" in a.only and "talker" not in stages and (codes_kept or made or time.time() - T0 > a.codec - a.early):
        start_talker()
    if made and not codes_kept and "encode" not in stages:
        stages["encode"] = Stage("encode", [TALKER[0]], f"encode_speech.py encode {a.work}/speech {a.work}/codec/codec.pt {a.work}/codes")
    running = [stages[n].watch(" --skip_codec" if n == "codec" and made else " --eager" if n == "codec" else "") for n in list(stages)]
    if not any(running) and ("talker" in stages or "talker" not in a.only):
        break
    time.sleep(0.5)
for s in stages.values():
    s.end()
say("trained")
talker = next((f"{a.work}/talker/{n}.pt" for n in ("best", "talker", "start") if have(f"talker/{n}.pt")), None)
if talker:
    done = subprocess.run([sys.executable, "export.py", talker, f"{a.work}/codec/decoder.pt", f"{a.inputs}/tok", f"{a.work}/model"], cwd=HERE)
    say("exported" if done.returncode == 0 else "not exported", talker)
# shipped setting with three seeds, the streaming layout, other temperatures: beside each other
SETTINGS = [("shipped", f"--temperature 0.9 --seeds 3 --codec {a.work}/codec/codec.pt"), ("cooler", "--temperature 0.7 --seeds 2"),
            ("cool", "--temperature 0.5 --seeds 2"), ("stream", "--temperature 0.7 --seeds 2 --stream")]
if a.evaluate and talker:
    jobs = [start(f"evaluate-{name}", k % G, f"evaluate.py {a.work}/model {a.work}/evaluation-{name}.json --speech {a.work}/speech --corpus {a.inputs}/corpus "
                  f"--processes {max(2, os.cpu_count() // 4 - 1)} {settings}") for k, (name, settings) in enumerate(SETTINGS)]
    say("evaluated", [j.wait() for j in jobs])
open(f"{a.work}/run.done", "w").close()
