#!/usr/bin/env python3
"""A further training of talker and code predictor on one GPU: goes on from an exported voice, whose decoder stays.

usage: further.py INPUTS MODEL WORK --seconds T [--silent 120] [--talker_args ...]

INPUTS holds corpus/, tok/, kokoro.npz, styles.npz, as for run_gpu.py; tables.npz too, if it is that of the voice's decoder, else it is made and the
courses are taken from the voice. The teacher's first half makes codes until --silent, then the talker is trained. WORK gets codes/, talker/, model/.
"""
import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("inputs")
ap.add_argument("model")
ap.add_argument("work")
ap.add_argument("--seconds", type=float, required=True, help="of the whole run")
ap.add_argument("--silent", type=float, default=120, help="when the teacher ends at the latest, in seconds from the start")
ap.add_argument("--teacher_args", default="")
ap.add_argument("--talker_args", default="--compile --lr 3e-4 --warmup 100 --chains 0.4 --own 0.25 --own_from 0 --packers 8 --seed 9")
a = ap.parse_args()
T0 = time.time()
I, M, W = (os.path.abspath(p) for p in (a.inputs, a.model, a.work))
os.makedirs(f"{W}/codes", exist_ok=True)
now = lambda: time.time() - T0


def start(name, command):
    print(f"[further {now():6.1f}s] {name} starts", flush=True)
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="0", OMP_NUM_THREADS="4", PYTHONUNBUFFERED="1")
    return subprocess.Popen([sys.executable] + command.split(), cwd=HERE, env=env, stdout=open(f"{W}/{name}.log", "w"), stderr=subprocess.STDOUT)


def ended(name, job):
    if job.wait() != 0:
        raise SystemExit(f"{name} failed; the end of its log:\n{open(f'{W}/{name}.log').read()[-3000:]}")
    print(f"[further {now():6.1f}s] {name} ended", flush=True)


tables = f"{I}/tables.npz"
tokens = start("tokens", f"tokenize_text.py {I}/corpus {I}/tok {W}/tokens.npz --processes {min(6, os.cpu_count())}")
talker = start("talker", f"train_talker.py {I}/corpus {I}/tok {W}/tokens.npz {W}/codes {W}/talker --until {T0 + a.seconds} --start {M} {a.talker_args}"
               + ("" if os.path.exists(tables) else " --recode"))
if not os.path.exists(tables):
    tables = f"{W}/tables.npz"
    ended("tables", start("tables", f"fit_tables.py {I}/corpus {I}/kokoro.npz {I}/styles.npz {tables} --lines 120"))
teacher = start("teacher", f"teacher.py {I}/corpus {I}/kokoro.npz {I}/styles.npz {tables} {W} --silent {a.teacher_args}")
while teacher.poll() is None and now() < a.silent:
    time.sleep(0.2)
open(f"{W}/stop.0", "w").close()
ended("teacher", teacher)
ended("tokens", tokens)
open(f"{W}/codes/all.done", "w").close()
ended("talker", talker)
ended("export", start("export", f"export.py {W}/talker/best.half {M} {I}/tok {W}/model"))
print(open(f"{W}/talker.log").read()[-2500:])
