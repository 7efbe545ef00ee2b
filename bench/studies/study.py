#!/usr/bin/env python3
"""Studies that take many runs of the lab's programs, as Markdown.

  bench/studies/study.py gemm --log gemm.jsonl        products of M = K by N: own and OpenBLAS,
                                                      with --device cuda cuBLAS on a card
  bench/studies/study.py rnn --log rnn.jsonl          recurrent layers over the batch: a product a
                                                      step, inputs as one product, persistent
                                                      weights, oneDNN's; time and memory
  bench/studies/study.py mlp --log mlp.jsonl          throughput of 20 -> 5 x 256 -> 1, tanh
  bench/studies/study.py batch --log batch.jsonl      AlexNet, ResNet-18, VGG-16 over batch sizes
  bench/studies/study.py layers --log layers.jsonl    layers of known nets: own over oneDNN's
  bench/studies/study.py survey --log survey.jsonl    all layers of six nets: own over oneDNN's
  bench/studies/study.py verdicts --log verdicts.jsonl
                                                      how often verdicts of `convlab tune` hold
  bench/studies/study.py benchdnn --log benchdnn.jsonl --lists DIR
                                                      `convlab check` of oneDNN's shapes: all
                                                      below 100 MFLOP, with each algorithm
  bench/studies/study.py network --log network.jsonl
                                                      training by ranks in network namespaces:
                                                      predicted beside measured; as root
  bench/studies/study.py compression --log compression.jsonl
                                                      losses with gradients that travel in bf16
  bench/studies/study.py report --log FOLDER --batches 1,16 --repetitions 3 --min-time 0.02 >PAGE.md
                                                      one page: ceilings and all of the above but
                                                      verdicts, network and compression

Each run is appended to the log, one that is there already is not made again, and the tables are of
all that it holds: a study can be stopped and goes on from there. --only PATTERN runs the cases in
whose name the regular expression is found ("batch 1$"); --only none runs nothing; --minutes N
starts no more after that time. A run that fails is named, and the exit code is 1; it is 2 for bad
usage. --output FILE takes the page, --plots DIR charts as well (gnuplot). Nothing else may run
meanwhile; tune the nets first.

report keeps a log for each study, and a tuning store, in FOLDER, and refuses runs of two commits:
start a page in a new folder, and go on there with the same command. --sections leaves studies out.

mlp compares backends: --device cuda adds a card's with one, two and four streams, --python PYTHON,
of an interpreter that has torch, PyTorch's on the CPU. batch, gemm and mlp run on a card by
--options="--device cuda", --device cuda and both; --small tries them with sizes that say nothing.

benchdnn checks the problems in the folders conv and deconv of --lists, a checkout's
tests/benchdnn/inputs, up to --flops, at the batches of --batches, in a fixed random order. Failures
and crashes make the exit code 1.

verdicts tunes small layers again and again in fresh stores: on the quiet machine, beside each noise
of --noise (noise.py describes them), and with one algorithm registered twice (CONVLAB_TWIN), the
second as fast (A/A) or slowed by 5%. Verdicts are judged by the pooled times of the quiet runs.
Each build (--convlab PATH) has a log of its own; --beside LOG compares the seconds of a run. The
default is five runs of each, over 300 rows a condition. Steady load makes a run several times as
long: --options="--budget 60s" limits each, and rows that it did not reach are not counted.
"""

import argparse
import contextlib
import io
import math
import os
import pathlib
import re
import shlex
import signal
import sys
import time

sys.dont_write_bytecode = True  # not into the sources
from benchdnn import benchdnn
from compression import compression
from gemm import gemm
from layers import layers
from network import network, rate
from nets import batch, mlp
from report import SECTIONS, report, sections
from rnn import rnn
from runs import FLAGS, Log, Refused, Stopped, provenance
from survey import survey
from verdicts import NOISES, verdicts

SMALL = ("batch", "gemm", "mlp", "rnn", "network", "compression")  # that --small makes smaller


def give_up(text):
    print(f"study.py: {text}", file=sys.stderr)
    return 2


class Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.exit(give_up(f"{message}; --help says more"))


def above_0(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")
    return value


def whole(least):
    def read(text):
        if not re.fullmatch(r"\d{1,6}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, {least} to 999999")
        return int(text)
    return read


def wholes(least):
    return lambda text: [whole(least)(item) for item in text.split(",")]


def device(text):
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected cpu, cuda or cuda:i")
    return text


def words(text):
    try:
        shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return text


def seconds(text):
    above_0(text)
    return text  # as the programs are given it


def pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def noises(text):
    kinds = [] if text == "none" else text.split(",")
    for kind in kinds:
        if kind not in NOISES:
            raise argparse.ArgumentTypeError(f"{kind!r} is no noise: expected none, or some of "
                                             + ",".join(NOISES))
    return kinds


def batched_nets(text):
    nets = text.split(",")
    for net in nets:
        if not re.fullmatch(r"\w+:[1-9]\d*", net):
            raise argparse.ArgumentTypeError(f"{net!r}: expected a net and images, as in lenet:16")
    return nets


def rates(text):
    try:
        for item in text.split(","):
            rate(item)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text.split(",")


# ---- The page

def require_page(args):
    """Before anything takes long."""
    output = args.output
    if output.is_dir() or not os.access(output if output.exists() else output.absolute().parent,
                                        os.W_OK):
        raise Refused(f"--output {output}: cannot be written")
    if output.exists() and args.log.exists() and output.samefile(args.log):
        raise Refused(f"--output {output}: is the log as well")


def write_page(output, text):
    """What was there stays until the new page is complete."""
    if output.exists() and not output.is_file():  # a terminal, a pipe
        output.write_text(text)
        return
    whole_page = output.resolve()
    new = whole_page.with_name(whole_page.name + ".new")
    new.write_text(text)
    new.replace(whole_page)


def main():
    parser = Parser(prog="study.py", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {"gemm": gemm, "rnn": rnn, "mlp": mlp, "batch": batch, "layers": layers,
               "survey": survey, "verdicts": verdicts, "network": network,
               "compression": compression, "benchdnn": benchdnn}
    parser.add_argument("study", choices=[*studies, "report"])
    parser.add_argument("--log", type=pathlib.Path, required=True, help="of report, a folder")
    parser.add_argument("--only", type=pattern, default="", metavar="PATTERN",
                        help="the cases in whose name this is found")
    parser.add_argument("--minutes", type=above_0, default=math.inf, help="start nothing after these")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE",
                        help="for the page; default: stdout")
    parser.add_argument("--plots", type=pathlib.Path, help="a directory for charts as SVG")
    parser.add_argument("--device", type=device, default="cpu",
                        help="cuda: a card as well, mlp; a card instead, gemm")
    parser.add_argument("--python", help="an interpreter with torch, for mlp")
    parser.add_argument("--convlab", default=FLAGS["--convlab"],
                        help="default: of build/, else of build-release/; likewise below")
    parser.add_argument("--kernels", default=FLAGS["--kernels"], help="micro_kernels, gemm")
    parser.add_argument("--card-kernels", default=FLAGS["--card-kernels"],
                        help="those of gemm --device cuda")
    parser.add_argument("--recurrent", default=FLAGS["--recurrent"], help="micro_recurrent, rnn")
    parser.add_argument("--micro", action="append", metavar="PROGRAM",
                        help="micro_convolutions, layers; one of a build with another oneDNN "
                             "(-Ddnnl_DIR=...) may be given too, and they take turns")
    parser.add_argument("--beside", type=pathlib.Path, metavar="LOG",
                        help="of the same study with another ISA, layers: its times over these; "
                             "with another build, verdicts: the seconds of a run over those")
    parser.add_argument("--one-thread", action="store_true",
                        help="each race also with one thread, at once after it, layers")
    parser.add_argument("--rounds", type=whole(1),
                        help="turns of each program, layers; of all problems, rnn; default: 1; 3")
    parser.add_argument("--repetitions", type=whole(1), default=5, help="of each candidate, layers")
    parser.add_argument("--min-time", type=seconds, default="0.1",
                        help="seconds a product, gemm; a repetition, layers; a candidate in a "
                             "turn, rnn; default: 0.1")
    parser.add_argument("--threads", type=whole(1), default=2, help="the most, mlp")
    parser.add_argument("--runs", type=whole(1), default=5,
                        help="of each condition, verdicts; seeds, compression; default: 5")
    parser.add_argument("--targets", type=lambda text: text.split(","), metavar="LIST",
                        default=["resnet20", "lenet", "small"],
                        help="what verdicts tunes: nets, problems, @FILEs, or small (layers of "
                             "GoogLeNet); default: resnet20,lenet,small")
    parser.add_argument("--noise", type=noises, metavar="LIST", default=list(NOISES),
                        help=f"verdicts: none, or some of {','.join(NOISES)}; default: all")
    parser.add_argument("--twin", default="direct", metavar="ALGO",
                        help="what verdicts registers twice, or none; default: direct")
    parser.add_argument("--ranks", type=whole(2), default=2,
                        help="of network and compression; default: 2")
    parser.add_argument("--nets", type=batched_nets, metavar="LIST",
                        help="of network and compression, with the images of a rank, as in "
                             "alexnet:16,resnet50:2")
    parser.add_argument("--rates", type=rates, metavar="LIST",
                        help="of network's links, as in 100Mbit,2.5Gbit; default: by net")
    parser.add_argument("--latencies", type=wholes(0), default=[0], metavar="LIST",
                        help="in us, that network's links add where the kernel has netem")
    parser.add_argument("--rank-threads", type=whole(1), metavar="N",
                        help="of a rank in network; default: its cores. With one less, a core is "
                             "left for the exchange. In compression; default: 1")
    parser.add_argument("--batches", type=wholes(1), metavar="LIST",
                        help="of the nets in survey, also report's; default: 1,16,64. Of rnn; "
                             "default: 16 of 1 to 256. Of benchdnn's problems; default: 1")
    parser.add_argument("--lists", type=pathlib.Path, metavar="DIR",
                        help="of benchdnn: tests/benchdnn/inputs of a checkout of oneDNN")
    parser.add_argument("--flops", type=above_0, default=1e8, metavar="N",
                        help="of benchdnn: the most of a problem; default: 1e8")
    parser.add_argument("--steps", type=whole(1), metavar="T", help="of rnn; default: 64")
    parser.add_argument("--hidden", type=wholes(1), metavar="LIST",
                        help="units of rnn, as many as inputs; default: 512,768,2048")
    parser.add_argument("--sections", type=sections, default=list(SECTIONS), metavar="LIST",
                        help=f"of report, some of {','.join(SECTIONS)}; default: all")
    parser.add_argument("--title", help="of report: the machine's name; default: its CPU and ISA")
    parser.add_argument("--small", action="store_true",
                        help=f"smaller nets and products, to try {', '.join(SMALL)}")
    parser.add_argument("--options", type=words, default="", help="more flags for convlab, in one word")
    args = parser.parse_args()

    def stop(*_):
        raise Stopped
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, stop)
    args.micro = args.micro or [FLAGS["--micro"]]
    args.until = time.monotonic() + 60 * args.minutes
    if args.study == "report" and (args.options or args.beside or args.plots):
        parser.error("report takes no --options, --beside or --plots")
    if args.small and args.study not in SMALL:
        parser.error(f"{args.study} takes no --small: expected one of {', '.join(SMALL)}")
    if args.study == "rnn" and args.device != "cpu":
        parser.error(f"rnn --device {args.device}: expected cpu")
    if args.study == "gemm" and args.device not in ("cpu", "cuda"):
        parser.error(f"gemm --device {args.device}: expected cpu, or cuda, which is the first card")
    log = None if args.study == "report" else Log(args.log, args.study, args.only, args.until)
    page = io.StringIO()
    with contextlib.ExitStack() as stack:
        if args.output:
            require_page(args)
            stack.enter_context(contextlib.redirect_stdout(page))
        if not log:
            report(args)
        else:
            studies[args.study](args, log)
            if log.runs:
                print(provenance(log))
    if page.getvalue():
        write_page(args.output, page.getvalue())
    if Log.failures:
        print(f"study.py: failed: {'; '.join(Log.failures)}", file=sys.stderr)
    return 143 if Log.stopped else 1 if Log.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Stopped:  # between two runs
        sys.exit(143)
    except Refused as refused:
        sys.exit(give_up(refused))
    except OSError as error:  # a program that is not there, a folder that cannot be written
        sys.exit(give_up(f"{error.filename or 'the page'}: {error.strerror}"))
