"""problems(), tune(), doctor(), the program, and the exceptions that its exit codes become."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import convlab
import numpy as np
import pytest
import reference
from convlab import program

SMALL = "mb1ic16ih8oc16oh8kh3ph1"
LOG = ("onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,"
       "memory_descriptors,attributes,auxiliary,problem_desc,exec_time\n"
       "onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx512_core,forward_training,"
       "src_f32::blocked:acdb::f0 wei_f32::blocked:Acdb16a::f0 dst_f32::blocked:acdb::f0,,"
       "alg:convolution_direct,mb1_ic16oc16_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1,0.01\n")


def test_problems_of_a_net_a_text_a_list_and_files(tmp_path):
    net = convlab.problems("lenet", batch=2)
    assert len(net) == 3 and all(text.startswith("mb2") for text in net)
    assert convlab.problems(SMALL) == [SMALL]
    assert convlab.problems([SMALL, net[0]]) == [SMALL, net[0]]
    (tmp_path / "layers.txt").write_text(f"# mine\n{SMALL}\n{net[0]}\n")
    assert convlab.problems(tmp_path / "layers.txt") == [SMALL, net[0]]
    (tmp_path / "net.log").write_text(LOG)
    assert convlab.problems(str(tmp_path / "net.log"))[0].startswith(SMALL)


@pytest.mark.parametrize("source, message", [
    ("resnet19", "resnet18"),
    ("--help", "'--help' is no target"),
    ("", "'' is no target"),
    (3, "3 is no target"),
    (None, "None is no target"),
    ([], "problems"),
    ([SMALL + "\n--x"], "one line each"),
    (["mb1"], "mb1"),
])
def test_problems_refused(source, message):
    with pytest.raises(convlab.InputError, match=message) as raised:
        convlab.problems(source)
    assert "\n" not in str(raised.value)


def test_a_bare_word_is_a_net(tmp_path, monkeypatch):
    (tmp_path / "lenet").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    assert len(convlab.problems("lenet")) == 3
    assert convlab.problems("./lenet") == [SMALL]


@pytest.mark.parametrize("option", ["format", "output", "help", "help_"])
def test_what_is_returned_is_no_option(option):
    for verb in (convlab.problems, convlab.tune):
        with pytest.raises(convlab.InputError, match="is no option here: the result is returned"):
            verb(SMALL, **{option: "csv"})


def test_exit_codes_are_not_lost():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(convlab.EnvironmentError, match="SIGCHLD is ignored"):
            convlab.problems(SMALL)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(convlab.InputError, match="no such file"):
        convlab.problems(tmp_path / "missing.onnx")


def test_tune_is_remembered_by_conv2d(random, capfd):
    # An algorithm without OpenBLAS, whose kernels in this process may be others than the program's.
    x, w = random(1, 16, 8, 8), random(16, 16, 3, 3)
    convlab.conv2d(x, w, padding=1, algo="direct_plain")
    assert not convlab.plans()[0]["measured"]
    table = convlab.tune(SMALL, pass_="fwd", algos=["direct_plain"], threads=None)
    assert SMALL in capfd.readouterr().err
    assert len(table) == 1 and table[0]["problem"] == SMALL and table[0]["pass"] == "fwd"
    assert table[0]["ms"] > 0 and table[0]["algo"] == table.json["layers"][0]["chosen"]["algo"]
    assert convlab.plans() == []
    y = convlab.conv2d(x, w, padding=1, algo="direct_plain")
    assert convlab.plans()[0]["measured"]
    assert reference.error(y, reference.conv(x, w, padding=1)) < 1e-4


def test_table():
    table = convlab.tune(["mb1ic4ih6oc4oh6kh3ph1nfirst*2", SMALL], mode="heuristic", progress=False)
    assert len(table) == 6 == len(list(table))
    assert table[0]["layer"] == "first" and table[0]["count"] == 2 and table[0]["verdict"] == "predicted"
    assert json.loads(json.dumps(table.json))["convlab_tune"] == 1
    page = table._repr_html_()
    assert page.count("<tr>") == 7 and SMALL in page
    assert SMALL in repr(table) and "\n" in repr(table)
    frame = pytest.importorskip("pandas") and table.to_pandas()
    assert list(frame["problem"]) == [row["problem"] for row in table]
    assert (frame["ms"] > 0).all()


def test_html_is_escaped():
    assert "<script>" not in convlab.Table({"rows": [{"what": "<script>"}]})._repr_html_()


def test_tune_refused():
    for options, message in [({"speed": 1}, "unknown flag '--speed=?1?'"), ({"max_error": "x"}, "max-error"),
                             ({"algos": ["fast"]}, "fast"), ({"dtype": "int8"}, "int8")]:
        with pytest.raises(convlab.InputError, match=message):
            convlab.tune(SMALL, progress=False, **options)


def test_no_algorithm_is_a_failure():
    with pytest.raises(convlab.Failed) as raised:
        convlab.tune("mb1ic16ih8oc16oh4kh3ph1sh2", algos="strassen", pass_="fwd", progress=False)
    assert raised.value.table[0]["verdict"] == "NONE"


def test_the_environment(tmp_path, monkeypatch):
    with pytest.raises(convlab.EnvironmentError, match="CUDA"):
        convlab.tune(SMALL, device="cuda", progress=False)
    monkeypatch.setattr(program, "PROGRAM", str(tmp_path / "convlab"))
    with pytest.raises(convlab.EnvironmentError, match="No such file"):
        convlab.doctor()


def test_doctor():
    table = convlab.doctor()
    assert {"what", "found", "verdict", "remedy"} <= set(table[0])
    assert any(row["what"] == "cpu" for row in table)


def test_console_script():
    script = os.path.join(os.path.dirname(sys.executable), "convlab")
    done = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("convlab ")
    assert subprocess.run([script, "nothing"], capture_output=True).returncode == 2


def test_ctrl_c_ends_tune_and_keeps_what_was_measured():
    # A shell's background job, as CI may be, ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def press():
        time.sleep(4)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as raised:
        convlab.tune("resnet50", batch=16, progress=False)
    assert time.monotonic() - begin < 600  # not hours
    assert isinstance(raised.value, convlab.Interrupted)
    table = raised.value.table
    assert table is None or not table.json["totals"]["complete"]


def test_ctrl_c_during_a_convolution():
    """The interpreter takes it between two calls."""
    code = ("import numpy as np, convlab, signal, time\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "x = np.ones((8, 32, 64, 64), 'f4'); w = np.ones((32, 32, 3, 3), 'f4')\n"
            "convlab.conv2d(x, w)\n"
            "print('ready', flush=True)\n"
            "end = time.monotonic() + 300\n"
            "while time.monotonic() < end: convlab.conv2d(x, w)\n")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=600)
    assert "KeyboardInterrupt" in error and process.returncode == -signal.SIGINT


def test_a_forked_process_is_refused():
    code = ("import numpy as np, convlab, os\n"
            "x = np.ones((1, 4, 8, 8), 'f4'); w = np.ones((4, 4, 3, 3), 'f4')\n"
            "convlab.conv2d(x, w)\n"
            "if os.fork() == 0:\n"
            "  try: convlab.conv2d(x, w)\n"
            "  except convlab.EnvironmentError as e: os._exit('forked' in str(e))\n"
            "  os._exit(2)\n"
            "os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n")
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 1


def test_a_damaged_store_is_named(tmp_path):
    (tmp_path / "tune.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    code = ("import numpy as np, convlab\n"
            "try: convlab.conv2d(np.ones((1, 4, 8, 8), 'f4'), np.ones((4, 4, 3, 3), 'f4'))\n"
            "except convlab.InputError as e: print(e)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "CONVLAB_DB": str(tmp_path / "tune.db")}, timeout=60)
    assert "tune.db" in done.stdout, done.stderr
