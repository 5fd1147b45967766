#!/usr/bin/env python3
"""The GPU part of the recipe on one machine of one or several GPUs: teacher, codec, then talker beside decoder, and export.

usage: run_gpu.py INPUTS WORK --seconds T [--teacher 130] [--hours 60] [--codec 250] [--codec_gpu 1] [--talker_gpu 0] [--talker_after 800]

INPUTS holds corpus/, tok/, kokoro.npz, styles.npz. WORK gets speech/, codec/, codes/, talker/, model/, logs/. WORK/status says where the run is.
Every stage writes its state as it goes; one that dies is started again, then without the kernels of fused.py, then without a CUDA graph.
WORK/out holds what a later run or a listener needs, renewed every half minute; codes in parts of less than 16 MB.

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
ap.add_argument("--teacher", type=float, default=130, help="seconds in which all GPUs speak")
ap.add_argument("--teacher_last", type=float, default=150, help="seconds in which the codec's GPU speaks, if the hours are not reached")
ap.add_argument("--hours", type=float, default=60, help="speech enough")
ap.add_argument("--codec", type=float, default=250, help="when the codec's first stage ends, in seconds from the start")
ap.add_argument("--codec_gpu", type=int)
ap.add_argument("--talker_gpu", type=int)
ap.add_argument("--talker_after", type=float, default=0, help="seconds from the start in which the talker's GPU is left alone once the teacher has ended")
ap.add_argument("--early", type=float, default=25, help="the codec starts so many seconds before the teacher ends, to record its step")
ap.add_argument("--gpus", type=int)
ap.add_argument("--teacher_args", default="")
ap.add_argument("--codec_args", default="")
ap.add_argument("--talker_args", default="--compile")
a = ap.parse_args()
T0 = time.time()
END = T0 + a.seconds
G = a.gpus or max(1, len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()) if os.path.exists("/dev/nvidiactl") else 1)
CODEC = a.codec_gpu if a.codec_gpu is not None else G - 1
TALKER = a.talker_gpu if a.talker_gpu is not None else 0
for folder in ("logs", "speech", "codec", "codes", "talker", "out"):
    os.makedirs(f"{a.work}/{folder}", exist_ok=True)
now = lambda: time.time() - T0


def say(*x):
    line = f"[run {now():6.1f}s] " + " ".join(map(str, x))
    print(line, flush=True)
    with open(f"{a.work}/status", "a") as f:
        f.write(line + "\n")


def start(name, gpu, command, **more):
    env = dict(os.environ, CUDA_VISIBLE_DEVICES=str(gpu), OMP_NUM_THREADS="4", PYTHONUNBUFFERED="1", **more)
    return subprocess.Popen([sys.executable] + command.split(), cwd=HERE, env=env, stdout=open(f"{a.work}/logs/{name}.log", "a"), stderr=subprocess.STDOUT)


class Stage:
    def __init__(self, name, gpu, command, tries=({},)):
        """tries: environment of each start; "extra" is added to the command"""
        self.name, self.gpu, self.command, self.tries, self.begun = name, gpu, command, list(tries), 0
        self.go("")

    def go(self, extra):
        env = dict(self.tries[self.begun])
        self.begun += 1
        say(f"{self.name} starts on GPU {self.gpu}", env or "")
        self.job = start(self.name, self.gpu, self.command + env.pop("extra", "") + extra, **env)

    def running(self, extra=""):
        """starts a dead stage again as long as there are tries"""
        code = self.job.poll()
        if code in (None, 0):
            return code is None
        if self.begun >= len(self.tries):
            if self.begun < 99:
                say(f"{self.name} failed: {code}")
            self.begun = 99
            return False
        say(f"{self.name} failed: {code}")
        self.go(extra)
        return True

    def end(self):
        if self.job.poll() is None:
            self.job.kill()


def spoken():
    """hours"""
    size = sum(os.path.getsize(f"{a.work}/speech/{f}") for f in os.listdir(f"{a.work}/speech") if f.endswith(".npz") and ".tmp" not in f)
    return size / (2 * 24000 + 100) / 3600


have = lambda path: os.path.exists(f"{a.work}/{path}")
codec_kept, codes_kept = have("codec/codec.pt"), have("codes/all.done")
say(f"{G} GPUs: decoder on {CODEC}, talker on {TALKER}; kept: {'codec ' * codec_kept}{'codes' * codes_kept}")
stages = {}
if not have("tokens.npz"):
    stages["tokens"] = Stage("tokens", "", f"tokenize_text.py {a.inputs}/corpus {a.inputs}/tok {a.work}/tokens.npz --processes {min(8, os.cpu_count())}")
teacher_gpus = sorted({*range(G), CODEC})
teacher = None
if not codes_kept or codec_kept:
    teacher = start("teacher", ",".join(map(str, teacher_gpus)), f"teacher.py {a.inputs}/corpus {a.inputs}/kokoro.npz {a.inputs}/styles.npz {a.work}/speech "
                    f"--gpus {','.join(map(str, teacher_gpus))} {a.teacher_args}")
stopped, told, shipped = set(), 0.0, 0.0


def stop_teacher(gpu):
    if gpu not in stopped:
        stopped.add(gpu)
        open(f"{a.work}/speech/stop.{gpu}", "w").close()
        say(f"teacher told to end on GPU {gpu}: {spoken():.1f} h")


def ship():
    """what a later run or a listener needs -> out/"""
    import shutil
    for source, name in (("codec/codec.small", "codec.pt"), ("codec/decoder.pt", "decoder.pt"), ("codec/resume.pt", "resume.pt"), ("talker/best.half", "talker.pt"),
                         ("status", "status")):
        if have(source) and (not have(f"out/{name}") or os.path.getmtime(f"{a.work}/out/{name}") < os.path.getmtime(f"{a.work}/{source}")):
            shutil.copy(f"{a.work}/{source}", f"{a.work}/out/{name}.tmp")
            os.replace(f"{a.work}/out/{name}.tmp", f"{a.work}/out/{name}")
    with open(f"{a.work}/out/logs", "w") as out:
        for f in sorted(os.listdir(f"{a.work}/logs")):
            out.write(f"==== {f}\n{open(f'{a.work}/logs/{f}', errors='replace').read()[-60000:]}\n")


while now() < a.seconds + 20:
    if teacher:
        enough = spoken() >= a.hours
        for g in teacher_gpus:
            if enough or now() > (a.teacher_last if g == CODEC else a.teacher):
                stop_teacher(g)
        if teacher.poll() is not None:
            say(f"teacher ended: {spoken():.1f} h")
            teacher = None
        elif now() > a.teacher_last + 40:
            teacher.kill()
    made = have("codec/codec.pt")
    if "codec" not in stages and (teacher is None or now() > a.teacher - a.early):
        stages["codec"] = Stage("codec", CODEC, f"train_codec.py {a.work}/speech {a.work}/codec --codec {T0 + a.codec} --until {END} {a.codec_args}{' --skip_codec' * codec_kept}",
                                ({}, {}, {"FUSED": "0"}, {"FUSED": "0", "extra": " --eager"}))
    if made and teacher is None and not codes_kept and "encode" not in stages:
        stages["encode"] = Stage("encode", CODEC, f"encode_speech.py encode {a.work}/speech {a.work}/codec/codec.pt {a.work}/codes", ({}, {}))
    if have("codes/all.done") and "pack" not in stages:
        stages["pack"] = Stage("pack", "", f"encode_speech.py pack {a.work}/codes {a.work}/out/codes 4", ({}, {}))
    if "talker" not in stages and now() > a.talker_after and have("tokens.npz") and (made or codes_kept):
        begin = f" --start {a.work}/talker/start.pt" if have("talker/start.pt") else ""
        command = f"train_talker.py {a.inputs}/corpus {a.inputs}/tok {a.work}/tokens.npz {a.work}/codes {a.work}/talker --until {END}{begin} "
        stages["talker"] = Stage("talker", TALKER, command + a.talker_args, ({}, {}))
    live = [s.running(" --skip_codec" if n == "codec" and made and "--skip_codec" not in s.command else "") for n, s in stages.items()]
    if time.time() - shipped > 30:
        shipped = time.time()
        ship()
    if not any(live) and teacher is None and "talker" in stages:
        break
    time.sleep(0.5)
for s in stages.values():
    s.end()
say("trained")
ship()
talker = next((f"{a.work}/talker/{n}.pt" for n in ("best", "talker", "start") if have(f"talker/{n}.pt")), None)
if talker and have("codec/decoder.pt"):
    done = subprocess.run([sys.executable, "export.py", talker, f"{a.work}/codec/decoder.pt", f"{a.inputs}/tok", f"{a.work}/model"], cwd=HERE)
    say("exported" if done.returncode == 0 else "not exported", talker)
ship()
open(f"{a.work}/run.done", "w").close()
